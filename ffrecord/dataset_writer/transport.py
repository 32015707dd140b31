"""How samples that the parent has get to a worker: pickled once, into shared memory if they fit there."""

import pickle
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ffrecord.dataset_writer.messages import ItemTask
from ffrecord.errors import ArgumentTypeError
from ffrecord.processes.shared_memory import SharedMemory

SLOTS_BYTES = 32 << 20  # of all slots together, as long as none is smaller or larger than these
SLOT_MIN, SLOT_MAX = 1 << 20, 4 << 20
PATIENCE = 0.1  # seconds after which samples that come slowly are sent on, though there could be more

NUMBERS = np.typecodes["All"].translate({ord(kind): None for kind in "OSUVMm"})

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

    def view(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        return self._memory.view[slot * self.size : (slot + 1) * self.size]

    def close(self) -> None:
        """Give the memory back. May be repeated."""
        self._memory.close()


class Carrier(Protocol):
    """The way of items to whoever encodes them."""

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        """A task of the next items, at least one and at most `most`; None if there are no more."""

    def unpack(self, items: ItemTask) -> Iterator[Any]:  # pyright: ignore[reportReturnType]  # a protocol's
        """The items of a task, in order."""


class _Target:
    """What pickles are written to: memory of bounded size, and what does not fit there.

    Attributes:
        end: of what was written to memory, bytes.
        rest: what did not fit.
    """

    def __init__(self) -> None:
        self._view = memoryview(b"")
        self.end, self.rest = 0, bytearray()

    def begin(self, view: memoryview) -> None:
        """Write to this memory from now on."""
        self._view, self.end, self.rest = view, 0, bytearray()

    def write(self, data: Any) -> int:
        """Called by a pickler; how many bytes, or 0 if there is no room any more."""
        if isinstance(data, pickle.PickleBuffer):
            data = data.raw()
        start, end = self.end, self.end + len(data)
        if self.rest or end > len(self._view):
            self.rest += data
            return 0
        self._view[start:end] = data
        self.end = end
        return end - start

    def taken_back(self, start: int) -> bytes:
        """What was written from `start` on, which is forgotten, and what did not fit."""
        data = bytes(self._view[start : self.end]) + self.rest
        self.end, self.rest = start, bytearray()
        return data

    def close(self) -> None:
        """Let go of the memory."""
        self._view.release()


class _Pickler(pickle.Pickler):
    """Numpy pickles an array by way of Python code that takes longer than copying a small one."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray and obj.dtype.char in NUMBERS and obj.dtype.isnative and obj.flags.c_contiguous:
            whole: Any = obj  # of one type for every version of numpy's stubs
            return _array, (obj.dtype.char, obj.shape, pickle.PickleBuffer(whole))
        return NotImplemented


def _array(dtype: str, shape: tuple[int, ...], data: Any) -> Any:
    return np.ndarray(shape, dtype, data)


class ToWorkers:
    """Into another process.

    Args:
        slots: where items are put; each is used by one task at a time.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._target = _Target()
        self._pickler = _Pickler(self._target, pickle.HIGHEST_PROTOCOL)
        self._over: tuple[int, bytes] | None = None  # the pickle that was taken and did not fit

    def __reduce__(self) -> tuple[type["ToWorkers"], tuple[Slots]]:
        return ToWorkers, (self._slots,)

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        """See `Carrier`.

        Raises:
            TypeError: an item does not pickle.
            MemoryError, OSError: met while pickling one.
        """
        self._target.begin(self._slots.view(slot))
        try:
            indices, ends = self._fill(pairs, most)
        finally:
            self._target.close()
        return _items(task, indices, ends, slot) if indices else self._alone(task)

    def _fill(self, pairs: Pairs, most: int) -> tuple[list[int], list[int]]:
        """(indices, ends) of the items that fit into the target."""
        target, indices = self._target, []
        ends: list[int] = []
        if self._over is not None and target.write(self._over[1]):
            indices, ends, self._over = [self._over[0]], [target.end], None
        until = time.monotonic() + PATIENCE
        while self._over is None and len(indices) < most and (pair := next(pairs, None)) is not None:
            self._pickle(*pair)
            if target.rest:
                self._over = pair[0], target.taken_back(ends[-1] if ends else 0)
                break
            indices.append(pair[0])
            ends.append(target.end)
            if time.monotonic() > until:
                break
        return indices, ends

    def _alone(self, task: int) -> ItemTask | None:
        """A task of the item that is too large for any slot, if there is one."""
        if self._over is None:
            return None
        (index, data), self._over = self._over, None
        return _items(task, [index], [len(data)], -1, data)

    def _pickle(self, index: int, item: Any) -> None:
        self._pickler.clear_memo()  # else an object handed out again and again would arrive as it was at first
        try:
            self._pickler.dump(item)
        except (MemoryError, OSError):
            raise  # says nothing of the sample
        except Exception as error:
            raise ArgumentTypeError(
                f"sample {index} ({type(item).__name__}) does not pickle, as workers need it to: {error}; "
                "num_workers=0 does without"
            ) from error

    def unpack(self, items: ItemTask) -> Iterator[Any]:
        ends = np.frombuffer(items.ends, np.int64).tolist()
        data = memoryview(items.data) if items.slot < 0 else self._slots.view(items.slot)
        start = 0
        for end in ends:
            yield pickle.loads(data[start:end])
            start = end


class Here:
    """Within one process, one task at a time."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        indices: list[int] = []
        self._items = []
        while len(indices) < most and (pair := next(pairs, None)) is not None:
            indices.append(pair[0])
            self._items.append(pair[1])
        return _items(task, indices, [], -1) if indices else None

    def unpack(self, items: ItemTask) -> Iterator[Any]:
        return iter(self._items)


def _items(task: int, indices: list[int], ends: list[int], slot: int, data: bytes = b"") -> ItemTask:
    return ItemTask(task, np.array(indices, np.int64).tobytes(), np.array(ends, np.int64).tobytes(), slot, data)
