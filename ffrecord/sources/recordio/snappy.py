"""Snappy as in RecordIO: raw, in the framing format, and in the stream of PaddlePaddle's C++.

cramjam compresses and expands raw snappy. This module parses the wrappings, since no library reads all of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.recordio import _recordio
from ffrecord.system.requirements import require

Numbers = npt.NDArray[np.int64]
RAW, FRAMED, BLOCKS = "raw", "framed", "blocks"
PURPOSE = "snappy compression"


def codec() -> Any:
    """Return cramjam's functions.

    Raises:
        ImportError: it is not installed; the message says what to install.
    """
    return require("cramjam", "snappy", PURPOSE).snappy


def compress(data: bytes, kind: str) -> bytes:
    """Compress `data` as raw snappy, or in the framing format."""
    return bytes(codec().compress_raw(data) if kind == RAW else codec().compress(data))


def expand(data: Array, kind: str, most: int, check: bool = True) -> Array:
    """Decompress snappy data.

    Args:
        data: uint8 [size].
        kind: RAW, FRAMED or BLOCKS.
        most: most bytes that it may expand to. It is compared before memory is allocated, and so is the most that this
            many bytes can expand to.
        check: compare the CRC-32C of each block of the framing format. The blocks of the C++ stream are not compared:
            its own reader does not compare them, either.

    Raises:
        FormatError: it is not of this kind, is damaged, or expands to more than `most`.
        ChecksumError: a block does not match.
        ImportError: cramjam is not installed.
    """
    if kind == RAW:
        return _expand_raw(data, most)
    table = _recordio.blocks(data, kind == FRAMED, most)
    out = pooled(int(table[:, 3].sum()))
    _recordio.copy_stored(data, table, out)
    starts = np.cumsum(table[:, 3]) - table[:, 3]
    compressed = np.flatnonzero(table[:, 0] == 0)
    for start, (_, offset, size, expanded, _) in zip(
        starts[compressed].tolist(), table[compressed].tolist(), strict=True
    ):
        _expand_into(data[offset : offset + size], out[start : start + expanded])
    if check and kind == FRAMED:
        _recordio.check_blocks(table, out)
    return out


def expand_pieces(
    data: Array, starts: Numbers, ends: Numbers, most: int
) -> tuple[Array, Numbers, dict[int, Exception]]:
    """Decompress pieces of `data`, each of raw snappy, and put the results back to back.

    Args:
        starts, ends: int64 [k], start and end of each piece.
        most: most bytes that a piece may expand to.

    Returns:
        (expanded, bounds, failures): uint8; int64 [k + 1], start of each result; piece → its error. The result of a
        failed piece is garbage, or empty.
    """
    sizes = _recordio.expanded_sizes(data, starts, ends)
    failures: dict[int, Exception] = {}
    for i in np.flatnonzero((sizes < 0) | (sizes > most)).tolist():
        failures[i] = _wrong_size(int(ends[i] - starts[i]), int(sizes[i]), most)
        sizes[i] = 0
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    out = pooled(int(bounds[-1]))
    into, places = codec().decompress_raw_into, bounds.tolist()
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if i not in failures:
            try:
                into(data[start:end], out[places[i] : places[i + 1]])
            except Exception as error:  # cramjam's own class, which has no other base
                failures[i] = FormatError(f"the snappy data, {end - start} bytes, are damaged: {error}")
    return out, bounds, failures


def _wrong_size(size: int, expanded: int, most: int) -> FormatError:
    if expanded < 0:
        return FormatError(
            f"the snappy data, {size} bytes, are damaged: the size that they give is missing or impossible"
        )
    return FormatError(f"the snappy data, {size} bytes, decompress to {expanded} bytes, expected at most {most}")


def _expand_raw(data: Array, most: int) -> Array:
    out, _, failures = expand_pieces(data, np.zeros(1, np.int64), np.array([len(data)]), most)
    error = failures.pop(0, None)
    if error is not None:
        try:
            raise error
        finally:
            del error  # breaks the cycle of the exception and this frame, which holds `out`
    return out


def _expand_into(data: Array, out: Array) -> None:
    into = codec().decompress_raw_into
    try:
        written = into(data, out)
    except Exception as error:  # cramjam's own class, which has no other base
        raise FormatError(f"the snappy data, {len(data)} bytes, are damaged: {error}") from None
    if written != len(out):
        raise FormatError(f"the snappy data, {len(data)} bytes, decompress to {written} bytes, expected {len(out)}")
