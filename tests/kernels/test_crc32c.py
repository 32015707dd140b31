"""CRC-32C against published vectors, a twin that works byte by byte, and the `crc32c` package where it is installed."""

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import _crc

KERNELS = _crc.crc32c_kernels()
BYTES = np.random.default_rng(11).integers(0, 256, 20_000, np.uint8).tobytes()


def _shifted(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


TABLE = [_shifted(byte) for byte in range(256)]


def prefixes(data: bytes, value: int = 0) -> list[int]:
    """The twin: the CRC-32C of each data[:size], size = 0..len(data)."""
    crc, found = ~value & 0xFFFFFFFF, [value]
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
        found.append(crc ^ 0xFFFFFFFF)
    return found


def twin(data: bytes, value: int = 0) -> int:
    return prefixes(data, value)[-1]


# The last five are of RFC 3720, appendix B.4.
VECTORS = {
    b"": 0x00000000,
    b"a": 0xC1D04330,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    bytes.fromhex(
        "01c00000" + "00" * 12 + "14000000 00000400 00000014 00000018 28000000 00000000 02000000 00000000"
    ): 0xD9963A56,
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_published_vectors(kernel: str) -> None:
    assert {data: _crc.crc32c_with(kernel, data) for data in VECTORS} == VECTORS
    assert {data: _crc.crc32c(data) for data in VECTORS} == {data: twin(data) for data in VECTORS} == VECTORS


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_and_alignment(kernel: str) -> None:
    page = mmap.mmap(-1, 4096)
    view = memoryview(page)
    for alignment in range(64):
        page[alignment : alignment + 1024] = BYTES[:1024]
        sums = [_crc.crc32c_with(kernel, view[alignment : alignment + size], 5) for size in range(1025)]
        assert sums == LENGTHS


LENGTHS = prefixes(BYTES[:1024], 5)


@pytest.mark.parametrize("kernel", KERNELS)
@given(value=st.integers(-(2**40), 2**40), start=st.integers(0, 200), size=st.integers(0, 10_000))
def test_values(kernel: str, value: int, start: int, size: int) -> None:
    piece = BYTES[start : start + size]
    assert _crc.crc32c_with(kernel, piece, value) == twin(piece, value & 0xFFFFFFFF)


@pytest.mark.parametrize("kernel", KERNELS)
@given(cuts=st.lists(st.integers(0, len(BYTES)), max_size=5).map(sorted))
def test_splits(kernel: str, cuts: list[int]) -> None:
    value = 0
    for start, end in zip([0, *cuts], [*cuts, len(BYTES)], strict=True):
        value = _crc.crc32c_with(kernel, BYTES[start:end], value)
    assert value == WHOLE


WHOLE = twin(BYTES)


def test_agrees_with_the_package() -> None:
    theirs = pytest.importorskip("crc32c")
    assert [_crc.crc32c(BYTES[:size], size) for size in range(2000)] == [
        theirs.crc32c(BYTES[:size], size) for size in range(2000)
    ]


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), value=st.integers(0, 2**32 - 1))
def test_combine_is_concatenation(data: bytes, cut: int, value: int) -> None:
    first, second = data[:cut], data[cut:]
    assert _crc.crc32c_combine(twin(first, value), twin(second), len(second)) == twin(data, value)


@pytest.mark.parametrize("size2", [2**31 - 1, 2**32, 2**40 + 12345, 2**64 - 1])
def test_combine_of_any_size(size2: int) -> None:
    """Zeros appended in two steps are those appended in one."""
    half = size2 // 3
    steps = _crc.crc32c_combine(_crc.crc32c_combine(0xDEADBEEF, 0, half), 0, size2 - half)
    assert _crc.crc32c_combine(0xDEADBEEF, 0, size2) == steps
    assert _crc.crc32c_combine(0xDEADBEEF, 0x12345678, size2) == steps ^ 0x12345678


def test_the_powers_of_x_repeat() -> None:
    """After 2**31 - 1 for this polynomial, and not before: 2**31 - 1 is a prime."""
    assert _crc.crc32c_combine(0xDEADBEEF, 0, 2**31 - 1) == 0xDEADBEEF
    assert _crc.crc32c_combine(0xDEADBEEF, 0, 1) != 0xDEADBEEF


@given(crc=st.integers(0, 2**32 - 1))
def test_mask(crc: int) -> None:
    word = _crc.mask(crc)
    assert word == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    assert _crc.unmask(word) == crc


def test_mask_of_nothing() -> None:
    assert _crc.mask(_crc.crc32c(b"")) == 0xA282EAD8
    assert _crc.mask(2**32 + 7) == _crc.mask(7)
    assert _crc.unmask(-1) == _crc.unmask(0xFFFFFFFF)


@pytest.mark.parametrize("function", [_crc.mask, _crc.unmask])
@pytest.mark.parametrize("value", [1.5, "1", None])
def test_mask_takes_integers(function: Callable[[Any], int], value: object) -> None:
    with pytest.raises(TypeError):
        function(value)


def test_kernels() -> None:
    assert KERNELS[-1] == "portable"
    assert len(set(KERNELS)) == len(KERNELS)
    assert KERNELS[0] == _crc.kernel() or _crc.kernel() == "zlib"
    with pytest.raises(ValueError, match=r"kernel is 'zlib', expected one of .*portable"):
        _crc.crc32c_with("zlib", b"a")
    with pytest.raises(TypeError):
        _crc.crc32c(b"a", "1")  # type: ignore[arg-type]


UPDATE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
COPY = ctypes.CFUNCTYPE(
    ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
)


def compiled(name: str) -> int:
    """The address of a function that other compiled modules call."""
    capsule = _crc.__pyx_capi__[name]
    get_name, get = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, get_name(capsule)))


def test_the_functions_for_compiled_modules() -> None:
    update, copy = UPDATE(compiled("crc32c_update")), COPY(compiled("crc32c_copy"))
    for size in (0, 1, 64, 65, 5000, 20_000):
        dest = ctypes.create_string_buffer(size + 1)
        assert update(77, BYTES, size) == twin(BYTES[:size], 77)
        assert copy(77, ctypes.cast(dest, ctypes.c_char_p), BYTES, size, size % 2) == twin(BYTES[:size], 77)
        assert dest.raw == BYTES[:size] + b"\0"


GUARDED = """
import guarded
from ffrecord import _crc

for piece in guarded.pieces():
    assert len({_crc.crc32c_with(kernel, piece, 3) for kernel in _crc.crc32c_kernels()}) == 1, len(piece)
"""


def test_reads_nothing_outside_the_buffer() -> None:
    children.run(GUARDED)


@pytest.mark.long
@pytest.mark.parametrize("kernel", KERNELS)
def test_more_than_four_gib(kernel: str) -> None:
    size = 2**32 + 12_345
    with mmap.mmap(-1, size) as data:
        data[2**32 : 2**32 + 9] = b"123456789"
        data[-1] = 1
        tail = bytes(data[2**32 :])
        assert _crc.crc32c_with(kernel, data) == _crc.crc32c_combine(_zeros(2**32), twin(tail), len(tail))


def _zeros(size: int) -> int:
    """The CRC-32C of so many: of one, doubled again and again."""
    crc, done = twin(b"\0"), 1
    while done < size:
        crc, done = _crc.crc32c_combine(crc, crc, done), 2 * done
    return crc
