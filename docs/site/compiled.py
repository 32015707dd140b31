"""An extension of Griffe: finds docstrings where they are, and keeps what ours say without a colon."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, Extension, Function, Module, Object

QUIET = {"warnings": False, "returns_multiple_items": False, "returns_named_value": False}  # as in mkdocs.yml
RAISES = re.compile(r"(?<=^Raises:\n)(?:    .*\n?)+", re.MULTILINE)
SENTENCE = re.compile(r"^ {4}(?=[A-Z][^:\n]*$)", re.MULTILINE)
GOES_ON = re.compile(r"^ {4}(?=[a-z][^:\n]*$)", re.MULTILINE)


class Compiled(Extension):
    """Gives what has no docstring the one that `help` would show."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Fill in what was read from stubs, and methods that are described in another class."""
        for module in stubs(pkg):
            fill(module, import_module(module.path))
        inherit(pkg)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Keep sentences such as "As `read`." below "Raises:", which Griffe drops unless they have a colon."""
        if obj.docstring:
            obj.docstring.value = with_colons(obj.docstring.value)


def stubs(package: Module) -> Iterator[Module]:
    """Yield the modules of a package, in all its folders, that were read from stubs."""
    for module in package.modules.values():
        if not module.is_alias:
            if isinstance(module.filepath, Path) and module.filepath.suffix == ".pyi":
                yield module
            yield from stubs(module)


def with_colons(docstring: str) -> str:
    """A docstring in which every error has a colon, and lines that go on are indented."""
    return RAISES.sub(lambda section: GOES_ON.sub(" " * 8, SENTENCE.sub("    …: ", section[0])), docstring)


def fill(described: Module | Class, real: object) -> None:
    """Add docstrings to the public members of a module or class, and to theirs."""
    for name, member in described.members.items():
        there = getattr(real, name, None)
        if name.startswith("_") or member.is_alias or member.docstring:
            continue
        if inspect.isroutine(there) or inspect.isdatadescriptor(there) or inspect.isclass(there):
            said = with_colons(inspect.getdoc(there) or "")
            member.docstring = Docstring(said, parent=member, parser="google", parser_options=QUIET)
        if isinstance(member, Class):
            fill(member, there)


def inherit(described: Module | Class) -> None:
    """Give methods without a docstring that of the method they stand in for, as `help` does."""
    for name, member in described.members.items():
        if isinstance(member, Module | Class):
            inherit(member)
        elif isinstance(described, Class) and isinstance(member, Function) and not member.has_docstring:
            above = (base.members[name] for base in described.mro() if name in base.members)
            member.docstring = next((one.docstring for one in above if one.has_docstring), None)
