"""Ways to read records: a common interface for all contestants, and our ways."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
from harness import WrongAnswerError
from read_data import Batch, Files, Records

from ffrecord import FileReader

Batches = Sequence[Batch]
Results = Callable[[Batches], Iterable[Any]]
Open = Callable[[Files], AbstractContextManager[Results]]


@dataclass(frozen=True)
class Way:
    """One way to read batches.

    Attributes:
        name: name in tables and results.
        role: "ours", "peer", "original" or "limit": its part in comparisons.
        kind: suffix of the file it reads.
        open: context that opens the file; it gives a function from batches to one result after the other.
        pieces: function that returns the records of one result, as buffers.
        open_to_check: replaces `open` in the check, for a way that keeps no record when timed.
        checks: whether it compares checksums.
    """

    name: str
    role: str
    kind: str
    open: Open
    pieces: Callable[[Any], list[Any]] = list
    open_to_check: Open | None = None
    checks: bool = False

    def check(self, results: Results, records: Records, batches: Batches) -> None:
        """Compare every record of the batches with the truth, byte by byte."""
        starts = records.starts.tolist()
        for batch, result in zip(batches, results(batches), strict=True):
            for index, piece in zip(batch.listed, self.pieces(result), strict=True):
                if bytes(piece) != records.payload[starts[index] : starts[index + 1]]:
                    raise WrongAnswerError(f"{self.name}: record {index} of {records.work} has other bytes")

    def check_opened(self, files: Files, records: Records, batches: Batches) -> None:
        """Compare the records of a reader that is opened for it."""
        with (self.open_to_check or self.open)(files) as results:
            self.check(results, records, batches)


def packed_pieces(result: tuple[Any, Any]) -> list[Any]:
    data, offsets = result
    return [data[low:high] for low, high in pairwise(offsets.tolist())]


def ours(method: str, io: str, check: bool) -> Way:
    """Read with `read` or `read_packed`, one batch after the other."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr, check, io=io) as reader:
            read = getattr(reader, method)
            yield lambda batches: map(read, [batch.array for batch in batches])

    pieces = packed_pieces if method == "read_packed" else list
    return Way(name(method, io, check), "ours", "ffr", opened, pieces, checks=check)


def name(method: str, io: str, check: bool = True) -> str:
    return f"{method} {io}" + ("" if check else " unchecked")


def into_buffer(io: str) -> Way:
    """Read with `read_packed` into the caller's memory, the same every time."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        out = np.zeros(0, np.uint8)
        sizes = np.diff(files.starts)

        def read(reader: FileReader, indices: Any) -> Any:
            return reader.read_packed(indices, out=out)

        def results(batches: Batches) -> Iterable[Any]:
            nonlocal out
            need = max(int(sizes[batch.array].sum()) for batch in batches)
            if need > len(out):
                out = np.zeros(need, np.uint8)
                out.fill(1)  # touched here, so that page faults are not timed
            return map(partial(read, reader), [batch.array for batch in batches])

        with FileReader(files.ffr, io=io) as reader:
            yield results

    return Way(name("read_packed out", io), "ours", "ffr", opened, packed_pieces, checks=True)


def by_threads(count: int) -> Way:
    """Read with `read_packed` in several threads that share one reader; batches are delivered in order."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr) as reader, ThreadPoolExecutor(count) as pool:

            def results(batches: Batches) -> Iterator[Any]:
                begun: deque[Future[Any]] = deque()
                for batch in batches:
                    begun.append(pool.submit(reader.read_packed, batch.array))
                    if len(begun) > 2 * count:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()

            yield results

    return Way(
        f"read_packed auto, {count} thread{'s' * (count > 1)}", "ours", "ffr", opened, packed_pieces, checks=True
    )


def prefetching(io: str) -> Way:
    """Read with `iter_batches`, which reads two batches ahead."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr, io=io) as reader:
            yield lambda batches: reader.iter_batches((batch.array for batch in batches), prefetch=2)

    return Way(name("iter_batches", io), "ours", "ffr", opened, checks=True)


def iterating(io: str) -> Way:
    """Read with `for record in reader`; a result is one record. Batches only say how far."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr, io=io) as reader:
            yield lambda batches: grouped(iter(reader), batches)

    return Way(name("iteration", io), "ours", "ffr", opened, checks=True)


def dropping(io: str) -> Way:
    """Read with `for record in reader`, which keeps no record, as the C loops keep none; the check compares all."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr, io=io) as reader:
            yield lambda batches: dropped(iter(reader), batches)

    return Way(
        f"{name('iteration', io)}, dropped", "ours", "ffr", opened, open_to_check=iterating(io).open, checks=True
    )


def dropped(records: Iterator[Any], batches: Batches) -> Iterator[None]:
    """Read as many records as each batch has."""
    for batch in batches:
        for _ in islice(records, len(batch.listed)):
            pass
        yield


def grouped(records: Iterator[Any], batches: Batches) -> Iterator[list[Any]]:
    """Group single records into the sizes of the batches."""
    for batch in batches:
        some = list(islice(records, len(batch.listed)))
        if len(some) != len(batch.listed):
            raise WrongAnswerError(f"iteration ended at record {batch.listed[0] + len(some)}")
        yield some


def ranges(io: str) -> Way:
    """Read with `read_range`, from front to back."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        with FileReader(files.ffr, io=io) as reader:
            yield lambda batches: (reader.read_range(b.listed[0], b.listed[-1] + 1) for b in batches)

    return Way(name("read_range", io), "ours", "ffr", opened, checks=True)


def hot_ways() -> list[Way]:
    copying = ("auto", "pread", "mmap")
    return [
        *(ours("read", io, True) for io in (*copying, "direct")),
        *(ours("read_packed", io, True) for io in (*copying, "direct")),
        into_buffer("auto"),
        by_threads(1),
        by_threads(2),
        *(ours(method, io, False) for method in ("read", "read_packed") for io in copying),
    ]


def cold_ways() -> list[Way]:
    modes = ("auto", "pread", "direct")
    return [*(ours("read", io, True) for io in modes), *(prefetching(io) for io in ("auto", "direct"))]


def sequential_ways() -> list[Way]:
    return [iterating("auto"), iterating("direct"), dropping("auto"), ranges("auto")]
