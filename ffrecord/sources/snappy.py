"""Snappy as RecordIO has it: raw, in the framing format, and in the stream of the C++ of PaddlePaddle.

Raw snappy is expanded and made by cramjam; what is around it is read here, since no library has all of it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord import _snappy
from ffrecord.errors import FormatError
from ffrecord.fields.optional import require

Array = npt.NDArray[np.uint8]
RAW, FRAMED, BLOCKS = "raw", "framed", "blocks"
PURPOSE = "snappy compression"


def codec() -> Any:
    """cramjam's functions.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    return require("cramjam", "snappy", PURPOSE).snappy


def compress(data: bytes, kind: str) -> bytes:
    """`data` as raw snappy, or in the framing format."""
    return bytes(codec().compress_raw(data) if kind == RAW else codec().compress(data))


def expand(data: Array, kind: str, most: int, check: bool = True) -> Array:
    """What was compressed.

    Args:
        data: uint8 [size].
        kind: RAW, FRAMED or BLOCKS.
        most: bytes it may expand to; compared before anything is allocated, as is what so many bytes can make at all.
        check: compare the CRC-32C of each block of the framing format. In the stream of the C++ their own reader does
            not look at it, nor does this.

    Raises:
        FormatError: it is not of this kind, is damaged, or expands to more than `most`.
        ChecksumError: a block does not match.
        ImportError: cramjam is not installed.
    """
    if kind == RAW:
        return _expand_raw(data, most)
    table = _snappy.blocks(data, kind == FRAMED, most)
    out = np.empty(int(table[:, 3].sum()), np.uint8)
    _snappy.copy_stored(data, table, out)
    starts = np.cumsum(table[:, 3]) - table[:, 3]
    compressed = np.flatnonzero(table[:, 0] == 0)
    for start, (_, offset, size, expanded, _) in zip(
        starts[compressed].tolist(), table[compressed].tolist(), strict=True
    ):
        _expand_into(data[offset : offset + size], out[start : start + expanded])
    if check and kind == FRAMED:
        _snappy.check(table, out)
    return out


def _expand_raw(data: Array, most: int) -> Array:
    size = _snappy.expanded_size(data)
    if size < 0:
        raise FormatError(f"{len(data)} bytes are no snappy: they say to expand to more than they can, or nothing")
    if size > most:
        raise FormatError(f"{len(data)} bytes of snappy expand to {size}, expected at most {most}")
    out = np.empty(size, np.uint8)
    _expand_into(data, out)
    return out


def _expand_into(data: Array, out: Array) -> None:
    into = codec().decompress_raw_into
    try:
        written = into(data, out)
    except Exception as error:  # cramjam's own class, which derives from nothing else
        raise FormatError(f"{len(data)} bytes of snappy cannot be expanded to {len(out)}: {error}") from None
    if written != len(out):
        raise FormatError(f"{len(data)} bytes of snappy expand to {written}, they say {len(out)}")
