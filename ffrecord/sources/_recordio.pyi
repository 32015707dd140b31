"""RecordIO's chunks found in a file, and the records in them. The GIL is released."""

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
