"""How samples that the parent has get to a worker: pickled once, into shared memory if they fit there."""

import pickle
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ffrecord.errors import ArgumentTypeError
from ffrecord.sharding.messages import Items
from ffrecord.workers.memory import SharedMemory

SLOTS_BYTES = 32 << 20  # of all slots together, as long as none is smaller or larger than these
SLOT_MIN, SLOT_MAX = 1 << 20, 4 << 20
PATIENCE = 0.5  # seconds after which samples that come slowly are sent on, though there could be more

Pairs = Iterator[tuple[int, Any]]  # (index, item)


class Slots:
    """Pieces of shared memory of equal size, each of which holds the items of one task.

    Args:
        count: how many, > 0.

    Attributes:
        size: of one, bytes.

    Raises:
        OSError (also a RuntimeError): the memory cannot be had.
    """

    def __init__(self, count: int, _memory: SharedMemory | None = None) -> None:
        self._count, self.size = count, min(max(SLOTS_BYTES // count, SLOT_MIN), SLOT_MAX)
        self._memory = SharedMemory(count * self.size) if _memory is None else _memory

    def __reduce__(self) -> tuple[type["Slots"], tuple[int, SharedMemory]]:
        return Slots, (self._count, self._memory)

    def put(self, slot: int, start: int, data: bytes) -> None:
        """Write `data` into a slot."""
        start += slot * self.size
        self._memory.view[start : start + len(data)] = data

    def view(self, slot: int, size: int) -> memoryview:
        """The first `size` bytes of a slot."""
        return self._memory.view[slot * self.size : slot * self.size + size]

    def close(self) -> None:
        """Give the memory back. May be repeated."""
        self._memory.close()


class Carrier(Protocol):
    """The way of items to whoever encodes them."""

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> Items | None:
        """A task of the next items, at least one and at most `most`; None if there are no more."""

    def unpack(self, items: Items) -> Iterator[Any]:
        """The items of a task, in order."""


class ToWorkers:
    """Into another process.

    Args:
        slots: where items are put; each is used by one task at a time.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._over: list[tuple[int, bytes]] = []  # the pickle that was taken and did not fit

    def __reduce__(self) -> tuple[type["ToWorkers"], tuple[Slots]]:
        return ToWorkers, (self._slots,)

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> Items | None:
        """See `Carrier`.

        Raises:
            TypeError: an item does not pickle.
        """
        indices: list[int] = []
        ends: list[int] = []
        size, until = 0, time.monotonic() + PATIENCE
        while len(indices) < most and (pair := self._next(pairs)) is not None:
            index, data = pair
            if size + len(data) > self._slots.size:
                if not indices:
                    return _items(task, [index], [len(data)], -1, data)
                self._over.append(pair)
                break
            self._slots.put(slot, size, data)
            size += len(data)
            indices.append(index)
            ends.append(size)
            if time.monotonic() > until:
                break
        return _items(task, indices, ends, slot) if indices else None

    def _next(self, pairs: Pairs) -> tuple[int, bytes] | None:
        if self._over:
            return self._over.pop()
        for index, item in pairs:
            try:
                return index, pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise ArgumentTypeError(
                    f"sample {index} ({type(item).__name__}) does not pickle, as workers need it to: {error}; "
                    "num_workers=0 does without"
                ) from error
        return None

    def unpack(self, items: Items) -> Iterator[Any]:
        ends = np.frombuffer(items.ends, np.int64).tolist()
        data = memoryview(items.data) if items.slot < 0 else self._slots.view(items.slot, ends[-1])
        start = 0
        for end in ends:
            yield pickle.loads(data[start:end])
            start = end


class Here:
    """Within one process, one task at a time."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> Items | None:
        indices: list[int] = []
        self._items = []
        while len(indices) < most and (pair := next(pairs, None)) is not None:
            indices.append(pair[0])
            self._items.append(pair[1])
        return _items(task, indices, [], -1) if indices else None

    def unpack(self, items: Items) -> Iterator[Any]:
        return iter(self._items)


def _items(task: int, indices: list[int], ends: list[int], slot: int, data: bytes = b"") -> Items:
    return Items(task, np.array(indices, np.int64).tobytes(), np.array(ends, np.int64).tobytes(), slot, data)
