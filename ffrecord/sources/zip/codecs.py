"""Decompression of zip members in pieces of bounded size."""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

from ffrecord.errors import FormatError
from ffrecord.system.requirements import require

STORED, DEFLATED, BZIP2, LZMA, ZSTD = 0, 8, 12, 14, 93
READ_HERE = (STORED, DEFLATED, BZIP2, LZMA, ZSTD)
OTHERS = {1: "shrink", 6: "implode", 9: "deflate64", 95: "xz", 96: "JPEG", 97: "WavPack", 98: "PPMd", 99: "AES"}
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13  # flags: encrypted, strongly encrypted, with masked local headers
CHUNK = 256 << 10  # compressed bytes read at a time
PIECE = 1 << 20  # most bytes of content to request from zstd at a time
RATIO_FREE = 16 << 20  # bytes of content up to which any compression ratio is accepted
MARKED = 1 << 1  # flag: LZMA data have an end mark
LZMA_HEAD = struct.Struct("<2sHBI")  # version, size of the properties, lc + 9 (lp + 5 pb), size of the dictionary

Read = Callable[[int], bytes]  # returns up to so many bytes, > 0; b"" at the end


def refusal(method: int, flags: int) -> str | None:
    """Return the reason why a member cannot be read here; None if it can."""
    if flags & ENCRYPTED:
        return "it is encrypted"
    if method not in READ_HERE:
        return f"it is compressed by method {method} ({OTHERS.get(method, 'unknown')}), expected one of {READ_HERE}"
    return None


def check_ratio(size: int, compressed: int, max_ratio: float | None) -> None:
    """Raise FormatError if large content is said to have more than `max_ratio` times its compressed bytes."""
    if max_ratio is not None and size > RATIO_FREE and size > max_ratio * compressed:
        raise FormatError(
            f"it has {size} bytes in {compressed} compressed ones, {size / max(compressed, 1):.0f} times as much, "
            f"expected at most {max_ratio:g} times (max_ratio)"
        )


def content_reader(method: int, flags: int, source: Read, size: int) -> Read:
    """Return a function that reads the content of a member.

    At the end of the data it returns b"", whether or not the content is complete. On invalid data it raises the
    exceptions of the library.

    Args:
        method, flags: method and flags of the member.
        source: reads the compressed bytes.
        size: bytes of content according to the directory.

    Raises:
        ImportError: the library for `method` is not installed; the message says what to install.
    """
    if method == DEFLATED:
        return _deflate(source)
    if method == ZSTD:
        zstandard = require("zstandard", "zstd", "a member compressed by zstd")
        reader: Any = zstandard.ZstdDecompressor().stream_reader(_Source(source), CHUNK, read_across_frames=True)
        # zstandard allocates the requested size before it looks at the data.
        return lambda most: reader.read(min(most, PIECE))
    if method == BZIP2:
        return _bzip2(source)
    read = _lzma(source, size)
    return read if flags & MARKED else _bounded_reader(read, size)


def inflate(method: int, flags: int, data: memoryview, size: int) -> bytes:
    """Decompress the content of a member.

    Raises:
        FormatError: it is not `size` bytes, or the data are invalid.
        ImportError: see `content_reader`.
    """
    read = content_reader(method, flags, _memory_reader(data), size)
    pieces, left = [], size + 1  # request one byte more, to notice content that is too long
    with translate_errors():
        while left and (piece := read(left)):
            pieces.append(piece)
            left -= len(piece)
    if left != 1:
        found = f"more than {size}" if left == 0 else f"{size + 1 - left}"
        raise FormatError(f"its {len(data)} compressed bytes decompress to {found} bytes, expected {size}")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class translate_errors:  # noqa: N801 - used as a function
    """A context that turns exceptions of decompressors into FormatError.

    The libraries do not document which they raise.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        # Ctrl+C, and too little memory, are not damage.
        if isinstance(error, Exception) and not isinstance(error, MemoryError | ImportError | FormatError):
            raise FormatError(f"its compressed data are damaged: {error}") from error


def _deflate(source: Read) -> Read:
    # Negative: deflate alone, without the header and checksum of zlib.
    codec = zlib.decompressobj(-zlib.MAX_WBITS)

    def read(most: int) -> bytes:
        while not codec.eof:
            data = codec.unconsumed_tail or source(CHUNK)
            piece = codec.decompress(data, most)
            # Neither output nor input: the data were cut.
            if piece or not data:
                return piece
        return b""

    return read


def _bzip2(source: Read) -> Read:
    return _codec_reader(bz2.BZ2Decompressor(), source)


def _lzma(source: Read, size: int) -> Read:
    """Return a reader of LZMA data behind the properties that zip puts in front, APPNOTE 5.8.8."""
    head = b""
    while len(head) < LZMA_HEAD.size and (piece := source(LZMA_HEAD.size - len(head))):
        head += bytes(piece)
    if len(head) < LZMA_HEAD.size:
        raise FormatError(f"its LZMA data have {len(head)} bytes, expected at least {LZMA_HEAD.size} of properties")
    _, length, packed, dictionary = LZMA_HEAD.unpack(head)
    # One number has lc < 9, lp < 5 and pb < 5.
    if length != 5 or packed >= 9 * 5 * 5:
        raise FormatError(
            f"its LZMA properties have {length} bytes and begin with {packed}, expected 5 bytes and a number below 225"
        )
    filters = {
        "id": lzma.FILTER_LZMA1,
        "lc": packed % 9,
        "lp": packed // 9 % 5,
        "pb": packed // 45,
        # The content is all that the dictionary can hold; liblzma needs at least 4096.
        "dict_size": max(4096, min(dictionary, size)),
    }
    with translate_errors():
        return _codec_reader(lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[filters]), source)


def _bounded_reader(read: Read, size: int) -> Read:
    """Stop a reader after `size` bytes.

    LZMA without an end mark, as 7-Zip and WinZip write it, does not tell its end.
    """
    left = size

    def read_up_to(most: int) -> bytes:
        nonlocal left
        piece = read(min(most, left)) if left else b""
        left -= len(piece)
        return piece

    return read_up_to


def _codec_reader(codec: "bz2.BZ2Decompressor | lzma.LZMADecompressor", source: Read) -> Read:
    """Return a reader over a codec that keeps unused input itself."""

    def read(most: int) -> bytes:
        while not codec.eof:
            data = source(CHUNK) if codec.needs_input else b""
            piece = codec.decompress(data, most)
            if piece or (codec.needs_input and not data):
                return piece
        return b""

    return read


def _memory_reader(data: memoryview) -> Read:
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        at += most
        return data[at - most : at]  # type: ignore[return-value]

    return read


class _Source:
    """An object with a `read` method, made from a function."""

    def __init__(self, read: Read) -> None:
        self.read = read
