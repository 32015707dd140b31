"""RecordIO's chunks in a file, and the records in them. The GIL is released.

The module also finds the blocks of a snappy stream, and their expanded sizes.

There are two kinds of streams around raw snappy. One is the framing format
(https://github.com/google/snappy/blob/main/framing_format.txt). The other is written by the C++ RecordIO of
PaddlePaddle: 7 bytes `snappy` and 0, then for each block a flag (1 compressed, 0 stored), its size as a big-endian u16,
a masked CRC-32C of its expanded bytes as a big-endian u32, and its bytes.

table: int64 [k, 5], a row for each block: kind (0 compressed, 1 stored), offset and size of its bytes in the stream,
size of its expanded bytes, CRC-32C of those.
"""

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.int64]

def hop(fd: int, end: int, size_word: int) -> tuple[npt.NDArray[np.uint32], _Numbers, int]:
    """Go from chunk to chunk, from the start of a file, and read only the headers.

    Args:
        fd: descriptor of the file.
        end: its size, bytes.
        size_word: place of the payload's size among the five words of a header.

    Returns:
        (headers, offsets, stop): uint32 [k, 5], the words of each header; int64 [k], offset of each; and the offset of
        the first thing that has no magic number, is cut short, or would end beyond `end`. If all is well, `stop` is
        `end`.

    Raises:
        OSError: reading failed.
    """

def walk(data: _Array, starts: _Numbers, ends: _Numbers, counts: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Find the records of expanded payloads.

    Args:
        data: bytes with the payloads.
        starts, ends, counts: int64 [k], start and end of each payload, and its expected number of records, at most a
            quarter of its bytes.

    Returns:
        (offsets, sizes, wrong): int64 [sum of counts], offset of each record in `data`, and its bytes, payload by
        payload; int64 [k], -1 if a payload has exactly so many records, else the offset in `data` of the first record
        that is not complete, or of the rest behind the last.

    Raises:
        ValueError: a payload is not within `data`, or cannot have so many records.
    """

def checksums(data: _Array, offsets: _Numbers, sizes: _Numbers) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of pieces of `data`: uint32 [k].

    Raises:
        ValueError: a piece is not within `data`.
    """

def gather(data: _Array, offsets: _Numbers, sizes: _Numbers, places: _Numbers, out: _Array) -> None:
    """Copy k pieces of `data` to `places` in `out`, int64 [k] each.

    Raises:
        ValueError: a piece is not within `data`, or its place not within `out`.
    """

def copies(data: _Array, offsets: _Numbers, sizes: _Numbers) -> list[_Array]:
    """Return copies of k pieces of `data`.

    Pieces of 64 KiB and more have memory of their own, others share up to 512 KiB.

    Raises:
        ValueError: a piece is not within `data`.
    """

def expanded_sizes(data: _Array, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the stated expanded sizes of pieces of `data`, each of raw snappy: int64 [k].

    A size is -1 if it is missing, or more than the piece can expand to.

    Raises:
        ValueError: a piece is not within `data`.
    """

def blocks(data: _Array, framed: bool, most: int) -> npt.NDArray[np.int64]:
    """Return the table of a stream, in one pass before anything is expanded. The GIL is released.

    Args:
        data: the stream.
        framed: it is of the framing format, not of the other.
        most: most bytes that it may expand to.

    Raises:
        FormatError: it is not such a stream, is cut short, states a size that its bytes cannot expand to, or more than
            `most`.
    """

def copy_stored(data: _Array, table: npt.NDArray[np.int64], out: _Array) -> None:
    """Copy the blocks that are not compressed to their places in `out`, whose size is the sum of all expanded sizes."""

def check_blocks(table: npt.NDArray[np.int64], out: _Array) -> None:
    """Compare each expanded block of a stream with its CRC-32C.

    Raises:
        ChecksumError: they differ.
    """
