"""RecordIO's chunks found in a file, and the records in them. The GIL is released.

Where the blocks of a snappy stream lie, and what they expand to.

Of both kinds of streams around raw snappy: the framing format
(https://github.com/google/snappy/blob/main/framing_format.txt), and the one that the C++ RecordIO of PaddlePaddle
writes: 7 bytes `snappy` and 0, then for each block a flag (1 compressed, 0 stored), its size as a big-endian u16, a
masked CRC-32C of what it expands to as a big-endian u32, and its bytes.

table: int64 [k, 5], a row for each block: kind (0 compressed, 1 stored), offset and size of its bytes in the stream,
bytes that it expands to, CRC-32C of those.
"""

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.int64]

def hop(fd: int, end: int, size_word: int) -> tuple[npt.NDArray[np.uint32], _Numbers, int]:
    """Go from chunk to chunk, from the start of a file; only headers are looked at.

    Args:
        fd: of the file.
        end: its size, bytes.
        size_word: which of the five words of a header is the size of the payload.

    Returns:
        (headers, offsets, stop): uint32 [k, 5], the words of each header; int64 [k], where each begins; and where the
        first thing begins that has no magic number, is cut short, or says to go on beyond `end`: `end`, if all is well.

    Raises:
        OSError: reading failed.
    """

def walk(data: _Array, starts: _Numbers, ends: _Numbers, counts: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Find the records of expanded payloads.

    Args:
        data: that the payloads are in.
        starts, ends, counts: int64 [k], of each payload, and how many records it is to hold, at most a quarter of its
            bytes.

    Returns:
        (offsets, sizes, wrong): int64 [sum of counts], where each record begins in `data`, and its bytes, payload by
        payload; int64 [k], -1 where a payload holds exactly so many, else where in `data` the first record begins that
        is not all there, or what is left behind the last.

    Raises:
        ValueError: a payload is not within `data`, or cannot hold so many.
    """

def checksums(data: _Array, offsets: _Numbers, sizes: _Numbers) -> npt.NDArray[np.uint32]:
    """CRC-32 of pieces of `data`: uint32 [k].

    Raises:
        ValueError: a piece is not within `data`.
    """

def gather(data: _Array, offsets: _Numbers, sizes: _Numbers, places: _Numbers, out: _Array) -> None:
    """Copy k pieces of `data` to `places` in `out`, int64 [k] each.

    Raises:
        ValueError: a piece is not within `data`, or its place not within `out`.
    """

def copies(data: _Array, offsets: _Numbers, sizes: _Numbers) -> list[_Array]:
    """Copies of k pieces of `data`: those of 64 KiB and more in memory of their own, others share up to 512 KiB.

    Raises:
        ValueError: a piece is not within `data`.
    """

def expanded_sizes(data: _Array, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes that pieces of `data` say to expand to, each of raw snappy: int64 [k].

    -1 where one does not say, or says more than its bytes can make.

    Raises:
        ValueError: a piece is not within `data`.
    """

def blocks(data: _Array, framed: bool, most: int) -> npt.NDArray[np.int64]:
    """The table of a stream: one pass, before anything is expanded. The GIL is released.

    Args:
        data: the stream.
        framed: of the framing format, not the other.
        most: bytes that it may expand to.

    Raises:
        FormatError: it is no such stream, is cut short, says more than its bytes can make, or more than `most`.
    """

def copy_stored(data: _Array, table: npt.NDArray[np.int64], out: _Array) -> None:
    """Copy the blocks that are not compressed to their places in `out`, whose size is the sum of what all expand to."""

def check_blocks(table: npt.NDArray[np.int64], out: _Array) -> None:
    """Compare each block of what a stream expanded to with its CRC-32C.

    Raises:
        ChecksumError: they differ.
    """
