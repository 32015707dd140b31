"""Reading ahead: small files are swept beside the batches, and whatever happens to them harms nobody."""

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import builders
import children
import numpy as np
import pytest
import situations
from children import descriptors

from ffrecord import FileReader
from ffrecord.kernels import _threads

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
N, SIZE = 8000, 4000


@pytest.fixture
def path(tmp_path) -> str:
    """32 MB that are not in the page cache."""
    offsets = np.arange(N, dtype="<i8") * SIZE + 12 + 12 * N
    data = bytes(4) + N.to_bytes(8, "little") + bytes(4 * N) + offsets.tobytes()
    samples = np.repeat((np.arange(N) % 251).astype(np.uint8), SIZE).tobytes()
    found = builders.write(tmp_path / "a.ffr", data + samples)
    if not situations.can_be_evicted(found):
        pytest.skip("nothing can be evicted from the page cache here, so nothing is ever swept")
    return found


def opened(path: str, io: str = "auto") -> FileReader:
    """A reader that has its tables; looking at them later would make the kernel read ahead what lies behind."""
    reader = FileReader(path, False, io=io)
    reader.get_offsets(0)
    reader.get_checksums(0)
    for _ in range(400):  # what is still on its way to a busy disk is not dropped
        situations.evict(path)
        if situations.cached_share(path) < 0.1:
            break
        time.sleep(0.05)
    return reader


def batch(reader: FileReader, size: int = 16, seed: int = 0) -> None:
    """A random one, its content checked."""
    indices = np.random.default_rng(seed).integers(0, N, size)
    data, offsets = reader.read_packed(indices)
    assert (data[offsets[:-1]] == indices % 251).all()
    assert (data[offsets[1:] - 1] == indices % 251).all()


def until_swept(path: str) -> bool:
    """Whether nearly all is cached within 10 seconds, although nobody reads."""
    for _ in range(200):
        if situations.cached_share(path) > 0.95:
            return True
        time.sleep(0.05)
    return False


def test_batches_pay_for_a_sweep(path):
    """A few batches buy a part of the file; more of them all of it."""
    with opened(path) as reader:
        batch(reader)
        time.sleep(0.5)
        assert situations.cached_share(path) < 0.6
        for seed in range(20):
            batch(reader, 64, seed)
        assert until_swept(path)


def test_batches_in_a_row_share_the_disk_with_little_of_a_sweep(path):
    """A reader of a few batches waits for its own records; the sweep gets a small share of the time.

    On a busy machine batches take long, and the sweep gets far meanwhile: one quiet try in five is enough.
    """
    shares = []
    for _ in range(5):
        with opened(path) as reader:
            for seed in range(10):
                batch(reader, 64, seed)
            shares.append(situations.cached_share(path))
        if shares[-1] < 0.5:
            return
    raise AssertionError(shares)


def test_batches_in_a_row_are_swept_in_the_end(path):
    """Each swept record that is read pays for more of the sweep, before random reads alone would have met all pages."""
    with opened(path) as reader:
        for seed in range(400):
            batch(reader, 64, seed)
        assert situations.cached_share(path) > 0.99


def test_where_pages_cannot_be_asked_for(path):
    """As on kernels older than 5.14: the sweep reads, then."""
    code = """
import errno, sys
import children
from test_readahead import batch, opened, until_swept
with opened(sys.argv[1]) as reader:
    batch(reader)
    try:
        children.refuse("madvise", errno.EINVAL)
    except OSError as error:
        sys.exit(f"no filters: {error}")
    for seed in range(20):
        batch(reader, 64, seed)
    assert until_swept(sys.argv[1])
"""
    done = children.finished(code, path)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")


def test_where_no_thread_can_be_started(path):
    """As at the limit of processes of a container: batches do not wait for a sweep that nobody does."""
    code = """
import errno, sys, threading
import children
from situations import evict
from test_readahead import batch, opened
with opened(sys.argv[1]) as reader:
    try:
        children.refuse("clone", errno.EAGAIN)
        children.refuse("clone3", errno.ENOSYS)
    except OSError as error:
        sys.exit(f"no filters: {error}")
    try:
        threading.Thread(target=print).start()
    except RuntimeError:
        for seed in range(500):
            if seed % 100 == 0:
                evict(sys.argv[1])  # until batches have earned credit for a sweep
            batch(reader, 64, seed)
"""
    done = children.finished(code, path)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_files_of_others_are_swept(path):
    """Whose pages mincore(2) calls cached, whatever they are: a dataset is mostly somebody else's."""
    code = """
import os, sys
from situations import evict
from test_readahead import FileReader, batch, opened
path = sys.argv[1]
with opened(path) as reader:
    batch(reader)  # imports all that it takes
evict(path)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
if not os.access(path, os.R_OK):
    sys.exit("not for others")
with FileReader(path, False) as reader:
    for seed in range(20):
        batch(reader, 64, seed)
    print(flush=True)
    sys.stdin.readline()
"""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        shared = shutil.copy(path, directory)
        with children.started(code, shared) as child:
            if child.stdout.readline() != "\n":
                said = child.communicate(timeout=60)[1]
                assert said == "not for others\n"
                pytest.skip("the directory of temporary files is not for others")
            assert until_swept(shared)
            assert child.communicate("\n", timeout=60) == ("", "")


def mappings(path: str) -> int:
    return Path("/proc/self/maps").read_text().count(path)


def test_a_sweep_leaves_nothing_mapped(path):
    """But for the mapping to copy from, once all is cached."""
    with opened(path) as reader:
        before = mappings(path)
        for seed in range(20):
            batch(reader, 64, seed)
        assert until_swept(path)
        assert mappings(path) <= before + 1


@pytest.mark.parametrize("io", ["pread", "direct"])
def test_other_modes_sweep_nothing(path, io):
    with opened(path, io) as reader:
        before = situations.cached_share(path)
        for seed in range(10):
            batch(reader, seed=seed)
        time.sleep(0.2)
        # The kernel reads 64 kB or more around each of the 160 records where the disk's read-ahead is large; a sweep
        # would have read all.
        assert situations.cached_share(path) - before < 0.7 < 1 - before


def test_closing_ends_it(path):
    """No thread reads for a closed reader, and its descriptor is gone as well."""
    for _ in range(10):
        situations.evict(path)
        reader = FileReader(path, False)
        batch(reader, 64)
        reader.close()
        assert path not in descriptors().values()
        threads = _threads.stats()
        assert (threads["idle"], threads["queued"]) == (threads["threads"], 0)


def test_dropping_ends_it(path):
    for _ in range(10):
        situations.evict(path)
        batch(FileReader(path, False), 64)
        assert path not in descriptors().values()


def test_two_threads_may_close(path):
    for _ in range(30):
        situations.evict(path)
        reader = FileReader(path, False)
        batch(reader, 64)
        threads = [threading.Thread(target=reader.close) for _ in range(4)]
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for fd in held:
            os.close(fd)  # nobody else did


@pytest.mark.parametrize("how", ["removed", "replaced", "cut"])
def test_files_that_change_during_it(path, tmp_path, how):
    with FileReader([path, path], False) as reader:
        batch(reader, 64)
        if how == "removed":
            os.unlink(path)
        elif how == "replaced":
            os.replace(builders.write(tmp_path / "b.ffr", b"other"), path)
        else:
            os.truncate(path, 12 + 12 * N + SIZE * N // 2)
        for seed in range(10):
            indices = np.random.default_rng(seed).integers(0, N // 2, 64)
            data, offsets = reader.read_packed(indices)
            assert (data[offsets[:-1]] == indices % 251).all()


def test_many_files(tmp_path):
    """From the first to the last, empty ones among them, with few descriptors."""
    names = []
    for i in range(30):
        n = 0 if i % 7 == 3 else 50
        names.append(builders.write_samples(tmp_path / f"{i:02}.ffr", [bytes([i]) * 9000] * n))
    situations.evict(*names)
    if situations.cached_share(names[0]) > 0.1:
        pytest.skip("nothing can be evicted from the page cache here")
    with FileReader(names) as reader:
        situations.evict(*names)
        random = np.random.default_rng(0)
        for _ in range(4):
            reader.read(random.integers(0, reader.n, 64))
        assert all(until_swept(name) for name in names if os.path.getsize(name) > 100)
        for _ in range(20):
            if reader.stats().open_files == sum(name in names for name in descriptors().values()):
                break
            time.sleep(0.05)
        assert reader.stats().open_files == sum(name in names for name in descriptors().values())


def test_forks_during_it(path):
    """The thread that sweeps is the parent's. A child has one of its own, and closes nothing but what is its own."""
    code = """
import os, sys
from test_readahead import batch
from situations import evict
from ffrecord import FileReader
failed = 0
for turn in range(40):
    evict(sys.argv[1])
    reader = FileReader(sys.argv[1], False)
    batch(reader, 64)
    child = os.fork()
    if child == 0:
        mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        if turn % 2:
            batch(reader, 64, 1)
        reader.close()
        for fd in mine:
            os.close(fd)  # nobody else did
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
    batch(reader, 64, 2)
    reader.close()
sys.exit(failed)
"""
    children.run(code, path)


@children.measures_memory
def test_no_memory_to_spare(path):
    """Of a file that a control group's limit would not hold, nothing is read that nobody asked for."""
    code = """
import sys, time
from situations import cached_share
from test_readahead import batch, opened
sys.stdin.readline()
with opened(sys.argv[1]) as reader:
    before = cached_share(sys.argv[1])
    for seed in range(15):
        batch(reader, seed=seed)
    time.sleep(0.3)
    # The kernel reads up to 128 KiB around each of the 240 records, 60 % of the file at most; a sweep reads all of it.
    assert cached_share(sys.argv[1]) < before + 0.8, (before, cached_share(sys.argv[1]))
"""
    with situations.memory_group() as group:
        group.limit(60 << 20)  # less than twice the file
        with children.started(code, path) as child:
            group.join(child.pid)
            assert child.communicate("\n", timeout=60) == ("", "")
            assert child.returncode == 0


def test_it_uses_few_threads(path):
    before = _threads.stats()["threads"]
    with FileReader([path] * 4, False) as reader:
        for seed in range(5):
            batch(reader, 64, seed)
        assert _threads.stats()["threads"] <= max(before, 2)
    assert Path(path).exists()
