"""Samples of stores by index, if they are not just one store in its order."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import MismatchError, name_files
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.parts import Parts
from ffrecord.inputs.passthrough import Verbatim
from ffrecord.inputs.stores import BYTES_AT_ONCE, StoreSamples


class SelectedDataset:
    """The samples of parts, several at once. It pickles like their stores.

    Args:
        parts: parts that name the record of each sample.
        members: samples of each of their stores.

    Attributes:
        columns: columns of the result; None for records without a schema.

    Raises:
        MismatchError: the members have different columns.
    """

    may_be_asked_ahead = True

    def __init__(self, parts: Parts, members: Sequence[StoreSamples]) -> None:
        self._parts, self._members = parts, list(members)
        self.columns: SampleColumns | None = _common_columns(members)
        # With several stores each encodes its own samples, and records are returned.
        self._encodes = len(members) > 1 and self.columns is not None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of these samples: 64 hexadecimal digits."""
        texts = [*(member.fingerprint for member in self._members), self._parts.digest()]
        return hashlib.sha256(" ".join(texts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        found = self._parts.find(np.asarray(indices, np.int64))
        if len(self._members) == 1:
            return self._members[0].__getitems__(found.indices.tolist())
        samples: list[Any] = [None] * len(indices)
        for number in np.unique(found.stores):
            places = np.flatnonzero(found.stores == number)
            of_member = self._of_member(int(number), found.indices[places].tolist())
            for place, sample in zip(places.tolist(), of_member, strict=True):
                samples[place] = sample
        return samples

    def _of_member(self, number: int, indices: list[int]) -> list[Any]:
        member = self._members[number]
        samples = member.__getitems__(indices)
        columns: Any = member.columns
        return [columns.schema.encode(sample) for sample in samples] if self._encodes else samples

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages: with its place in its file."""
        found = self._parts.find(np.array([index], np.int64))
        path, local = self._parts.stores[int(found.stores[0])].locate(int(found.indices[0]))
        return f"sample {index} ({path}: record {local})"

    @contextlib.contextmanager
    def read_once(self) -> Iterator[None]:
        """Tell the stores that every sample is read once, here and in processes forked meanwhile."""
        with contextlib.ExitStack() as stack:
            for member in self._members:
                stack.enter_context(member.read_once())
            yield

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get, see `StoreSamples`."""
        found = self._parts.find(indices)
        others = np.flatnonzero(found.stores != found.stores[0])
        count = int(others[0]) if len(others) else len(indices)
        return self._members[int(found.stores[0])].samples_of_task(found.indices[:count])

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """Return how many of the first samples to request together, see `StoreSamples`."""
        found = self._parts.find(np.asarray(indices, np.int64))
        sizes = np.empty(len(indices), np.int64)
        for number in np.unique(found.stores):
            mine = found.stores == number
            sizes[mine] = self._parts.stores[number]._sizes(found.indices[mine])
        return max(1, int(np.searchsorted(np.cumsum(sizes), BYTES_AT_ONCE, side="right")))


def _common_columns(members: Sequence[StoreSamples]) -> SampleColumns | None:
    """Return the columns that all members have."""
    columns: list[Any] = [member.columns for member in members]
    if len(columns) == 1:
        found: SampleColumns | None = columns[0]
        return found
    schemas = [None if each is None else each.schema for each in columns]
    for member, schema in zip(members, schemas, strict=True):
        if schema != schemas[0]:
            raise MismatchError(
                f"{name_files(member.store.fnames)}: its columns differ from those of "
                f"{name_files(members[0].store.fnames)}, which is written with it: "
                f"{_describe(schema)}, there {_describe(schemas[0])}; pass fields= for the columns that differ, or "
                "write one dataset and append the other"
            )
    return None if schemas[0] is None else SampleColumns(Verbatim(schemas[0]))


def _describe(schema: Any) -> str:
    return "none" if schema is None else ", ".join(f"{name} {field!r}" for name, field in schema.fields.items())
