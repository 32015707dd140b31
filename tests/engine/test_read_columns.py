"""`read_columns` and `iter_columns`: pieces of every sample of a batch side by side, whatever engine reads them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import children
import numpy as np
import pytest
import situations
import strategies
from builders import IO_MODES
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord import ChecksumError, FileReader, FormatError
from ffrecord.engine._engine import Slots
from ffrecord.errors import TruncatedError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
FEW = settings(max_examples=max(10, settings().max_examples // 2))
Pieces = list[tuple[int, int]]

# Of records too small for a computation each, of several blocks, and beyond what is stored at once.
SIZES = (0, 1, 8, 100, 1023, 3080, 4097, 70_001)
N = 30
WAYS = (*IO_MODES, "hot")  # "hot": copied out of mappings, from the first batch on
in_every_way = pytest.mark.parametrize("way", WAYS)


def samples_of(size: int) -> list[bytes]:
    return builders.records([size] * N, size)


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Path]:
    """On tmpfs, whose files are cached from the first batch on."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm is not there")
    directory = tempfile.mkdtemp(dir="/dev/shm")
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def files(tmp_path_factory, in_memory) -> Callable[[int, str], list[str]]:
    """Names of two files with the samples of a size, on a disk or in memory."""
    directory: Path = tmp_path_factory.mktemp("columns")

    def made(size: int, way: str) -> list[str]:
        place = in_memory if way == "hot" else directory
        names = [place / f"{size}-{part}.ffr" for part in "ab"]
        for name, part in zip(names, (samples_of(size)[:11], samples_of(size)[11:]), strict=True):
            if not name.exists():
                builders.write_samples(name, part)
        return [str(name) for name in names]

    return made


def opened(files: Any, size: int, way: str, check: bool = True, **options: Any) -> FileReader:
    return FileReader(files(size, way), check, io="auto" if way == "hot" else way, **options)


def cut(samples: list[bytes], indices: Any, slots: Pieces) -> list[list[bytes]]:
    """What is to be found in the columns."""
    return [[samples[i][offset : offset + size] for i in indices] for offset, size in slots]


def rows(columns: list[np.ndarray]) -> list[list[bytes]]:
    return [[row.tobytes() for row in column] for column in columns]


@st.composite
def pieces(draw: st.DrawFn, record_size: int) -> Pieces:
    """Slots: of one record side by side, with or without what is between them, or anywhere in it."""
    cuts = sorted(draw(st.lists(st.integers(0, record_size), max_size=6)))
    apart = [(low, high - low) for low, high in zip([0, *cuts], [*cuts, record_size], strict=True)]
    anywhere = st.integers(0, record_size).flatmap(
        lambda low: st.tuples(st.just(low), st.integers(0, record_size - low))
    )
    some = st.lists(st.sampled_from(apart), unique=True)
    return draw(st.permutations(draw(st.one_of(st.just(apart), some, st.lists(anywhere, max_size=6)))))


# What is read


@in_every_way
@pytest.mark.parametrize("check", [True, False])
@FEW
@given(data=st.data())
def test_the_pieces_of_read(files, way, check, data):
    size = data.draw(st.sampled_from(SIZES))
    slots = data.draw(pieces(size))
    with opened(files, size, way, check) as reader:
        for indices in data.draw(st.lists(strategies.index_batches(N), min_size=1, max_size=3)):
            columns = reader.read_columns(indices, size, slots)
            assert [column.shape for column in columns] == [(len(indices), size) for _, size in slots]
            assert all(column.dtype == np.uint8 and column.flags.carray for column in columns)
            whole = [sample.tobytes() for sample in reader.read(indices)]
            assert rows(columns) == cut(whole, range(len(indices)), slots) == cut(samples_of(size), indices, slots)


@in_every_way
@FEW
@given(data=st.data())
def test_into_memory_of_the_caller(files, way, data):
    """At the start of each array, whatever its type; what lies behind stays as it was."""
    size = data.draw(st.sampled_from((8, 100, 3080)))
    slots, indices = data.draw(pieces(size)), data.draw(strategies.index_batches(N))
    spare = data.draw(st.integers(0, 3))
    out = [np.full((len(indices) + spare, size // 2, 2), 0xEE, np.uint8) for _ in slots]
    with opened(files, size, way) as reader:
        columns = reader.read_columns(indices, size, slots, out)
    assert rows(columns) == cut(samples_of(size), indices, slots)
    for column, room in zip(columns, out, strict=True):
        assert column.size == 0 or column.ctypes.data == room.ctypes.data
        assert (room.reshape(-1)[column.size :] == 0xEE).all()


@in_every_way
@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("given_out", [True, False])
def test_batches_ahead(files, way, prefetch, given_out):
    """Those kept stay what they are, though their memory is used again once they are dropped."""
    random, slots = np.random.default_rng(prefetch), [(3072, 8), (0, 3072)]
    batches = [random.integers(-N, N, count) for count in (*[50] * 30, 0, 1, 7, 300)]
    asked, kept = [], []

    def room(count: int) -> list[np.ndarray]:
        asked.append(count)
        return [np.zeros(count, np.uint64), np.zeros((count, 32, 32, 3), np.uint8)]

    with opened(files, 3080, way) as reader:
        read = reader.iter_columns(iter(batches), 3080, slots, prefetch, out=room if given_out else None, threads=2)
        for indices, columns in zip(batches, read, strict=True):
            assert rows(columns) == cut(samples_of(3080), indices, slots)
            if len(kept) < 3:
                kept.append((indices, columns))
    assert asked == ([len(indices) for indices in batches] if given_out else [])
    for indices, columns in kept:
        assert rows(columns) == cut(samples_of(3080), indices, slots)


@in_every_way
@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_batches_of_all_sizes(files, way, count):
    slots = [(60, 40), (8, 8), (0, 0)]
    indices = np.random.default_rng(count).integers(0, N, count)
    table = np.frombuffer(b"".join(samples_of(100)), np.uint8).reshape(N, 100)
    with opened(files, 100, way) as reader:
        for column, (offset, size) in zip(reader.read_columns(indices, 100, slots), slots, strict=True):
            assert (column == table[indices, offset : offset + size]).all()
        assert reader.read_columns(indices, 100, []) == []


@pytest.mark.parametrize("way", [*WAYS, "cold"])
@pytest.mark.parametrize("form", ["large", "many"])
def test_more_than_is_read_at_once(tmp_path, in_memory, way, form):
    """Whole records are on their way to columns 256 KiB or 32 MiB at a time."""
    size, count = (9 << 20, 5) if form == "large" else (20_000, 200)
    samples = [bytes([i]) * size for i in range(count)]
    path = builders.write_samples((in_memory if way == "hot" else tmp_path) / "large.ffr", samples)
    if way == "cold":
        situations.evict(path)
    indices = [*range(count), *range(count - 1, -1, -1)]
    with FileReader(path, io=way if way in IO_MODES else "auto") as reader:
        (column,) = reader.read_columns(indices, size, [(5, size - 7)])
        assert (column == np.array(indices, np.uint8)[:, None]).all()
        assert reader.stats().records == 2 * count


def test_a_mapping_is_not_exposed(files):
    with opened(files, 4097, "mmap") as reader:
        for column in reader.read_columns(range(N), 4097, [(0, 4096), (4096, 1)]):
            column[:] = 0
        assert builders.read_all(reader) == samples_of(4097)


def test_through_a_server(tmp_path):
    """A FUSE file system stands in for all that are read by threads."""
    builders.write_samples(tmp_path / "a.ffr", samples_of(3080))
    indices, slots = list(range(-N, N)) * 5, [(8, 3000), (0, 8)]
    with situations.fuse_mount(tmp_path) as mounted, FileReader(mounted / "a.ffr") as reader:
        assert reader.stats().engines == {"fuse": "threads"}
        assert rows(reader.read_columns(indices, 3080, slots)) == cut(samples_of(3080), indices, slots)


# What is wrong


@pytest.mark.parametrize(
    ("size", "slots", "message"),
    [
        (-1, [], "record_size is -1"),
        (2**70, [], "record_size is 1180591620717411303424"),
        (8, [(0, 9)], "slot 0 has 9 bytes at offset 0, expected within 8 bytes"),
        (8, [(0, 8), (1, 8)], "slot 1 has 8 bytes at offset 1"),
        (8, [(-1, 4)], "slot 0 has 4 bytes at offset -1"),
        (8, [(4, -1)], "slot 0 has -1 bytes at offset 4"),
        (8, [(2**70, 1)], "slot 0 has 1 bytes"),
    ],
)
def test_wrong_slots(files, size, slots, message):
    with opened(files, 8, "auto") as reader:
        for call in (reader.read_columns, reader.iter_columns):
            with pytest.raises(ValueError, match=message):
                call([0], size, slots)


@pytest.mark.parametrize("wrong", [[1], [(1,)], [(1, 2, 3)], [("a", "b")], 5, [(0.5, 1)]])
def test_wrong_types_of_slots(wrong):
    with pytest.raises((TypeError, ValueError)):
        Slots(8, wrong)


def read_only() -> np.ndarray:
    return np.frombuffer(bytes(80), np.uint8)


@pytest.mark.parametrize(
    ("out", "kind", "message"),
    [
        ([], ValueError, "out has 0 arrays, expected 2, one for each slot"),
        ([np.zeros(80)] * 3, ValueError, "out has 3 arrays"),
        (
            [np.zeros(80), np.zeros(79, np.uint8)],
            ValueError,
            r"out\[1\] has 79 bytes, expected at least 80 for 10 records",
        ),
        ([np.zeros(80), read_only()], TypeError, "writable C-contiguous"),
        ([np.zeros(80), np.zeros(160, np.uint8)[::2]], TypeError, "writable C-contiguous"),
        ([np.zeros(80), bytearray(80)], TypeError, "writable C-contiguous"),
    ],
)
def test_wrong_memory(files, out, kind, message):
    with opened(files, 100, "auto") as reader:
        with pytest.raises(kind, match=message):
            reader.read_columns(range(10), 100, [(0, 1), (10, 8)], out)
        with pytest.raises(kind, match=message):
            next(reader.iter_columns([range(10)], 100, [(0, 1), (10, 8)], out=lambda count: out))


@pytest.mark.parametrize("threads", [0, 33])
def test_wrong_numbers_of_threads(files, threads):
    with opened(files, 8, "auto") as reader, pytest.raises(ValueError, match=f"threads is {threads}, expected 1 to 32"):
        reader.iter_columns([], 8, [], threads=threads)


@in_every_way
def test_indices_out_of_range_and_closed_readers(files, way):
    with opened(files, 8, way) as reader:
        with pytest.raises(IndexError, match="index >= number of samples"):
            reader.read_columns([0, N], 8, [(0, 8)])
        batches = reader.iter_columns([[0], [N], [1]], 8, [(0, 8)])
        assert rows(next(batches)) == [[samples_of(8)[0]]]
        with pytest.raises(IndexError, match="index >= number of samples"):
            next(batches)
        assert rows(next(batches)) == [[samples_of(8)[1]]]
        left = reader.iter_columns([[0]] * 9, 8, [(0, 8)])
        next(left)
    with pytest.raises(ValueError, match="closed"):
        reader.read_columns([0], 8, [(0, 8)])
    with pytest.raises(ValueError, match="closed"):
        next(left)


@pytest.fixture(params=WAYS)
def place(request, tmp_path, in_memory) -> Iterator[tuple[Path, str]]:
    """A file to be made, and how to read it."""
    hot = request.param == "hot"
    path = (in_memory if hot else tmp_path) / "damaged.ffr"
    yield path, "auto" if hot else request.param
    path.unlink(missing_ok=True)


def damaged(path: Path, samples: list[bytes], changes: list[tuple[int, int]]) -> str:
    """A file of samples of one size, in some of which the bit at a byte is not what was written: [(sample, byte)]."""
    data = bytearray(builders.ffr_twin.build(samples))
    for index, byte in changes:
        data[len(data) - (len(samples) - index) * len(samples[0]) + byte] ^= 0x10
    return builders.write(path, bytes(data))


@pytest.mark.parametrize("size", [100, 3080])
def test_damage_anywhere_in_a_sample_is_found(place, size):
    """Also between the pieces, which nobody gets."""
    path, io = place
    slots = [(size - 30, 20), (10, size - 60)]
    for byte in (0, 9, 10, size // 2, size - 51, size - 50, size - 31, size - 30, size - 11, size - 10, size - 1):
        samples = samples_of(size)
        with FileReader(damaged(path, samples, [(17, byte)]), io=io) as reader:
            with pytest.raises(ChecksumError, match="Sample 17: checksum mismatch:") as caught:
                reader.read_columns(range(N), size, slots)
            assert (caught.value.index, caught.value.path) == (17, str(path))
            assert rows(reader.read_columns([16, 18] * 5, size, slots)) == cut(samples, [16, 18] * 5, slots)
    with FileReader(str(path), False, io=io) as reader:
        (column,) = reader.read_columns([17] * 9, size, [(size - 1, 1)])
        assert (column == samples_of(size)[17][-1] ^ 0x10).all()


INDICES = [5, 17, -N, 3, 17, 9, 29, 5, 12]
SLOTS = [(90, 10), (0, 60), (50, 20)]  # they overlap


def test_skipped_rows_are_left_out_of_all(place):
    path, io = place
    damaged(path, samples_of(100), [(17, 70), (9, 0)])
    good = [i for i in INDICES if i not in (17, 9)]
    with FileReader(path, io=io, on_error="skip") as reader:
        assert rows(reader.read_columns(INDICES, 100, SLOTS)) == cut(samples_of(100), good, SLOTS)
        assert reader.skipped == 3
        out = [np.zeros(1000, np.uint8) for _ in SLOTS]
        columns = reader.read_columns(INDICES, 100, SLOTS, out)
        assert all(np.shares_memory(column, room) for column, room in zip(columns, out, strict=True))
        assert rows(columns) == cut(samples_of(100), good, SLOTS)
        for prefetch in (0, 2):
            (columns,) = reader.iter_columns([INDICES], 100, SLOTS, prefetch)
            assert rows(columns) == cut(samples_of(100), good, SLOTS)
        assert reader.skipped == 12
        assert [column.shape for column in reader.read_columns([17] * 9, 100, SLOTS)] == [(0, 10), (0, 60), (0, 20)]


def test_replaced_rows(place):
    path, io = place
    damaged(path, samples_of(100), [(17, 70), (9, 0)])
    other = bytes(range(100))
    wanted = [other if i in (17, 9) else samples_of(100)[i] for i in INDICES]
    with FileReader(path, io=io, on_error=lambda error: np.frombuffer(other, np.uint8)) as reader:
        assert rows(reader.read_columns(INDICES, 100, SLOTS)) == cut(wanted, range(len(INDICES)), SLOTS)
        assert reader.skipped == 3
    reader = FileReader(path, io=io, on_error=lambda error: np.zeros(99, np.uint8))
    with reader, pytest.raises(ValueError, match="on_error returned 99 bytes for sample 1 of the batch, expected 100"):
        reader.read_columns(INDICES, 100, SLOTS)


def test_samples_of_other_sizes(place):
    path, io = place
    samples = builders.records([100, 99, 100, 101, 0, 100])
    builders.write_samples(path, samples)
    message = rf"Sample 3: {path}: sample 3: 101 bytes at offset \d+, expected 100"
    with FileReader(path, io=io) as reader:
        with pytest.raises(FormatError, match=message):
            reader.read_columns([0, 5, 3, 2], 100, SLOTS)
        assert rows(reader.read_columns([0, 5, 2], 100, SLOTS)) == cut(samples, [0, 5, 2], SLOTS)
    with FileReader([path, path], io=io, on_error="skip") as reader:
        assert rows(reader.read_columns(range(12), 100, SLOTS)) == cut(samples, [0, 2, 5] * 2, SLOTS)
        assert reader.skipped == 6


def test_which_samples_failed_and_why(place):
    """For loaders: the others are read, whatever `on_error` says."""
    path, io = place
    damaged(path, samples_of(100), [(17, 70), (9, 0)])
    with FileReader(path, io=io) as reader:
        for _ in range(2):
            outcome = reader._begin_columns(np.array(INDICES), Slots(100, SLOTS))()
            assert [place for place, _ in outcome.failures] == [1, 4, 5]
            assert [error.index for _, error in outcome.failures] == [17, 17, 9]
            for column, wanted in zip(rows(outcome.result), cut(samples_of(100), INDICES, SLOTS), strict=True):
                assert [row for place, row in enumerate(column) if place not in (1, 4, 5)] == [
                    row for place, row in enumerate(wanted) if place not in (1, 4, 5)
                ]
        packed = reader._begin_packed(INDICES)()
        assert [place for place, _ in packed.failures] == [1, 4, 5]
        assert builders.unpack(packed.result)[2:4] == [samples_of(100)[0], samples_of(100)[3]]
        outcome = reader._begin_columns([1], Slots(99, []))()
        assert outcome.result == []
        ((place, error),) = outcome.failures
        assert (place, type(error)) == (0, FormatError)
        assert reader.skipped == 0


@pytest.mark.parametrize("way", ["pread", "auto", "direct", "hot"])
@pytest.mark.parametrize("check", [True, False])
def test_files_cut_while_they_are_open(tmp_path, in_memory, way, check):
    """Where a page is cut in two, its rest reads as zeros; nobody is killed."""
    path = (in_memory if way == "hot" else tmp_path) / "cut.ffr"
    builders.write_samples(path, samples_of(3080))
    start = len(path.read_bytes()) - N * 3080
    slots = [(3072, 8), (0, 3000)]
    with FileReader(path, check, io="auto" if way == "hot" else way, on_error="skip") as reader:
        reader.read_columns(range(N), 3080, slots)
        for left, size in ((20, start + 20 * 3080 + 3079), (11, start + 11 * 3080 + 1), (3, start + 3 * 3080)):
            with path.open("r+b") as file:
                file.truncate(size)
            assert rows(reader.read_columns(range(N), 3080, slots)) == cut(samples_of(3080), range(left), slots)
    path.unlink()


def test_lost_samples_are_truncated_ones(tmp_path):
    path = Path(builders.write_samples(tmp_path / "a.ffr", samples_of(3080)))
    with FileReader(path) as reader:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 1)
        with pytest.raises(TruncatedError, match=f"Sample {N - 1}"):
            reader.read_columns(range(N), 3080, [(0, 8)])


@in_every_way
def test_begun_before_a_fork(files, way):
    slots = [(0, 3072), (3072, 8)]
    wanted = cut(samples_of(3080), range(N), slots)
    with opened(files, 3080, way) as reader:
        batches = reader.iter_columns([range(N)] * 9, 3080, slots, 3)
        assert rows(next(batches)) == wanted
        assert children.in_child(lambda: [rows(columns) for columns in batches] == [wanted] * 8) == 0
        assert [rows(columns) for columns in batches] == [wanted] * 8
