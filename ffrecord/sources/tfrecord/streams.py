"""Records of compressed TFRecord files, from their decompressed bytes."""

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import cast

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ChecksumError, FFRecordError, plural
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.store import Indices
from ffrecord.sources.inflated import Inflated, OpenStreams
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord.index import TFRecordIndex

RUN_SIZE = 512 << 10  # bytes decompressed into one piece of memory, which its records share
GAP = 64 << 10  # most bytes between two records of a run
OPEN_MOST = 8  # most open streams, each with a descriptor, a state of zlib and a block


class Streams:
    """A reader of the records of compressed files.

    Args:
        indexes: indexes of all files.
        check: compare checksums.
    """

    def __init__(self, indexes: list[TFRecordIndex], check: bool) -> None:
        self._indexes, self._check = indexes, check
        self._starts = np.cumsum([0, *(len(each.sizes) for each in indexes)])
        self._packed = np.array([each.stream is not None for each in indexes])
        self._open = OpenStreams(OPEN_MOST)
        self.any = bool(self._packed.any())

    def close(self) -> None:
        """Close the files."""
        with contextlib.ExitStack() as stack:  # closes all of them, also if one fails
            for each in self._indexes:
                if each.stream is not None:
                    stack.callback(each.stream.release)

    def has(self, positions: Indices) -> npt.NDArray[np.bool_]:
        """Return which of the records at `positions`, in [0, n), are in compressed files."""
        return self._packed[self._files_of(positions)]

    def _files_of(self, positions: Indices) -> Indices:
        return np.searchsorted(self._starts, positions, "right") - 1

    def load(self, positions: Indices) -> list[Array | Exception]:
        """Load records of compressed files, with the result of `Store._load`."""
        wanted, places = np.unique(positions, return_inverse=True)
        files = self._files_of(wanted)
        groups = (self._of_file(int(file), wanted[files == file]) for file in np.unique(files))
        found = list(chain.from_iterable(groups))
        result, given = [], set()
        for place in places.tolist():
            record = found[place]
            # A record that is requested twice gets two arrays, which share no bytes.
            result.append(record.copy() if place in given and not isinstance(record, Exception) else record)
            given.add(place)
        return result

    def _of_file(self, file: int, positions: Indices) -> Iterator[Array | Exception]:
        """Yield records of one file, positions ascending."""
        index = self._indexes[file]
        local = positions - self._starts[file]
        offsets, sizes = index.offsets[local], index.sizes[local]
        stream = cast(Inflated, index.stream)  # not None: `has` selects compressed files only
        with stream.turn:
            for run in _runs(offsets, offsets + sizes):
                yield from self._of_run(index, stream, positions[run], local[run], offsets[run], sizes[run])

    def _of_run(
        self,
        index: TFRecordIndex,
        stream: Inflated,
        positions: Indices,
        local: Indices,
        offsets: Indices,
        sizes: Indices,
    ) -> list[Array | Exception]:
        start = int(offsets[0])
        starts = offsets - start

        try:
            data = np.empty(int(starts[-1] + sizes[-1]), np.uint8)
            self._open.use(stream).fill(data, start)
        except (FFRecordError, OSError, MemoryError) as error:
            return [_name_error(f"Sample {at}", error) for at in positions]
        records: list[Array | Exception] = [data[a:b] for a, b in zip(starts, starts + sizes, strict=True)]
        if self._check:
            stored, computed = index.checksums[local], _tfrecord.checksums(data.data, starts, sizes)
            for place in np.flatnonzero(stored != computed).tolist():
                crc, expected = int(computed[place]), int(stored[place])
                index_of_all = int(positions[place])
                where = f"{index.path}: record {local[place]}"
                records[place] = ChecksumError(
                    f"Sample {index_of_all}: checksum mismatch: {where}: CRC-32C {crc:#010x}, stored {expected:#010x} "
                    f"({plural(sizes[place], 'byte')} at offset {offsets[place]} of the decompressed data)",
                    path=index.path,
                    index=index_of_all,
                    stored=expected,
                    computed=crc,
                )
        return records


def _runs(starts: Indices, ends: Indices) -> list[Indices]:
    """Group spans, in ascending order, that are decompressed into one piece of memory each.

    Spans of a group lie close together.
    """
    pieces = ends // RUN_SIZE
    large = ends - starts > RUN_SIZE // 2
    cut = (starts[1:] - ends[:-1] > GAP) | (pieces[1:] != pieces[:-1]) | large[1:] | large[:-1]
    return np.split(np.arange(len(starts)), np.flatnonzero(cut) + 1)


def _name_error(name: str, error: Exception) -> Exception:
    """Return the error with its record in the message. An OSError stays as it is, so that its errno is not lost."""
    if isinstance(error, OSError) and error.errno:
        return error
    return type(error)(f"{name}: {error}")
