"""Copying: what is cached is copied from mappings, and whatever happens to the files kills nobody."""

import signal

import builders
import children
import ffr_twin
import numpy as np
import pytest

from ffrecord import FileReader
from ffrecord.errors import FFRecordError

# What children begin with: a reader whose batches are being copied, and what became of a file under it.
HOT = """
import faulthandler, mmap, os, random, resource, signal, sys, threading
from pathlib import Path
from ffrecord import FileReader
from ffrecord.errors import TruncatedError
path = sys.argv[1]
faulthandler.disable()

def requests(reader, count=64):
    before = reader.stats().requests
    for sample in reader.read([random.randrange(reader.n) for _ in range(count)]):
        assert len(set(sample.tolist())) == 1
    return reader.stats().requests - before

def hot(**options):
    reader = FileReader(path, **options)
    for _ in range(20):
        requests(reader)
    assert requests(reader) == 0
    return reader

def cut(reader, to=20_000):
    '''It is an error, not a signal.'''
    os.truncate(path, to)
    try:
        reader.read(range(reader.n))
    except TruncatedError:
        return
    sys.exit("nothing was noticed")

def fault():
    '''At a mapping of somebody else's.'''
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    os.truncate(path, 0)
    return mapping[0]
"""


@pytest.fixture
def path(tmp_path) -> str:
    """1,000 samples of up to 9,999 bytes, all of a sample's bytes the same."""
    sizes = np.random.default_rng(0).integers(1, 10_000, 1000)
    return builders.write_samples(tmp_path / "a.ffr", [bytes([i % 251]) * int(size) for i, size in enumerate(sizes)])


@pytest.mark.parametrize("count", [2, 64])
def test_no_system_calls_when_hot(path, count):
    children.run(f"{HOT}reader = hot()\nassert requests(reader, {count}) == 0", path)


def test_a_cached_sequence_is_copied(path):
    """Without a system call, and with the same bytes; slices too."""
    code = """reader = hot()
before = reader.stats().requests
assert all(len(set(sample.tolist())) == 1 for sample in reader)
assert len(list(reader[100:900])) == 800
assert reader.stats().requests == before"""
    children.run(HOT + code, path)


def test_a_cached_sequence_is_copied_by_a_reader_that_only_iterates(tmp_path):
    """From the first pieces on, up to where nothing is cached ahead."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes([i % 251]) * 100_000 for i in range(800)])
    code = """reader = FileReader(path)
counts = [-1, 0]
while counts[-1] > counts[-2]:  # until all is mapped
    assert sum(len(set(sample.tolist())) == 1 for sample in reader) == 800
    counts.append(reader.stats().requests)
assert len(counts) < 40, counts"""
    children.run(HOT + code, path)


@pytest.mark.unsanitized("its copies take so long that they are taken for ones that wait")
def test_records_read_alone(path):
    """Without a call, whatever their size; unless the kernel took a page away meanwhile."""
    alone = f"""{HOT}reader = hot()
called = []
for index, size in enumerate(reader.record_sizes(range(reader.n)).tolist()):
    before = reader.stats().requests
    assert len(reader.read_one(index)) == size
    if reader.stats().requests != before:
        called.append((index, size))
assert 100 * len(called) <= reader.n, called
"""
    children.run(alone, path)


def test_not_of_what_is_read_once(path):
    """Mapping it would take longer."""
    once = f"""{HOT}reader = hot()
reader._read_once(True)
assert requests(reader) > 0
reader._read_once(False)
assert requests(reader) == 0
"""
    children.run(once, path)


@pytest.mark.parametrize("io", ["pread", "direct"])
def test_not_in_pinned_modes(path, io):
    children.run(f"{HOT}reader = FileReader(path, io={io!r})\nfor _ in range(20): assert requests(reader) > 0", path)


@pytest.mark.parametrize("sizes", [(0,) * 9, (0, 1, 63, 64, 65, 4095, 4096, 4097, 0), (70_000, 1, 2 << 20, 0) * 3])
def test_samples_of_all_sizes(in_memory, sizes):
    samples = builders.records(sizes)
    with FileReader(builders.write_samples(in_memory / "a.ffr", samples)) as reader:
        order = [*range(len(samples)), *range(0, len(samples), 2)]
        assert [sample.tobytes() for sample in reader.read(order)] == [samples[i] for i in order]
        assert builders.unpack(reader.read_packed(order)) == [samples[i] for i in order]
        assert reader.stats().requests == 0


def test_much_at_once_goes_around_the_caches(in_memory):
    """32 MiB and more: in another thread, too."""
    samples = builders.records([3_000_001] * 12)
    with FileReader(builders.write_samples(in_memory / "a.ffr", samples)) as reader:
        counts = [-1]
        while reader.stats().requests > counts[-1]:  # until it is mapped
            assert len(counts) < 1000
            counts.append(reader.stats().requests)
            assert builders.read_all(reader) == samples
            assert builders.unpack(reader.read_packed(range(12))) == samples


def outcome(path: str, io: str, check: bool) -> object:
    """What a batch of every sample, each twice, gives; or its error."""
    try:
        with FileReader(path, check, io=io) as reader:
            return builders.unpack(reader.read_packed([*range(reader.n), *range(reader.n)]))
    except FFRecordError as error:
        return type(error), str(error)


@pytest.mark.parametrize("check", [True, False])
def test_damage_is_told_as_by_calls(in_memory, check):
    whole = ffr_twin.build(builders.small())
    cuts = [whole[:size] for size in range(builders.BLOCK_START, len(whole))]
    flips = [whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :] for i in range(builders.BLOCK_START, len(whole))]
    found = 0
    for data in [*cuts, *flips]:
        path = builders.write(in_memory / "a.ffr", data)
        expected = outcome(path, "pread", check)
        assert outcome(path, "auto", check) == expected
        found += isinstance(expected, tuple)
    assert found > (500 if check else 0)


@pytest.mark.parametrize("rounds", [6, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("check", [True, False])
def test_cut_at_any_moment(path, check, rounds):
    """By another thread, while batches are being copied."""
    code = f"""{HOT}
whole = Path(path).read_bytes()
noticed = 0
for round in range({rounds}):
    with open(path, "wb") as file:
        file.write(whole)
    with hot(check_data={check}) as reader:
        cutter = threading.Timer(random.random() / 200, os.truncate, (path, random.randrange(13_000, len(whole))))
        cutter.start()
        try:
            while cutter.is_alive() or round % 2:
                requests(reader, 500)
        except TruncatedError:
            noticed += 1
        cutter.join()
assert noticed >= {rounds} // 2, noticed
"""
    children.run(code, path, timeout=600)


def test_neighbours_of_what_was_cut_off(path):
    """Also where a page is cut in two, whose rest reads as zeros."""
    code = f"""{HOT}
reader = hot(on_error="skip")
sizes = [len(sample) for sample in reader.read(range(1000))]
first = os.path.getsize(path) - sum(sizes)
os.truncate(path, first + sum(sizes[:500]) + 1)
good = reader.read(range(1000))
assert [len(sample) for sample in good] == sizes[:500], len(good)
assert all(set(sample.tolist()) == {{i % 251}} for i, sample in enumerate(good))
"""
    done = children.finished(code, path)
    assert done.returncode == 0, done.stderr


# Signals of others


@pytest.mark.parametrize("handlers", ["pass", "faulthandler.enable()"])
@pytest.mark.parametrize("later", ["pass", "faulthandler.enable()", "faulthandler.disable()"])
def test_faults_of_others_kill_as_ever(path, handlers, later):
    done = children.finished(f"{HOT}{handlers}\nreader = hot()\n{later}\nrequests(reader)\nfault()", path)
    assert done.returncode == -signal.SIGBUS, done
    last = handlers if later == "pass" else later
    assert ("Fatal Python error: Bus error" in done.stderr) == (last == "faulthandler.enable()")


@pytest.mark.parametrize("before", [True, False])
def test_signals_that_are_sent_arrive(path, before):
    code = f"""{HOT}
got = []
if {before}:
    signal.signal(signal.SIGBUS, lambda *_: got.append(1))
reader = hot()
if not {before}:
    signal.signal(signal.SIGBUS, lambda *_: got.append(1))
    requests(reader)
os.kill(os.getpid(), signal.SIGBUS)
assert got == [1]
cut(reader)
assert got == [1]
"""
    children.run(code, path)


def test_ignored_as_before(path):
    ignore = "signal.signal(signal.SIGBUS, signal.SIG_IGN)"
    children.run(f"{HOT}{ignore}\nreader = hot()\nos.kill(os.getpid(), signal.SIGBUS)\ncut(reader)", path)


def test_sent_by_default_kills(path):
    done = children.finished(f"{HOT}reader = hot()\nos.kill(os.getpid(), signal.SIGBUS)", path)
    assert done.returncode == -signal.SIGBUS


def test_blocked(path):
    """Then a fault would kill, so nothing is copied."""
    code = f"""{HOT}
reader = hot()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
assert requests(reader) > 0
cut(reader)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGBUS])
"""
    children.run(code, path)


@pytest.mark.parametrize("displace", ["faulthandler.enable()", "signal.signal(signal.SIGBUS, signal.SIG_DFL)"])
def test_displaced_in_a_forked_child(path, displace):
    """As torch's workers do, and faulthandler."""
    code = f"""{HOT}
reader = hot()
child = os.fork()
if child == 0:
    {displace}
    assert requests(reader) == 0
    cut(reader)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    children.run(code, path)


# Mappings


WINDOWS = f"""{HOT}
def windows():
    return sum(line.rstrip().endswith(".ffr") for line in Path("/proc/self/maps").read_text().splitlines())
"""


def test_unmapped_when_closed(path):
    children.run(
        f"{WINDOWS}reader = hot()\nassert windows() == 2\nreader.close()\ndel reader\nassert windows() == 0", path
    )


def test_no_more_than_open_files(tmp_path):
    for shard in range(60):
        builders.write_samples(tmp_path / f"{shard:02}.ffr", [bytes([shard]) * 500] * 20)
    code = f"""{WINDOWS}
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
reader = FileReader(path)
for _ in range(20):
    requests(reader, 400)
    assert windows() <= 60 + 2 * 16, windows()  # the tables of all, and a few
"""
    children.run(code, tmp_path)


@children.limits_memory
def test_without_address_space(path):
    code = f"""{HOT}
reader = FileReader(path)
used = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 20), resource.RLIM_INFINITY))
for _ in range(20):
    assert requests(reader, 16) > 0
"""
    children.run(code, path)


def test_a_large_cold_record_after_small_cached_ones(tmp_path):
    """It comes by reads, not by page faults, which read only a little at a time."""
    code = """
import resource, sys
import builders, situations
from pathlib import Path
import numpy as np
from ffrecord import FileReader
small, large = 400, 48 << 20
samples = [bytes([i % 251]) * 1000 for i in range(small)] + [np.random.default_rng(0).bytes(large)]
path = builders.write_samples(Path(sys.argv[1]), samples)
if not situations.can_be_evicted(path):
    sys.exit("nothing can be evicted")
situations.evict(path)
with FileReader(path) as reader:
    for batch in range(12):
        reader.read(range(small))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    assert reader.read([3, small, 5])[1].tobytes() == samples[-1]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before < 50
"""
    done = children.finished(code, str(tmp_path / "a.ffr"))
    if "nothing can be evicted" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (0, "")
