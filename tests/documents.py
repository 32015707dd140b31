"""The code in Markdown files. `python documents.py FILE` runs the Python blocks of one, in order, as one program.

A block that begins with `>>>` is a doctest in the same namespace. One with a title, such as `python train.py`, becomes
a file of that name in the working directory, and is not run. Of a `console` block each line after `$ ` is run by bash
there, and must print what follows; `...` stands for anything. What is not to be run is called neither.
"""

import doctest
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import preloaded
from preloaded import run_preloaded

ROOT = Path(__file__).parents[1]
DECISIONS = ROOT / "docs" / "decisions"
FENCE = re.compile(r"^```(\w*) *(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, what else stands in its first line, the number of the line after that, its text."""

    language: str
    title: str
    line: int
    text: str


def documents() -> list[Path]:
    """Every Markdown file that people read."""
    patterns = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "tests/PEERS.md", "tests/reliability/TESTS.md")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def contents() -> list[Path]:
    """The documents that navigation and contents list. Decisions and tables have a page that lists them."""
    indexed = {DECISIONS, ROOT / "benchmarks" / "tables", ROOT / "tests" / "reliability"}
    return [path for path in documents() if path.parent not in indexed or path.name == "README.md"]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document."""
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2].strip(), text.count("\n", 0, found.start(3)) + 1, found[3])


def run_elsewhere(path: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run a document in a process of its own, in `directory`, with warnings as errors."""
    return run_preloaded(Path(__file__), str(path), directory=directory)


def run_afresh(path: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    """The same, where nothing has been imported before."""
    command = [sys.executable, *preloaded.WARNINGS, __file__, str(path)]
    variables = {**os.environ, **preloaded.VARIABLES}
    return subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=240, check=False
    )


def run_here(path: Path) -> None:
    """Run the Python blocks of a document in this process.

    Raises:
        Whatever they raise; tracebacks name the document and its lines.
    """
    text = path.read_text()
    names = vars(sys.modules["__main__"])
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    for block in blocks(text):
        if block.language == "console":
            run_console(block, path)
        if block.language != "python":
            continue
        if block.title:
            Path(block.title).write_text(block.text)
        elif block.text.startswith(">>>"):
            run_doctest(block, names, path)
        else:
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)


def run_doctest(block: Block, names: dict[str, object], path: Path) -> None:
    """Run a block of `>>>` lines; raises if it does not print what the block says."""
    test = doctest.DocTestParser().get_doctest(block.text, names, path.name, str(path), block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, clear_globs=False)
    names.update(test.globs)
    if runner.failures:
        raise AssertionError(f"{path}: the block at line {block.line} prints something else")


def run_console(block: Block, path: Path) -> None:
    """Run the commands of a block; raises if one does not print what the block says."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        shell = (
            f'ffrecord() {{ "{sys.executable}" -m ffrecord "$@"; }}; python() {{ "{sys.executable}" "$@"; }}; {command}'
        )
        shell = f"exec 2>&1; {shell}"
        said = subprocess.run(["bash", "-c", shell], stdout=subprocess.PIPE, text=True, timeout=120, check=False).stdout
        if not doctest.OutputChecker().check_output(wanted, said, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE):
            raise AssertionError(
                f"{path}, the block at line {block.line}: {command!r} prints\n{said}\nexpected\n{wanted}"
            )


def broken_links(path: Path) -> list[str]:
    """Links of a document to files that are not in the tree, or to headings that are not in the file."""
    return [target for target in LINK.findall(prose(path.read_text())) if not leads_somewhere(path, target)]


def prose(text: str) -> str:
    """A document without its fenced blocks."""
    return FENCE.sub("", text)


def leads_somewhere(path: Path, target: str) -> bool:
    """Whether the target of a link is in the tree; addresses elsewhere are not looked at."""
    if re.match(r"https?:", target):
        return True
    name, _, anchor = target.partition("#")
    file = (path.parent / name).resolve() if name else path
    return file.exists() and (not anchor or anchor in anchors(file.read_text()))


def anchors(text: str) -> set[str]:
    """What the headings of a document can be linked as."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose(text))}


if __name__ == "__main__":
    run_here(Path(sys.argv[1]))
