"""Batches with records that cannot be read or decoded: `on_error`.

This slow way is for the few batches that have such a record. It decodes each record by itself to find the bad ones. The
good records are then decoded again as a batch.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FFRecordError, FormatError, UserFunctionError
from ffrecord.order import Epoch, Step
from ffrecord.order.keys import key_of
from ffrecord.reading.batch_forms import pack_arrays
from ffrecord.reading.store import Store
from ffrecord.torch.loading.columns import Seeds
from ffrecord.torch.loading.decoded_columns import AnyColumns
from ffrecord.torch.loading.records import Bytes, Offsets

__all__ = ["ON_ERROR", "BadRecordHandler", "BatchRows"]

ON_ERROR = ("raise", "skip", "replace")
ATTEMPTS = 8  # replacements to try; if so many in a row are bad, the dataset needs repair, not training


class BatchRows(NamedTuple):
    """The samples of a batch.

    Attributes:
        indices: int64 [k], the samples; the replacement if one was replaced.
        positions: int64 [k], their positions in the epoch.
        padding: number of samples at the end that are padding.
        skipped: the error of each record that was left out or replaced.
    """

    indices: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    padding: int
    skipped: tuple[str, ...] = ()


class BadRecordHandler:
    """The search for bad records of a batch, and the action of `on_error` for them.

    Args:
        reader, columns: reader and columns, to read and decode with.
        epoch: epoch whose order decides the replacement of a sample.
        on_error: one of ON_ERROR.
    """

    def __init__(self, reader: Store, columns: AnyColumns, epoch: Epoch, on_error: str) -> None:
        self._reader, self._columns, self._epoch, self._on_error = reader, columns, epoch, on_error

    def resolve(self, step: Step, seeds: Seeds | None) -> tuple[BatchRows, Bytes, Offsets]:
        """Return the samples of the good records of a batch, and these records, packed.

        Raises:
            FFRecordError, OSError: on_error is "raise", or all replacements are bad too; names file and sample.
            UserFunctionError: a transform of the dataset failed, whatever on_error is.
        """
        records = self._read(step.indices, seeds)
        indices, kept, skipped = step.indices.copy(), [], []
        for i, record in enumerate(records):
            if isinstance(record, Exception):
                if self._on_error == "raise":
                    raise record
                skipped.append(f"{'skipped' if self._on_error == 'skip' else 'replaced'}: {record}")
                if self._on_error == "skip":
                    continue
                indices[i], records[i] = self._replacement(int(step.positions[i]), _seed_at(seeds, i), record)
            kept.append(i)
        padding = sum(i >= len(records) - step.padding for i in kept)
        rows = BatchRows(indices[kept], step.positions[kept], padding, tuple(skipped))
        good: list[Any] = [records[i] for i in kept]
        return rows, *pack_arrays(good)

    def _read(self, indices: npt.NDArray[np.int64], seeds: Seeds | None) -> list[Bytes | Exception]:
        """Return the bytes of each record, or its error."""
        (data, offsets), failures = self._reader._begin_packed(indices)()
        wrong = dict(failures)
        return [
            wrong[i] if i in wrong else self._check(data[low:high], int(indices[i]), _seed_at(seeds, i))
            for i, (low, high) in enumerate(pairwise(offsets.tolist()))
        ]

    def _check(self, record: Bytes, index: int, seeds: Seeds | None) -> Bytes | Exception:
        try:
            self._columns.check(record, index, seeds)
        except FormatError as error:
            return self._reader._name_sample_error(index, error)
        except UserFunctionError as error:
            cause = error.__cause__
            if isinstance(cause, UserFunctionError):  # a `Dataset` raised it: a mistake in its transform
                raise cause from cause.__cause__
            return error
        except FFRecordError as error:  # of a dataset in Python
            return error
        return record

    def _replacement(self, position: int, seeds: Seeds | None, error: Exception) -> tuple[int, Bytes]:
        """Return another sample for the one at `position`: a pure function of seed, epoch, position and the bad
        samples.
        """
        for attempt in range(1, ATTEMPTS + 1):
            index = choose_replacement(self._epoch, position, attempt)
            found = self._read(np.array([index]), seeds)[0]
            if not isinstance(found, Exception):
                return index, found
        raise error


def _seed_at(seeds: Seeds | None, i: int) -> Seeds | None:
    return None if seeds is None else seeds[i : i + 1]


def choose_replacement(epoch: Epoch, position: int, attempt: int) -> int:
    """Return the sample for the one at `position` in the epoch's order if it and `attempt` - 1 others are bad."""
    number = key_of("replace", epoch.seed, epoch.number, position, attempt) % epoch.length
    return int(epoch.indices(np.array([number], np.int64))[0])
