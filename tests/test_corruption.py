"""Damage is found: at open, or on the damaged sample only. Never a crash, never wrong bytes."""

import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import builders
import ffr_twin
import msgspec
import numpy as np
import pytest
from builders import BLOCK_START, IO_MODES, append, chain, fix_block, fix_checksum, flip, put, set_block, truncate
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import ChecksumError, FFRecordError, FileReader, FormatError
from ffrecord.extension import Extension

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
SAMPLES = builders.small()
PLAIN = ffr_twin.build(SAMPLES)
PAYLOAD = msgspec.msgpack.encode({"writer": "test", "schema": {"a": 1}})
EXTENDED = ffr_twin.build_extended(SAMPLES, PAYLOAD, reserved=50)
WAYS = ["read_one", "batch", "direct"]


@contextmanager
def quiet() -> Iterator[None]:
    """Old files warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*old version ffrecord file")
        yield


def read(path: str, way: str, check: bool) -> list[bytes | Exception] | Exception:
    """What becomes of every sample; or the error of opening."""
    errors: list[Exception] = []

    def note(error: Exception) -> np.ndarray:
        errors.append(error)
        return np.empty(0, np.uint8)

    try:
        with quiet():
            reader = FileReader(path, check, io="direct" if way == "direct" else "auto", on_error=note)
    except FFRecordError as error:
        return error
    with reader:
        results: list[bytes | Exception] = [
            sample.tobytes()
            for sample in (map(reader.read_one, range(reader.n)) if way == "read_one" else reader.read(range(reader.n)))
        ]
    for error in errors:
        assert isinstance(error, FFRecordError | OSError)
        results[int(re.match(r"Sample (\d+): ", str(error))[1])] = error
    return results


class Flipped:
    """A file of which one bit at a time is wrong."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = builders.write(path, data), data
        self.fd = os.open(self.path, os.O_RDWR)

    def read(self, bit: int, way: str, check: bool) -> list[bytes | Exception] | Exception:
        os.pwrite(self.fd, bytes([self.data[bit // 8] ^ 1 << bit % 8]), bit // 8)
        found = read(self.path, way, check)
        os.pwrite(self.fd, self.data[bit // 8 : bit // 8 + 1], bit // 8)
        return found

    def close(self) -> None:
        os.close(self.fd)


def bits(start: int, stop: int, way: str) -> range:
    """Bits of the bytes [start, stop). Direct reads wait for the disk after each change: one bit of each byte."""
    return range(8 * start, 8 * stop, 9 if way == "direct" else 1)


# One row for each field of the format

VOCABULARY = [
    ("header crc", PLAIN, flip(0), "checksum of metadata mismached"),
    ("n", PLAIN, flip(32), "do not fit|checksum of metadata|sample 0"),
    ("n", PLAIN, builders.set_n(2**60), "1152921504606846976 samples do not fit in 404 bytes"),
    ("n", PLAIN, chain(builders.set_n(7), fix_checksum), "sample 0 at offset|between the tables"),
    ("checksum", PLAIN, builders.set_checksum(3, 7), "checksum of metadata mismached"),
    ("checksum", PLAIN, chain(builders.set_checksum(3, 7), fix_checksum), "Sample 3: checksum mismached!.*0x00000007"),
    ("offset", PLAIN, builders.swap_offsets(2, 3), "checksum of metadata mismached"),
    ("offset", PLAIN, chain(builders.swap_offsets(2, 3), fix_checksum), "Sample [123]: "),
    ("gap", ffr_twin.build(SAMPLES, b"hidden"), bytes, "6 bytes between the tables and the first sample are no ext"),
    ("block magic", EXTENDED, chain(set_block("magic", b"\x89FFRexT\n"), fix_block), "no extension block"),
    ("block crc", EXTENDED, set_block("crc", 5), "extension block: checksum .* stored 0x00000005"),
    ("block version", EXTENDED, chain(set_block("version", 2), fix_block), "version 2, this package reads 1"),
    ("block block_size", EXTENDED, chain(set_block("block_size", 40), fix_block), "block of 40 bytes in a gap of"),
    ("block payload_size", EXTENDED, set_block("payload_size", 4), "extension block: checksum|reserved"),
    ("block file_size", EXTENDED, chain(set_block("file_size", 9), fix_block), "its extension block says 9"),
    ("block payload", EXTENDED, flip(8 * (BLOCK_START + 41)), "extension block: checksum"),
    ("block payload", EXTENDED, chain(put(BLOCK_START + 40, "<B", 0xC1), fix_block), "extension block: "),
    ("block reserved", EXTENDED, put(BLOCK_START + 40 + len(PAYLOAD), "<B", 1), "reserved space .* is not zeros"),
    ("sample", PLAIN, builders.flip_in_sample(3), "Sample 3: checksum mismached!"),
    ("end of the last sample", PLAIN, truncate(-1), "Sample 7: checksum mismached!"),
    ("end of the last sample", PLAIN, append(b"\0"), "Sample 7: checksum mismached!"),
    ("end of the last sample", EXTENDED, append(b"\0"), "its extension block says"),
]


@pytest.mark.parametrize(("field", "data", "damage", "message"), VOCABULARY)
@pytest.mark.parametrize("io", IO_MODES)
def test_damage_is_refused(tmp_path, field, data, damage, message, io):
    path = builders.write(tmp_path / "a.ffr", damage(data))
    with pytest.raises(FFRecordError, match=message) as caught, FileReader(path, io=io) as reader:
        reader.read(range(reader.n))
    assert path in str(caught.value)
    assert isinstance(caught.value, ValueError | OSError)


def test_the_vocabulary_covers_every_field():
    """Taken from the format itself, so that a new field needs a row."""
    from ffrecord import format

    block = [f"block {name}" for name in (*builders.BLOCK_FIELDS, "payload", "reserved")]
    assert (
        struct.calcsize("<" + "".join(layout[1:] for _, layout in builders.BLOCK_FIELDS.values())) == format.BLOCK.size
    )
    fields = {"header crc", "n", "checksum", "offset", "gap", "sample", "end of the last sample", *block}
    assert {row[0] for row in VOCABULARY} == fields


def test_undamaged(tmp_path):
    """The oracle itself, on files without damage."""
    for data in (PLAIN, EXTENDED):
        for way in WAYS:
            assert read(builders.write(tmp_path / "a.ffr", data), way, True) == SAMPLES


# Truncation, at every byte


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("check", [True, False])
def test_truncation_at_every_byte(tmp_path, way, check):
    path = builders.write(tmp_path / "a.ffr", PLAIN)
    ends = [*struct.unpack_from("<8q", PLAIN, 44)[1:], len(PLAIN)]
    for size in range(len(PLAIN) - 1, -1, -1):
        os.truncate(path, size)
        found = read(path, way, check)
        if size < 108:
            assert isinstance(found, FormatError), size
            continue
        assert isinstance(found, list), (size, found)
        for i in range(7):
            if ends[i] <= size:
                assert found[i] == SAMPLES[i], (size, i)
            else:
                assert isinstance(found[i], FormatError), (size, i)
        # The last one ends with the file: known limit of the format, so only its checksum can tell.
        if size < ends[6]:
            assert isinstance(found[7], FormatError), size
        elif check:
            assert isinstance(found[7], ChecksumError), size
        else:
            assert found[7] == SAMPLES[7][: size - ends[6]], size


@pytest.mark.parametrize("io", IO_MODES)
def test_truncation_of_a_larger_file(tmp_path, io):
    """At sectors and around them, where direct reads end short."""
    samples = builders.records([1000] * 64)
    data = ffr_twin.build(samples)
    path = builders.write(tmp_path / "a.ffr", data)
    sizes = sorted({size + delta for size in range(1024, len(data), 512) for delta in (-1, 0, 1)}, reverse=True)
    for size in sizes:
        os.truncate(path, size)
        with FileReader(path, io=io, on_error="skip") as reader:
            whole = max(0, (size - 780) // 1000)
            assert builders.unpack(reader.read_packed(range(64))) == samples[:whole], size


@pytest.mark.parametrize("check", [True, False])
def test_truncation_with_an_extension_block(tmp_path, check):
    """The block records the file's size, which closes the format's hole at the last sample."""
    path = builders.write(tmp_path / "a.ffr", EXTENDED)
    for size in range(len(EXTENDED) - 1, -1, -1):
        os.truncate(path, size)
        assert isinstance(read(path, "batch", check), FormatError), size


# Every bit


@pytest.mark.parametrize("way", WAYS)
def test_every_bit_of_the_header(tmp_path, way):
    with closing(Flipped(tmp_path / "a.ffr", PLAIN)) as file:
        for bit in bits(0, 108, way):
            assert isinstance(file.read(bit, way, True), ChecksumError | FormatError), bit


@pytest.mark.parametrize("way", WAYS)
def test_every_bit_of_the_samples(tmp_path, way):
    ends = [*struct.unpack_from("<8q", PLAIN, 44)[1:], len(PLAIN)]
    with closing(Flipped(tmp_path / "a.ffr", PLAIN)) as file:
        for bit in bits(108, len(PLAIN), way):
            found = file.read(bit, way, True)
            damaged = next(i for i, end in enumerate(ends) if bit // 8 < end)
            assert isinstance(found[damaged], ChecksumError), bit
            assert found[:damaged] + found[damaged + 1 :] == SAMPLES[:damaged] + SAMPLES[damaged + 1 :], bit


@pytest.mark.parametrize("way", WAYS)
def test_every_bit_without_checks(tmp_path, way):
    """Bytes or a documented error; where there are bytes, their number fits in the file."""
    with closing(Flipped(tmp_path / "a.ffr", PLAIN)) as file:
        for bit in bits(0, len(PLAIN), way):
            found = file.read(bit, way, False)
            if isinstance(found, list):
                assert all(isinstance(each, Exception) or len(each) <= len(PLAIN) for each in found), bit
            else:
                assert isinstance(found, FormatError), bit


def test_every_bit_of_the_extension_block(tmp_path):
    with closing(Flipped(tmp_path / "a.ffr", EXTENDED)) as file:
        for bit in bits(BLOCK_START, BLOCK_START + 40 + len(PAYLOAD) + 50, "batch"):
            assert isinstance(file.read(bit, "batch", True), ChecksumError | FormatError), bit


# Beyond single bits


@given(
    st.lists(st.tuples(st.integers(0, len(EXTENDED) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.booleans(),
    st.data(),
)
def test_random_bytes(tmp_path, changes, fixed, data):
    """Headers behind a right checksum too, or nothing behind it would be reached."""
    damaged = bytearray(data.draw(st.sampled_from([PLAIN, EXTENDED])))
    for offset, value in changes:
        damaged[offset % len(damaged)] = value
    damaged = bytes(damaged)
    if fixed and struct.unpack_from("<q", damaged, 4)[0] in range(9):
        damaged = fix_checksum(damaged)
    path = builders.write(tmp_path / "a.ffr", damaged)
    for way in WAYS:
        found = read(path, way, True)
        if isinstance(found, list):
            for each in found:
                assert isinstance(each, bytes | FFRecordError | OSError)
        assert isinstance(read(path, way, False), list | FFRecordError)


@given(st.binary(max_size=60), st.integers(0, 60), st.booleans())
def test_any_payload_behind_a_right_checksum(tmp_path, payload, reserved, in_schema):
    payload = b"\x81\xa6schema" + payload if in_schema else payload
    path = builders.write(tmp_path / "a.ffr", ffr_twin.build_extended(SAMPLES, payload, reserved))
    try:
        with FileReader(path) as reader:
            assert isinstance(reader.extension, Extension)
            assert builders.read_all(reader) == SAMPLES
    except FormatError as error:
        assert "extension block" in str(error)


@given(st.lists(st.tuples(st.integers(0, 39 + len(PAYLOAD)), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_blocks_behind_a_right_checksum(tmp_path, changes):
    damaged = bytearray(EXTENDED)
    for offset, value in changes:
        damaged[BLOCK_START + offset] = value
    size = struct.unpack_from("<Q", damaged, BLOCK_START + 24)[0]
    found = read(
        builders.write(tmp_path / "a.ffr", fix_block(bytes(damaged)) if size < 1000 else bytes(damaged)), "batch", True
    )
    assert found == SAMPLES or isinstance(found, FFRecordError)
