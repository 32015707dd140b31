"""Stores, some of their samples, several of them one after the other: the store and record of each sample."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError
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
    """

    def __init__(self, inner: Parts, indices: Any) -> None:
        self._inner, self.stores = inner, inner.stores
        self._indices: Any = indices if isinstance(indices, range | np.ndarray) else np.asarray(list(indices), np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def find(self, positions: Positions) -> FoundSamples:
        held = self._indices
        if isinstance(held, range):
            indices = held.start + positions * held.step
        else:
            indices = np.asarray(held[positions], np.int64)
        n = len(self._inner)
        wrong = np.flatnonzero((indices < -n) | (indices >= n))
        if len(wrong):
            place, index = int(positions[wrong[0]]), int(indices[wrong[0]])
            raise SampleIndexError(f"indices[{place}] of a subset is {index}, expected {-n} <= index < {n}")
        return self._inner.find(np.where(indices < 0, indices + n, indices))


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
        owners = np.searchsorted(self._ends, positions, side="right")
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            start = int(self._ends[owner - 1]) if owner else 0
            found = self._members[owner].find(positions[mine] - start)
            stores[mine], indices[mine] = self._numbers[owner][found.stores], found.indices
        return FoundSamples(stores, indices)
