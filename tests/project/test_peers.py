"""The tables of docs/peers.md and tests/PEERS.md: their tests and names are there, and no row is without."""

import importlib
import re
from functools import cache
from typing import Any

import pytest
from documents import ROOT, prose

FEATURES = prose((ROOT / "docs" / "peers.md").read_text())
DEFECTS = prose((ROOT / "tests" / "PEERS.md").read_text())
TEXT = FEATURES + DEFECTS
SHOWN = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)")
NAMED = re.compile(r"`(?:test_\w+\.py::)?(test_\w+)`")
SYSTEMS = ["FFCV", "DareBlopy", "RecordIO", "TorchRecord", "MDS", "WebDataset"]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables whose last column is "shown by"."""
    found = []
    for table in re.findall(r"^\|.*\| shown by \|\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE):
        found += [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
    return found


@cache
def defined_in(file: str) -> set[str]:
    """Names of the test functions of a file."""
    return set(re.findall(r"^def (test_\w+)\(", (ROOT / file).read_text(), re.MULTILINE))


@cache
def defined() -> set[str]:
    """Names of all test functions."""
    return {name for path in (ROOT / "tests").rglob("test_*.py") for name in defined_in(str(path.relative_to(ROOT)))}


def absent(text: str) -> list[str]:
    """Tests that a page names or leads to, and that are not there."""
    named = sorted(set(NAMED.findall(text)) - defined())
    linked = sorted({(file, name) for name, file in SHOWN.findall(text)})
    return [
        *named,
        *(f"{file}::{name}" for file, name in linked if not (ROOT / file).is_file() or name not in defined_in(file)),
    ]


def unfounded(text: str) -> list[str]:
    """Rows that neither name a test nor say that there is no such thing, and those that say nothing else."""
    wrong = []
    for there, here, shown in rows(text):
        if not (there and here) or not (SHOWN.search(shown) or NAMED.search(shown) or "not here" in here):
            wrong.append(there)
        elif re.fullmatch(r"not here\W*", here):
            wrong.append(f"{there}: what to use instead?")
    return wrong


def test_tests_are_there():
    assert absent(TEXT) == []


def test_no_row_is_without_a_test():
    assert unfounded(TEXT) == []


def test_every_system_has_its_tables():
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", FEATURES, re.MULTILINE | re.DOTALL))
    assert {name for name in SYSTEMS if len(rows(sections[name])) < 10} == set()
    assert len(rows(DEFECTS)) > 80


def names() -> list[str]:
    return sorted(set(re.findall(r"`(ffrecord\.[\w.]+)", TEXT)))


@pytest.mark.parametrize("name", names())
def test_names_exist(name):
    """Modules, classes, functions, methods."""
    if name.startswith("ffrecord.torch"):
        pytest.importorskip("torch")
    parts = name.split(".")
    found: Any = importlib.import_module("ffrecord")
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:i]))
        found = getattr(found, part)


# The checks themselves

TABLE = "| a | here | shown by |\n|---|---|---|\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| x | y | [test_names_exist](../tests/project/test_peers.py) |", []),
        ("| x | y | `test_names_exist` |", []),
        ("| x | not here: z | |", []),
        ("| x | y | |", ["x"]),
        ("| x | y | some test |", ["x"]),
        ("| x | not here | |", ["x: what to use instead?"]),
    ],
)
def test_rows_without_tests_are_found(row, expected):
    assert unfounded(TABLE + row + "\n") == expected


def test_tests_that_are_not_there_are_found():
    here = "../tests/project/test_peers.py"
    links = (
        f"[test_rows]({here}) [rows]({here}) [test_it](../tests/test_nothing.py) `test_of_nobody` `test_names_exist`"
    )
    assert absent(links) == [
        "test_of_nobody",
        "tests/project/test_peers.py::rows",
        "tests/project/test_peers.py::test_rows",
        "tests/test_nothing.py::test_it",
    ]
