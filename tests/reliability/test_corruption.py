"""T6, T7 (guarantee G3): damage of each field of the format and of several bytes is never a crash or wrong bytes."""

import struct

import builders
import damage
import ffr_twin
import pytest
from builders import BLOCK_START, IO_MODES, append, chain, fix_block, fix_checksum, flip, put, set_block, truncate
from damage import EXTENDED, MODES, PAYLOAD, PLAIN, SAMPLES, Mode
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import FFRecordError, FileReader, FormatError
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Extension

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
# One row for each field of the format

VOCABULARY = [
    ("header crc", PLAIN, flip(0), "checksum of metadata mismatch"),
    ("n", PLAIN, flip(32), "do not fit|checksum of metadata|sample 0"),
    ("n", PLAIN, builders.set_n(2**60), "1152921504606846976 samples do not fit in 404 bytes"),
    ("n", PLAIN, chain(builders.set_n(7), fix_checksum), "sample 0 is at offset|between the tables"),
    ("checksum", PLAIN, builders.set_checksum(3, 7), "checksum of metadata mismatch"),
    ("checksum", PLAIN, chain(builders.set_checksum(3, 7), fix_checksum), "Sample 3: checksum mismatch:.*0x00000007"),
    ("offset", PLAIN, builders.swap_offsets(2, 3), "checksum of metadata mismatch"),
    ("offset", PLAIN, chain(builders.swap_offsets(2, 3), fix_checksum), "Sample [123]: "),
    (
        "gap",
        ffr_twin.build(SAMPLES, b"hidden"),
        bytes,
        "6 bytes between the tables and the first sample are not an ext",
    ),
    ("block magic", EXTENDED, chain(set_block("magic", b"\x89FFRexT\n"), fix_block), "not an extension block"),
    ("block crc", EXTENDED, set_block("crc", 5), "extension block: checksum .* stored 0x00000005"),
    (
        "block version",
        EXTENDED,
        chain(set_block("version", 2), fix_block),
        "version 2, this release of ffrecord reads version 1",
    ),
    ("block block_size", EXTENDED, chain(set_block("block_size", 40), fix_block), "block has 40 bytes, expected"),
    ("block payload_size", EXTENDED, set_block("payload_size", 4), "extension block: checksum|reserved"),
    ("block file_size", EXTENDED, chain(set_block("file_size", 9), fix_block), "more than the 9 that were written"),
    ("block payload", EXTENDED, flip(8 * (BLOCK_START + 41)), "extension block: checksum"),
    (
        "block payload",
        EXTENDED,
        chain(put(BLOCK_START + 40, "<B", 0xC1), fix_block),
        "the extension block cannot be decoded: ",
    ),
    ("block reserved", EXTENDED, put(BLOCK_START + 40 + len(PAYLOAD), "<B", 1), "reserved space .* that are not 0"),
    ("sample", PLAIN, builders.flip_in_sample(3), "Sample 3: checksum mismatch:"),
    ("end of the last sample", PLAIN, truncate(-1), "Sample 7: checksum mismatch:"),
    ("end of the last sample", PLAIN, append(b"\0"), "Sample 7: checksum mismatch:"),
    ("end of the last sample", EXTENDED, append(b"\0"), "1 byte more than the"),
]


@pytest.mark.parametrize(("field", "data", "change", "message"), VOCABULARY)
@pytest.mark.parametrize("io", IO_MODES)
def test_damage_is_refused(tmp_path, field, data, change, message, io):
    path = builders.write(tmp_path / "a.ffr", change(data))
    with pytest.raises(FFRecordError, match=message) as caught, FileReader(path, io=io) as reader:
        reader.read(range(reader.n))
    assert path in str(caught.value)
    assert isinstance(caught.value, ValueError | OSError)


def test_the_vocabulary_covers_every_field():
    """Taken from the format itself, so that a new field needs a row."""
    block = [f"block {name}" for name in (*builders.BLOCK_FIELDS, "payload", "reserved")]
    assert (
        struct.calcsize("<" + "".join(layout[1:] for _, layout in builders.BLOCK_FIELDS.values()))
        == ffr_layout.BLOCK.size
    )
    fields = {"header crc", "n", "checksum", "offset", "gap", "sample", "end of the last sample", *block}
    assert {row[0] for row in VOCABULARY} == fields


@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_undamaged(tmp_path, mode):
    """The oracle itself, on files without damage."""
    for data in (PLAIN, EXTENDED):
        assert damage.read(builders.write(tmp_path / "a.ffr", data), mode) == SAMPLES


# Payloads that only a right checksum lets through


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
    fixed = fix_block(bytes(damaged)) if size < 1000 else bytes(damaged)
    found = damage.read(builders.write(tmp_path / "a.ffr", fixed), Mode("auto", "batch", True))
    assert found == SAMPLES or isinstance(found, FFRecordError)
