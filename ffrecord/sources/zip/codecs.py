"""What members of zip archives are compressed with: content in pieces, never more at a time than was asked for."""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

from ffrecord.errors import FormatError
from ffrecord.system.optional import require

STORED, DEFLATED, BZIP2, LZMA, ZSTD = 0, 8, 12, 14, 93
READ_HERE = (STORED, DEFLATED, BZIP2, LZMA, ZSTD)
OTHERS = {1: "shrink", 6: "implode", 9: "deflate64", 95: "xz", 96: "JPEG", 97: "WavPack", 98: "PPMd", 99: "AES"}
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13  # bits of the flags; with strong encryption, with masked local headers
CHUNK = 256 << 10  # compressed bytes taken at a time
PIECE = 1 << 20  # bytes of content that zstd is asked for at a time
RATIO_FREE = 16 << 20  # bytes; content of that size at most may be compressed as far as it can be
MARKED = 1 << 1  # of the flags: LZMA has a mark of its end
LZMA_HEAD = struct.Struct("<2sHBI")  # version, size of the properties, lc + 9 (lp + 5 pb), size of the dictionary

Read = Callable[[int], bytes]  # up to so many bytes, > 0; b"" at the end


def refusal(method: int, flags: int) -> str | None:
    """Why a member cannot be read here; None: it can."""
    if flags & ENCRYPTED:
        return "it is encrypted"
    if method not in READ_HERE:
        return f"it is compressed by method {method} ({OTHERS.get(method, 'unknown')}), expected one of {READ_HERE}"
    return None


def check_ratio(size: int, compressed: int, max_ratio: float | None) -> None:
    """Raise FormatError if the content is said to be more than `max_ratio` times what is stored, and is not small."""
    if max_ratio is not None and size > RATIO_FREE and size > max_ratio * compressed:
        raise FormatError(
            f"{size} bytes are said to be in {compressed}, {size / max(compressed, 1):.0f} times as much, "
            f"expected at most {max_ratio:g} times (max_ratio)"
        )


def inflating(method: int, flags: int, source: Read, size: int) -> Read:
    """What reads the content of a member, `size` bytes of it, from its compressed bytes, which `source` reads.

    Args:
        method, flags: of the member.

    At the end of what is there it gives b"", whether that is where the content ends or not; bytes that are no such
    compressed data raise what the library raises.

    Raises:
        ImportError: the library for `method` is not installed; says what to install.
    """
    if method == DEFLATED:
        return _deflate(source)
    if method == ZSTD:
        zstandard = require("zstandard", "zstd", "a member compressed by zstd")
        reader: Any = zstandard.ZstdDecompressor().stream_reader(_Source(source), CHUNK, read_across_frames=True)
        # It allocates what it is asked for before it looks at anything.
        return lambda most: reader.read(min(most, PIECE))
    if method == BZIP2:
        return _bzip2(source)
    read = _lzma(source, size)
    return read if flags & MARKED else _up_to(read, size)


def inflate(method: int, flags: int, data: memoryview, size: int) -> bytes:
    """The content of a member whose compressed bytes are `data`.

    Raises:
        FormatError: it is not `size` bytes, or no such compressed data.
        ImportError: as `inflating`.
    """
    read = inflating(method, flags, _reading(data), size)
    pieces, left = [], size + 1  # one more, to see that there is none
    with translated():
        while left and (piece := read(left)):
            pieces.append(piece)
            left -= len(piece)
    if left != 1:
        found = f"more than {size}" if left == 0 else f"{size + 1 - left}"
        raise FormatError(f"{len(data)} compressed bytes have {found} bytes of content, expected {size}")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class translated:  # noqa: N801 - used as a function
    """Make what libraries raise of bad bytes a FormatError; they document no lists of that."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MemoryError | ImportError | FormatError):
            raise FormatError(f"its compressed bytes are damaged: {error}") from error


def _deflate(source: Read) -> Read:
    codec = zlib.decompressobj(-zlib.MAX_WBITS)

    def read(most: int) -> bytes:
        while not codec.eof:
            data = codec.unconsumed_tail or source(CHUNK)
            piece = codec.decompress(data, most)
            if piece or not data:
                return piece
        return b""

    return read


def _bzip2(source: Read) -> Read:
    return _keeping(bz2.BZ2Decompressor(), source)


def _lzma(source: Read, size: int) -> Read:
    """Without the properties that zip puts in front, APPNOTE 5.8.8."""
    head = b""
    while len(head) < LZMA_HEAD.size and (piece := source(LZMA_HEAD.size - len(head))):
        head += bytes(piece)
    if len(head) < LZMA_HEAD.size:
        raise FormatError(f"{len(head)} bytes of LZMA, expected {LZMA_HEAD.size} of properties alone")
    _, length, packed, dictionary = LZMA_HEAD.unpack(head)
    if length != 5 or packed >= 9 * 5 * 5:
        raise FormatError(f"LZMA properties of {length} bytes that begin with {packed}, expected 5 and less than 225")
    filters = {
        "id": lzma.FILTER_LZMA1,
        "lc": packed % 9,
        "lp": packed // 9 % 5,
        "pb": packed // 45,
        # No more than there is content, which is all it can hold; liblzma wants 4096.
        "dict_size": max(4096, min(dictionary, size)),
    }
    with translated():
        return _keeping(lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[filters]), source)


def _up_to(read: Read, size: int) -> Read:
    """Read no more than `size` bytes: LZMA without a mark of its end, as 7-Zip and WinZip write it, does not tell."""
    left = size

    def read_up_to(most: int) -> bytes:
        nonlocal left
        piece = read(min(most, left)) if left else b""
        left -= len(piece)
        return piece

    return read_up_to


def _keeping(codec: "bz2.BZ2Decompressor | lzma.LZMADecompressor", source: Read) -> Read:
    """Of codecs that keep what they were given and could not use yet."""

    def read(most: int) -> bytes:
        while not codec.eof:
            data = source(CHUNK) if codec.needs_input else b""
            piece = codec.decompress(data, most)
            if piece or (codec.needs_input and not data):
                return piece
        return b""

    return read


def _reading(data: memoryview) -> Read:
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        at += most
        return data[at - most : at]  # type: ignore[return-value]

    return read


class _Source:
    """A function that reads as an object that does."""

    def __init__(self, read: Read) -> None:
        self.read = read
