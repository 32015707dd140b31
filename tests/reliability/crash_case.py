"""A write that crash tests interrupt: what is there before, the work, and what must be true afterwards.

What is expected is kept here, outside the store, and files are read by the twin, which uses nothing of ffrecord.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import ffr_twin

DONE = 1 << 40  # said when the work has returned; smaller numbers: so many samples were flushed
Say = Callable[[int], None]
Tree = dict[str, bytes]
OLD = [b"old"]


def tree(directory: Path) -> Tree:
    """Every file below a directory, by path."""
    found = {}
    for path, _, names in os.walk(directory):
        for name in names:
            file = Path(path) / name
            found[str(file.relative_to(directory))] = file.read_bytes()
    return found


def parse(path: Path) -> list[bytes]:
    return ffr_twin.parse(path.read_bytes())


class Case(ABC):
    """One kind of write, in a directory of its own.

    Args:
        place: a directory that `fresh` empties.
    """

    parallel = False  # whether there are workers

    def __init__(self, place: Path) -> None:
        self.place = place
        self._before: Path | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Make what is there before; done once."""

    @abstractmethod
    def work(self, say: Say) -> None:
        """The write."""

    @abstractmethod
    def check(self, said: int, synced: bool = False) -> None:
        """What must be true after an interruption, then go on, and what must be true in the end.

        Args:
            said: the last that the work said.
            synced: whether the directory is as a power cut left it, in which removals may not have come about.
        """

    def fresh(self) -> None:
        """As it is before."""
        shutil.rmtree(self.place, ignore_errors=True)
        if self._before is None:
            self.place.mkdir()
            self.prepare()
            self._before = self.place.with_name(f"{self.place.name} before")
            shutil.rmtree(self._before, ignore_errors=True)
            shutil.copytree(self.place, self._before, symlinks=True)
        else:
            shutil.copytree(self._before, self.place, symlinks=True)

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.place))


def record(index: int) -> bytes:
    return index.to_bytes(4, "little") * (1 + index * 7919 % 23)
