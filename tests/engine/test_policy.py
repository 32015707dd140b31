"""The policy of io="auto" in real situations: cached, evicted, small or large, on several file systems."""

import os
from pathlib import Path

import builders
import children
import numpy as np
import pytest
import situations

# What each child begins with: random batches, each checked, and whether they settle on an engine.
SETTLING = """
import os, sys
import numpy as np
from ffrecord import FileReader
from situations import cached_share, evict, warm
path, random = sys.argv[1], np.random.default_rng(0)
reader = FileReader(path, io=sys.argv[2])

def engine():
    (name,) = reader.stats().engines.values()
    return name

def batch(size=64):
    indices = random.integers(0, reader.n, size)
    data, offsets = reader.read_packed(indices)
    assert (data[offsets[:-1]] == indices % 251).all() and (data[offsets[1:] - 1] == indices % 251).all()

def settles(wanted, size=64):
    most = 20 if size >= 8 else 60  # batches; of a few records each tells little
    for batches in range(most):
        if engine() == wanted:
            return
        batch(size)
    if wanted == "page cache, two passes" and engine() == "page cache" and cached_share(path) > 0.9:
        return  # some disks read megabytes ahead: a few misses brought all back, and nothing was left to wait for
    sys.exit(f"{engine()!r} after {most} batches, expected {wanted!r}; {reader.stats()}")

def stays(wanted, size=64, batches=20):
    for _ in range(batches):
        batch(size)
        assert engine() == wanted, (engine(), reader.stats())
"""


def numbered(path: Path, n: int, size: int) -> str:
    """A file of n samples of `size` bytes; those of sample i are all i % 251. Written to the disk."""
    offsets = np.arange(n, dtype="<i8") * size + 12 + 12 * n
    crcs = np.array([builders.ffr_twin.zlib.crc32(bytes([i]) * size) for i in range(min(251, n))], "<u4")
    tables = n.to_bytes(8, "little") + crcs[np.arange(n) % 251].tobytes() + offsets.tobytes()
    with open(path, "wb") as file:
        file.write(builders.ffr_twin.zlib.crc32(tables).to_bytes(4, "little") + tables)
        for first in range(0, n, 251):
            file.write(np.repeat((np.arange(first, min(first + 251, n)) % 251).astype(np.uint8), size).tobytes())
        os.fsync(file.fileno())
    return str(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    """50 MB in samples of 3,000 bytes."""
    path = numbered(tmp_path_factory.mktemp("choice") / "a.ffr", 16_000, 3000)
    if not situations.can_be_evicted(path):
        pytest.skip("nothing can be evicted from the page cache here, so nothing is ever cold")
    return path


@pytest.fixture(scope="module")
def large_samples(tmp_path_factory, path) -> str:
    """60 MB in samples of 300 kB."""
    return numbered(tmp_path_factory.mktemp("choice") / "b.ffr", 200, 300_000)


def test_a_hot_file_is_read_plainly(path):
    situations.warm(path)
    children.run(f"{SETTLING}settles('page cache')\nstays('page cache')", path, "auto")


@pytest.mark.parametrize("size", [1, 2, 3, 8, 64, 512])
def test_evicted_and_warm_again(path, size):
    """Whatever the size of batches. What they miss is read ahead, so a small file is soon hot again."""
    situations.warm(path)
    code = f"""{SETTLING}
for _ in range(3):
    settles("page cache", {size})
    evict(path)
    settles("page cache, two passes", {size})
    warm(path)
"""
    children.run(code, path, "auto")


def test_evicted_and_warm_again_by_single_records(path):
    """They are read without a look at what the thread waited for; the time tells."""
    situations.warm(path)
    code = f"""{SETTLING}
def batch(size):
    for _ in range(16):
        index = int(random.integers(0, reader.n))
        assert (reader.read_one(index) == index % 251).all()
for _ in range(3):
    settles("page cache")
    for _ in range(60):
        batch(1)
    assert engine() == "page cache"
    for _ in range(60):
        if engine() == "page cache":
            evict(path)  # before each record: after one miss, a disk that reads megabytes ahead has cached the file
            index = int(random.integers(0, reader.n))
            assert (reader.read_one(index) == index % 251).all()
    assert engine() == "page cache, two passes"
    warm(path)
"""
    children.run(code, path, "auto")


def test_large_samples_evicted(large_samples):
    situations.warm(large_samples)
    code = f"""{SETTLING}
settles("page cache", 8)
evict(path)
settles("page cache, two passes", 8)
"""
    children.run(code, large_samples, "auto")


def test_a_small_cold_file_is_read_ahead_between_batches(path):
    """Long before random batches would have met every page; the file is a small part of this machine's memory."""
    situations.evict(path)
    code = f"""import time
{SETTLING}
assert cached_share(path) < 0.2, cached_share(path)
for batches in range(20):
    batch()
    time.sleep(0.02)  # a training step: nobody else uses the disk
share, read = cached_share(path), reader.stats().bytes / os.path.getsize(path)
assert share > 0.95 and read < 0.2, (share, read)
settles("page cache")
"""
    children.run(code, path, "auto")


def test_a_pinned_mode_stays(path):
    names = {"pread": "page cache", "direct": "direct", "mmap": "mmap"}
    for io, name in names.items():
        situations.evict(path)
        code = f"{SETTLING}stays({name!r})\nevict(path)\nstays({name!r})\nwarm(path)\nstays({name!r})"
        children.run(code, path, io)


def test_direct_reads_leave_the_page_cache_alone(path):
    """But for some pages after the tables, which are mapped and so read ahead."""
    situations.evict(path)
    code = f"""{SETTLING}
stays("direct", 64, 60)  # a quarter of all
assert cached_share(path) < 0.05, cached_share(path)
"""
    children.run(code, path, "direct")


# More than memory holds

BEYOND_MEMORY = f"""{SETTLING}
print("ready", flush=True)
sys.stdin.readline()  # until this process is in its group
settles("direct")
counted = 0
for _ in range(40):  # the two records that are probed in each batch may be cached by chance
    batch()
    counted += engine() == "direct"
assert counted > 20, (counted, reader.stats())
print("direct", flush=True)
sys.stdin.readline()  # until the limit is lifted, and the file is cached
settles("page cache, two passes")
settles("page cache")
stays("page cache")
print("back", flush=True)
"""


def test_larger_than_memory_and_back(path):
    """The limit of a control group is this process's memory."""
    situations.evict(path)
    with situations.memory_group() as group, children.started(BEYOND_MEMORY, path, "auto") as child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        group.join(child.pid)
        group.limit(40 << 20)  # and the file has 48 MB
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "direct\n", child.stderr.read()
        group.limit(None)
        situations.warm(path)
        assert child.communicate("\n", timeout=60) == ("back\n", "")
        assert child.returncode == 0


# File systems


def test_files_in_memory_are_always_hot():
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    path = Path(f"/dev/shm/test_policy.{os.getpid()}.ffr")
    try:
        numbered(path, 2000, 3000)
        code = f"{SETTLING}assert reader.stats().engines == {{'tmpfs': 'page cache'}}\nstays('page cache')"
        children.run(code, path, "auto")
    finally:
        path.unlink(missing_ok=True)


def test_each_file_system_has_an_engine_of_its_own(path, tmp_path):
    """A cold file on a disk beside one in memory."""
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(path).st_dev:
        pytest.skip("no second file system at /dev/shm")
    other = Path(f"/dev/shm/test_policy.{os.getpid()}.ffr")
    situations.evict(path)
    try:
        numbered(other, 251, 3000)
        code = """
import sys
import numpy as np
from ffrecord import FileReader
with FileReader(sys.argv[1:]) as reader:
    indices = np.random.default_rng(0).integers(0, reader.n, 64)
    data, offsets = reader.read_packed(indices)
    assert (data[offsets[:-1]] == np.where(indices < 251, indices, (indices - 251) % 251)).all()
    engines = reader.stats().engines
    assert len(engines) == 2 and engines["tmpfs"] == "page cache", engines
    assert "page cache, two passes" in engines.values(), engines
"""
        children.run(code, other, path)
    finally:
        other.unlink(missing_ok=True)
