"""Payload of the extension block, as msgpack: the schema and the origin of a file's samples.

ffr_layout.py defines the framing of the block: magic, sizes, and the position of its checksum.
"""

from functools import lru_cache
from typing import Any

import msgspec

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError
from ffrecord.format import ffr_layout

NIL = msgspec.Raw(b"\xc0")
KEPT = 16  # decoded payloads in the cache
KEPT_MOST = 64 << 10  # bytes of a payload that is cached


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Payload as it is stored in a file. Unknown keys of later versions are ignored.

    `schema` is decoded only on demand, because a few bytes can decode to many objects.
    """

    schema: msgspec.Raw = NIL
    serializer: str | None = None
    writer: str = ""


class Extension:
    """Metadata of a file.

    Args:
        schema: columns of its samples, as written by `fields.Schema`; None for plain bytes.
        serializer: name of the function that made the bytes, for people; it is never called.
        writer: name and version of the program that wrote the file.
    """

    def __init__(self, schema: dict[str, Any] | None = None, serializer: str | None = None, writer: str = "") -> None:
        self.stored = Stored(msgspec.Raw(msgspec.msgpack.encode(schema)), serializer, writer)

    @property
    def schema(self) -> dict[str, Any] | None:
        """Columns of the samples, decoded anew at each access; None for plain bytes.

        Raises:
            FormatError: the schema is nested too deeply, or is no valid msgpack.
        """
        try:
            return msgspec.msgpack.decode(self.stored.schema, type=dict[str, Any] | None)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FormatError(f"the schema in the extension block cannot be decoded: {error}") from None

    @property
    def serializer(self) -> str | None:
        """Name of the function that made the bytes, for people."""
        return self.stored.serializer

    @property
    def writer(self) -> str:
        """Name and version of the program that wrote the file."""
        return self.stored.writer

    def has_same_schema(self, other: "Extension | None") -> bool:
        """Tell whether the samples of both have the same columns."""
        return bytes(self.stored.schema) == bytes(NIL if other is None else other.stored.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extension) and _comparison_key(self) == _comparison_key(other)

    def __hash__(self) -> int:
        return hash(_comparison_key(self))

    def __repr__(self) -> str:
        return f"Extension(schema={self.schema!r}, serializer={self.serializer!r}, writer={self.writer!r})"


def _comparison_key(extension: Extension) -> tuple[bytes, str | None, str]:
    return bytes(extension.stored.schema), extension.serializer, extension.writer


def block_size(payload: bytes, reserved: int = 0) -> int:
    """Return the size of a block in bytes: header, `payload`, and `reserved` bytes of zeros."""
    return ffr_layout.BLOCK.size + len(payload) + reserved


def encode(extension: Extension) -> bytes:
    """Return the payload of `extension`.

    Raises:
        ValueError: it is larger than `ffr_layout.PAYLOAD_MAX`.
    """
    stored = {
        "schema": extension.stored.schema,
        "serializer": extension.serializer,
        "writer": extension.writer,
    }
    absent = {"schema": NIL, "serializer": None, "writer": ""}
    payload = msgspec.msgpack.encode({key: value for key, value in stored.items() if value != absent[key]})
    if len(payload) > ffr_layout.PAYLOAD_MAX:
        raise ValueError(f"the extension payload has {len(payload)} bytes, expected at most {ffr_layout.PAYLOAD_MAX}")
    return payload


def seal(payload: bytes, block_size: int, file_size: int) -> bytes:
    """Return header and payload of a block of `block_size` bytes in a file of `file_size` bytes.

    The caller fills the rest of the block with zeros.
    """
    header = ffr_layout.BlockHeader(0, block_size, len(payload), file_size)
    checked = ffr_layout.pack_block_header(header)[ffr_layout.BLOCK_CHECKED_FROM :] + payload
    return ffr_layout.pack_block_header(header._replace(crc=crc32(checked))) + payload


def decode(header: ffr_layout.BlockHeader, payload: bytes, path: str) -> Extension:
    """Decode `payload` after checking it against the CRC-32 in `header`.

    Raises:
        ChecksumError: header or payload are damaged.
        FormatError: the payload has another format than this module writes.
    """
    computed = crc32(payload, crc32(ffr_layout.pack_block_header(header)[ffr_layout.BLOCK_CHECKED_FROM :]))
    if computed != header.crc:
        raise ChecksumError(
            f"{path}: extension block: checksum of metadata mismatch: "
            f"CRC-32 {computed:#010x}, stored {header.crc:#010x}",
            path=path,
            stored=header.crc,
            computed=computed,
        )
    return _decode_payload(payload) if len(payload) <= KEPT_MOST else _decode_payload.__wrapped__(payload)


@lru_cache(KEPT)
def _decode_payload(payload: bytes) -> Extension:
    """Decode a payload. It is cached: the shards of a dataset, possibly a million, share one payload."""
    extension = Extension()
    try:
        if payload:
            extension.stored = msgspec.msgpack.decode(payload, type=Stored)
        return extension
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"the extension block cannot be decoded: {error}") from None
