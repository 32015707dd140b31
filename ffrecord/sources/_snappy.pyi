"""Where the blocks of a snappy stream lie, and what they expand to.

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

def check(table: npt.NDArray[np.int64], out: _Array) -> None:
    """Compare each block of what a stream expanded to with its CRC-32C.

    Raises:
        ChecksumError: they differ.
    """
