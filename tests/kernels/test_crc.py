"""CRC-32 against zlib: every kernel, length, alignment, split and kind of buffer."""

import array
import ctypes
import mmap
import threading
import time
import zlib
from pathlib import Path

import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import _crc

KERNELS = _crc.kernels()
BYTES = np.random.default_rng(7).integers(0, 256, 20_000, np.uint8).tobytes()
PAGE = mmap.PAGESIZE


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0x00000000),
        (b"a", 0xE8B7BE43),
        (b"123456789", 0xCBF43926),
        (b"The quick brown fox jumps over the lazy dog", 0x414FA339),
        (bytes(32), 0x190A55AD),
        (b"\xff" * 32, 0xFF6CAB0B),
        (bytes(range(32)), 0x91267E8A),
    ],
)
def test_published_vectors(kernel: str, data: bytes, crc: int) -> None:
    assert _crc.crc32_with(kernel, data) == crc
    assert _crc.crc32(data) == crc


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_and_alignment(kernel: str) -> None:
    page = np.frombuffer(mmap.mmap(-1, 4096), np.uint8)
    page[:] = np.frombuffer(BYTES[:4096], np.uint8)
    view = memoryview(page)
    for alignment in range(64):
        pieces = [view[alignment : alignment + size] for size in range(601)]
        assert [_crc.crc32_with(kernel, piece) for piece in pieces] == [zlib.crc32(piece) for piece in pieces]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_across_a_page(kernel: str) -> None:
    buffer = mmap.mmap(-1, 2 * PAGE)
    buffer[:] = BYTES[: 2 * PAGE]
    view = memoryview(buffer)
    pieces = [view[start : start + size] for start in range(PAGE - 70, PAGE + 2) for size in range(0, 130, 3)]
    assert [_crc.crc32_with(kernel, piece, 5) for piece in pieces] == [zlib.crc32(piece, 5) for piece in pieces]


@pytest.mark.parametrize("kernel", KERNELS)
@given(value=st.integers(-(2**40), 2**40), start=st.integers(0, 200), size=st.integers(0, 10_000))
def test_values(kernel: str, value: int, start: int, size: int) -> None:
    piece = BYTES[start : start + size]
    assert _crc.crc32_with(kernel, piece, value) == zlib.crc32(piece, value & 0xFFFFFFFF)


@pytest.mark.parametrize("kernel", KERNELS)
@given(cuts=st.lists(st.integers(0, len(BYTES)), max_size=5).map(sorted))
def test_splits(kernel: str, cuts: list[int]) -> None:
    value = 0
    for start, end in zip([0, *cuts], [*cuts, len(BYTES)], strict=True):
        value = _crc.crc32_with(kernel, BYTES[start:end], value)
    assert value == zlib.crc32(BYTES)


@pytest.mark.parametrize("value", [0, 1, 7, 0xFFFFFFFF, 2**32, -1, 2**70 + 5, True])
def test_of_nothing_is_the_value(value: int) -> None:
    for kernel in KERNELS:
        assert _crc.crc32_with(kernel, b"", value) == zlib.crc32(b"", value & 0xFFFFFFFF)
    assert _crc.crc32(b"", value=value) == zlib.crc32(b"", value & 0xFFFFFFFF)


BUFFERS = {
    "bytes": BYTES,
    "bytearray": bytearray(BYTES),
    "memoryview": memoryview(BYTES)[3:-5],
    "of items": memoryview(BYTES).cast("I"),
    "of two dimensions": memoryview(BYTES).cast("B", (100, 200)),
    "array": array.array("d", [1.0, 2.5]),
    "numpy": np.arange(1000.0).reshape(10, 100),
    "numpy, read-only": np.frombuffer(BYTES, np.uint8),
    "numpy, of records": np.zeros(9, np.dtype([("a", "<u2"), ("b", "<f8")])),
    "numpy, a scalar": np.float64(2.5),
    "ctypes": (ctypes.c_int * 9)(*range(9)),
    "empty": b"",
    "empty bytearray": bytearray(),
    "empty numpy": np.zeros((0, 4)),
}


@pytest.mark.parametrize("data", BUFFERS.values(), ids=BUFFERS)
def test_every_kind_of_buffer(data: object) -> None:
    assert _crc.crc32(data) == zlib.crc32(data)
    assert _crc.crc32(data, 99) == zlib.crc32(data, 99)


def test_mmap_and_its_release() -> None:
    with mmap.mmap(-1, PAGE) as buffer:
        buffer[:9] = b"123456789"
        assert _crc.crc32(buffer) == zlib.crc32(buffer)
    data = bytearray(9)
    _crc.crc32(data)
    data.append(1)  # BufferError if crc32 still held the buffer


REFUSED = {
    "str": "a",
    "None": None,
    "int": 5,
    "list": [1, 2],
    "memoryview with steps": memoryview(BYTES)[::2],
    "numpy with steps": np.arange(10)[::2],
    "numpy, transposed": np.zeros((3, 4)).T,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_refuses_what_zlib_refuses(data: object) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)) as zlibs:
        zlib.crc32(data)
    with pytest.raises(zlibs.type):
        _crc.crc32(data)
    with pytest.raises(zlibs.type):
        _crc.crc32_with("portable", data)


@pytest.mark.parametrize("value", [1.5, "1", None, b"1"])
def test_value_must_be_an_integer(value: object) -> None:
    with pytest.raises(TypeError):
        _crc.crc32(b"a", value)
    with pytest.raises(TypeError):
        _crc.crc32_with("portable", b"a", value)
    for arguments in [(value, 1, 1), (1, value, 1), (1, 1, value)]:
        with pytest.raises(TypeError):
            _crc.crc32_combine(*arguments)


def test_kernels() -> None:
    assert _crc.kernel() == KERNELS[0]
    assert KERNELS[-1] == "portable"
    assert len(set(KERNELS)) == len(KERNELS)


CPU = set(Path("/proc/cpuinfo").read_text().split())


@pytest.mark.skipif(not {"vpclmulqdq", "avx512bw", "avx512vl"} <= CPU, reason="CPU without 512-bit VPCLMULQDQ")
def test_the_widest_kernel_is_found() -> None:
    assert KERNELS[:3] == ("avx512", "avx2", "pclmul")


def test_unknown_kernel() -> None:
    with pytest.raises(ValueError, match=r"kernel is 'abacus', expected one of .*portable"):
        _crc.crc32_with("abacus", b"a")
    with pytest.raises(TypeError):
        _crc.crc32_with(None, b"a")


def combine_twin(crc1: int, crc2: int, size2: int) -> int:
    """By the matrix that one zero bit applies to a remainder, squared again and again."""

    def times(matrix: list[int], vector: int) -> int:
        result = 0
        for bit, column in enumerate(matrix):
            result ^= column if vector >> bit & 1 else 0
        return result

    matrix = [0xEDB88320] + [1 << bit for bit in range(31)]
    for bit in range(3 + size2.bit_length()):
        if 8 * size2 >> bit & 1:
            crc1 = times(matrix, crc1)
        matrix = [times(matrix, column) for column in matrix]
    return crc1 ^ crc2


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), value=st.integers(0, 2**32 - 1))
def test_combine_is_concatenation(data: bytes, cut: int, value: int) -> None:
    first, second = data[:cut], data[cut:]
    combined = _crc.crc32_combine(zlib.crc32(first, value), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(data, value)


@pytest.mark.parametrize("size2", [0, 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**40 + 12345, 2**63, 2**64 - 1])
def test_combine_of_any_size(size2: int) -> None:
    crc1, crc2 = 0xDEADBEEF, 0x12345678
    assert _crc.crc32_combine(crc1, crc2, size2) == combine_twin(crc1, crc2, size2)
    assert _crc.crc32_combine(crc1 - 2**32, crc2 + 2**32, size2) == combine_twin(crc1, crc2, size2)


def test_combine_refuses_impossible_sizes() -> None:
    with pytest.raises(ValueError, match="size2 is -1, expected >= 0"):
        _crc.crc32_combine(1, 2, -1)
    with pytest.raises(OverflowError):
        _crc.crc32_combine(1, 2, 2**64)


def test_the_function_for_compiled_modules() -> None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = b"uint32_t (uint32_t, void const *, size_t)"
    address = pointer(_crc.__pyx_capi__["crc32_update"], name)
    update = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)(address)
    for size in (0, 1, 64, 65, 5000):
        assert update(77, BYTES, size) == zlib.crc32(BYTES[:size], 77)
    assert update(77, None, 0) == 77


GUARDED = """
import guarded, zlib
from ffrecord import _crc

for piece in guarded.pieces():
    for kernel in _crc.kernels():
        assert _crc.crc32_with(kernel, piece, 3) == zlib.crc32(piece, 3), (kernel, len(piece))
"""


def test_reads_nothing_outside_the_buffer() -> None:
    children.run(GUARDED)


def test_releases_the_gil() -> None:
    data, stamps, stop = bytes(64 << 20), [], threading.Event()

    def stamp() -> None:
        while not stop.wait(0.001):
            stamps.append(time.perf_counter())

    thread = threading.Thread(target=stamp)
    thread.start()
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < 5:
            before = time.perf_counter()
            _crc.crc32_with("portable", data)
            after = time.perf_counter()
            # Not at the ends: there the other thread may run in any case.
            margin = (after - before) / 4
            if any(before + margin < at < after - margin for at in stamps):
                break
        else:
            pytest.fail("no other thread ran while a CRC-32 was computed")
    finally:
        stop.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("kernel", KERNELS)
def test_more_than_four_gib(kernel: str) -> None:
    size = 2**32 + 12_345
    with mmap.mmap(-1, size) as data:
        data[2**32 : 2**32 + 9] = b"123456789"
        data[-1] = 1
        assert _crc.crc32_with(kernel, data) == zlib.crc32(data)
