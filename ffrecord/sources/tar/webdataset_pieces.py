"""Records of WebDataset's samples that are in several pieces of their archives."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from ffrecord.engine._engine import Failure
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.failures import failure_error
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices
from ffrecord.sources.tar.webdataset_samples import ArchiveSamples


class SamplePieces(RecordReader):
    """The pieces, as records of their own.

    Args:
        files: the archives, with the pieces as their tables.
        samples: of all of them.
        name: what the sample of a number is called in messages.
    """

    format = "webdataset"

    def __init__(self, files: list[SpanFile], samples: ArchiveSamples, name: Callable[[int], str], io: str) -> None:
        self._ends, self._name = samples.pieces, name
        super().__init__(files, False, io=io)

    def load(self, positions: Indices) -> list[Array | Exception]:
        """As `Store._load`, of samples."""
        ends = self._ends[positions]
        starts = np.where(positions > 0, self._ends[positions - 1], 0)
        found = self._load(np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)]))
        cuts = np.cumsum([0, *(ends - starts)]).tolist()
        return [_whole(found[a:b]) for a, b in pairwise(cuts)]

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        piece = int(positions[failure.order])
        number, _ = self._engine.locate(piece)
        sample = int(np.searchsorted(self._ends, piece, "right"))
        return failure_error(failure, self._files[number], sample, self._name(sample))


def _whole(pieces: list[Array | Exception]) -> Array | Exception:
    """One after the other, or why they cannot be had."""
    arrays = []
    for piece in pieces:
        if isinstance(piece, Exception):
            return piece
        arrays.append(piece)
    return np.concatenate(arrays)
