"""The frame header of a JPEG, compared with a plain look for it; and whether the end is there."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ffrecord.kernels import _pictures

FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
LAST = {0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF, 0xDA, 0xD9}
ALONE = {0x00, 0x01, *range(0xD0, 0xD9)}
FRAME = struct.Struct(">HBHHB")


def twin(data):
    """(bits, height, width, channels, end) or None, byte for byte."""
    at = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    while (at := data.find(b"\xff", at)) >= 0:
        while data[at : at + 1] == b"\xff":
            at += 1
        if at + 1 + FRAME.size > len(data) or data[at] in LAST:
            return None
        if data[at] in FRAMES:
            return (*FRAME.unpack_from(data, at + 1)[1:], at + 1 + FRAME.size)
        at += 1 if data[at] in ALONE else 1 + int.from_bytes(data[at + 1 : at + 3], "big")
    return None


def segment(marker, size=4):
    return b"\xff" + bytes([marker]) + struct.pack(">H", size) + bytes(max(0, size - 2))


HEADER = b"\xff\xc0" + FRAME.pack(11, 8, 300, 65535, 3)
markers = st.sampled_from(sorted({0, 1, 0x20, 0xC4, 0xD5, 0xDB, 0xE0, 0xFF} | FRAMES | LAST))
parts = st.lists(
    st.one_of(
        st.builds(segment, markers, st.integers(0, 40)),
        st.just(HEADER),
        st.just(b"\xff" * 3),
        st.binary(max_size=12),
    ),
    max_size=6,
).map(b"".join)


begins = st.sampled_from([b"\xff\xd8"] * 8 + [b"", b"\xff", b"\xff\xd9", b"\x00\xd8", b"\xff\xd8\x00"])


@given(begin=begins, data=parts, cut=st.integers(0, 40))
@example(begin=b"\xff\xd8", data=HEADER, cut=1)
@example(begin=b"\xff\xd8", data=segment(0xE0, 0) + HEADER, cut=0)
@example(begin=b"\xff\xd8", data=segment(0xE0, 65535), cut=0)
@example(begin=b"\xff\xd8\x00", data=HEADER, cut=0)
def test_read_frame(begin, data, cut):
    data = begin + data[: max(0, len(data) - cut)]
    for given_as in (data, bytearray(data), memoryview(data)):
        assert _pictures.read_frame(given_as) == twin(data)


@pytest.mark.parametrize(("grey", "only_grey"), [(False, False), (True, False), (False, True), (True, True)])
@given(sides=st.tuples(st.integers(0, 70), st.integers(0, 70)), channels=st.integers(0, 5), most=st.integers(-1, 5000))
@example(sides=(70, 70), channels=3, most=4900)
@example(sides=(70, 70), channels=1, most=4899)
@example(sides=(65535, 65535), channels=3, most=1 << 31)  # nothing is allocated
def test_room(sides, channels, most, grey, only_grey):
    data = b"\xff\xd8\xff\xc0" + FRAME.pack(11, 8, *sides, channels)
    found, pixels = _pictures.room(data, most, grey, only_grey, True), sides[0] * sides[1]
    assert (found is not None) == (channels in (1, 3) and 0 < pixels <= most)
    if found is not None:
        flat, memory = found
        assert flat is (only_grey or (grey and channels == 1))
        assert memory.shape == (pixels if flat else 3 * pixels,) and memory.dtype == np.uint8
        assert memory.flags.writeable
        assert _pictures.room(data, most, grey, only_grey, False) == (flat, None)


@pytest.mark.parametrize("size", range(4))
def test_hardly_anything(size):
    assert _pictures.read_frame(b"\xff\xd8\xff\xff"[:size]) is None
    assert _pictures.room(b"\xff\xd8\xff\xff"[:size], 100, False, False, True) is None
    assert not _pictures.ends(b"\xff\xd8\xff"[:size], 0)


@given(data=st.lists(st.sampled_from([b"\xff", b"\xd9", b"x"]), max_size=9).map(b"".join), start=st.integers(-3, 12))
def test_ends(data, start):
    assert _pictures.ends(data, start) is (b"\xff\xd9" in data[max(0, start) :])


def test_only_contiguous_bytes():
    with pytest.raises(BufferError, match="contig"):
        _pictures.read_frame(memoryview(bytes(8))[::2])
    with pytest.raises(BufferError, match="contig"):
        _pictures.room(memoryview(bytes(8))[::2], 1, False, False, True)
    with pytest.raises(TypeError):
        _pictures.read_frame("text")  # type: ignore[arg-type]
