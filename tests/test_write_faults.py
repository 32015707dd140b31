"""Calls of writers that fail or stop short at every occurrence. Kills are in reliability/test_kills_at_calls.py."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import children
import pytest

SITES = {"pwrite": 1, "fsync": 2, "rename": 4, "unlink": 8, "allocate": 16, "write back": 32, "truncate": 64}

COMMON = """
import ctypes, errno, json, os, shutil, sys
import builders, ffr_twin
from ffrecord import FileWriter

faults = ctypes.CDLL(None)
directory, given = sys.argv[1], json.loads(sys.argv[2])
FAIL, SHORT = 2, 3
OLD = ffr_twin.build([b"old"])
# Two buffers; samples before, over and behind the border, and more of them than 4096 bytes of tables hold.
LARGE = 2_500_000
SAMPLES = builders.records([100, LARGE, 0, LARGE, *[7] * 400, 70_000, 1])
FLUSHES = (3, 3, 200, 406)
MOST = 100  # calls: many times what any of these needs

def fresh():
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    path = os.path.join(directory, "a.ffr")
    with open(path, "wb") as file:
        file.write(OLD)
    return path

def write(path):
    with FileWriter(path, len(SAMPLES) if given["n"] else None) as writer:
        for i, sample in enumerate(SAMPLES):
            for _ in range(FLUSHES.count(i) if given["flush"] else 0):
                writer.flush()
            writer.write_one(sample)

def samples_of(path):
    with open(path, "rb") as file:
        return ffr_twin.parse(file.read())
"""

FAILING = """
TOLERATED = {"write back": (errno.EINVAL, errno.EINTR), "allocate": (errno.EOPNOTSUPP, errno.EPERM, errno.EINTR)}
for site, at in given["sites"].items():
    for number in (errno.EIO, errno.ENOSPC, errno.ENODATA, *TOLERATED.get(site, ())):
        for call in range(1, MOST + 1):
            path = fresh()
            faults.write_fault_set(at, call, FAIL, number)
            try:
                write(path)
            except OSError as error:
                assert error.errno == number and isinstance(error, RuntimeError) and path in str(error), error
                published = "is in place" in str(error)
            else:
                assert not faults.write_fault_fired() or number in TOLERATED.get(site, ()), (site, number, call)
                published = True
            fired = faults.write_fault_fired()
            faults.write_fault_set(0, 0, 0, 0)
            assert samples_of(path) == (SAMPLES if published else [b"old"])
            assert os.listdir(directory) == ["a.ffr"], (site, number, call, os.listdir(directory))
            if not fired:
                break
        assert 1 < call < MOST or (site == "allocate" and call == 1), (site, call)
"""

WRITE_BACK = """
from ffrecord._writing import write_back

def told(number):
    faults.write_fault_set(given["site"], 1, FAIL, number)
    return write_back(file.fileno(), 0, 4096, True)

with open(fresh(), "r+b") as file:
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

SHORTENED = """
for size in (1, 511, 4096, 1 << 20):
    for call in range(1, MOST + 1):
        path = fresh()
        faults.write_fault_set(1, call, SHORT, size)
        write(path)
        fired = faults.write_fault_fired()
        faults.write_fault_set(0, 0, 0, 0)
        assert samples_of(path) == SAMPLES
        if not fired:
            break
    assert 4 < call < MOST
"""


@pytest.fixture(scope="module")
def library(preloadable) -> Path:
    return preloadable("write_faults.c")


@pytest.fixture(params=["memory", pytest.param("disk", marks=pytest.mark.long)])
def directory(request, tmp_path) -> Iterator[Path]:
    """Of tmpfs, which cannot insert space into a file, and of whatever has the temporary files."""
    if request.param == "disk":
        yield tmp_path / "d"
        return
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made) / "d"


def run(code: str, directory: Path, library: Path, **given: object) -> str:
    return children.run(COMMON + code, directory, json.dumps(given), LD_PRELOAD=str(library), timeout=250)


@pytest.mark.parametrize("n", [True, False], ids=["n", "no n"])
def test_every_call_failing(library, directory, n):
    """The error with its errno; the old file stays, unless only the directory's fsync failed; nothing is left."""
    sites = {site: at for site, at in SITES.items() if site not in ("unlink", "truncate")}
    run(FAILING, directory, library, n=n, flush=True, sites=sites)


def test_errors_of_write_back(library, directory):
    """The kernel tells them once, whatever they are; few numbers say that there is no such call."""
    run(WRITE_BACK, directory, library, site=SITES["write back"])


@pytest.mark.parametrize("n", [True, False], ids=["n", "no n"])
def test_every_write_stopping_short(library, directory, n):
    run(SHORTENED, directory, library, n=n, flush=True)
