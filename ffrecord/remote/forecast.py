"""Records that a loop will read soon: neighbours among them come by one request, and are held until all are delivered.

A block order deals the records of a block over many batches. Batch by batch, each record would be a request. But
whoever knows the order can tell which records come soon: a `Forecast` is told them, window by window. It finds the
groups that one request can read, reads each group once, and gives every batch its records. While batches take one
window from memory, the next window is being read.
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ffrecord.errors import ClosedError
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.store import Indices
from ffrecord.remote.pool import Task
from ffrecord.remote.ranges import parts, requests
from ffrecord.remote.tables import Tables
from ffrecord.system.forks import renew_in_children

NO_GROUP = -1
LOOK_SECONDS = 0.5  # between looks whether the reader was closed, while a request of another thread is waited for

# Puts the records at some places of a batch there.
Take = Callable[[list[int], list[Array]], object]

logger = logging.getLogger("ffrecord")


class GroupSource(Protocol):
    """The engine as a forecast sees it."""

    @property
    def closed(self) -> bool:
        """True if nothing more may be read."""
        ...

    def sizes_about(self) -> "tuple[np.ndarray[Any, np.dtype[np.float64]], float]":
        """Return the average size of the records of each shard, bytes: float64 [files]; and that of all."""
        ...

    def split(self, samples: Indices) -> tuple[Indices, Indices]:
        """Return the number of the shard of each sample, and its number there: int64 [k] each."""
        ...

    def tables(self, file: int) -> Tables:
        """Return the tables of a shard; read them if needed."""
        ...

    def absent(self, file: int, locals: Indices) -> Indices:
        """Return those records of a shard that are not known to be in the cache."""
        ...

    def ask(self, file: int, start: int, stop: int, local: int) -> Array:
        """Read bytes [start, stop) of a shard; errors name the record `local`."""
        ...

    def run(self, tasks: Sequence[Task]) -> None:
        """Run tasks that make requests, and wait for them."""
        ...

    def begin(self, task: Task) -> bool:
        """Begin a task that makes requests; return False if it will not run."""
        ...


class NeighbourGroup:
    """Records of a shard that one request reads.

    Attributes:
        file: number of the shard.
        start, stop: the bytes to read.
        members: int64 [m], places of the records in their part of the forecast.
        size: bytes of the records.
        data: their bytes; None if they are not here.
        loading: event at the end of a running request; None without one.
        held: whether their bytes are counted as held.
        over: whether nobody needs them any more.
    """

    __slots__ = ("data", "file", "held", "loading", "members", "over", "size", "start", "stop")

    def __init__(self, file: int, start: int, stop: int, members: Indices, size: int) -> None:
        self.file, self.start, self.stop, self.members, self.size = file, start, stop, members, size
        self.data: Array | None = None
        self.loading: threading.Event | None = None
        self.held = self.over = False


class ForecastPart:
    """The records of one shard in a window.

    Args:
        file: number of the shard.
        locals: int64 [k], numbers of the records there, in any order, with repeats.

    Attributes:
        file: the argument.
        locals: int64 [k], the distinct numbers, ascending.
        left: int64 [k], deliveries of each record that are to come.
        planned: whether the groups were found.
        groups: the groups.
        group_of: int64 [k], number of the group of each record; NO_GROUP for a record that comes by itself.
        starts, sizes: int64 [k], first byte of each record in the data of its group, and bytes of it.
    """

    def __init__(self, file: int, locals: Indices) -> None:
        self.file = file
        # Repeats are deliveries to come.
        self.locals, self.left = np.unique(locals, return_counts=True)
        self.planned, self.groups = False, list[NeighbourGroup]()
        self.group_of = np.full(len(self.locals), NO_GROUP, np.int64)
        self.starts, self.sizes = np.zeros_like(self.locals), np.zeros_like(self.locals)

    def find(self, locals: Indices) -> tuple[Indices, Indices]:
        """Return (places in `locals`, places here) of the records that are in this part."""
        # `searchsorted` may give the end, which is no index.
        at = np.minimum(np.searchsorted(self.locals, locals), len(self.locals) - 1)
        found = np.flatnonzero(self.locals[at] == locals)
        return found, at[found]

    def plan(self, tables: Tables, absent: Indices) -> None:
        """Find the groups.

        Args:
            tables: tables of the shard.
            absent: the records to read, ascending.
        """
        _, members = self.find(absent)
        # Not those delivered already, nor those in the cache.
        members = members[self.left[members] > 0]
        starts, stops = tables.bounds[self.locals[members]], tables.bounds[self.locals[members] + 1]
        self.sizes[members] = stops - starts
        groups: list[NeighbourGroup] = []
        for request in requests(np.full(len(members), self.file, np.int64), starts, stops):
            # A single record is better asked for by its batch: it needs no memory until then.
            if request.last - request.first > 1:
                these = members[request.first : request.last]
                self.group_of[these] = len(groups)
                self.starts[these] = starts[request.first : request.last] - request.start
                size = int(self.sizes[these].sum())
                groups.append(NeighbourGroup(self.file, request.start, request.stop, these, size))
        self.planned, self.groups = True, groups


class ForecastWindow:
    """Records that are read in any order.

    Attributes:
        parts: number of a shard → the records there.
        left: deliveries that are to come.
        size: their bytes, by average sizes.
    """

    def __init__(self, files: Indices, locals: Indices, size: float) -> None:
        # Stable, so that the order of the window is kept within a shard.
        order = np.argsort(files, kind="stable")
        files, locals = files[order], locals[order]
        self.parts = {number: ForecastPart(number, locals[part]) for number, part in parts(files)}
        self.left, self.size = len(files), size


class Forecast:
    """The records that one loop will read soon. Drop it when the loop ends: that frees its memory.

    Args:
        source: the engine.
        most: bytes that it may hold.
        chains: requests in flight for which no batch waits yet, >= 1.

    Threads may share it. A forked child begins with an empty one.
    """

    def __init__(self, source: GroupSource, most: int, chains: int) -> None:
        self._source, self._most, self._chains_most = source, most, chains
        self._sizes, self._size = source.sizes_about()
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Forget all records, of which a parent's threads may be reading some."""
        self._lock = threading.Lock()
        self._windows: list[ForecastWindow] = []
        self._queue: deque[ForecastPart | tuple[ForecastPart, NeighbourGroup]] = deque()
        self._chains = self._held = 0

    def clear(self) -> None:
        """Forget all records, and free their memory."""
        with self._lock:
            for window in list(self._windows):
                self._drop(window)
            self._queue.clear()

    @property
    def samples_most(self) -> int:
        """The number of samples of average size that `add` takes, at least 1."""
        return max(1, int(self._most / 2 / max(1.0, self._size)))

    @property
    def held(self) -> int:
        """The bytes that are held, or on their way."""
        return self._held

    def add(self, samples: Indices) -> int:
        """Add a window: samples that will be read soon, about in this order.

        Args:
            samples: int64 [k], k >= 1, indices of the reader; they may repeat.

        Returns:
            The number of samples that were taken, from the first on, at least 1: not more than memory holds. Add the
            others when these have been read.
        """
        files, locals = self._source.split(samples)
        ends = np.cumsum(self._sizes[files])
        # Half of the memory: the window before is still being read.
        count = max(1, int(np.searchsorted(ends, self._most / 2, "right")))
        window = ForecastWindow(files[:count], locals[:count], float(ends[count - 1]))
        with self._lock:
            self._windows.append(window)
            self._queue.extend(window.parts.values())
            # A loop that was left never delivers its last window.
            while len(self._windows) > 1 and sum(each.size for each in self._windows) > self._most:
                self._drop(self._windows[0])  # it was left before its end
        return count

    # Batches

    def fill(self, wanted: Any, take: Take) -> None:
        """Put the records of groups into `wanted`, a `WantedRecords`, by `take`. Read the groups that are not here.

        Raises:
            Errors of requests; ClosedError.
        """
        self._begin_chains()
        # Again and again: another thread may have claimed a group, and failed.
        while True:
            for part in self._parts_of(wanted):
                # The batch has the tables in memory, so planning costs no request.
                self._plan(part, wanted.tables[part.file])
            claimed, awaited = self._take(wanted, take)
            if claimed:
                self._load(claimed)
            for event in awaited:
                # Not without end: a closed reader must not keep this thread.
                while not event.wait(LOOK_SECONDS):
                    if self._source.closed:
                        raise ClosedError("closed")
            if not claimed and not awaited:
                return
            if self._source.closed:
                raise ClosedError("closed")

    def _parts_of(self, wanted: Any) -> list[ForecastPart]:
        """Return the parts, not planned yet, with records that are wanted."""
        missing = wanted.missing()
        with self._lock:
            return [part for part, _, _ in self._find(wanted.files, wanted.locals, missing) if not part.planned]

    def _find(self, files: Indices, locals: Indices, which: Indices) -> list[tuple[ForecastPart, Indices, Indices]]:
        """Return (part, places among `which`, places in the part), for each part with some of the records `which`."""
        # Both windows: a batch may take records from the end of one and the start of the next.
        found = []
        for number, span in parts(files[which]):
            for window in self._windows:
                part = window.parts.get(number)
                if part is None:
                    continue
                places, inside = part.find(locals[which[span]])
                if len(places):
                    found.append((part, places + span.start, inside))
        return found

    def _take(
        self, wanted: Any, take: Take
    ) -> tuple[list[tuple[ForecastPart, NeighbourGroup, int]], list[threading.Event]]:
        """Take records from groups that are here. Return the groups to read, and the ends of requests to wait for."""
        here: list[tuple[list[int], list[Array]]] = []
        claimed: list[tuple[ForecastPart, NeighbourGroup, int]] = []
        awaited: list[threading.Event] = []
        which = wanted.missing()
        with self._lock:
            seen = np.zeros(len(which), np.bool_)  # in two windows at once: take it from the first
            for part, places, inside in self._find(wanted.files, wanted.locals, which):
                # Records without a group come by the batch's own request.
                fresh = ~seen[places] & (part.group_of[inside] != NO_GROUP)
                places, inside = places[fresh], inside[fresh]
                for number in np.unique(part.group_of[inside]).tolist():
                    group, of_group = part.groups[number], part.group_of[inside] == number
                    own, members = places[of_group], inside[of_group]
                    if group.data is not None:
                        starts = part.starts[members].tolist()
                        stops = (part.starts[members] + part.sizes[members]).tolist()
                        # Slices under the lock, as the group may be freed right after.
                        records = [group.data[start:stop] for start, stop in zip(starts, stops, strict=True)]
                        here.append((which[own].tolist(), records))
                    elif group.loading is not None:
                        awaited.append(group.loading)
                    elif self._claim(group):
                        # Named by its first record that is wanted here.
                        claimed.append((part, group, int(part.locals[members[0]])))
                    else:
                        # No memory is left: the batch asks for these by itself.
                        continue
                    seen[own] = True
        # Outside the lock: it compares checksums.
        for js, records in here:
            take(js, records)
        return claimed, awaited

    def deliver(self, files: Indices, locals: Indices, times: Indices) -> None:
        """Note that records were delivered, and free the groups of which no record is to come.

        Args:
            files, locals: int64 [k], distinct records, with those of a shard together.
            times: int64 [k], deliveries of each.
        """
        # A copy, which is reduced below: a record in two windows was delivered in one of them.
        times = times.copy()
        with self._lock:
            for window in list(self._windows):
                for number, span in parts(files):
                    part = window.parts.get(number)
                    if part is not None:
                        window.left -= self._deliver(part, locals[span], times[span])
                if not window.left:
                    self._drop(window)

    def _deliver(self, part: ForecastPart, locals: Indices, times: Indices) -> int:
        places, inside = part.find(locals)
        taken = np.minimum(part.left[inside], times[places])
        times[places] -= taken
        part.left[inside] -= taken
        for number in np.unique(part.group_of[inside]).tolist():
            if number != NO_GROUP and not part.left[part.groups[number].members].any():
                # The last record was delivered, so its memory is free for others.
                self._release(part.groups[number])
        return int(taken.sum())

    # Groups

    def _plan(self, part: ForecastPart, tables: Tables) -> None:
        # Found outside the lock, since it may take long for large parts.
        planned = ForecastPart(part.file, part.locals)
        planned.left = part.left
        planned.plan(tables, self._source.absent(part.file, part.locals))
        # Another thread may have planned it, or the window be over by now.
        with self._lock:
            if not part.planned and part.left.any():  # else another thread was first, or the window is over
                part.group_of, part.starts, part.sizes = planned.group_of, planned.starts, planned.sizes
                part.planned, part.groups = True, planned.groups
                # In front of the queue: groups of this part come before the next part.
                self._queue.extendleft((part, group) for group in reversed(part.groups))

    def _claim(self, group: NeighbourGroup) -> bool:
        """Reserve memory for a group, which the caller then reads. Return False if it cannot be held, or is over."""
        # The sum of all loops of one reader counts.
        if group.over or self._held + group.size > self._most:
            return False
        self._held += group.size
        group.held, group.loading = True, threading.Event()
        return True

    def _load(self, claimed: list[tuple[ForecastPart, NeighbourGroup, int]]) -> None:
        try:
            # Several groups at once.
            self._source.run([partial(self._ask, *each) for each in claimed])
        finally:
            for _, group, _ in claimed:
                # Also after an error, so that nobody waits for ever.
                self._end_loading(group)

    def _ask(self, part: ForecastPart, group: NeighbourGroup, local: int) -> None:
        data = self._source.ask(group.file, group.start, group.stop, local)
        begins = part.starts[group.members]
        if group.size < len(data):  # do not hold what lies between them
            sizes = part.sizes[group.members]
            cuts = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
            data = np.concatenate([data[start:stop] for start, stop in cuts])
            begins = np.cumsum(sizes) - sizes
        # Shared by batches; each takes copies if it needs its own.
        data.flags.writeable = False
        with self._lock:
            if group.held and group.data is None and not group.over:  # else nobody waited for the answer
                part.starts[group.members], group.data = begins, data
        self._end_loading(group)

    def _end_loading(self, group: NeighbourGroup) -> None:
        """Wake those who wait for a request. Without its answer, the group can be claimed again."""
        with self._lock:
            event, group.loading = group.loading, None
            if group.data is None:
                # Failed: its memory is free again.
                self._free(group)
        if event is not None:
            event.set()

    def _release(self, group: NeighbourGroup) -> None:
        group.over, group.data = True, None
        if group.loading is None:
            self._free(group)

    def _free(self, group: NeighbourGroup) -> None:
        if group.held:
            group.held = False
            self._held -= group.size

    def _drop(self, window: ForecastWindow) -> None:
        self._windows.remove(window)
        for part in window.parts.values():
            part.left[:] = 0
            for group in part.groups:
                self._release(group)

    # Reading ahead

    def _begin_chains(self) -> None:
        """Let a few threads read the groups for which no batch has asked yet."""
        with self._lock:
            count = max(0, min(self._chains_most - self._chains, len(self._queue)))
            self._chains += count
        for _ in range(count):
            self._begin_link()

    def _begin_link(self) -> None:
        # Weakly: a loop that was left reads no further.
        # False: the interpreter is ending.
        if not self._source.begin(partial(_read_next, weakref.ref(self))):
            self._end_chain()

    def _end_chain(self) -> None:
        with self._lock:
            self._chains -= 1

    def read_next(self) -> None:
        """Read one part of what comes next, and begin to read the part after it."""
        try:
            more = self._read_next()
        # Not an error of this batch; its own request will show it.
        except Exception as error:  # whoever needs the records tries it again, and raises
            logger.debug("samples could not be read ahead: %s", error)
            more = False
        except BaseException:
            self._end_chain()
            raise
        if more:
            self._begin_link()
        else:
            self._end_chain()

    def _read_next(self) -> bool:
        """Return False if there is nothing to read, or no memory for it."""
        # Nothing more for a closed reader.
        following = None if self._source.closed else self._next()
        if isinstance(following, ForecastPart):
            self._plan(following, self._source.tables(following.file))
        elif following is not None:
            part, group = following
            try:
                self._ask(part, group, int(part.locals[group.members[0]]))
            finally:
                self._end_loading(group)
        return following is not None

    def _next(self) -> "ForecastPart | tuple[ForecastPart, NeighbourGroup] | None":
        """Return the next part to plan, or the next group to read, which is claimed."""
        with self._lock:
            while self._queue:
                following = self._queue.popleft()
                if isinstance(following, ForecastPart):
                    if not following.planned and following.left.any():
                        return following
                    continue
                _, group = following
                if group.over or group.data is not None or group.loading is not None:
                    continue
                if self._claim(group):
                    return following
                # No memory: it is asked for again after the next batch.
                self._queue.appendleft(following)
                break
            return None


def _read_next(found: "Callable[[], Forecast | None]") -> None:
    forecast = found()
    if forecast is not None:
        forecast.read_next()
