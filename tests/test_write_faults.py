"""Writers that are killed at every system call, and calls that fail or stop short at every occurrence."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import children
import pytest

SITES = {"pwrite": 1, "fsync": 2, "rename": 4, "unlink": 8, "allocate": 16, "write back": 32, "truncate": 64}
EVERYWHERE = sum(SITES.values())

COMMON = """
import ctypes, errno, json, os, shutil, sys
import builders, ffr_twin
from ffrecord import FileReader, FileWriter, recover

faults = ctypes.CDLL(None)
directory, given = sys.argv[1], json.loads(sys.argv[2])
KILL_BEFORE, KILL_AFTER, FAIL, SHORT = range(4)
OLD = ffr_twin.build([b"old"])
# Two buffers; samples before, over and behind the border, and more of them than 4096 bytes of tables hold.
LARGE = given.get("large", 2_500_000)
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

def write(path, flushed=lambda count: None):
    with FileWriter(path, len(SAMPLES) if given["n"] else None) as writer:
        for i, sample in enumerate(SAMPLES):
            for _ in range(FLUSHES.count(i) if given["flush"] else 0):
                writer.flush()
                flushed(i)
            writer.write_one(sample)

def samples_of(path):
    with open(path, "rb") as file:
        return ffr_twin.parse(file.read())
"""

KILLED = """
def killed(work):
    '''Whether a child was killed in the middle of `work`, and the last number that it said.'''
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda count: os.write(its, count.to_bytes(4, "little")))
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(3)
        os._exit(0)
    os.close(its)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -9), status
    return status == -9, int.from_bytes(said[-4:], "little")

def check_tidied(path):
    '''The file is there whole: what else is left goes, and is no reason to complain.'''
    kept = samples_of(path)
    try:
        assert recover(path)[1:3] == (len(kept), sum(map(len, kept)))
    except FileNotFoundError:
        pass
    assert samples_of(path) == kept and os.listdir(directory) == ["a.ffr"], os.listdir(directory)

def check_recovery(path, flushed):
    try:
        found = recover(path, replace=True)
    except FileNotFoundError:
        assert flushed == 0, f"{flushed} flushed samples are lost"
        return
    assert found.samples >= flushed and found.damaged == 0, found
    assert samples_of(path) == SAMPLES[: found.samples]
    FileReader(path).close()
    assert os.listdir(directory) == ["a.ffr"], os.listdir(directory)
"""

# On the disk, killed after a call is the same as killed before the next one, unless a call in between is not counted.
WRITER = """
for action in (KILL_BEFORE, KILL_AFTER)[: given["actions"]]:
    for call in range(1, MOST + 1):
        path = fresh()
        def work(say):
            faults.write_fault_set(given["sites"], call, action, 0)
            write(path, say)
        dead, flushed = killed(work)
        published = samples_of(path)
        assert published in ([b"old"], SAMPLES)
        left = [name for name in os.listdir(directory) if name != "a.ffr"]
        assert all(name.startswith(".a.ffr.") and name.endswith((".part", ".journal")) for name in left), left
        if not dead:
            assert published == SAMPLES and not left
            break
        if published != SAMPLES:
            check_recovery(path, flushed)
        else:
            check_tidied(path)
    assert given.get("least", 8) < call < MOST
"""

RECOVERY = """
def left(path):
    def work(say):
        writer = FileWriter(path, given["n"])
        writer.write_many(SAMPLES[:350])
        writer.flush()
        if given["n"] != 350:
            writer.write_many(SAMPLES[350:353])
        os.kill(os.getpid(), 9)
    assert killed(work)[0]

for replace, action in ((True, KILL_BEFORE), (False, KILL_AFTER)):
    for call in range(1, MOST + 1):
        path = fresh()
        if not replace:
            os.unlink(path)
        left(path)
        def work(say):
            faults.write_fault_set(given["sites"], call, action, 0)
            recover(path, replace=replace)
        dead, _ = killed(work)
        there = samples_of(path) if os.path.exists(path) else [b"old"]
        assert there in ([b"old"], SAMPLES[:350])
        if not dead:
            assert os.listdir(directory) == ["a.ffr"]
            break
        if there == [b"old"]:
            check_recovery(path, 350)
        else:
            check_tidied(path)
        assert samples_of(path) == SAMPLES[:350]
    assert 4 < call < MOST
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


@pytest.mark.parametrize(("n", "flush"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("actions", [1, pytest.param(2, marks=pytest.mark.long)])
def test_killed_at_every_call(library, directory, n, flush, actions):
    """Nothing, the old file or the whole new one under the name; and every flushed sample comes back."""
    run(KILLED + WRITER, directory, library, n=n, flush=flush, actions=actions, sites=EVERYWHERE)


def test_killed_at_every_call_that_moves_samples(library, tmp_path):
    """On the disk, where the file system can insert space in front of the samples."""
    sites = SITES["allocate"] | SITES["rename"]
    run(KILLED + WRITER, tmp_path / "d", library, n=False, flush=True, actions=2, sites=sites, least=2)


@pytest.mark.parametrize("n", [None, 350, 353, pytest.param(407, marks=pytest.mark.long)])
def test_recovery_killed_at_every_call(library, directory, n):
    """350 of n samples were flushed: there is room for tables and block, or too little, or none is wanted."""
    run(KILLED + RECOVERY, directory, library, n=n, large=1000, sites=EVERYWHERE)


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
