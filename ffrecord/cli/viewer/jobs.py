"""Work in the background. The page shows what is found so far."""

from array import array
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from ffrecord.cli import column_facts
from ffrecord.cli.record_sizes import collect_sizes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.viewer.matching import Matcher
from ffrecord.cli.viewer.records import Unreadable, ViewedRecords, format_reason
from ffrecord.cli.viewer.values import is_in_memory, values_of
from ffrecord.reading.indices import spread_indices

MATCHES_MOST = 100_000  # indices that a filter keeps; it stops there
CHUNK_FIRST, CHUNK_MOST = 64, 1 << 16  # samples that are searched together
CHUNK_BYTES = 16 << 20  # of samples that are searched together
FACTS_OF = 256  # samples from which the facts of columns are computed


class JobStopped(Exception):
    """The job was stopped, as nobody wants its result any more."""


class BackgroundJob:
    """Work with a state that can be asked for.

    Attributes:
        total, done: amount of work, and the part that is done. `total` may be 0.
        failure: reason why it ended early; "" if it did not.
        ended: whether the state changes no more.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done, self.failure, self.ended = total, 0, "", False
        self._stopping = Event()

    def start(self) -> None:
        """Begin the work in a thread of its own."""
        Thread(target=self.run, daemon=True).start()

    def stop(self) -> None:
        """Tell the work to end soon."""
        self._stopping.set()

    def advance(self, count: int) -> None:
        """Note that `count` more is done.

        Raises:
            JobStopped: the job was told to stop.
        """
        self.done += count
        if self._stopping.is_set():
            raise JobStopped

    def run(self) -> None:
        """Do the work in this thread. Errors become the job's failure."""
        try:
            self.work()
        except JobStopped:
            self.failure = "stopped"
        except Exception as error:  # the page shows it; in a thread nothing else would report it
            self.failure = format_reason(error)
        finally:
            self.ended = True

    def work(self) -> None:
        """Do the work; subclasses implement it."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {"total": self.total, "looked": self.done, "ended": self.ended, "failure": self.failure}


class Filter(BackgroundJob):
    """A search for samples with a wanted value in a column, or for damaged samples if `column` is None.

    Attributes:
        matches: indices that were found, ascending; MATCHES_MOST at most.
        unreadable: number of samples whose value could not be read.
    """

    def __init__(self, records: ViewedRecords, column: str | None, wanted: Matcher | None) -> None:
        super().__init__(records.store.n)
        self._records, self._column, self._wanted = records, column, wanted
        self.matches, self.unreadable = array("q"), 0

    def work(self) -> None:
        """Search in chunks. The first chunks are small, so that the page shows something at once."""
        start, count = 0, CHUNK_FIRST
        while start < self.total and len(self.matches) < MATCHES_MOST:
            stop = min(start + count, self.total)
            self._look(start, stop)
            self.advance(stop - start)
            count = min(count * 2, CHUNK_MOST, max(1, CHUNK_BYTES // self._usual_size(start)))
            start = stop

    def _usual_size(self, index: int) -> int:
        if self._column is not None and is_in_memory(self._records, self._column):
            return 1
        try:
            return max(1, int(self._records.store.record_sizes([index])[0]))
        except Exception:  # its index is damaged, which reading the record reports; until then any guess will do
            return 1 << 16

    def _look(self, start: int, stop: int) -> None:
        if self._wanted is None or self._column is None:
            found = self._records.find_damaged(range(start, stop))
        else:
            values = values_of(self._records, self._column, start, stop)
            if isinstance(values, list):
                self.unreadable += sum(isinstance(value, Unreadable) for value in values)
            found = [start + place for place in self._wanted.places(values)]
        self.matches.extend(found[: MATCHES_MOST - len(self.matches)])

    def state(self) -> dict[str, Any]:
        """Return the state with the number of matches. The page asks for the matches themselves separately."""
        full = len(self.matches) >= MATCHES_MOST
        return {**super().state(), "found": len(self.matches), "unreadable": self.unreadable, "full": full}


class SizesJob(BackgroundJob):
    """The histogram of the sizes of records."""

    def __init__(self, records: ViewedRecords) -> None:
        super().__init__(records.store.n)
        self._records = records
        self._found: dict[str, Any] | None = None

    def work(self) -> None:
        """Collect all sizes."""
        self._found = collect_sizes(self._records.store, _JobOutput(self.advance)).facts()

    def state(self) -> dict[str, Any]:
        """Return the state, with "sizes" at the end."""
        return {**super().state(), "sizes": self._found}


class ColumnsJob(BackgroundJob):
    """Facts about the columns, from some samples that are spread over the dataset."""

    def __init__(self, records: ViewedRecords) -> None:
        self._indices = spread_indices(records.store.n, FACTS_OF)
        super().__init__(len(self._indices))
        self._records = records
        self._found: dict[str, Any] | None = None

    def work(self) -> None:
        """Decode the samples and describe their columns."""
        samples = []
        for index in self._indices:
            (columns,) = self._records.columns([index])
            if not isinstance(columns, Exception):
                samples.append({name: value for name, value in columns.items() if not isinstance(value, Unreadable)})
            self.advance(1)
        self._found = column_facts.describe_columns(samples, self._records.classes)

    def state(self) -> dict[str, Any]:
        """Return the state, with "columns" at the end."""
        return {**super().state(), "columns": self._found}


class _JobOutput(Output):
    """An output whose progress bar advances a job."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        super().__init__(quiet=True)
        self._advance = advance

    def progress(self, total: int | None, unit: str, label: str) -> Any:
        return _JobBar(self._advance)


class _JobBar:
    def __init__(self, update: Callable[[int], None]) -> None:
        self.update = update

    def __enter__(self) -> "_JobBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass
