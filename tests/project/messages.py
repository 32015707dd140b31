"""List every text that the package says: errors, warnings, log lines, help, output and pages, each with its place.

`python tests/project/messages.py` prints a line for each: kind, file, line and text. Holes for values are in braces.
Read it from top to bottom to find two wordings for one fault, or a message that does not say what to do.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LOGS = {"debug", "info", "warning", "error", "exception"}
HELP = {"help", "description", "epilog"}
OUTPUT = {"line", "remark", "wrap", "progress", "table"}  # methods of the output of a command
SHOWN = {"__str__", "verdict"}  # methods whose text programs print
COMMANDS = "ffrecord/cli/"
SUMMARIES = {"COMMANDS"}  # tables of the texts of commands
WORDS_LEAST = 2  # shorter texts are names
# The first texts of a `raise` of Cython, on its line or the next ones.
COMPILED = re.compile(r'raise \w+\([^"\n]*((?:\s*f?"(?:[^"\\]|\\.)*")+)')
QUOTED = re.compile(r'f?"((?:[^"\\]|\\.)*)"')
# Of a page: what stands between tags, and in attributes that people see or hear.
TAGGED = re.compile(r'>([^<>{}]+)<|(?:aria-label|title|placeholder)="([^"]+)"')
# Of a script: strings that begin like a sentence or a word. Names of classes and addresses do not have two words.
SCRIPTED = re.compile(r"""["`]([A-Za-z][^"`\n]*)["`]""")
CODE = re.compile(r"use strict|^[a-z]+ (unknown|waiting|two|wide|soft)$|translate\(|\?\$\{|^input, ")


class Message(NamedTuple):
    """One text, and where it is."""

    kind: str
    file: str
    line: int
    text: str


def text_of(node: ast.AST) -> str:
    """Return the text of an expression, with its holes in braces; "" if it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else text_of(part)
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return text_of_helper(node) if isinstance(node, ast.Call) else ""


def text_of_helper(call: ast.Call) -> str:
    """Return the text that `describe_wrong` or `mismatch` makes of its arguments; "" for other calls."""
    name = getattr(call.func, "id", "")
    said = [text_of(each) or f"{{{ast.unparse(each)}}}" for each in call.args]
    if name == "describe_wrong":
        return "; ".join([f"{said[0]} is {said[1]}, expected {said[2]}", *said[3:]])
    if name == "mismatch":
        return "; ".join([f"{said[1]}, expected {{{ast.unparse(call.args[0])}.expects}}", *said[2:]])
    return ""


def kind_of(call: ast.Call) -> str:
    """Return what a call says its texts to: "error", "log", "output", "warning"; "" for anything else."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner in ("logger", "_log", "logging") and name in LOGS:
        return "log"
    if name == "warn" and owner == "warnings":
        return "warning"
    if name in OUTPUT and owner.removeprefix("self.").lstrip("_") in ("out", "output"):
        return "output"
    return "error" if name.endswith(("Error", "_error", "Interrupt")) else ""


def named_texts(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Return name → expressions that a module assigns to it: parts of messages that are made before they are said."""
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
            continue
        for each in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(each, ast.Name):
                found[each.id] += choices(node.value)
    return found


def choices(node: ast.AST) -> list[ast.AST]:
    """Return the expressions of which one is the value: both of `a if b else c`, all of a dict, or the node itself."""
    if isinstance(node, ast.IfExp):
        return [*choices(node.body), *choices(node.orelse)]
    if isinstance(node, ast.Dict):
        return [each for value in node.values for each in choices(value)]
    return [each for item in node.elts for each in choices(item)] if isinstance(node, ast.Tuple) else [node]


def parts_of(node: ast.AST, named: dict[str, list[ast.AST]]) -> Iterator[ast.AST]:
    """Yield an expression, and those that its names stand for."""
    for each in choices(node):
        yield each
        holes = [part.value for part in ast.walk(each) if isinstance(part, ast.FormattedValue)]
        for hole in [each, *holes]:
            names = {inner.id for inner in ast.walk(hole) if isinstance(inner, ast.Name)}
            for name in sorted(names & named.keys()):
                yield from named[name]


def said_by(tree: ast.AST, named: dict[str, list[ast.AST]], *, prints: bool) -> Iterator[tuple[str, ast.AST]]:
    """Yield (kind, expression) for all that a module says; `prints` if its functions make the output of commands."""
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            kind = "error" if id(node) in raised else kind_of(node)
            said = [*node.args, *(each.value for each in node.keywords)] if kind else []
            yield from ((kind, part) for each in said for part in parts_of(each, named))
            told = [each.value for each in node.keywords if each.arg in HELP]
            yield from (("help", part) for each in told for part in parts_of(each, named))
        if isinstance(node, ast.FunctionDef) and (node.name in SHOWN or prints):
            given = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
            yield from (("output", part) for each in given for part in parts_of(each, named))
    yield from (("help", each) for name in SUMMARIES & named.keys() for each in named[name])


def messages_of(path: Path) -> Iterator[Message]:
    """Find the texts of one module."""
    file, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
    for kind, node in said_by(tree, named_texts(tree), prints=file.startswith(COMMANDS)):
        text = " ".join(text_of(node).split())
        if len(text.split()) >= WORDS_LEAST:
            yield Message(kind, file, node.lineno, text)  # type: ignore[attr-defined]


def compiled_messages_of(path: Path) -> Iterator[Message]:
    """Find the texts of the errors of a Cython module, which Python cannot parse."""
    source = path.read_text()
    for found in COMPILED.finditer(source):
        text = "".join(QUOTED.findall(found[1]))
        if len(text.split()) >= WORDS_LEAST:
            yield Message("error", str(path.relative_to(ROOT)), source.count("\n", 0, found.start()) + 1, text)


def page_messages_of(path: Path) -> Iterator[Message]:
    """Find the texts of the page of `ffrecord view`."""
    form = TAGGED if path.suffix == ".html" else SCRIPTED
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for found in form.finditer(line):
            text = next(filter(None, found.groups())).strip()
            if len(text.split()) >= WORDS_LEAST and not CODE.search(text):
                yield Message("page", str(path.relative_to(ROOT)), number, text)


def all_messages() -> list[Message]:
    """Find the texts of the package, sorted by their words."""
    package, found = ROOT / "ffrecord", set[Message]()
    readers = {"py": messages_of, "pyx": compiled_messages_of, "pxi": compiled_messages_of}
    for end, read in {**readers, "html": page_messages_of, "js": page_messages_of}.items():
        found |= {each for path in package.rglob(f"*.{end}") for each in read(path)}
    return sorted(found, key=lambda each: (each.kind, each.text))


if __name__ == "__main__":
    for each in all_messages():
        sys.stdout.write(f"{each.kind:8}{each.file}:{each.line}: {each.text}\n")
