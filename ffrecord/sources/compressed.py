"""Files that are compressed as a whole: their magic numbers, and the content of their beginning."""

import zlib
from contextlib import suppress

MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
LONGEST = 6  # bytes of the longest key of MAGIC
SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f: a zstd frame without data; pzstd writes them


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression of a file with this head; None if none is known."""
    if head[1:4] == SKIPPABLE and head[0] >> 4 == 5:
        return "zstd"
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def inflate_head(head: bytes, most: int) -> bytes | None:
    """Return up to `most` decompressed bytes of the head of a gzip or zlib file; None for other files.

    The file may have several gzip members, also empty ones.
    """
    if head[:2] != b"\x1f\x8b" and not (head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0):
        return None
    found, left = b"", head
    with suppress(zlib.error):
        while left and len(found) < most:
            machine = zlib.decompressobj(47)
            found += machine.decompress(left, most - len(found))
            if not machine.eof:
                break
            left = machine.unused_data.lstrip(b"\0")
        return found
    return found or None
