"""The payload of the extension block: what a file says about itself beyond its samples, as msgpack.

The framing of the block (magic, sizes, where its checksum is) belongs to format.py.
"""

from typing import Any

import msgspec

from ffrecord import format
from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError


class Extension(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a file says about itself. Unknown keys of later versions are ignored.

    Attributes:
        schema: the columns of its samples, as `fields.Schema` wrote them; None for plain bytes.
        serializer: name of the function that made the bytes, for people; never called.
        writer: name and version of the program that wrote the file.
    """

    schema: dict[str, Any] | None = None
    serializer: str | None = None
    writer: str = ""


def block_size(payload: bytes, reserved: int = 0) -> int:
    """Bytes of a block that holds `payload` and `reserved` further bytes of zeros."""
    return format.BLOCK.size + len(payload) + reserved


def encode(extension: Extension) -> bytes:
    """The payload of `extension`.

    Raises:
        ValueError: larger than `format.PAYLOAD_MAX`.
    """
    payload = msgspec.msgpack.encode(extension)
    if len(payload) > format.PAYLOAD_MAX:
        raise ValueError(f"extension payload of {len(payload)} bytes, expected at most {format.PAYLOAD_MAX}")
    return payload


def seal(payload: bytes, block_size: int, file_size: int) -> bytes:
    """Header and payload of a block of `block_size` bytes in a file of `file_size`; the rest of the block is zeros."""
    header = format.BlockHeader(0, block_size, len(payload), file_size)
    checked = format.pack_block_header(header)[format.BLOCK_CHECKED_FROM :] + payload
    return format.pack_block_header(header._replace(crc=crc32(checked))) + payload


def decode(header: format.BlockHeader, payload: bytes, path: str) -> Extension:
    """The extension in `payload`, checked against the CRC-32 in `header`.

    Raises:
        ChecksumError: header or payload are damaged.
        FormatError: the payload is not what this module writes.
    """
    checked = format.pack_block_header(header)[format.BLOCK_CHECKED_FROM :] + payload
    computed = crc32(checked)
    if computed != header.crc:
        raise ChecksumError(
            f"{path}: extension block: checksum of metadata mismached! "
            f"CRC-32 {computed:#010x}, stored {header.crc:#010x}",
            path=path,
            stored=header.crc,
            computed=computed,
        )
    if not payload:
        return Extension()
    try:
        return msgspec.msgpack.decode(payload, type=Extension)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"extension block: {error}") from None
