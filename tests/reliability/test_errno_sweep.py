"""T4 (guarantees G2, G6): every system call of readers and writers fails, the first, the second ... of each kind.

Once and for good, with every error that makes sense; in the build with faults, see faults.py.
"""

import errno
import json
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
numbers, left_out, how = json.loads(sys.argv[3])
sites = [site for site in sweeping.used(work) if site not in left_out]
print(getattr(sweeping, how)(work, sites, sweeping.errors(numbers or sweeping.NUMBERS)))
"""
READ = """
import json, logging, sys
from pathlib import Path
import read_works, sweeping

logging.disable()
for name in json.loads(sys.argv[2]):
    work = read_works.works(Path(sys.argv[1]))[name]()
    # Making a context takes 30 ms; what else there is, the others have.
    sites = ["io_setup"] if "afresh" in name else sweeping.used(work)
    print(name, getattr(sweeping, sys.argv[3])(work, sites, sweeping.errors()))
"""
WRITE_BACK = """
import errno, sys
from sweeping import Change, faults
from ffrecord.writing._buffers import write_back

def told(number):
    with faults(("sync_file_range", 1, Change("fail", number, False))):
        return write_back(file.fileno(), 0, 4096, True)

with open(sys.argv[1], "w+b") as file:
    file.write(bytes(4096))
    works = write_back(file.fileno(), 0, 4096, True)
    assert told(errno.EINTR) == works
    for number in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.EBADF):
        assert told(number) is False
    for name in ("EIO", "ENOSPC", "EDQUOT", "EFBIG", "ENODATA", "EREMOTEIO", "ENOLINK", "ETIMEDOUT", "ESTALE"):
        try:
            told(getattr(errno, name))
        except OSError as error:
            assert error.errno == getattr(errno, name), error
        else:
            raise AssertionError(f"{name} was lost")
"""
LOCKS = """
import errno, sys
from pathlib import Path
import sweeping, written_works

work = written_works.works(Path(sys.argv[1]) / "d")[sys.argv[2]]()
refused = sweeping.Change("fail", errno.EAGAIN, True)
print(sweeping.sweep(work, ["flock", "stat", "fstat"], [refused]))
"""
FORKS = """
import errno, sys
from pathlib import Path
import sweeping
from ffrecord.system import _calls
from written_works import Change, Dataset

options = {"num_workers": 3, "start_method": "fork"}
work = Dataset(Path(sys.argv[1]) / "d", [b"x" * i for i in range(25)], options, False)
print(sweeping.sweep(work, ["fork"], sweeping.errors((errno.EAGAIN, errno.ENOMEM))))
"""
# Everyday in works of many calls, which handle all errors alike.
FEW = (errno.EIO,)
# Of names, which are many, and what fails there is a file that seems not to be there.
NAMES = ("stat", "lstat")
FILES = ["file of n", "file, flushed"]
MORE_FILES = ["file", "file of n, flushed"]
EVERYDAY = ["recover", "pack", "dataset", "append", "tfrecord", "recordio"]
OTHERS = [*EVERYDAY, "dataset of one size", "recordio, appended"]


READ_EVERYDAY = [("pread", "extension block", "auto, in sequence"), ("direct",), ("mmap", "images")]


IN_TURNS = "sweep_in_turns"  # every call fails, every error comes; not every call with every error


def sweep(
    directory: Path, work: str, numbers: tuple[int, ...] = (), left_out: tuple[str, ...] = (), how: str = "sweep"
) -> int:
    """How many calls failed."""
    return int(faults.run(WRITTEN, directory, work, json.dumps((numbers, left_out, how)), timeout=600))


@pytest.mark.parametrize("work", ["file, flushed", pytest.param("file of n", marks=pytest.mark.long)])
def test_writers_of_a_file(in_memory: Path, counted: figures.Counted, work: str) -> None:
    """The error with its errno and the file's name; the old file stays, unless only the directory's fsync failed."""
    injected = sweep(in_memory, work, how=IN_TURNS)
    assert injected > 200
    counted.add("injected errors", injected)


@pytest.mark.long
@pytest.mark.parametrize("work", [*FILES, *MORE_FILES])
def test_writers_of_a_file_with_every_error(in_memory: Path, counted: figures.Counted, work: str) -> None:
    injected = sweep(in_memory, work)
    assert injected > 600
    counted.add("injected errors", injected)


@pytest.mark.parametrize("work", EVERYDAY)
def test_all_else_that_publishes(in_memory: Path, counted: figures.Counted, work: str) -> None:
    injected = sweep(in_memory, work, FEW, NAMES)
    assert injected > 15
    counted.add("injected errors", injected)


@pytest.mark.long
@pytest.mark.parametrize("work", [*OTHERS, "dataset of workers", "dataset of one size, workers"])
@pytest.mark.timeout(900)
def test_all_else_with_every_error(in_memory: Path, counted: figures.Counted, work: str) -> None:
    # With workers, closing is also that of pipes and of shared memory, which does not fail.
    numbers, left_out = (FEW, ("close",)) if "workers" in work else ((), ())
    counted.add("injected errors", sweep(in_memory, work, numbers, left_out))


@pytest.mark.parametrize("names", READ_EVERYDAY, ids=", ".join)
def test_readers(tmp_path: Path, counted: figures.Counted, names: tuple[str, ...]) -> None:
    """The exact bytes, or the error with its errno and the file's name; and the exact bytes afterwards."""
    said = faults.run(READ, tmp_path, json.dumps(names), IN_TURNS, timeout=300)
    injected = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in said.splitlines()}
    assert set(injected) == set(names) and min(injected.values()) > 10, injected
    counted.add("injected errors", sum(injected.values()))


@pytest.mark.long
def test_readers_of_every_kind(tmp_path: Path, counted: figures.Counted) -> None:
    listed = faults.run(
        "import sys, read_works as r; from pathlib import Path; print(*r.works(Path(sys.argv[1])), sep=chr(10))",
        tmp_path,
    )
    said = faults.run(READ, tmp_path, json.dumps(listed.splitlines()), "sweep", timeout=600)
    counted.add("injected errors", sum(int(line.rpartition(" ")[2]) for line in said.splitlines()))


@pytest.mark.parametrize("work", ["file of n", "tfrecord"])
def test_locks_refused_for_good(in_memory: Path, counted: figures.Counted, work: str) -> None:
    """As if somebody else had each lock: it is not waited for, and no file is left of the attempts."""
    counted.add("injected errors", int(faults.run(LOCKS, in_memory, work, timeout=30)))


def test_errors_of_write_back(in_memory: Path) -> None:
    """The kernel tells them once, whatever they are; few numbers say that there is no such call."""
    faults.run(WRITE_BACK, in_memory / "file")


def test_no_more_processes(in_memory: Path, counted: figures.Counted) -> None:
    """A fork that is refused ends the write, and the processes that were started already."""
    injected = int(faults.run(FORKS, in_memory))
    assert injected >= 3
    counted.add("injected errors", injected)
