"""`FileReader.iter_batches`: what `read` gives, while the next batches are being read."""

import itertools
import threading
from collections.abc import Iterator

import builders
import children
import ffr_twin
import numpy as np
import pytest
import strategies
from builders import IO_MODES
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import ChecksumError, FileReader
from ffrecord.reading.prefetch import Prefetcher

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)
SMALL = builders.small()


def taken(result: object, packed: bool) -> list[bytes]:
    return builders.unpack(result) if packed else [sample.tobytes() for sample in result]


@given(
    st.lists(strategies.index_batches(8), max_size=12),
    st.integers(0, 8),
    st.booleans(),
    strategies.io_modes,
)
def test_what_read_gives(tmp_path, batches, prefetch, packed, io):
    path = builders.write_samples(tmp_path / "a.ffr", SMALL)
    with FileReader(path, io=io) as reader:
        found = [taken(result, packed) for result in reader.iter_batches(batches, prefetch, packed=packed)]
    assert found == [[SMALL[i] for i in batch] for batch in batches]


@pytest.mark.parametrize("prefetch", range(9))
def test_large_batches_in_order(reader, sample_file, prefetch):
    random = np.random.default_rng(prefetch)
    batches = [random.integers(-reader.n, reader.n, random.integers(0, 100)) for _ in range(20)]
    for batch, arrays in zip(batches, reader.iter_batches(iter(batches), prefetch), strict=True):
        assert [array.tobytes() for array in arrays] == [sample_file.samples[i] for i in batch]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_memory_is_bounded(reader, prefetch):
    """Batches are taken from the iterable as they are begun, never more than so many ahead."""
    taken_now = []

    def batches() -> Iterator[range]:
        for i in itertools.count():
            taken_now.append(i)
            yield range(i % 200, i % 200 + 20)

    for turn, _ in enumerate(itertools.islice(reader.iter_batches(batches(), prefetch), 50)):
        assert len(taken_now) == turn + 1 + prefetch


KINDS = {
    "list": lambda: [3, 1],
    "tuple": lambda: (3, 1),
    "range": lambda: range(3, 0, -2),
    "array": lambda: np.array([3, 1], np.uint8),
    "iterator": lambda: iter([3, 1]),
    "generator": lambda: (i for i in (3, 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_kinds_of_batches(small_file, kind, prefetch):
    with FileReader(small_file.path) as reader:
        (arrays,) = reader.iter_batches([KINDS[kind]()], prefetch)
        assert [array.tobytes() for array in arrays] == [SMALL[3], SMALL[1]]


@pytest.mark.parametrize("wrong", [-1, -(2**70), 1.0, "2", None])
def test_wrong_prefetch(small_file, wrong):
    with FileReader(small_file.path) as reader, pytest.raises((ValueError, TypeError)):
        reader.iter_batches([[1]], wrong)


def test_the_kind_of_iterator(small_file):
    with FileReader(small_file.path) as reader:
        batches = reader.iter_batches([[1], [2], [3]])
        assert isinstance(batches, Prefetcher)
        assert iter(batches) is batches
        next(batches)
        batches.close()
        assert list(batches) == []


# Errors in their turn


def outcomes(batches: Iterator[object], packed: bool) -> list[object]:
    found = []
    while True:
        try:
            found.append(taken(next(batches), packed))
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error).__mro__)


@in_every_mode
@pytest.mark.parametrize("prefetch", [0, 1, 3, 20])
@pytest.mark.parametrize("packed", [False, True])
def test_errors_in_their_turn(tmp_path, io, prefetch, packed):
    """Wrong indices, damaged samples, no list at all: the batches around them are there."""
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(SMALL)))
    batches = [[1], [5], [2, 3], [8], [4], ["x"], [0], None, [6], [1, 5, 2], []]
    wanted = [[1], ChecksumError, [2, 3], IndexError, [4], TypeError, [0], TypeError, [6], ChecksumError, []]
    with FileReader(path, io=io) as reader:
        found = outcomes(reader.iter_batches(batches, prefetch, packed=packed), packed)
    for got, expected in zip(found, wanted, strict=True):
        assert expected in got if isinstance(expected, type) else got == [SMALL[i] for i in expected]


@in_every_mode
def test_errors_name_the_sample(tmp_path, io):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(SMALL)))
    with FileReader(path, io=io) as reader:
        batches = reader.iter_batches([[1], [-3]])
        next(batches)
        with pytest.raises(ChecksumError, match="Sample 5: ") as caught:
            next(batches)
        assert (caught.value.path, caught.value.index) == (path, 5)


@in_every_mode
@pytest.mark.parametrize("prefetch", [0, 3])
def test_skip_and_replace(tmp_path, io, prefetch):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(SMALL)))
    for policy, instead in (("skip", []), (lambda error: b"lost", [b"lost"])):
        with FileReader(path, io=io, on_error=policy) as reader:
            for packed in (False, True):
                found = [
                    taken(each, packed) for each in reader.iter_batches([[5, 4], [5], [3]], prefetch, packed=packed)
                ]
                assert found == [[*instead, SMALL[4]], instead, [SMALL[3]]]
            assert reader.skipped == reader.stats().skipped == 4


# Ends


@in_every_mode
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_closing_the_reader_midway(sample_file, io, prefetch):
    reader = FileReader(sample_file.path, io=io)
    batches = reader.iter_batches([range(100)] * 10, prefetch)
    arrays = next(batches)
    reader.close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="FileReader has been closed"):
            next(batches)
    assert [array.tobytes() for array in arrays] == sample_file.samples[:100]


@in_every_mode
def test_dropping_the_iterator_midway(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        for prefetch in (0, 1, 3, 8):
            for _ in range(10):
                next(reader.iter_batches([range(reader.n)] * 20, prefetch))
        assert builders.read_all(reader) == sample_file.samples


@in_every_mode
def test_results_outlive_everything(sample_file, io):
    """Memory is used again for later batches, but not that of results that somebody has."""
    with FileReader(sample_file.path, io=io) as reader:
        kept = list(reader.iter_batches([range(i, i + 30) for i in range(0, 240, 10)], 4))
    for number, arrays in enumerate(kept):
        assert [array.tobytes() for array in arrays] == sample_file.samples[10 * number : 10 * number + 30]


@in_every_mode
def test_several_iterators_of_one_reader(sample_file, io):
    """In one thread by turns, and in several threads at once."""
    wanted = sample_file.samples

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        mine = [random.integers(0, reader.n, 30) for _ in range(20)]
        for batch, packed in zip(mine, reader.iter_batches(mine, seed % 4, packed=True), strict=True):
            if builders.unpack(packed) != [wanted[i] for i in batch]:
                wrong.append(seed)

    with FileReader(sample_file.path, io=io) as reader:
        up = reader.iter_batches(([i] for i in range(100)), 3)
        down = reader.iter_batches(([i] for i in reversed(range(100))), 5)
        for i, ((first,), (last,)) in enumerate(zip(up, down, strict=True)):
            assert (first.tobytes(), last.tobytes()) == (wanted[i], wanted[99 - i])
        wrong: list[int] = []
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_batches_that_no_thread_takes(sample_file):
    """Every thread of the engine is busy elsewhere: then who waits for a batch reads it."""
    code = """
import sys, time
import builders, children
from ffrecord import FileReader
from ffrecord.kernels import _threads
tasks = _threads.Probe(64, microseconds=3_000_000 * children.PATIENCE)
for i in range(64):
    tasks.submit(i, 32)
start = time.monotonic()
with FileReader(sys.argv[1]) as reader:
    assert reader._engine.n == 301
    for arrays in reader.iter_batches([range(301)] * 5, 2):
        assert len(arrays) == 301
    rounds = (32 << 20) // sum(map(len, arrays)) + 1
    large = reader.read(list(range(301)) * rounds)  # more than is read without looking for signals
    assert sum(map(len, large)) >= 32 << 20
assert time.monotonic() - start < 2.5 * children.PATIENCE
import os
os._exit(0)
"""
    children.run(code, sample_file.path)
