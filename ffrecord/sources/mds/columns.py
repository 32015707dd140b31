"""Samples of MDS shards: where the values of the columns lie in the bytes of a sample."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.mds.encodings import ColumnEncoding, encoding
from ffrecord.sources.mds.index import WORD, MDSColumns
from ffrecord.sources.pieces import as_values, gather_pieces

Table = npt.NDArray[np.int64]


class MDSLayout:
    """The columns of a shard, ready to decode.

    Args:
        columns: the columns in index.json.
        wanted: names of the columns to decode, in this order; all if None.
        decode: decode JPEG and PNG to arrays.
        allow_pickle: load pickles.

    Attributes:
        encodings: encodings of all columns.
        wanted: places of the wanted columns.

    Raises:
        FormatError: an encoding is unknown, or its values have another size than in the index.
        ValueError: `wanted` names a column that does not exist.
    """

    def __init__(self, columns: MDSColumns, wanted: Sequence[str] | None, decode: bool, allow_pickle: bool) -> None:
        self.names = columns.column_names
        self.encodings = [encoding(name, decode, allow_pickle) for name in columns.column_encodings]
        for name, each, size in zip(self.names, self.encodings, columns.column_sizes, strict=True):
            if each.size != size:
                found, said = ("varying sizes" if one is None else f"{one} bytes" for one in (each.size, size))
                raise FormatError(f"column {name!r}: values of {each.name} have {found}, the index says {said}")
        chosen = self.names if wanted is None else list(wanted)
        unknown = [name for name in chosen if name not in self.names]
        if unknown or len(set(chosen)) != len(chosen):
            raise ArgumentError(f"columns are {chosen}, expected some of {', '.join(self.names)}, each once")
        self.wanted = [self.names.index(name) for name in chosen]
        self._varying = [place for place, each in enumerate(self.encodings) if each.size is None]
        self._head = struct.Struct(f"<{len(self._varying)}I")
        self._fixed = sum(each.size or 0 for each in self.encodings)

    def sample(self, record: Array) -> dict[str, Any]:
        """Return the values of the wanted columns in one sample.

        Raises:
            FormatError: the bytes are not such a sample.
        """
        bounds, data = self._bounds(record.data), record.data
        found = {}
        for place in self.wanted:
            found[self.names[place]] = self.value(place, data[bounds[place] : bounds[place + 1]])
        return found

    def _bounds(self, record: memoryview) -> list[int]:
        head = self._head.size
        sizes = iter(self._head.unpack_from(record) if len(record) >= head else ())
        bounds = [head]
        for each in self.encodings:
            bounds.append(bounds[-1] + (next(sizes, 0) if each.size is None else each.size))
        if bounds[-1] != len(record):
            raise FormatError(f"record of {len(record)} bytes, its columns have {bounds[-1]}")
        return bounds

    def starts(self, data: Array, offsets: Table) -> tuple[Table, int]:
        """Return (starts, wrong) for k packed samples.

        starts: int64 [columns + 1, k], the start of each value, and the end of the last one. wrong: the place of the
        first invalid sample, or -1.
        """
        head = self._head.size
        sizes = np.diff(offsets)
        small = np.flatnonzero(sizes < head + self._fixed)
        if len(small):
            return np.empty((0, 0), np.int64), int(small[0])
        words = gather_pieces(data, offsets[:-1], head).view(WORD) if head else np.empty((len(sizes), 0), WORD)
        bounds = np.empty((len(self.encodings) + 1, len(sizes)), np.int64)
        bounds[0] = offsets[:-1] + head
        for place, each in enumerate(self.encodings):
            size = words[:, self._varying.index(place)] if each.size is None else each.size
            bounds[place + 1] = bounds[place] + size
        wrong = np.flatnonzero(bounds[-1] != offsets[1:])
        return bounds, int(wrong[0]) if len(wrong) else -1

    def column(self, place: int, data: Array, bounds: Table) -> npt.NDArray[Any] | None:
        """Return the values of column `place` as one array [k, ...] if they are numbers of one shape, else None."""
        each: ColumnEncoding = self.encodings[place]
        if each.dtype is None or each.size is None:
            return None
        return as_values(gather_pieces(data, bounds[place], each.size), each.dtype, each.shape)

    def cuts(self, place: int, data: Array, bounds: Table) -> list[memoryview]:
        """Return the bytes of column `place` in k samples."""
        bounds_of = zip(bounds[place].tolist(), bounds[place + 1].tolist(), strict=True)
        return [data.data[low:high] for low, high in bounds_of]

    def value(self, place: int, data: memoryview) -> Any:
        """Decode one value of column `place`; raise FormatError if it is invalid."""
        try:
            return self.encodings[place].decode(data)
        except ValueError as error:
            raise FormatError(f"column {self.names[place]!r}: {error}") from None
