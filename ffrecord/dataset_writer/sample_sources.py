"""Sources of samples, as the coordinator sees them: samples in their order, divided into tasks for workers."""

import operator
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.dataset_writer.messages import Assignment, Carrier, IndexTask, StreamTask
from ffrecord.dataset_writer.tasks import allows_fetch_ahead
from ffrecord.errors import ArgumentError, ArgumentTypeError, CountError, FormatError, plural
from ffrecord.inputs.tables import is_table
from ffrecord.processes.failure_messages import Name
from ffrecord.processes.heartbeats import Beat
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.system.braces import expand_path
from ffrecord.system.values import check_characters, describe, describe_wrong

SEEDS = 1 << 32

Indices = range | npt.NDArray[np.int64]
AHEAD = 2  # streams for each worker that may be at work before the first of all has ended
RESERVE_FETCHED = 3  # tasks whose samples are fetched ahead, so that the disk is never idle
Item = TypeVar("Item")


def dataset_length(dataset: Any) -> int:
    """Return len(dataset).

    Raises:
        TypeError: it has no length, or no samples by index.
        ValueError: its length is negative, or 2**63 or more.
    """
    kind = type(dataset).__name__
    if not hasattr(dataset, "__getitem__"):
        if not isinstance(dataset, Iterable):
            raise ArgumentTypeError(describe_wrong("dataset", dataset, "samples with len() and [i]"))
        raise ArgumentTypeError(f"dataset of type {kind} has no samples by index (dataset[i]); pass list(dataset)")
    try:
        return len(dataset)
    except TypeError as error:
        raise ArgumentTypeError(
            f"dataset of type {kind} has no length: {error}; give it a __len__, or pass list(dataset)"
        ) from None
    except (ValueError, OverflowError):
        found = type(dataset).__len__(dataset)  # raises what the code of the dataset itself raised
        raise ArgumentError(
            f"dataset of type {kind} has the length {describe(found)}, expected 0 <= len < 2**63: mend its __len__"
        ) from None


def select(n: int, indices: Iterable[SupportsIndex] | None) -> Indices:
    """Return the indices to write, each in [0, n).

    Args:
        n: number of samples of the dataset.
        indices: ints or an integer array; negative ones count from the end, repeats are allowed; None for all.

    Raises:
        IndexError: one is out of range.
        TypeError: not integers.
    """
    return range(n) if indices is None else count_from_start(as_subset(indices), n)


def shuffle(indices: Indices, seed: int | None) -> tuple[Indices, int]:
    """Return (indices in random order, seed). The order never changes: NumPy has frozen this generator.

    Args:
        seed: seed in [0, 2**32), or None to draw one.

    Raises:
        ValueError: the seed is out of range.
    """
    # Not from `random`, whose generator belongs to the user's program.
    seed = secrets.randbelow(SEEDS) if seed is None else operator.index(seed)
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {seed}, expected 0 <= seed < {SEEDS}")
    # No copy on Linux, where the permutation is int64 already.
    order = np.random.RandomState(seed).permutation(len(indices)).astype(np.int64, copy=False)
    return (order if isinstance(indices, range) else indices[order]), seed


def as_array(indices: Indices) -> npt.NDArray[np.int64]:
    """Return indices as an array. NumPy reads a range number by number, which takes ten times as long."""
    return (
        np.arange(indices.start, indices.stop, indices.step, dtype=np.int64) if isinstance(indices, range) else indices
    )


class Source:
    """Samples in order, divided into tasks.

    Attributes:
        arguments: arguments for the workers, under the names that users know.
        total: number of samples, if known; a guess is good enough.
        reserve: number of tasks that a worker has beyond the one in hand.
        ahead: number of tasks for each worker beyond the first unfinished one; None for no limit.
        counts: whether the number of samples of a task is known beforehand.
        calls: whether `take` calls code of the user.
        items: whether tasks are of items that a carrier carries.
    """

    arguments: dict[str, Any]
    total: int | None = None
    reserve = 1
    ahead: int | None = None
    counts = True
    calls = items = False

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> Assignment | None:
        """Return task number `task`, or None if nothing is left.

        Args:
            task: number of the task.
            slot: slot of shared memory for its items.
            most: largest number of samples, as far as they can be counted.
            carrier: carrier of the items.

        Raises:
            others: whatever the code of the user raises.
        """
        raise NotImplementedError

    def name(self, beat: Beat) -> str:
        """Return the name of the sample that a worker is at, for messages."""
        return beat.sample


def sample_names(dataset: Any) -> Name:
    """Return a function that names samples for messages, the dataset's own way if it has one."""
    said: Any = getattr(dataset, "sample_name_for_errors", None)
    if said is None:
        return lambda beat: beat.sample

    def name(beat: Beat) -> str:
        # A failure here must not replace the error that is being reported.
        with suppress(Exception):
            return str(said(beat.index))
        return beat.sample

    return name


class FromDataset(Source):
    """The samples dataset[i] for given indices.

    Args:
        indices: indices of the samples, in order, each in range.
        first: number of indices to leave out, because they were written before.
    """

    def __init__(self, dataset: Any, indices: Indices, first: int = 0) -> None:
        self.arguments, self.total = {"dataset": dataset}, len(indices)
        self._indices, self._next = indices, first
        self._samples_of_task: Callable[[npt.NDArray[np.int64]], int] | None
        self._samples_of_task = getattr(dataset, "samples_of_task", None)
        self._sample_name = sample_names(dataset)
        # Reading ahead needs the next tasks to be known.
        if allows_fetch_ahead(dataset):
            self.reserve = RESERVE_FETCHED

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> IndexTask | None:
        # A slice of a range stays a range, however long the dataset is.
        wanted = as_array(self._indices[self._next : self._next + most])
        if not len(wanted):
            return None
        if self._samples_of_task is not None and len(wanted) == most:  # else these are the last
            wanted = wanted[: max(1, self._samples_of_task(wanted))]
        self._next += len(wanted)
        return IndexTask(task, wanted.tobytes())

    def name(self, beat: Beat) -> str:
        return self._sample_name(beat)


class FromIterable(Source):
    """The samples of an iterable of this process.

    Args:
        iterable: iterable of samples.
        length: number of samples that it must give; None for any number.
    """

    calls = items = True

    def __init__(self, iterable: Iterable[Any], length: int | None = None) -> None:
        self.arguments: dict[str, Any] = {}
        self.total = length
        self._pairs: Iterator[tuple[int, Any]] = enumerate(_checked_length(iterable, length))

    def read_first(self, count: int) -> list[Any]:
        """Read the first samples without using them up: `take` returns them again."""
        # `chain` puts them back, since an iterator gives each only once.
        first = list(islice(self._pairs, count))
        self._pairs = chain(first, self._pairs)
        return [sample for _, sample in first]

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> Assignment | None:
        return carrier.pack(task, slot, self._pairs, most)


class FromList(Source):
    """The samples that a function makes from lines.

    Args:
        lines: an iterable of str, or the path of a text file in UTF-8. Empty lines count, but are skipped.
        function: function line without its end → sample.
        first: number of samples to leave out, because they were written before.
    """

    calls = items = True

    def __init__(
        self, lines: str | os.PathLike[str] | Iterable[str], function: Callable[[str], Any], first: int = 0
    ) -> None:
        self.arguments = {"function": function}
        if isinstance(lines, str | os.PathLike):
            numbered = _file_lines(check_characters("lines_or_file", os.fsdecode(lines)))
        else:
            numbered = _numbered_lines(lines)
        # Counted after the filter: `first` counts samples, and empty lines give none.
        self._pairs: Iterator[tuple[int, str]] = islice(_nonempty_lines(numbered), first, None)

    def read_first(self, count: int) -> "FirstLines":
        """Read the first lines without using them up: `take` returns them again."""
        first = list(islice(self._pairs, count))
        self._pairs = chain(first, self._pairs)
        return FirstLines(first, self.arguments["function"])

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> Assignment | None:
        return carrier.pack(task, slot, self._pairs, most)

    def name(self, beat: Beat) -> str:
        return f"line {beat.index}"


class FirstLines:
    """The samples that a function makes from a few lines, by index.

    Args:
        lines: lines with their numbers.
        function: function line → sample.
    """

    def __init__(self, lines: list[tuple[int, str]], function: Callable[[str], Any]) -> None:
        self._lines, self._function = lines, function

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Any:
        return self._function(self._lines[index][1])

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages."""
        return f"line {self._lines[index][0]}"


class FromStreams(Source):
    """The samples that a pipeline makes from each of several names, such as those of tar files.

    Args:
        names: names to open.
        pipeline: function name → samples.
    """

    reserve, ahead, counts = 0, AHEAD, False

    def __init__(self, names: list[str], pipeline: Callable[[str], Iterable[Any]]) -> None:
        self.arguments, self._names = {"pipeline": pipeline}, names

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> StreamTask | None:
        return StreamTask(task, self._names[task].encode(errors="surrogatepass")) if task < len(self._names) else None

    def name(self, beat: Beat) -> str:
        return f"sample {beat.index} of {self._names[beat.task]}"


def shard_names(shards: Any) -> list[str]:
    """Return the names in a list, or those of a pattern such as "train-{000..009}.tar".

    Raises:
        TypeError: not str or paths.
        ValueError: a pattern of too many names.
    """
    if isinstance(shards, str | os.PathLike):
        return expand_path(os.fspath(shards))
    if not isinstance(shards, Iterable) or is_table(shards):
        raise ArgumentTypeError(describe_wrong("shards", shards, "a list of paths or a pattern"))
    names = []
    for position, shard in enumerate(shards):
        if not isinstance(shard, str | os.PathLike):
            raise ArgumentTypeError(describe_wrong(f"shards[{position}]", shard, "str or os.PathLike"))
        names.append(os.fspath(shard))
    return names


def _checked_length(iterable: Iterable[Item], length: int | None) -> Iterator[Item]:
    """Yield the items of an iterable; raise CountError unless there are `length`."""
    count = 0  # stays 0 if the iterable is empty
    for count, item in enumerate(iterable, 1):
        if length is not None and count > length:
            raise CountError(f"the iterable gives at least {plural(count, 'sample')}, but length is {length}")
        yield item
    if length is not None and count < length:
        raise CountError(f"the iterable gives {plural(count, 'sample')}, but length is {length}")


def _file_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) of a text file, without a byte order mark."""
    # Binary, because text mode would also end a line at a lone carriage return.
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                # A byte order mark can only be at the start of the file.
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(f"{path}: line {number} is not UTF-8: {error}") from None


def _numbered_lines(lines: Iterable[Any]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ArgumentTypeError(describe_wrong(f"line {number}", line, "str"))
        yield number, line


def _nonempty_lines(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Return the lines that are not empty, without their ends."""
    return ((number, line.rstrip("\r\n")) for number, line in lines if line.strip("\r\n"))
