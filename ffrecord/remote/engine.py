"""Batches of records of remote shards: the counterpart of `_engine.Files` for local files."""

import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from errno import ENOENT
from functools import partial
from typing import Any

import numpy as np

from ffrecord._crc import crc32
from ffrecord.engine._engine import ARRAYS, CHECKED, PACKED, Failure, Slots
from ffrecord.errors import ClosedError, MissingFileError, RemoteError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out, deliver
from ffrecord.reading.indices import count_from_start
from ffrecord.reading.python_engine import PythonEngine
from ffrecord.reading.stats import Counters
from ffrecord.reading.store import THREADS, Indices
from ffrecord.remote.cache.cached import Cached
from ffrecord.remote.forecast import Forecast
from ffrecord.remote.pool import END_SECONDS, Task
from ffrecord.remote.ranges import Request, parts, pieces, requests
from ffrecord.remote.shard import RemoteShard
from ffrecord.remote.tables import Holder, Tables
from ffrecord.system import resources

Read = tuple[Any, Any]  # (result, list of `Failure`) of a batch
POOLED_LEAST = 16 << 10  # bytes; smaller records are copied into memory of their own
NOTHING = np.empty(0, np.uint8)
AHEAD_MOST = 2 << 30  # bytes that a loop may hold for later batches, unless `ahead_memory` says otherwise
AHEAD_SHARE = 32  # of the free memory, of which ranks and workers of a machine take as much each
CHAINS_SHARE = 4  # of all requests at once, those that no batch waits for: others must not wait for them for long

logger = logging.getLogger("ffrecord")


class RemoteBatch:
    """A batch that is being read, or was read."""

    def __init__(self, wait: Callable[[], BatchOutcome]) -> None:
        self._wait = wait

    def result(self) -> Read | None:
        """Wait, and return what `RemoteFiles.read` returns; None if the files were closed."""
        try:
            outcome = self._wait()
        except ClosedError:
            return None
        return outcome.result, outcome.failures


class WantedRecords:
    """The distinct records of a batch in the order of their shards: their spans, and the records that have arrived.

    Args:
        files, locals: int64 [k], number of the shard of each record, and its number there; in ascending order.
        tables: tables of each of these shards.
        check: compare CRC-32.
        own: each record needs writable memory of its own.

    Attributes:
        check, own, files, locals, tables: the arguments.
        starts, stops: bounds of each record in its shard, bytes.
        stored: CRC-32 that each record must have.
        records: the records; None for those that have not arrived.
        computed: actual CRC-32 of each damaged record.
    """

    def __init__(
        self, files: Indices, locals: Indices, tables: dict[int, Tables], *, check: bool = True, own: bool = False
    ) -> None:
        self.files, self.locals, self.tables, self.check, self.own = files, locals, tables, check, own
        self.starts, self.stops = np.empty_like(locals), np.empty_like(locals)
        stored = np.empty(len(locals), np.uint32)
        for number, part in parts(files):
            of_shard, places = tables[number], locals[part]
            self.starts[part], self.stops[part] = of_shard.bounds[places], of_shard.bounds[places + 1]
            stored[part] = of_shard.checksums[places]
        # A list: single items of an array would be NumPy numbers, which compare slowly.
        self.stored: list[int] = stored.tolist()
        self.records: list[Array | None] = [None] * len(locals)
        self.computed: dict[int, int] = {}

    def missing(self) -> Indices:
        """Return the places of the records that have not arrived."""
        return np.flatnonzero([record is None for record in self.records])

    def span(self, j: int) -> tuple[int, int]:
        """Return the bounds of a record in its shard."""
        return int(self.starts[j]), int(self.stops[j])


class RemoteFiles:
    """Many remote shards in one numbering, with the methods of `_engine.Files`.

    Args:
        files: the shards, at least one.
        cached: their cache on this machine; None without one.
        offline: number of datasets that were opened without their server.
    """

    aio_error = 0
    open_files = 0

    def __init__(self, files: Sequence[RemoteShard], cached: Cached | None = None, offline: int = 0) -> None:
        self._files, self._cached, self._offline = list(files), cached, offline
        counts = np.array([file.n for file in self._files], np.int64)
        self._ends = np.cumsum(counts)
        self._begins = self._ends - counts
        self.n = int(self._ends[-1])
        self._storage = self._files[0].storage
        # Tables of a billion samples would not fit, so the least recently used ones go.
        self._tables: Holder[RemoteShard] = Holder(self._storage.tables_memory, RemoteShard.load)
        for file in self._files:
            file.holder = self._tables
        self._python_engine = PythonEngine(self._release)
        self._counted = Counters()
        self._forecasts: tuple[weakref.ref[Forecast], ...] = ()

    @property
    def batches(self) -> int:
        """Number of batches read."""
        return self._python_engine.batches + (0 if self._cached is None else self._cached.batches)

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self._python_engine.closed

    def close(self) -> None:
        """Refuse new batches, and wait for running ones, but not for a silent server."""
        # A silent server must not keep the program from closing.
        while not self._python_engine.close(END_SECONDS):
            self._storage.give_up()

    def _release(self) -> None:
        for forecast in self._foreseen():
            forecast.clear()
        self._forecasts = ()
        if self._cached is not None:
            self._cached.close()

    def size_now(self, f: int) -> int | None:
        """Return None: the size of a remote shard is not requested again."""
        return None

    def locate(self, index: int) -> tuple[int, int]:
        """Return (number of the shard, number there) of a record, 0 <= index < n."""
        number = int(np.searchsorted(self._ends, index, "right"))
        return number, index - int(self._begins[number])

    def counters(self) -> list[tuple[str, int, str, dict[str, Any]]]:
        """Return (name, 0, way of reading, counters) of the storage, and of the engine for complete copies."""
        done = self._python_engine
        # By identity: shards of one dataset share their storage.
        storages = {id(file.storage): file.storage for file in self._files}
        counters = Counter(
            {
                "records": done.records,
                "bytes": done.bytes,
                "requests": sum(each.asked for each in storages.values()),
                "retries": sum(each.retries for each in storages.values()),
                "offline": self._offline,
                "io_ns": sum(each.nanoseconds for each in storages.values()),
            }
        )
        counters.update(self._counted.sums())
        engines = []
        counters["held_bytes"] = sum(each.held for each in self._foreseen())
        if self._cached is not None:
            counters.update(self._cached.counters())
            engines = self._cached.engines()
        return [(self._storage.shown, 0, "requests", counters), *engines]

    # Forecasts

    def forecast(self) -> Forecast | None:
        """Return a forecast, to be told which records will be read soon; None if no memory is allowed for it.

        The engine knows it for as long as you keep it.
        """
        most = self._storage.ahead_memory
        if most is None:
            # A share of the free memory, as each rank and worker takes one.
            most = min(AHEAD_MOST, resources.available_memory() // AHEAD_SHARE)
        if not most:
            return None
        made = Forecast(self, most, max(1, self._storage.requests_most // CHAINS_SHARE))
        # Weak: a loop that was left must not hold memory. A new tuple, so readers need no lock.
        self._forecasts = (*(each for each in self._forecasts if each() is not None), weakref.ref(made))
        return made

    def _foreseen(self) -> list[Forecast]:
        return [found for each in self._forecasts if (found := each()) is not None]

    def _note_delivered(self, indices: Indices) -> None:
        """Note that records were delivered by complete copies."""
        foreseen = self._foreseen()
        if foreseen:
            each, times = np.unique(self._normalize_indices(indices), return_counts=True)
            for forecast in foreseen:
                forecast.deliver(*self.split(each), times)

    def split(self, samples: Indices) -> tuple[Indices, Indices]:
        """Return the number of the shard of each sample, and its number there: int64 [k] each."""
        files = np.searchsorted(self._ends, samples, "right")
        return files, samples - self._begins[files]

    # Batches

    def read(self, indices: Indices, check: bool, go_on: bool, form: Form = ARRAYS, out: Out = None) -> Read:
        """Read the records at `indices`, with the result of `_engine.Files.read`.

        Raises:
            IndexError, ClosedError, ValueError: see `_engine.Files.read`.
            RemoteError, MissingFileError: a shard cannot be read, or was replaced; also with `go_on`.
            ChecksumError, FormatError: the tables of a shard are damaged.
        """
        # Complete copies first: they need no request, and no thread.
        if self._cached is not None:
            found = self._cached.read(indices, form, out)
            if found is not None:
                self._note_delivered(indices)
                return found
        # In this thread: the pool makes the requests, and this one sees Ctrl-C.
        outcome = self._python_engine.run(partial(self._load, self._normalize_indices(indices), check, form, out))
        return outcome.result, outcome.failures

    def read_ahead(
        self,
        indices: Indices,
        check: bool,
        go_on: bool,
        form: Form = ARRAYS,
        out: Out = None,
        threads: int = THREADS,
        sequential: bool = False,
    ) -> RemoteBatch:
        """Begin to read the records at `indices`, and return at once."""
        begun = None if self._cached is None else self._cached.begin(indices, form, out, threads, sequential)
        if begun is not None:
            self._note_delivered(indices)
            wait: Callable[[], Any] = begun
            # Damaged copies: the batch is read again, from the store.
            return RemoteBatch(lambda: BatchOutcome(*(wait() or self.read(indices, check, go_on, form, out))))
        load = partial(self._load, self._normalize_indices(indices), check, form, out)
        return RemoteBatch(self._python_engine.begin(load, threads))

    def sizes(self, indices: Indices) -> Indices:
        """Return the sizes in bytes of the records at `indices`, int64 [k]."""
        if self.closed:
            raise ClosedError("closed")
        wanted, inverse = self._find_wanted(self._normalize_indices(indices))
        sizes: Indices = (wanted.stops - wanted.starts)[inverse]
        return sizes

    def _normalize_indices(self, indices: Indices) -> Indices:
        return count_from_start(indices, self.n, lambda place, _: IndexError(place))

    def _find_wanted(self, positions: Indices, **options: bool) -> tuple[WantedRecords, Indices]:
        """Return the distinct records at `positions`, and for each position its place among them."""
        # Repeats in a batch are fetched once.
        each, inverse = np.unique(positions, return_inverse=True)
        files, locals = self.split(each)
        tables = self._tables_of([number for number, _ in parts(files)])
        return WantedRecords(files, locals, tables, **options), inverse

    def _tables_of(self, numbers: list[int]) -> dict[int, Tables]:
        found: dict[int, Tables] = {}
        tasks: list[Task] = []

        def get(number: int) -> None:
            found[number] = self._tables.get(self._files[number])

        for number in numbers:
            # In memory already: no thread is needed.
            held = self._tables.get_held(self._files[number])
            if held is None:
                tasks.append(partial(get, number))
            else:
                found[number] = held
        self._storage.run(tasks)
        return found

    def _load(self, positions: Indices, check: bool, form: Form, out: Out) -> BatchOutcome:
        # Else damage would be kept, and later nobody could notice.
        check = check or self._cached is not None  # the cache keeps checked records only
        # Only separate arrays must be writable; other forms copy anyway.
        wanted, inverse = self._find_wanted(positions, check=check, own=form == ARRAYS)
        if self._cached is not None:
            self._cached.fill(wanted.files, wanted.locals, wanted.records)
        foreseen = self._foreseen()
        for forecast in foreseen:
            forecast.fill(wanted, partial(self._verify_records, wanted))
        # What neither the cache nor a forecast has.
        self._fetch(wanted)
        for forecast in foreseen:
            # Each time that a record was delivered counts, repeats as well.
            forecast.deliver(wanted.files, wanted.locals, np.bincount(inverse, minlength=len(wanted.locals)))
        places: list[int] = inverse.tolist()
        failures: Any = _failures(wanted, places, form)
        if form == CHECKED:  # it delivers no records, whose bytes would be counted elsewhere
            self._counted.add(bytes=int((wanted.stops - wanted.starts)[inverse].sum()))
        return BatchOutcome(_deliver(wanted, places, form, out), failures)

    # Requests

    def _fetch(self, wanted: WantedRecords) -> None:
        missing = wanted.missing()
        tasks: list[Task] = []
        # Neighbours are joined, so that a request pays.
        for request in requests(wanted.files[missing], wanted.starts[missing], wanted.stops[missing]):
            which = missing[request.first : request.last].tolist()
            cuts = pieces(request.start, request.stop)
            # A large record comes in pieces, on several connections.
            if len(cuts) == 1:
                tasks.append(partial(self._ask, wanted, request, which))
            else:
                tasks += self._piece_tasks(wanted, request, which, cuts)
        self._storage.run(tasks)
        # Records of 0 bytes have no request, but a checksum.
        for j in wanted.missing().tolist():  # without bytes
            self._verify(wanted, j, NOTHING, self._checksums(wanted, [NOTHING])[0], again=False)

    def _ask(self, wanted: WantedRecords, request: Request, which: list[int]) -> None:
        """Read the records `which` by one request."""
        try:
            data = self._files[request.file].get_range(request.start, request.stop).data
        except OSError as error:
            raise self._name_wanted(error, wanted, which[0]) from None  # the error names a sample, not a range
        self._take_answer(wanted, request, which, np.frombuffer(data, np.uint8))

    def _piece_tasks(
        self, wanted: WantedRecords, request: Request, which: list[int], cuts: list[tuple[int, int]]
    ) -> list[Task]:
        """Return tasks that read one large record. The task that ends last passes it on."""
        data = np.empty(request.stop - request.start, np.uint8)
        left = list(cuts)

        def ask(start: int, stop: int) -> None:
            try:
                found = self._files[request.file].get_range(start, stop)
            except OSError as error:
                raise self._name_wanted(error, wanted, which[0]) from None
            # Pieces lie apart, so threads write without a lock.
            data[start - request.start : stop - request.start] = np.frombuffer(found.data, np.uint8)
            # The count decides who is last, so it needs one.
            with lock:
                left.pop()
                last = not left
            if last:
                self._take_answer(wanted, request, which, data)

        lock = threading.Lock()
        return [partial(ask, *cut) for cut in cuts]

    def _take_answer(self, wanted: WantedRecords, request: Request, which: list[int], data: Array) -> None:
        spans = [wanted.span(j) for j in which]
        cut = [data[start - request.start : stop - request.start] for start, stop in spans]
        good = self._verify_records(wanted, which, cut)
        if self._cached is not None and good:
            records: list[Any] = [wanted.records[j] for j in good]
            self._cached.store(request.file, wanted.locals[good], records)
            self._cached.store_others(request.file, wanted.locals[which], request.start, data)

    def _verify_records(self, wanted: WantedRecords, which: list[int], records: list[Array]) -> list[int]:
        """Compare the CRC-32 of the records `which`, and keep them; return those that match."""
        # Checksums of all first: counted with one look at the clock.
        arrived = zip(which, records, self._checksums(wanted, records), strict=True)
        return [j for j, record, computed in arrived if self._verify(wanted, j, record, computed, again=True)]

    def _checksums(self, wanted: WantedRecords, records: Sequence[Array]) -> Sequence[int | None]:
        """Return the CRC-32 of each record; None for each if they are not compared."""
        if not wanted.check:
            return [None] * len(records)
        begun = time.perf_counter_ns()
        found = [crc32(record.data) for record in records]
        self._counted.add(crc_ns=time.perf_counter_ns() - begun)
        return found

    def _verify(self, wanted: WantedRecords, j: int, record: Array, computed: int | None, *, again: bool) -> bool:
        """Compare the CRC-32 of a record, and keep the record. If it does not match, read it once more."""
        # Damage on the way is rare, and mostly gone the second time.
        if computed is not None and computed != wanted.stored[j]:
            if again:
                return self._refetch(wanted, j)
            wanted.computed[j] = computed
        # obstore's bytes are read-only; only separate arrays need a copy.
        wanted.records[j] = record if record.flags.writeable or not wanted.own else _copy_record(record)
        return j not in wanted.computed

    def _refetch(self, wanted: WantedRecords, j: int) -> bool:
        shard = self._files[int(wanted.files[j])]
        self._note(shard.path, int(wanted.locals[j]))
        try:
            found = shard.get_range(*wanted.span(j))
            record = np.frombuffer(found.data, np.uint8)
            if self._verify(wanted, j, record, self._checksums(wanted, [record])[0], again=False):
                return True
            # The object may have been replaced by one of the same size and etag, or without an etag: this raises then.
            shard.check_header()
        except OSError as error:
            raise self._name_wanted(error, wanted, j) from None
        return False

    def _note(self, path: str, local: int) -> None:
        """Log that a record came damaged. Otherwise nobody would notice a network that damages data."""
        self._counted.add(refetched=1)
        # The first as a warning; a bad network would fill the log.
        level = logging.INFO if self._counted["refetched"] > 1 else logging.WARNING
        logger.log(level, "%s: sample %d arrived damaged, and is fetched again", path, local)

    def _name_wanted(self, error: OSError, wanted: WantedRecords, j: int) -> Exception:
        return self.name_error(error, int(wanted.files[j]), int(wanted.locals[j]))

    def name_error(self, error: OSError, file: int, local: int) -> Exception:
        """Return the error with the index of the sample in its message."""
        index = local + int(self._begins[file])
        if isinstance(error, FileNotFoundError):
            return MissingFileError(ENOENT, f"Sample {index}: {error.strerror}", error.filename)
        return type(error)(f"Sample {index}: {error}") if isinstance(error, RemoteError) else error

    # For forecasts

    def sizes_about(self) -> "tuple[np.ndarray[Any, np.dtype[np.float64]], float]":
        """Return the average size of the records of each shard, bytes: float64 [files]; and that of all."""
        sizes = np.array([file.size / max(1, file.n) for file in self._files], np.float64)
        # By average sizes: exact ones would need the tables of all shards.
        return sizes, sum(file.size for file in self._files) / max(1, self.n)

    def tables(self, file: int) -> Tables:
        """Return the tables of a shard; read them if needed."""
        return self._tables.get(self._files[file])

    def absent(self, file: int, locals: Indices) -> Indices:
        """Return those records of a shard that are not known to be in the cache."""
        return locals if self._cached is None else self._cached.absent(file, locals)

    def ask(self, file: int, start: int, stop: int, local: int) -> Array:
        """Read bytes [start, stop) of a shard, for its record `local`, and keep them in the cache."""
        try:
            data = np.frombuffer(self._files[file].get_range(start, stop).data, np.uint8)
            if self._cached is not None:
                self._cached.store_span(file, start, data)
        except OSError as error:
            raise self.name_error(error, file, local) from None
        return data

    def run(self, tasks: Sequence[Task]) -> None:
        """Run tasks that make requests, and wait for them."""
        self._storage.run(tasks)

    def begin(self, task: Task) -> bool:
        """Begin a task that makes requests; return False if it will not run."""
        return self._storage.begin(task)


def _copy_record(record: Array) -> Array:
    """Return a copy of a record.

    A large one goes to memory that was used before: new pages cost more time than the copy.
    """
    if len(record) < POOLED_LEAST:
        return record.copy()
    copy = pooled(len(record))
    copy[:] = record
    return copy


def _deliver(wanted: WantedRecords, places: list[int], form: Form, out: Out) -> Any:
    """Return the records at `places`, in the form that was asked for."""
    if form == CHECKED:
        # Only failures count.
        return NOTHING, np.zeros(len(places) + 1, np.int64)
    # A failed record keeps its place, see `BatchOutcome`.
    arrays = [NOTHING if record is None else record for record in (wanted.records[j] for j in places)]
    if form == ARRAYS:
        seen: set[int] = set()
        # Every array is the user's own, so repeats are copied.
        for place, j in enumerate(places):
            if j in seen:
                arrays[place] = arrays[place].copy()
            seen.add(j)
    if form == PACKED and out is None:
        # Memory that was used before, see `_copy_record`.
        out = pooled(sum(map(len, arrays)))
    return deliver(form, arrays, out)


def _failures(wanted: WantedRecords, places: list[int], form: Form) -> list[Failure]:
    """Return the failures of the records at `places`, in that order."""
    wrong = {j: ("mismatch", computed, wanted.stored[j]) for j, computed in wanted.computed.items()}
    if isinstance(form, Slots):
        # A damaged record is reported as such, whatever its size.
        for j in np.flatnonzero(wanted.stops - wanted.starts != form.record_size).tolist():
            wrong.setdefault(j, ("size", form.record_size, 0))
    failures = []
    for place, j in enumerate(places) if wrong else ():  # usually nothing is wrong
        if j in wrong:
            status, detail, stored = wrong[j]
            start, stop = wanted.span(j)
            failures.append(Failure(place, status, detail, start, stop - start, stored))
    return failures
