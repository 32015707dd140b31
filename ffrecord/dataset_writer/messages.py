"""Messages between the coordinator of a write and its workers, and the memory that carries samples to a worker.

    coordinator                     worker
    IndexTask, ItemTask,
    StreamTask                 ──▶  encodes samples, in chunks of bounded size
                               ◀──  SchemaProposed(task, schema)    only while the encoding is unknown
    SchemaChosen(schema)       ──▶
                               ◀──  ChunkEncoded(task, number, sizes, checksums)
    ChunkPlacement(task, …)    ──▶  writes the chunk to its place
                               ◀──  ChunkWritten(task, number)

If all records have one size, their places are assigned beforehand, and come with the task:

    IndexTask, ItemTask        ──▶  encodes samples, and writes them to their places
                               ◀──  TaskDone(task, checksums)

Tasks are numbered in the order of writing, and so are the chunks of a task.
"""

import pickle
import time
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import numpy as np

from ffrecord.dataset_writer.layout import Segment
from ffrecord.errors import ArgumentTypeError
from ffrecord.format import ffr_layout
from ffrecord.processes.shared_memory import SharedMemory

INDEX_BYTES = 8
SLOTS_BYTES = 32 << 20  # of all slots together, within the limits of one slot
SLOT_MIN, SLOT_MAX = 1 << 20, 4 << 20
PATIENCE = 0.1  # seconds after which a task is sent with the samples so far, if they come slowly
# Types whose character says all. Objects, text, records and times need more than that.
NUMBERS = np.typecodes["All"].translate({ord(kind): None for kind in "OSUVMm"})
Pairs = Iterator[tuple[int, Any]]  # (index, item)


# `array_like`: messages carry values without names, which would be longer than most of them.
class Preassigned(msgspec.Struct, array_like=True):
    """The places of a task's samples.

    Attributes:
        size: size of each record, bytes.
        segments: one or more segments, in order.
    """

    size: int
    segments: list[Segment]


class IndexTask(msgspec.Struct, tag="indices", array_like=True):
    """A task of samples that are read by index.

    Attributes:
        task: number of the task.
        indices: int64.
        preassigned: places of the samples; None if not known yet.
    """

    task: int
    indices: bytes
    preassigned: Preassigned | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.indices) // INDEX_BYTES


class ItemTask(msgspec.Struct, tag="items", array_like=True):
    """A task of samples from the coordinator, or of the items they are made from.

    Attributes:
        task: number of the task.
        indices: int64, number of each sample for messages.
        ends: int64, end of each pickle.
        slot: slot of shared memory that has the pickles; -1 for `data`.
        data: the pickles, if they are not in shared memory.
        preassigned: places of the samples; None if not known yet.
    """

    task: int
    indices: bytes
    ends: bytes
    slot: int
    data: bytes = b""
    preassigned: Preassigned | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.indices) // INDEX_BYTES


class StreamTask(msgspec.Struct, tag="stream", array_like=True):
    """A task of an unknown number of samples.

    Attributes:
        name: name that the pipeline opens, in UTF-8 with surrogates: a file's name need not be UTF-8.
    """

    task: int
    name: bytes


Assignment = IndexTask | ItemTask | StreamTask  # tasks of a worker


class SchemaProposed(msgspec.Struct, tag="shown", array_like=True):
    """The columns that the first samples of a task show.

    Attributes:
        task: number of the task.
        found: whether there were any samples.
        schema: their schema; None if they are plain bytes.
    """

    task: int
    found: bool
    schema: dict[str, Any] | None


class SchemaChosen(msgspec.Struct, tag="chosen", array_like=True):
    """The encoding to use; `schema` is None for plain bytes."""

    schema: dict[str, Any] | None


class Skipped(msgspec.Struct, array_like=True):
    """A sample that was left out.

    Attributes:
        before: number of samples before it in the chunk.
        index: index of the sample.
        reason: type and message of the exception.
    """

    before: int
    index: int
    reason: str


class ChunkEncoded(msgspec.Struct, tag="sized", array_like=True):
    """A report that a chunk is encoded.

    Attributes:
        task, number: number of the task, and of the chunk in it.
        sizes: int64, sizes of the records.
        checksums: uint32, checksums of the records.
        last: whether it is the last chunk of the task.
        skipped: samples left out.
        seconds: time since the task was begun.
    """

    task: int
    number: int
    sizes: bytes
    checksums: bytes
    last: bool
    skipped: list[Skipped] = []
    seconds: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples; a chunk without any gets no place."""
        return len(self.sizes) // ffr_layout.OFFSET.itemsize


class ChunkPlacement(msgspec.Struct, tag="place", array_like=True):
    """The places of a chunk's samples."""

    task: int
    number: int
    segments: list[Segment]


class TaskDone(msgspec.Struct, tag="filled", array_like=True):
    """A report that all samples of a task are in their preassigned places.

    Attributes:
        task: number of the task.
        checksums: uint32, checksums of the records.
        seconds: time that the task took.
    """

    task: int
    checksums: bytes
    seconds: float

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.checksums) // ffr_layout.CRC.itemsize


class ChunkWritten(msgspec.Struct, tag="written", array_like=True):
    """A report that a chunk is in its place."""

    task: int
    number: int


class TaskSlots:
    """Slots of shared memory of equal size; each holds the items of one task.

    Args:
        count: number of slots, > 0.

    Attributes:
        size: size of a slot, bytes.

    Raises:
        OSError (also a RuntimeError): the memory cannot be allocated.
    """

    def __init__(self, count: int, _memory: SharedMemory | None = None) -> None:
        self._count, self.size = count, min(max(SLOTS_BYTES // count, SLOT_MIN), SLOT_MAX)
        self._memory = SharedMemory(count * self.size) if _memory is None else _memory

    def __reduce__(self) -> tuple[type["TaskSlots"], tuple[int, SharedMemory]]:
        return TaskSlots, (self._count, self._memory)

    def view(self, slot: int) -> memoryview:
        """Return the bytes of a slot."""
        return self._memory.view[slot * self.size : (slot + 1) * self.size]

    def close(self) -> None:
        """Free the memory. May be repeated."""
        self._memory.close()


class Carrier(Protocol):
    """A way to carry items to the encoder."""

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        """Pack the next items, at least one and at most `most`, as a task; return None if there are no more."""

    def unpack(self, items: ItemTask) -> Iterator[Any]:  # pyright: ignore[reportReturnType]  # a protocol's
        """Return the items of a task, in order."""


class _PickleTarget:
    """A file-like target for pickles: memory of bounded size, and a buffer for bytes that do not fit there.

    Attributes:
        end: end of the bytes written to memory.
        rest: bytes that did not fit.
    """

    def __init__(self) -> None:
        self._view = memoryview(b"")
        self.end, self.rest = 0, bytearray()

    def begin(self, view: memoryview) -> None:
        """Write to this memory from now on."""
        self._view, self.end, self.rest = view, 0, bytearray()

    def write(self, data: Any) -> int:
        """Write data for a pickler; return the number of bytes, or 0 if there is no more room."""
        if isinstance(data, pickle.PickleBuffer):  # an array's own buffer, without a copy in between
            data = data.raw()
        start, end = self.end, self.end + len(data)
        # Once something did not fit, the rest follows it, so that the pickle stays in one order.
        if self.rest or end > len(self._view):
            self.rest += data
            return 0
        self._view[start:end] = data
        self.end = end
        return end - start

    def take_back(self, start: int) -> bytes:
        """Remove the bytes written from `start` on, and those that did not fit, and return them."""
        # The item moves out as a whole: a slot has complete pickles only.
        data = bytes(self._view[start : self.end]) + self.rest
        self.end, self.rest = start, bytearray()
        return data

    def close(self) -> None:
        """Release the memory."""
        self._view.release()


class _Pickler(pickle.Pickler):
    """A pickler with a short way for NumPy arrays: NumPy's own uses Python code that takes longer than copying a small
    array.
    """

    def reducer_override(self, obj: Any) -> Any:
        # Not subclasses, which may have more state; the character does not tell a foreign byte order.
        if type(obj) is np.ndarray and obj.dtype.char in NUMBERS and obj.dtype.isnative and obj.flags.c_contiguous:
            whole: Any = obj  # the same type for every version of NumPy's stubs
            return _make_array, (obj.dtype.char, obj.shape, pickle.PickleBuffer(whole))
        return NotImplemented


def _make_array(dtype: str, shape: tuple[int, ...], data: Any) -> Any:
    return np.ndarray(shape, dtype, data)


class WorkerCarrier:
    """A carrier into another process.

    Args:
        slots: slots for the items; each serves one task at a time.
    """

    def __init__(self, slots: TaskSlots) -> None:
        self._slots = slots
        self._target = _PickleTarget()
        self._pickler = _Pickler(self._target, pickle.HIGHEST_PROTOCOL)
        self._over: tuple[int, bytes] | None = None  # (index, pickle) of an item that did not fit the last slot

    def __reduce__(self) -> tuple[type["WorkerCarrier"], tuple[TaskSlots]]:
        return WorkerCarrier, (self._slots,)

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        """Pack the next items, at least one and at most `most`, as a task; return None if there are no more.

        Raises:
            TypeError: an item does not pickle.
            MemoryError, OSError: raised while pickling an item.
        """
        self._target.begin(self._slots.view(slot))
        try:
            indices, ends = self._fill(pairs, most)
        finally:
            self._target.close()
        return _item_task(task, indices, ends, slot) if indices else self._pack_alone(task)

    def _fill(self, pairs: Pairs, most: int) -> tuple[list[int], list[int]]:
        """Return (indices, ends) of the items that fit into the target."""
        target, indices = self._target, []
        ends: list[int] = []
        # The item left over from the last slot comes first.
        if self._over is not None and target.write(self._over[1]):
            indices, ends, self._over = [self._over[0]], [target.end], None
        until = time.monotonic() + PATIENCE
        # Do not take another item from the iterable while one does not even fit an empty slot.
        while self._over is None and len(indices) < most and (pair := next(pairs, None)) is not None:
            self._pickle(*pair)
            if target.rest:
                # Back to the end of the last whole item.
                self._over = pair[0], target.take_back(ends[-1] if ends else 0)
                break
            indices.append(pair[0])
            ends.append(target.end)
            if time.monotonic() > until:
                break
        return indices, ends

    def _pack_alone(self, task: int) -> ItemTask | None:
        """Return a task of the item that is too large for any slot, or None if there is none."""
        # The item does not fit an empty slot either, or there was none.
        if self._over is None:
            return None
        (index, data), self._over = self._over, None
        return _item_task(task, [index], [len(data)], -1, data)

    def _pickle(self, index: int, item: Any) -> None:
        self._pickler.clear_memo()  # else an object that is yielded again after a change would arrive unchanged
        try:
            self._pickler.dump(item)
        except (MemoryError, OSError):
            raise  # not the sample's fault
        except Exception as error:
            raise ArgumentTypeError(
                f"sample {index} ({type(item).__name__}) cannot be pickled, which workers need: {error}; "
                "pass num_workers=0 to write without workers"
            ) from error

    def unpack(self, items: ItemTask) -> Iterator[Any]:
        ends = np.frombuffer(items.ends, np.int64).tolist()
        # A slot of -1: the item is too large for any slot and came in the message.
        data = memoryview(items.data) if items.slot < 0 else self._slots.view(items.slot)
        start = 0
        for end in ends:
            yield pickle.loads(data[start:end])  # loading copies, so the slot may be filled again while samples live
            start = end


class InProcessCarrier:
    """A carrier within one process, for one task at a time."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def pack(self, task: int, slot: int, pairs: Pairs, most: int) -> ItemTask | None:
        indices: list[int] = []
        self._items = []
        while len(indices) < most and (pair := next(pairs, None)) is not None:
            indices.append(pair[0])
            self._items.append(pair[1])
        # The items themselves stay here; nothing is pickled.
        return _item_task(task, indices, [], -1) if indices else None

    def unpack(self, items: ItemTask) -> Iterator[Any]:
        return iter(self._items)


def _item_task(task: int, indices: list[int], ends: list[int], slot: int, data: bytes = b"") -> ItemTask:
    return ItemTask(task, np.array(indices, np.int64).tobytes(), np.array(ends, np.int64).tobytes(), slot, data)
