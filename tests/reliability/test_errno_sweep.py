"""T4 (guarantees G2, G6): every system call of readers and writers fails, the first, the second ... of each kind.

Once and for good, with every error that makes sense; in the build with faults, see faults.py.
"""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import faults
import figures
import pytest

WRITTEN = """
import json, logging, sys
from pathlib import Path
import sweeping, written_works

logging.disable()
work = written_works.works(Path(sys.argv[1]) / "d")[sys.argv[2]]()
numbers, left_out = json.loads(sys.argv[3])
sites = [site for site in sweeping.used(work) if site not in left_out]
print(sweeping.sweep(work, sites, numbers or sweeping.NUMBERS))
"""
# Everyday in works of many calls, which handle all errors alike.
FEW = (errno.EIO,)
# Of names, which are many, and what fails there is a file that seems not to be there.
NAMES = ("stat", "lstat")
FILES = [
    "file of n",
    "file, flushed",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("file", "file of n, flushed")),
]
OTHERS = ["recover", "pack", "dataset", "append", "tfrecord", "recordio", "recordio, appended"]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory of tmpfs, where there is one: an fsync costs nothing."""
    if not os.path.isdir("/dev/shm"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


def sweep(directory: Path, work: str, numbers: tuple[int, ...] = (), left_out: tuple[str, ...] = ()) -> int:
    """How many calls failed."""
    return int(faults.run(WRITTEN, directory, work, json.dumps((numbers, left_out)), timeout=600))


@pytest.mark.parametrize("work", FILES)
def test_writers_of_a_file(memory: Path, counted: figures.Counted, work: str) -> None:
    """The error with its errno and the file's name; the old file stays, unless only the directory's fsync failed."""
    injected = sweep(memory, work)
    assert injected > 600
    counted.add("injected errors", injected)


@pytest.mark.parametrize("work", OTHERS)
def test_all_else_that_publishes(memory: Path, counted: figures.Counted, work: str) -> None:
    injected = sweep(memory, work, FEW, NAMES)
    assert injected > 15
    counted.add("injected errors", injected)


@pytest.mark.long
@pytest.mark.parametrize("work", [*OTHERS, "dataset of workers"])
@pytest.mark.timeout(900)
def test_all_else_with_every_error(memory: Path, counted: figures.Counted, work: str) -> None:
    counted.add("injected errors", sweep(memory, work, (errno.EIO,) if "workers" in work else ()))
