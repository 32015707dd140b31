"""Windows of mapped files: pages are mapped beside the batches, which are right before, meanwhile and after."""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import builders
import children
import numpy as np
import numpy.typing as npt
import pytest
import situations

from ffrecord import FileReader
from ffrecord.engine._engine import Slots
from ffrecord.errors import ClosedError

SIZE = 4096
COUNT = 5000  # ten blocks
BATCH = 256


@pytest.fixture(scope="module")
def samples() -> list[bytes]:
    return builders.records([SIZE - 3] * COUNT)


@pytest.fixture
def path(in_memory: Path, samples: list[bytes]) -> str:
    """Cached from the first batch on."""
    return builders.write_samples(in_memory / "a.ffr", samples)


def random_batch(seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, COUNT, BATCH)


def requests_of(reader: FileReader, indices: npt.NDArray[np.int64], samples: list[bytes]) -> int:
    """System calls that a batch took, whose samples are compared."""
    before = reader.stats().requests
    assert builders.unpack(reader.read_packed(indices)) == [samples[i] for i in indices]
    return reader.stats().requests - before


def until(condition: Callable[[], bool], seconds: float = 20 * children.PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def mapped_bytes(path: str) -> int:
    """That this process has in page tables, of a file."""
    found, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            here = line.endswith(path)
        elif here and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def until_mapped(reader: FileReader, samples: list[bytes]) -> list[int]:
    """Read until no batch takes system calls; how many each took."""
    counts: list[int] = []
    until(lambda: counts.append(requests_of(reader, random_batch(len(counts)), samples)) or counts[-3:] == [0, 0, 0])
    return counts


def test_by_calls_until_it_is_mapped(path: str, samples: list[bytes]) -> None:
    with FileReader(path) as reader:
        counts = until_mapped(reader, samples)
        assert counts[0] > BATCH / 2
        assert all(requests_of(reader, random_batch(seed), samples) == 0 for seed in range(20))
        assert mapped_bytes(path) > 0.9 * COUNT * SIZE


def test_a_few_records_map_nothing(path: str, samples: list[bytes]) -> None:
    with FileReader(path) as reader:
        for _ in range(2):  # of each block
            assert requests_of(reader, np.arange(0, COUNT, 500), samples) > 0
        time.sleep(0.05)
        assert mapped_bytes(path) < 0.1 * COUNT * SIZE


def test_what_is_read_is_mapped_and_nothing_else(path: str, samples: list[bytes]) -> None:
    with FileReader(path) as reader:
        until(lambda: requests_of(reader, random_batch(0) % 400, samples) == 0)
        assert mapped_bytes(path) < 0.5 * COUNT * SIZE


def test_large_records_are_soon_worth_it(in_memory: Path) -> None:
    samples = builders.records([2_500_001] * 12)
    path = builders.write_samples(in_memory / "large.ffr", samples)
    with FileReader(path) as reader:
        until(lambda: requests_of(reader, np.arange(12), samples) == 0)
        assert reader.stats().batches < 200 * children.PATIENCE


def test_columns(path: str, samples: list[bytes]) -> None:
    indices = random_batch(1)
    with FileReader(path) as reader:
        wanted = np.stack([np.frombuffer(samples[i], np.uint8) for i in indices])

        def calls() -> int:
            before = reader.stats().requests
            (column,) = reader._begin_columns(indices, Slots(SIZE - 3, [(0, SIZE - 3)]))().result
            assert np.array_equal(column, wanted)
            return reader.stats().requests - before

        assert calls() > 0
        until(lambda: calls() == 0)


def test_many_threads(path: str, samples: list[bytes]) -> None:
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for each in range(100):
                requests_of(reader, random_batch(1000 * seed + each), samples)
        except BaseException as error:
            wrong.append(error)

    with FileReader(path) as reader:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.usefixtures("nothing_leaks")
def test_closed_meanwhile(path: str, samples: list[bytes]) -> None:
    for rounds in range(40):
        with FileReader(path) as reader:
            for each in range(2 + rounds % 8):
                requests_of(reader, random_batch(each), samples)
        assert mapped_bytes(path) <= 2 * COUNT * 12  # its tables
        with pytest.raises(ClosedError):
            reader.read([0])


FEW_HELD = """
import resource, sys
import numpy as np
from ffrecord import FileReader
resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with FileReader(sys.argv[1:], check_data=True) as reader:
    for seed in range(400):
        random = np.random.default_rng(seed)
        indices = (random.integers(0, 6) * 2100 + random.integers(0, 4200, 200)) % reader.n
        for index, sample in zip(indices, reader.read(indices)):
            assert sample[:2].tobytes() == int(index).to_bytes(2, "big"), index
    assert reader.stats().open_files <= 4
"""


def test_windows_that_come_and_go(in_memory: Path) -> None:
    """Of more files than may be held, each of some blocks."""
    paths = [
        builders.write_samples(
            in_memory / f"{file}.ffr", [(file * 2100 + i).to_bytes(2, "big") * (SIZE // 2) for i in range(2100)]
        )
        for file in range(6)
    ]
    children.run(FEW_HELD, *paths)


@pytest.mark.parametrize("mapped", [False, True])
def test_forked(path: str, samples: list[bytes], mapped: bool) -> None:
    """A fork maps nothing of a file. It does not wait for the thread of its parent either.

    Where that thread lacked a CPU, batches take page faults instead, and no call is seen: then another reader tells.
    """
    told = Path(path).with_suffix(".told")
    for _ in range(20):
        with FileReader(path) as reader:
            if mapped:
                until_mapped(reader, samples)
            else:
                for each in range(5):
                    requests_of(reader, random_batch(each), samples)

            def read_on(reader: FileReader = reader) -> bool:
                told.write_text(str(requests_of(reader, random_batch(0), samples)))
                until_mapped(reader, samples)
                reader.close()
                return True

            assert children.in_child(read_on) == 0
        if int(told.read_text()) > 0:
            return
    pytest.fail("no child read a batch by calls")


CUT = """
import os, sys
import numpy as np
from ffrecord import FileReader
from ffrecord.errors import TruncatedError
reader, rounds = FileReader(sys.argv[1]), int(sys.argv[2])
for seed in range(rounds):
    reader.read(np.random.default_rng(seed).integers(0, reader.n, 256))
os.truncate(sys.argv[1], 3_000_000)
for seed in range(200):
    try:
        reader.read(np.random.default_rng(seed).integers(0, reader.n, 256))
    except TruncatedError:
        continue
    sys.exit("nothing was noticed")
assert reader.read_one(0).size == 4093
"""


@pytest.mark.parametrize("rounds", [0, 1, 4, 5, 6, 8, 60])
def test_cut_meanwhile(path: str, rounds: int) -> None:
    children.run(CUT, path, rounds)


REFUSED = """
import errno, sys
import children
import numpy as np
from ffrecord import FileReader
children.refuse(sys.argv[2], errno.EINVAL)
with FileReader(sys.argv[1]) as reader:
    for seed in range(2000):
        before = reader.stats().requests
        reader.read(np.random.default_rng(seed).integers(0, reader.n, 256))
        if reader.stats().requests == before:
            sys.exit(0)
sys.exit("it never ends")
"""


def test_where_it_cannot_be_asked_for(path: str) -> None:
    """Linux before 5.14: page faults."""
    children.run(REFUSED, path, "madvise")


@pytest.fixture
def evictable(tmp_path: Path, samples: list[bytes]) -> str:
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    if not situations.can_be_evicted(path):
        pytest.skip("nothing can be evicted from the page cache here")
    return path


def test_evicted_and_cached_again(evictable: str, samples: list[bytes]) -> None:
    with FileReader(evictable) as reader:
        until_mapped(reader, samples)
        situations.evict(evictable)
        assert mapped_bytes(evictable) == 0
        until_mapped(reader, samples)


def test_a_sequence_that_was_evicted(evictable: str, samples: list[bytes]) -> None:
    """It goes back to the kernel's read-ahead: by page faults it would wait for each page."""
    with FileReader(evictable) as reader:
        until_mapped(reader, samples)
        situations.evict(evictable)
        before = reader.stats().waits
        assert [sample.tobytes() for sample in reader] == samples
        assert reader.stats().waits - before < len(samples) // 20


def punch(path: str, size: int) -> None:
    """Make a hole of a page in each `size` bytes of a file."""
    keep_size_and_punch = 3
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file:
        for start in range(size, os.path.getsize(path) - size, size):
            where = ctypes.c_int64(start), ctypes.c_int64(situations.PAGE)
            assert libc.fallocate(file.fileno(), keep_size_and_punch, *where) == 0, os.strerror(ctypes.get_errno())


def test_blocks_that_are_not_cached_as_a_whole(in_memory: Path) -> None:
    """They take their page faults, and are not read by calls for ever."""
    samples = [bytes(SIZE)] * COUNT
    path = builders.write_samples(in_memory / "holes.ffr", samples)
    punch(path, 512 << 10)
    assert situations.cached_share(path) < 1
    with FileReader(path) as reader:
        until_mapped(reader, samples)
