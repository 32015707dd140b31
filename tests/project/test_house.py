"""The shape of the package: small folders, one class for each name, docstrings that begin with a verb."""

import ast
import builtins
import functools
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ffrecord"
SOURCE_ENDS = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".h", ".c", ".js", ".css", ".html"}
PYTHON = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)
AT_TOP = {"__init__", "__main__", "_aio", "_crc", "errors", "fileio", "package", "reader", "utils"}
MOST_FILES = 25
SMALL = 60  # lines
# Words that begin a clause in place of a verb, and docstrings that mean nothing without their neighbour.
CLAUSES = {"what", "where", "how", "who", "that", "those", "as", "of", "which", "when", "whether", "if"}
NEIGHBOURS = re.compile(r"(see above|the same|as `|an? \w+ one\b|those|that of|one of (them|these))", re.IGNORECASE)


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules; not at the top, where each process that collects tests would parse and keep them."""
    return {path: ast.parse(path.read_text()) for path in PYTHON}


def sources() -> list[Path]:
    """Return the files of the package that are written by hand."""
    found = [path for path in PACKAGE.rglob("*") if path.suffix in SOURCE_ENDS and "__pycache__" not in path.parts]
    made = {path.with_suffix(".c") for path in found if path.suffix == ".pyx"} | {PACKAGE / "_cython_shared.c"}
    return [path for path in found if path not in made]


def test_folders_are_small() -> None:
    counts = Counter(path.parent for path in sources())
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_folders_are_three_deep_at_most() -> None:
    assert [path for path in sources() if len(path.relative_to(PACKAGE).parts) > 3] == []


def test_nothing_else_is_at_the_top() -> None:
    assert {path.name.partition(".")[0] for path in sources() if path.parent == PACKAGE} == AT_TOP


def test_tests_mirror_the_folders() -> None:
    """A folder of the name of a package that tests import, such as torch, ends in `_side`."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    there = {path.parent.name.removesuffix("_side") for path in (ROOT / "tests").glob("*/test_*.py")}
    assert [folder for folder in folders if folder not in there] == []


def test_a_class_name_means_one_thing() -> None:
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(str(path.relative_to(PACKAGE)))
    for path in sources():
        if path.suffix in {".pyx", ".pxi"}:
            for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(), re.MULTILINE):
                homes[name].add(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def docstrings() -> list[tuple[str, str]]:
    """Return the docstring of each function and class, with its place."""
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
                found.append((f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", ast.get_docstring(node) or ""))
    return found


def test_docstrings_do_not_begin_as_clauses() -> None:
    wrong = [place for place, text in docstrings() if text.split()[0].lower().strip(",.:;") in CLAUSES]
    assert wrong == []


def test_docstrings_stand_alone() -> None:
    assert [place for place, text in docstrings() if NEIGHBOURS.match(text)] == []


def test_maps_of_folders_name_their_modules() -> None:
    """The docstring of a folder names all of its modules, and none that is gone; commands have a table instead."""
    wrong = {}
    for path in PYTHON:
        named = set(re.findall(r"\w+\.(?:pyx|pxi|py)\b", ast.get_docstring(trees()[path]) or ""))
        if path.name == "__init__.py" and path.parent not in {PACKAGE, PACKAGE / "cli/commands"}:
            there = {
                each.name for each in sources() if each.parent == path.parent and each.suffix in {".py", ".pyx", ".pxi"}
            }
            if named ^ there - {"__init__.py"}:
                wrong[str(path.relative_to(ROOT))] = named ^ there - {"__init__.py"}
    assert wrong == {}


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, by their full names."""
    names = set()
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_small_modules_have_several_importers() -> None:
    """A small module that one other imports is a part of that one."""
    importers: Counter[str] = Counter(name for path in PYTHON for name in imported(path))
    small = []
    for path in PYTHON:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.stem.startswith("__") or path.parent == PACKAGE or "commands" in path.parts:
            continue
        if importers[name] == 1 and len(path.read_text().splitlines()) < SMALL:
            small.append(name)
    assert small == []


def test_subjects_of_commits_are_short() -> None:
    """The last commits, where there is a history."""
    ran = subprocess.run(["git", "log", "-50", "--format=%s"], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip("there is no history here")
    assert [line for line in ran.stdout.splitlines() if len(line) > 72] == []


NAMED = re.compile(r"((?:[A-Z]\w*, )*[A-Z]\w*)[^a-z]*:")  # the names that begin an entry of "Raises:"


def names_raised(docstring: str) -> Iterator[str]:
    """Yield the names of the errors that a docstring lists."""
    listed, margin = False, 0
    for line in docstring.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text == "Raises:":
            listed, margin = True, indent
        elif text and indent <= margin:
            listed = False
        elif listed and indent == margin + 4 and (found := NAMED.match(text)):
            yield from re.findall(r"\w+", found[1])


def test_errors_that_docstrings_name_exist() -> None:
    nodes = [(path, node) for path, tree in trees().items() for node in ast.walk(tree)]
    known = {node.name for _, node in nodes if isinstance(node, ast.ClassDef)} | set(dir(builtins))
    unknown = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, node in nodes
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        for name in names_raised(ast.get_docstring(node) or "")
        if name not in known
    ]
    assert unknown == []


def test_names_that_docstrings_raise_are_found() -> None:
    text = (
        "Do it.\n\nRaises:\n    OSError, NotHere: it is away.\n        KeyError: no name\n    ValueError: x\n\nIt: y."
    )
    assert list(names_raised(text)) == ["OSError", "NotHere", "ValueError"]
