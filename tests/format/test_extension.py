"""The payload of the extension block."""

import msgspec
import pytest
from hypothesis import given
from strategies import payloads

from ffrecord.errors import ChecksumError, FormatError
from ffrecord.format import extension, ffr_layout
from ffrecord.format.extension import Extension

FULL = Extension(schema={"columns": [["x", 1]]}, serializer="package.encode", writer="ffrecord 2.0.0")


def sealed(payload: bytes, reserved: int = 0) -> tuple[ffr_layout.BlockHeader, bytes]:
    """Header and payload as a reader takes them from a file."""
    size = extension.block_size(payload, reserved)
    data = extension.seal(payload, size, 1000)
    return ffr_layout.unpack_block_header(data[: ffr_layout.BLOCK.size], size, 1000), data[ffr_layout.BLOCK.size :]


@pytest.mark.parametrize("given", [Extension(), FULL, Extension(schema={}), Extension(writer="ü" * 1000)])
def test_round_trip(given):
    assert extension.decode(*sealed(extension.encode(given)), "a.ffr") == given


@given(payloads)
def test_any_schema_round_trip(value):
    given = Extension(schema={"value": value})
    assert extension.decode(*sealed(extension.encode(given)), "a.ffr") == given


def test_empty_payload_is_the_default():
    assert extension.decode(*sealed(b""), "a.ffr") == Extension()


def test_sealed_bytes():
    payload = extension.encode(Extension(writer="w"))
    assert payload == b"\x81\xa6writer\xa1w"
    assert (
        extension.seal(payload, 60, 1000)
        == bytes.fromhex("89 4646526578740a 60308b19 01000000 3c00000000000000 0a00000000000000 e803000000000000")
        + payload
    )


def test_sizes():
    assert extension.block_size(b"") == 40
    assert extension.block_size(b"abc", 10) == 53


def test_unknown_keys_are_ignored():
    payload = msgspec.msgpack.encode({"writer": "w", "later": [1, {"x": None}]})
    assert extension.decode(*sealed(payload), "a.ffr") == Extension(writer="w")


def test_the_later_of_two_equal_keys_counts():
    assert extension.decode(*sealed(b"\x82\xa6writer\xa1a\xa6writer\xa1b"), "a.ffr") == Extension(writer="b")


NESTED = b"\x81\xa6schema" + b"\x81\xa1x" * 200_000 + b"\xc0"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\xc1", id="no msgpack"),
        pytest.param(b"\x81\xa6writer", id="cut"),
        pytest.param(b"\x81\xa6writer\xa1w\x00", id="trailing byte"),
        pytest.param(b"\x81\xa6writer\x05", id="writer is a number"),
        pytest.param(b"\x81\xa6schema\x93\x01\x02\x03", id="schema is a list"),
        pytest.param(b"\x90", id="a list"),
        pytest.param(b"\xc0", id="nil"),
        pytest.param(b"\x81\xa6writer\xa1\xff", id="no UTF-8"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="four billion keys"),
        pytest.param(b"\x81\xa6writer\xdb\xff\xff\xff\xff", id="four GiB string"),
        pytest.param(b"\x81\xa6schema\xdf\xff\xff\xff\xff\xa1x", id="four billion keys inside"),
        pytest.param(NESTED, id="200,000 levels"),
        pytest.param(b"\x81\xa6schema\x81\x01\x02", id="key is a number"),
        pytest.param(b"\x81\xa6schema\x81\xa1x\xc7\x01\x05\x00", id="extension type"),
    ],
)
def test_strange_payloads(payload):
    """Refused, at once or when the schema is looked at, or read as what msgpack means; never anything else."""
    try:
        found = extension.decode(*sealed(payload), "a.ffr")
        assert isinstance(found, Extension)
        assert isinstance(found.schema, dict | None)
    except FormatError as error:
        assert "extension block" in str(error)


@given(payloads)
def test_payload_of_another_shape(value):
    payload = msgspec.msgpack.encode(value)
    try:
        found = extension.decode(*sealed(payload), "a.ffr")
        assert isinstance(found, Extension)
        assert isinstance(found.schema, dict | None)
    except FormatError:
        assert not isinstance(value, dict) or {"schema", "serializer", "writer"} & value.keys()


@pytest.mark.parametrize("field", ["block_size", "payload_size", "file_size"])
def test_checksum_covers_the_header(field):
    header, payload = sealed(extension.encode(FULL), 24)
    with pytest.raises(ChecksumError, match=r"a\.ffr: extension block: checksum of metadata mismatch:") as caught:
        extension.decode(header._replace(**{field: getattr(header, field) + 1}), payload, "a.ffr")
    assert caught.value.path == "a.ffr"
    assert caught.value.stored != caught.value.computed


def test_checksum_covers_the_payload():
    header, payload = sealed(extension.encode(FULL))
    for i in range(len(payload)):
        with pytest.raises(ChecksumError):
            extension.decode(header, payload[:i] + bytes([payload[i] ^ 1]) + payload[i + 1 :], "a.ffr")


def test_payload_too_large():
    with pytest.raises(ValueError, match=f"expected at most {ffr_layout.PAYLOAD_MAX}"):
        extension.encode(Extension(serializer="x" * ffr_layout.PAYLOAD_MAX))


def test_equality_and_schemas():
    assert Extension(schema={"a": 1}) == Extension({"a": 1}) != Extension({"a": 2})
    assert hash(Extension(writer="w")) == hash(Extension(writer="w"))
    assert Extension() != {}
    assert Extension({"a": 1}, "s", "w").has_same_schema(Extension({"a": 1}))
    assert Extension().has_same_schema(None)
    assert not Extension({}).has_same_schema(None)
    assert (
        repr(FULL) == "Extension(schema={'columns': [['x', 1]]}, serializer='package.encode', writer='ffrecord 2.0.0')"
    )
