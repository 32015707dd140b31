"""What the tests of the guarantees counted: kills, injected errors, mutations, the longest wait."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def counts(everyday: int, long: int) -> pytest.MarkDecorator:
    """Run a test with `count` = everyday in each run, and with `count` = long where `-m long` asks for it."""
    return pytest.mark.parametrize("count", [everyday, pytest.param(long, marks=pytest.mark.long)])


def left_to_long(works: Iterable[str], *left: str) -> list[Any]:
    """Return works as parameters of a test. Those in `left` are only done where `-m long` asks for them."""
    return [pytest.param(work, marks=pytest.mark.long) if work in left else work for work in works]


class Counted:
    """Figures of one test, each under a name that docs/guarantees.md shows."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = defaultdict(int)
        self.most: dict[str, float] = {}

    def add(self, name: str, number: int = 1) -> None:
        """That much more of it."""
        self.sums[name] += number

    def at_most(self, name: str, value: float) -> None:
        """Of such values the largest is kept, seconds for instance."""
        self.most[name] = max(value, self.most.get(name, value))

    def append(self, path: Path, test: str, seconds: float) -> None:
        """One line for this test."""
        _append(path, {"test": test, "seconds": round(seconds, 3), "sums": self.sums, "most": self.most})


def append_skipped(path: Path, test: str, reason: str) -> None:
    """One line for a test that could not run here."""
    _append(path, {"test": test, "skipped": reason, "seconds": 0, "sums": {}, "most": {}})


def _append(path: Path, line: dict[str, Any]) -> None:
    """To a file in a directory that is made if need be; lines of several processes do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
