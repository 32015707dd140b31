"""List every text that the package says: exceptions, warnings, log lines and help, with the place of each.

`python tests/project/messages.py` prints a line for each: kind, file, line and text. Holes for values are in braces.
Read it from top to bottom to find two wordings for one fault, or a message that does not say what to do.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LOGS = {"debug", "info", "warning", "error", "exception"}
HELP = {"help", "description", "epilog"}
WORDS_LEAST = 2  # shorter texts are names
COMPILED = re.compile(r'raise \w+\(.*?f?"((?:[^"\\]|\\.)*)"')


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
    """Return what a call says its texts to: "error", "log", "warning"; "" for anything else."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner in ("logger", "_log", "logging") and name in LOGS:
        return "log"
    if name == "warn" and owner == "warnings":
        return "warning"
    return "error" if name.endswith(("Error", "_error", "Interrupt")) else ""


def messages_of(path: Path) -> Iterator[Message]:
    """Find the texts of one module."""
    file = str(path.relative_to(ROOT))
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        kind = kind_of(node)
        said = [*node.args, *(each.value for each in node.keywords)] if kind else []
        found = [(kind, text_of(each), each.lineno) for each in said]
        found += [("help", text_of(each.value), each.value.lineno) for each in node.keywords if each.arg in HELP]
        for each, text, line in found:
            if len(text.split()) >= WORDS_LEAST:
                yield Message(each, file, line, " ".join(text.split()))


def compiled_messages_of(path: Path) -> Iterator[Message]:
    """Find the texts of the errors of a Cython module, which Python cannot parse."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = COMPILED.search(line)
        if found and len(found[1].split()) >= WORDS_LEAST:
            yield Message("error", str(path.relative_to(ROOT)), number, found[1])


def all_messages() -> list[Message]:
    """Find the texts of the package, sorted by their words."""
    package = ROOT / "ffrecord"
    found = {each for path in package.rglob("*.py") for each in messages_of(path)}
    found |= {
        each for end in ("pyx", "pxi") for path in package.rglob(f"*.{end}") for each in compiled_messages_of(path)
    }
    return sorted(found, key=lambda each: (each.kind, each.text))


if __name__ == "__main__":
    for each in all_messages():
        sys.stdout.write(f"{each.kind:8}{each.file}:{each.line}: {each.text}\n")
