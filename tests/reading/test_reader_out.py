"""`read_packed(out=...)`: samples into memory of the caller's; and `read_range`."""

import mmap

import builders
import ffr_twin
import numpy as np
import pytest
import strategies
from builders import IO_MODES
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import ChecksumError, FileReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)
SMALL = builders.small()
TOTAL = sum(map(len, SMALL))


@in_every_mode
@given(data=st.data())
def test_the_bytes_of_read_packed(tmp_path, io, data):
    """At the start of `out`; what lies behind them stays as it was."""
    path = builders.write_samples(tmp_path / "a.ffr", SMALL)
    indices = data.draw(strategies.index_batches(8))
    size = sum(len(SMALL[i]) for i in indices)
    out = np.full(size + data.draw(st.integers(0, 50)), 0xEE, np.uint8)
    with FileReader(path, io=io) as reader:
        found, offsets = reader.read_packed(indices, out=out)
        assert builders.unpack((found, offsets)) == [SMALL[i] for i in indices]
    assert (len(found), found.dtype, found.ndim) == (size, np.uint8, 1)
    assert size == 0 or found.ctypes.data == out.ctypes.data
    assert (out[size:] == 0xEE).all()


def memory_map() -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, 4096), np.uint8)


OUTS = {
    "exact": lambda: np.empty(TOTAL, np.uint8),
    "floats": lambda: np.empty(TOTAL // 8 + 1, np.float64),
    "two axes": lambda: np.empty((TOTAL, 3), np.int16),
    "big-endian": lambda: np.empty(TOTAL, ">i4"),
    "a structure": lambda: np.empty(TOTAL, [("a", "u1"), ("b", "f4")]),
    "times": lambda: np.empty(TOTAL, "m8[s]"),
    "booleans": lambda: np.empty(TOTAL, bool),
    "of another array": lambda: np.empty(3 * TOTAL, np.uint8)[7 : 7 + TOTAL],
    "unaligned": lambda: np.empty(TOTAL + 1, np.uint8)[1:],
    "a bytearray's": lambda: np.frombuffer(bytearray(TOTAL), np.uint8),
    "a memory map": memory_map,
    "bytes of a fixed size": lambda: np.empty(TOTAL, "S3"),
}


@in_every_mode
@pytest.mark.parametrize("kind", OUTS)
def test_kinds_of_memory(small_file, io, kind):
    out = OUTS[kind]()
    with FileReader(small_file.path, io=io) as reader:
        found, _ = reader.read_packed(range(8), out=out)
    assert found.tobytes() == b"".join(SMALL)
    assert np.shares_memory(found, out)
    assert out.tobytes()[:TOTAL] == b"".join(SMALL)


WRONG = {
    "read-only": lambda: np.frombuffer(bytes(TOTAL), np.uint8),
    "strided": lambda: np.empty(2 * TOTAL, np.uint8)[::2],
    "backwards": lambda: np.empty(TOTAL, np.uint8)[::-1],
    "columns": lambda: np.empty((TOTAL, 2), np.uint8).T,
    "objects": lambda: np.empty(TOTAL, object),
    "objects inside": lambda: np.empty(TOTAL, [("a", "u1"), ("b", object)]),
    "one for all": lambda: np.broadcast_to(np.zeros(1, np.uint8), TOTAL),
    "a bytearray": lambda: bytearray(TOTAL),
    "a memoryview": lambda: memoryview(bytearray(TOTAL)),
    "a list": lambda: [0] * TOTAL,
    "a number": lambda: TOTAL,
    "text": lambda: "x" * TOTAL,
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_filled(small_file, kind):
    with (
        FileReader(small_file.path) as reader,
        pytest.raises(TypeError, match=r"out is .*, expected a writable C-contiguous"),
    ):
        reader.read_packed(range(8), out=WRONG[kind]())


@in_every_mode
@pytest.mark.parametrize("short", [1, 5, TOTAL])
def test_too_small(small_file, io, short):
    """Both numbers are named, nothing is written, the reader reads on."""
    out = np.full(TOTAL, 0xEE, np.uint8)[: TOTAL - short]
    with FileReader(small_file.path, io=io) as reader:
        with pytest.raises(ValueError, match=f"out has {TOTAL - short} bytes, expected at least {TOTAL}"):
            reader.read_packed(range(8), out=out)
        assert (out == 0xEE).all()
        assert reader.read_packed([0], out=np.empty(0, np.uint8))[0].shape == (0,)
        assert reader.read_packed([], out=out)[1].tolist() == [0]
        assert builders.read_all(reader) == SMALL


def test_the_same_memory_again_and_again(reader, sample_file):
    out = np.empty(sum(map(len, sample_file.samples)), np.uint8)
    random = np.random.default_rng(0)
    for _ in range(20):
        indices = random.permutation(reader.n)[: random.integers(1, reader.n)]
        assert builders.unpack(reader.read_packed(indices, out=out)) == [sample_file.samples[i] for i in indices]


@in_every_mode
def test_failures(tmp_path, io):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(SMALL)))
    out = np.empty(TOTAL + 10, np.uint8)
    with FileReader(path, io=io) as reader, pytest.raises(ChecksumError, match="Sample 5"):
        reader.read_packed(range(8), out=out)
    wanted = {"skip": SMALL[:5] + SMALL[6:], "more": [*SMALL[:5], b"longer" * 6, *SMALL[6:]]}
    for name, policy in (("skip", "skip"), ("more", lambda error: b"longer" * 6)):
        with FileReader(path, io=io, on_error=policy) as reader:
            found = reader.read_packed(range(8), out=out)
            assert builders.unpack(found) == wanted[name]
            assert np.shares_memory(found[0], out)
    with (
        FileReader(path, io=io, on_error=lambda error: bytes(100)) as reader,
        pytest.raises(ValueError, match="with the replacements"),
    ):
        reader.read_packed(range(8), out=out)


# Ranges


@in_every_mode
@given(low=st.integers(0, 8), high=st.integers(0, 8))
def test_ranges_are_slices(tmp_path, io, low, high):
    path = builders.write_samples(tmp_path / "a.ffr", SMALL)
    with FileReader(path, io=io) as reader:
        if low <= high:
            assert [sample.tobytes() for sample in reader.read_range(low, high)] == SMALL[low:high]
        else:
            with pytest.raises(IndexError, match=rf"range is {low} .. {high}, expected 0 <= start <= stop <= 8"):
                reader.read_range(low, high)


@in_every_mode
def test_long_ranges_over_many_files(tmp_path, io):
    """Several pieces, each of which begins and ends somewhere in a file."""
    parts = [builders.records([1500] * n, n) for n in (5000, 0, 1, 3000, 0, 2500)]
    names = [builders.write_samples(tmp_path / f"{i}.ffr", part) for i, part in enumerate(parts)]
    samples = [sample for part in parts for sample in part]
    with FileReader(names, io=io) as reader:
        for low, high in ((0, len(samples)), (4998, 5003), (100, 9000), (len(samples), len(samples))):
            assert [sample.tobytes() for sample in reader.read_range(low, high)] == samples[low:high]
        assert [sample.tobytes() for sample in reader[9000:20:-3]] == samples[9000:20:-3]
        assert [sample.tobytes() for sample in reversed(reader[:6000])] == samples[5999::-1]


@pytest.mark.parametrize("wrong", [(-1, 3), (0, 9), (5, 2**70), (-(2**70), 1)])
def test_ranges_outside(small_file, wrong):
    with FileReader(small_file.path) as reader, pytest.raises(IndexError):
        reader.read_range(*wrong)


@pytest.mark.parametrize("wrong", [(1.0, 2), (None, 3), ("0", 1), (0, [1])])
def test_ranges_of_something_else(small_file, wrong):
    with FileReader(small_file.path) as reader, pytest.raises(TypeError):
        reader.read_range(*wrong)


def test_a_range_with_a_damaged_sample(tmp_path):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(SMALL)))
    with FileReader(path) as reader:
        assert [sample.tobytes() for sample in reader.read_range(0, 5)] == SMALL[:5]
        with pytest.raises(ChecksumError, match="Sample 5"):
            reader.read_range(0, 8)
    with FileReader(path, on_error="skip") as reader:
        assert [sample.tobytes() for sample in reader.read_range(0, 8)] == SMALL[:5] + SMALL[6:]


def test_a_closed_reader(small_file):
    reader = FileReader(small_file.path)
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.read_range(0, 8)
