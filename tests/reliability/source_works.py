"""What test_errno_sweep_formats.py has done again and again: files of every other format, opened and read."""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sweeping import Change, Fault, Work

import ffrecord
from ffrecord import FFRecordError

sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))
import every_format

# A look at a path that fails, and the path seems not to be there; or a directory, and it seems to be no such dataset.
LOOKS = ("stat", "lstat", "fstat", "listdir", "scandir")


def plain(value: Any) -> Any:
    """Comparable, and a copy."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | memoryview):
        return bytes(value)
    return value


class ReadingStore:
    """A file or directory is opened, read and closed.

    Args:
        path, options: as `ffrecord.open` takes them.
    """

    beside: Sequence[Fault] = ()

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self.do()
        self.wanted = self.got

    def prepare(self) -> None:
        """Nothing is changed by it."""

    def do(self) -> None:
        with ffrecord.open(self.path, **self.options) as store:
            self.got = plain([store.read_one(store.n - 1), store.read(range(store.n)), store.samples([0])])

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is None:
            assert self.got == self.wanted, "wrong bytes"
        elif isinstance(error, MemoryError):
            assert site in ("malloc", "mmap", "munmap"), repr(error)
        else:
            assert change.action == "fail" and isinstance(error, OSError | FFRecordError), repr(error)
            # A list's paths may be relative to the working directory.
            assert str(self.path.parent) in str(error) or os.getcwd() in str(error), repr(error)
            number = errno.ENOMEM if site == "malloc" else change.value
            right = isinstance(error, OSError) and error.errno == number
            assert right or site in LOOKS, repr(error)
            assert change.value != errno.EINTR or site not in ("read", "pread", "preadv"), "a signal is no error"
        self.do()
        assert self.got == self.wanted, "wrong bytes afterwards"


def made(directory: Path, name: str) -> ReadingStore:
    """Of a format of every_format.py; in a directory of its own."""
    place = directory / name.replace(" ", "-")
    place.mkdir(parents=True)
    if name in every_format.FORMATS:
        _, make, options = every_format.FORMATS[name]
        return ReadingStore(make(place), options)
    _, file, options, _ = every_format.SEEDS[name]
    given = every_format.GOLDEN / file
    (shutil.copytree if given.is_dir() else shutil.copy)(given, place / file)
    return ReadingStore(place / file, options)


def works(directory: Path) -> dict[str, Callable[[], Work]]:
    """All of them that can be made here, by name."""
    names = [name for name in (*every_format.FORMATS, *every_format.SEEDS) if name not in every_format.LACKING]
    return {name: partial(made, directory, name) for name in names}
