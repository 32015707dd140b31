"""Stores, some of their samples, several one after the other: which record each sample is, and samples by index."""

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import MismatchError, SampleIndexError, name_files
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.passthrough import Verbatim
from ffrecord.inputs.stores import BYTES_AT_ONCE, StoreSamples
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.reading.store import Store

Positions = npt.NDArray[np.int64]
HASHED = 1 << 16  # positions hashed at once


class FoundSamples(NamedTuple):
    """The places of samples.

    Attributes:
        stores: number of the store of each, int64 [k].
        indices: index of the record there, int64 [k].
    """

    stores: Positions
    indices: Positions


class Parts(ABC):
    """Samples that are records of stores, in an order of their own.

    Attributes:
        stores: their stores, each once.
    """

    stores: list[Store]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def find(self, positions: Positions) -> FoundSamples:
        """Return the places of the samples at `positions`, each in [0, len)."""

    def digest(self) -> str:
        """Return a text that identifies the records and their order."""
        digest = hashlib.blake2b(digest_size=16)
        # In pieces, so that the positions of a large subset are never all in memory.
        for start in range(0, len(self), HASHED):
            found = self.find(np.arange(start, min(start + HASHED, len(self)), dtype=np.int64))
            digest.update(found.stores.tobytes() + found.indices.tobytes())
        return digest.hexdigest()


class WholeStore(Parts):
    """All records of a store."""

    def __init__(self, store: Store) -> None:
        self.stores = [store]

    def __len__(self) -> int:
        return self.stores[0].n

    def find(self, positions: Positions) -> FoundSamples:
        return FoundSamples(np.zeros(len(positions), np.int64), positions)


class ChosenSamples(Parts):
    """Some samples of other parts.

    Args:
        inner: the other parts.
        indices: indices of the samples, each in [-len(inner), len(inner)).

    Raises:
        TypeError: they are not ints, or a mask.
    """

    def __init__(self, inner: Parts, indices: Any) -> None:
        self._inner, self.stores = inner, inner.stores
        # A range needs no memory, and an array may be mapped: neither is copied.
        self._indices: Any = indices if isinstance(indices, range) else as_subset(indices)

    def __len__(self) -> int:
        return len(self._indices)

    def find(self, positions: Positions) -> FoundSamples:
        held = self._indices
        if isinstance(held, range):
            indices = held.start + positions * held.step
        else:
            indices = np.asarray(held[positions], np.int64)
        return self._inner.find(_count_from_start(indices, len(self._inner), positions))


def choose_positions(indices: Any, n: int) -> Positions:
    """Return the indices of a subset of n samples as numbers in [0, n).

    Raises:
        TypeError: they are not ints, or a mask.
        IndexError: one is out of range.
    """
    found = as_subset(indices)
    return _count_from_start(found, n, np.arange(len(found)))


def _count_from_start(indices: Positions, n: int, places: Positions) -> Positions:
    # The error names the place in the user's own list.
    def error(place: int, index: int) -> SampleIndexError:
        where = f"indices[{int(places[place])}] of a subset"
        return SampleIndexError(f"{where} is {index}, expected {-n} <= index < {n}")

    return count_from_start(indices, n, error)


class JoinedParts(Parts):
    """Several parts, one after the other."""

    def __init__(self, members: Sequence[Parts]) -> None:
        self._members = list(members)
        self._ends = np.cumsum([len(member) for member in members], dtype=np.int64)
        self.stores = []
        numbers: dict[int, int] = {}  # number of each store by identity: one may be in several members
        for store in (store for member in members for store in member.stores):
            if id(store) not in numbers:
                numbers[id(store)] = len(self.stores)
                self.stores.append(store)
        self._numbers = [np.array([numbers[id(store)] for store in member.stores], np.int64) for member in members]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def find(self, positions: Positions) -> FoundSamples:
        stores, indices = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
        # A search in the ends finds the member of each position.
        owners = np.searchsorted(self._ends, positions, side="right")
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            start = int(self._ends[owner - 1]) if owner else 0
            found = self._members[owner].find(positions[mine] - start)
            stores[mine], indices[mine] = self._numbers[owner][found.stores], found.indices
        return FoundSamples(stores, indices)


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
        # The usual case: nothing to sort out.
        if len(self._members) == 1:
            return self._members[0].__getitems__(found.indices.tolist())
        samples: list[Any] = [None] * len(indices)
        # One request for each store, then back into the order of the request.
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
        place = self._parts.stores[int(found.stores[0])]._describe_place(int(found.indices[0]))
        return f"sample {index} ({place})"

    def read_once(self) -> contextlib.AbstractContextManager[None]:
        """Tell the stores that every sample is read once, here and in processes forked meanwhile."""
        return read_members_once(self._members)

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get, see `StoreSamples`."""
        found = self._parts.find(indices)
        # A task stays in one store, which then decides by its own blocks.
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
        # At least one, however large.
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
                f"{describe_columns(schema)}, there {describe_columns(schemas[0])}; pass fields= for the columns that "
                "differ, or write one dataset and append the other"
            )
    # Records are written as they are from here on.
    return None if schemas[0] is None else SampleColumns(Verbatim(schemas[0]))


def describe_columns(schema: Any) -> str:
    """Return the columns of a schema, or of none, for messages."""
    return "none" if schema is None else ", ".join(f"{name} {field!r}" for name, field in schema.fields.items())


@contextlib.contextmanager
def read_members_once(members: Iterable[Any]) -> Iterator[None]:
    """Tell the stores of all members that every sample is read once, here and in processes forked meanwhile."""
    with contextlib.ExitStack() as stack:
        for member in members:
            stack.enter_context(member.read_once())
        yield
