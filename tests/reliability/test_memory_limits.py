"""Load (guarantees G2, G4, G8): little memory gives the right bytes or an error that says so, and leaves nothing."""

import os
from pathlib import Path

import builders
import children
import pytest
import situations
from builders import IO_MODES
from figures import Counted, counts

pytestmark = pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the address sanitizer does not live under RLIMIT_AS"
)
LIMITED = """
import contextlib, logging, os, resource, shutil, sys
from pathlib import Path
import builders
from ffrecord import DatasetWriter, FFRecordError, FileReader, FileWriter

@contextlib.contextmanager
def room(size):
    "Only so much more memory, inside."
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

def refused(error):
    return isinstance(error, MemoryError) or "annot allocate memory" in str(error) or "MemoryError" in str(error)

logging.disable()
done = 0
"""

READING = f"""{LIMITED}
path, io, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with FileReader(path, io=io) as reader:
    samples = builders.read_all(reader)
for turn in range(count):
    with contextlib.suppress(MemoryError, OSError):
        with room(turn * (40 << 20) // count):
            reader = None
            try:
                with FileReader(path, io=io) as reader:
                    for _ in range(2):
                        packed = reader.read_packed(range(reader.n))
                        arrays = reader.read(range(0, reader.n, 3))
                        ahead = list(reader.iter_batches([range(9)] * 3, packed=True))
            except (MemoryError, OSError) as error:
                assert refused(error), repr(error)
                packed = arrays = ahead = None
                raise
        assert builders.unpack(packed) == samples
        assert [sample.tobytes() for sample in arrays] == samples[::3]
        assert [builders.unpack(each) for each in ahead] == [samples[:9]] * 3
        done += 1
with FileReader(path, io=io) as reader:
    assert builders.read_all(reader) == samples
print(done)
"""


@counts(25, 250)
@pytest.mark.parametrize("io", IO_MODES)
def test_reading(tmp_path: Path, io: str, count: int, counted: Counted) -> None:
    """From no room at all to enough for everything."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([i * 5000 % 300_000 for i in range(100)]))
    done = int(children.run(READING, path, io, count, timeout=250))
    assert 0 < done < count, "the limits do not reach from too little to enough"
    counted.add("memory limits", count)


WRITING = f"""{LIMITED}
directory, count = Path(sys.argv[1]), int(sys.argv[2])
target = directory / "set.ffr"
samples = builders.records([i * 5000 % 300_000 for i in range(100)])

class Samples:
    def __len__(self):
        return len(samples)
    def __getitem__(self, i):
        return samples[i]

def write_file():
    with FileWriter(target) as writer:
        for sample in samples:
            writer.write_one(sample)

def write_dataset():
    DatasetWriter(target, num_workers=2, samples_per_shard=30, resume=False).from_indexed_dataset(Samples())

def cleared():
    shutil.rmtree(directory)
    directory.mkdir()

for work in (write_file, write_dataset):
    cleared()
    work()  # once with all it wants, so that what is loaded late is there
    for turn in range(count):
        cleared()
        try:
            with room(turn * (24 << 20) // count):
                work()
        except (MemoryError, OSError, FFRecordError, RuntimeError) as error:
            assert refused(error) or "can't start new thread" in str(error), repr(error)
            left = os.listdir(directory)
            assert left in ([], [".set.ffr.part"]), left  # with finished shards in it
        else:
            assert os.listdir(directory) == ["set.ffr"]
            with FileReader(target) as reader:
                assert builders.read_all(reader) == samples
            done += 1
print(done)
"""


@counts(12, 120)
def test_writing(tmp_path: Path, count: int, counted: Counted) -> None:
    (tmp_path / "d").mkdir()
    done = int(children.run(WRITING, tmp_path / "d", count, timeout=250))
    assert 0 < done < 2 * count
    counted.add("memory limits", 2 * count)


GROUP = """
import sys
import builders, numpy as np
from ffrecord import FileReader
sys.stdin.readline()
with FileReader(sys.argv[1], io=sys.argv[2]) as reader:
    for seed in range(2):
        for indices in np.array_split(np.random.default_rng(seed).permutation(reader.n), 20):
            data, offsets = reader.read_packed(indices)
            assert (np.diff(offsets) == 100_000).all() and (data[offsets[:-1]] == indices % 251).all()
print("right")
"""


@pytest.mark.parametrize("io", ["auto", "mmap"])
def test_files_larger_than_the_memory_of_a_control_group(tmp_path: Path, io: str) -> None:
    """Two processes, of which each may wait for pages that the other has just lost."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes([i % 251]) * 100_000 for i in range(1500)])
    with (
        situations.memory_group() as group,
        children.started(GROUP, path, io) as first,
        children.started(GROUP, path, io) as second,
    ):
        for child in (first, second):
            group.join(child.pid)
        group.limit(100 << 20)
        for child in (first, second):
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        assert [child.communicate(timeout=100) for child in (first, second)] == [("right\n", "")] * 2


# Of what has its memory counted from its first page on, as in a container: imports take some 30 MiB of it.
INSIDE = """
import os, sys
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
import builders, numpy as np
from ffrecord import FileReader, FileWriter
from ffrecord.system.resources import available_memory
"""
SMALL = 56 << 20

SMALL_GROUP = f"""{INSIDE}
assert available_memory() < {SMALL}
with FileReader(sys.argv[2], io=sys.argv[3]) as reader:
    for indices in np.array_split(np.random.default_rng(0).permutation(reader.n), reader.n // 154):
        data, offsets = reader.read_packed(indices)
        assert (np.diff(offsets) == 100_000).all() and (data[offsets[:-1]] == indices % 251).all()
        del data
    print(*reader.stats().engines.values())
# Buffers of direct reads are what a fork does not copy (MADV_DONTFORK).
with open("/proc/self/smaps") as lines:
    size = 0
    for line in lines:
        name, *rest = line.split()
        size = int(rest[0]) << 10 if name == "Size:" else size
        assert name != "VmFlags:" or "dc" not in rest or size <= {SMALL} // 8, size
"""


def in_small_group(code: str, *args: object, size: int = SMALL) -> str:
    """What a child printed that was in a group of so many bytes from the beginning."""
    with situations.memory_group() as group:
        group.limit(size)
        return children.run(code, group.path / "cgroup.procs", *args, timeout=100)


@pytest.mark.parametrize("io", IO_MODES)
def test_a_group_in_which_direct_reads_have_little_room(tmp_path: Path, io: str) -> None:
    """What fits by one way to read fits by each: buffers of direct reads are as small as the group."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes([i % 251]) * 100_000 for i in range(2000)])
    situations.evict(path)
    engine = in_small_group(SMALL_GROUP, path, io).strip()
    assert io == "auto" or engine == {"pread": "page cache"}.get(io, io)


SMALL_WRITER = f"""{INSIDE}
from ffrecord import DatasetWriter
samples = [bytes([i % 251]) * 200_000 for i in range(50)]

class Samples:
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        return samples[i % 50]

with FileWriter(sys.argv[2] + "/a.ffr") as writer:
    for i in range(1000):
        writer.write_one(samples[i % 50])
DatasetWriter(sys.argv[2] + "/set", num_workers=2, progress=False).from_indexed_dataset(Samples())
print("right")
"""


def test_writing_in_a_small_group(tmp_path: Path) -> None:
    assert in_small_group(SMALL_WRITER, tmp_path, size=160 << 20) == "right\n"


def test_a_group_within_a_group(tmp_path: Path) -> None:
    """The limit of the outer one counts, too, also for direct reads."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes([i % 251]) * 100_000 for i in range(1000)])
    situations.evict(path)
    with situations.memory_group() as outer:
        outer.limit(SMALL)
        inner = outer.path / "inner"
        try:
            inner.mkdir()
        except OSError as error:
            pytest.skip(f"no control group within another one can be made here: {error}")
        try:
            if not (inner / "memory.stat").exists():
                pytest.skip(
                    "the group within has no memory of its own to limit: cgroup.subtree_control does not allow it"
                )
            children.run(SMALL_GROUP, inner / "cgroup.procs", path, "direct", timeout=100)
        finally:
            situations.remove_group(inner)
