"""A sample is all bytes of a buffer, in C order: what `memoryview(x).tobytes()` gives."""

import array
import ctypes
import mmap
import warnings

import numpy as np
import pytest

from ffrecord import FileReader, FileWriter

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


class Structure(ctypes.Structure):
    _fields_ = (("Origin", ctypes.c_int32), ("Offset", ctypes.c_double))


def mapped() -> mmap.mmap:
    memory = mmap.mmap(-1, 100)
    memory[:] = bytes(range(100))
    return memory


def read_only() -> np.ndarray:
    values = np.arange(10)
    values.flags.writeable = False
    return values


GRID = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # numpy would rather have no matrices
    MATRIX = np.asmatrix(GRID[0])
RECORD = np.zeros(3, [("Origin", "<i4"), ("x", "<f8", (2,))])
BUFFERS = {
    "bytes": b"abc",
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"abc"),
    "memoryview of ints": memoryview(array.array("i", range(10))),
    "memoryview cast": memoryview(b"abcdefgh").cast("Q"),
    "memoryview 2-D": memoryview(b"abcdef").cast("B", (2, 3)),
    "memoryview strided": memoryview(b"abcdef")[::2],
    "memoryview reversed": memoryview(b"abcdef")[::-1],
    "memoryview read-only": memoryview(bytearray(b"abc")).toreadonly(),
    "memoryview of records": memoryview(RECORD),
    "memoryview Fortran": memoryview(np.asfortranarray(GRID)),
    "array.array": array.array("d", [1.5, 2.5]),
    "mmap": mapped(),
    "ctypes": (ctypes.c_int * 5)(1, 2, 3),
    "ctypes structure": Structure(1, 2.0),
    "uint8": np.arange(100, dtype=np.uint8),
    "int32": np.arange(10, dtype=np.int32),
    "float32": np.linspace(0, 1, 7, dtype=np.float32),
    "big-endian": np.arange(10, dtype=">i8"),
    "complex": np.arange(4) + 1j,
    "bool": np.array([True, False]),
    "2-D": GRID[0],
    "3-D": GRID,
    "Fortran": np.asfortranarray(GRID),
    "transposed": GRID.T,
    "strided": GRID[:, ::2],
    "reversed": GRID[::-1, :, ::-1],
    "broadcast": np.broadcast_to(np.int16(7), (3, 4)),
    "0-d": np.array(3.5),
    "scalar": np.float64(3.5),
    "read-only": read_only(),
    "records": RECORD,
    "record array": RECORD.view(np.recarray),
    "text": np.array(["a", "bc"]),
    "times": np.array(["2020-01-01"], "M8[s]"),
    "matrix": MATRIX,
    "masked": np.ma.masked_array(np.arange(5), [0, 1, 0, 0, 1]),
    "empty": b"",
    "empty bytearray": bytearray(),
    "empty array": np.empty((3, 0, 2), np.float32),
    "empty memoryview": memoryview(b"").cast("B"),
    "empty strided": memoryview(b"abc")[3:][::2],
    "large strided": np.arange(1 << 20, dtype=np.int32)[::2],
}


def bytes_of(buffer: object) -> bytes:
    return np.asarray(buffer).tobytes() if isinstance(buffer, np.ndarray) else memoryview(buffer).tobytes()


@pytest.mark.parametrize("n", [len(BUFFERS), None])
@pytest.mark.parametrize("io", ["auto", "direct"])
def test_all_kinds_in_one_file(tmp_path, n, io):
    with FileWriter(tmp_path / "a.ffr", n) as writer:
        for buffer in BUFFERS.values():
            writer.write_one(buffer)
    with FileReader(tmp_path / "a.ffr", io=io) as reader:
        got = dict(zip(BUFFERS, reader.read(range(reader.n)), strict=True))
    assert [kind for kind in BUFFERS if got[kind].tobytes() != bytes_of(BUFFERS[kind])] == []


@pytest.mark.parametrize("kind", BUFFERS)
def test_each_kind(tmp_path, kind):
    with FileWriter(tmp_path / "a.ffr", 2) as writer:
        writer.write_one(BUFFERS[kind])
        writer.write_one(b"next")
    with FileReader(tmp_path / "a.ffr") as reader:
        assert [sample.tobytes() for sample in reader] == [bytes_of(BUFFERS[kind]), b"next"]


class Objects(ctypes.Structure):
    _fields_ = (("x", ctypes.py_object),)


NO_BUFFERS = [
    "text", 3, 3.5, None, [1, 2], (b"a",), {"a": 1}, object(), range(3), iter(b"abc"),
    np.array([b"abc", None], object), np.array([], object), np.zeros(2, [("a", "i4"), ("O", object)]),
    memoryview(np.array([None])), Objects(1), (ctypes.py_object * 2)(),
]  # fmt: skip


@pytest.mark.parametrize("wrong", NO_BUFFERS, ids=lambda value: type(value).__name__)
def test_no_buffer(tmp_path, wrong):
    """Refused before anything is noted: the writer goes on."""
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        with pytest.raises(TypeError, match=r"a\.ffr: sample 0: "):
            writer.write_one(wrong)
        for samples in ([wrong], iter([wrong])):
            with pytest.raises(TypeError, match=r"a\.ffr: sample 0: an? "):
                writer.write_many(samples)
        assert writer.count == 0
        writer.write_one(b"x")
    with FileReader(tmp_path / "a.ffr") as reader:
        assert [sample.tobytes() for sample in reader] == [b"x"]


def test_released_memoryview(tmp_path):
    view = memoryview(b"abc")
    view.release()
    with FileWriter(tmp_path / "a.ffr", 0) as writer, pytest.raises(ValueError, match="released"):
        writer.write_one(view)


def test_samples_are_taken_when_written(tmp_path):
    """One buffer filled again and again, as loops do."""
    buffer = bytearray(10)
    with FileWriter(tmp_path / "a.ffr", 20) as writer:
        for i in range(20):
            buffer[:] = bytes([i]) * 10
            writer.write_one(buffer)
            buffer.extend(b"")  # would be refused if the writer still held it
    with FileReader(tmp_path / "a.ffr") as reader:
        assert [sample[0] for sample in reader] == list(range(20))


def test_one_positional_argument(tmp_path):
    with FileWriter(tmp_path / "a.ffr", 0) as writer:
        for arguments, keywords in (((), {}), ((b"a", b"b"), {}), ((), {"data": b"a"})):
            with pytest.raises(TypeError):
                writer.write_one(*arguments, **keywords)
