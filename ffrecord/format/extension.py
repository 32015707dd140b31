"""The payload of the extension block: what a file says about itself beyond its samples, as msgpack.

The framing of the block (magic, sizes, where its checksum is) belongs to format.py.
"""

from functools import lru_cache
from typing import Any

import msgspec

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError
from ffrecord.format import ffr_layout

NIL = msgspec.Raw(b"\xc0")
KEPT = 16  # different payloads that were decoded last
KEPT_MOST = 64 << 10  # bytes of one of them


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload as it is in a file. Unknown keys of later versions are ignored.

    `schema` stays as it is until somebody asks: small bytes can be many objects.
    """

    schema: msgspec.Raw = NIL
    serializer: str | None = None
    writer: str = ""


class Extension:
    """What a file says about itself.

    Args:
        schema: the columns of its samples, as `fields.Schema` wrote them; None for plain bytes.
        serializer: name of the function that made the bytes, for people; never called.
        writer: name and version of the program that wrote the file.
    """

    def __init__(self, schema: dict[str, Any] | None = None, serializer: str | None = None, writer: str = "") -> None:
        self.stored = Stored(msgspec.Raw(msgspec.msgpack.encode(schema)), serializer, writer)

    @property
    def schema(self) -> dict[str, Any] | None:
        """The columns of the samples, decoded anew at each look; None for plain bytes.

        Raises:
            FormatError: nested too deeply.
        """
        try:
            return msgspec.msgpack.decode(self.stored.schema, type=dict[str, Any] | None)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FormatError(f"extension block: schema: {error}") from None

    @property
    def serializer(self) -> str | None:
        """Name of the function that made the bytes, for people."""
        return self.stored.serializer

    @property
    def writer(self) -> str:
        """Name and version of the program that wrote the file."""
        return self.stored.writer

    def same_schema(self, other: "Extension | None") -> bool:
        """Whether the samples of both have the same columns."""
        return bytes(self.stored.schema) == bytes(NIL if other is None else other.stored.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extension) and _facts(self) == _facts(other)

    def __hash__(self) -> int:
        return hash(_facts(self))

    def __repr__(self) -> str:
        return f"Extension(schema={self.schema!r}, serializer={self.serializer!r}, writer={self.writer!r})"


def _facts(extension: Extension) -> tuple[bytes, str | None, str]:
    return bytes(extension.stored.schema), extension.serializer, extension.writer


def block_size(payload: bytes, reserved: int = 0) -> int:
    """Bytes of a block that holds `payload` and `reserved` further bytes of zeros."""
    return ffr_layout.BLOCK.size + len(payload) + reserved


def encode(extension: Extension) -> bytes:
    """The payload of `extension`.

    Raises:
        ValueError: larger than `ffr_layout.PAYLOAD_MAX`.
    """
    stored = {
        "schema": extension.stored.schema,
        "serializer": extension.serializer,
        "writer": extension.writer,
    }
    absent = {"schema": NIL, "serializer": None, "writer": ""}
    payload = msgspec.msgpack.encode({key: value for key, value in stored.items() if value != absent[key]})
    if len(payload) > ffr_layout.PAYLOAD_MAX:
        raise ValueError(f"extension payload of {len(payload)} bytes, expected at most {ffr_layout.PAYLOAD_MAX}")
    return payload


def seal(payload: bytes, block_size: int, file_size: int) -> bytes:
    """Header and payload of a block of `block_size` bytes in a file of `file_size`; the rest of the block is zeros."""
    header = ffr_layout.BlockHeader(0, block_size, len(payload), file_size)
    checked = ffr_layout.pack_block_header(header)[ffr_layout.BLOCK_CHECKED_FROM :] + payload
    return ffr_layout.pack_block_header(header._replace(crc=crc32(checked))) + payload


def decode(header: ffr_layout.BlockHeader, payload: bytes, path: str) -> Extension:
    """The extension in `payload`, checked against the CRC-32 in `header`.

    Raises:
        ChecksumError: header or payload are damaged.
        FormatError: the payload is not what this module writes.
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
    return _said(payload) if len(payload) <= KEPT_MOST else _said.__wrapped__(payload)


@lru_cache(KEPT)
def _said(payload: bytes) -> Extension:
    """What a payload says. Shards of a dataset have the same one, and there may be a million of them."""
    extension = Extension()
    try:
        if payload:
            extension.stored = msgspec.msgpack.decode(payload, type=Stored)
        return extension
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"extension block: {error}") from None
