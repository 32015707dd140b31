"""Where samples come from, as the parent sees it: what to give the workers next."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.dataset_writer.messages import Assignment, IndexTask, StreamTask
from ffrecord.dataset_writer.selection import Chosen, as_array
from ffrecord.dataset_writer.tasks import may_be_asked_ahead
from ffrecord.dataset_writer.transport import Carrier
from ffrecord.errors import ArgumentTypeError, CountError, FormatError, plural
from ffrecord.processes.failure_messages import Name
from ffrecord.processes.heartbeats import Beat
from ffrecord.system.braces import expand_braces

AHEAD = 2  # streams for each worker that may be under way before the first of them has ended
RESERVE_ASKED = 3  # tasks whose samples are asked for ahead, so that the disk is never idle

Item = TypeVar("Item")


class Source:
    """Samples in order, divided into tasks.

    Attributes:
        arguments: what workers need, under the names that users know.
        total: samples, if that is known; a guess is good enough.
        reserve: tasks that a worker is given beside the one in its hands.
        ahead: tasks for each worker beyond the first unfinished one; None for any number.
        counts: whether tasks tell how many samples they have.
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
        """Task number `task`, of at most `most` samples as far as they can be counted; None if there is nothing left.

        Raises:
            whatever the code of the user does.
        """
        raise NotImplementedError

    def name(self, beat: Beat) -> str:
        """The sample a worker is at, in words."""
        return beat.sample


def sample_names(dataset: Any) -> Name:
    """What the samples of a dataset are called in messages: as it says, if it does."""
    said: Any = getattr(dataset, "sample_name_for_errors", None)
    if said is None:
        return lambda beat: beat.sample

    def name(beat: Beat) -> str:
        # Whatever goes wrong here must not take the place of the error that is being told of.
        with suppress(Exception):
            return str(said(beat.index))
        return beat.sample

    return name


class FromDataset(Source):
    """dataset[i] for indices.

    Args:
        indices: of the samples, in order, each in range.
        first: how many of them to leave out, because they were written before.
    """

    def __init__(self, dataset: Any, indices: Chosen, first: int = 0) -> None:
        self.arguments, self.total = {"dataset": dataset}, len(indices)
        self._indices, self._next = indices, first
        self._samples_of_task: Callable[[npt.NDArray[np.int64]], int] | None
        self._samples_of_task = getattr(dataset, "samples_of_task", None)
        self._sample_name = sample_names(dataset)
        if may_be_asked_ahead(dataset):
            self.reserve = RESERVE_ASKED

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> IndexTask | None:
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
    """What an iterable of the parent gives.

    Args:
        iterable: of samples, or of what `function` makes samples of.
        length: how many it must give; None for any number.
    """

    calls = items = True

    def __init__(self, iterable: Iterable[Any], length: int | None = None) -> None:
        self.arguments: dict[str, Any] = {}
        self.total = length
        self._pairs: Iterator[tuple[int, Any]] = enumerate(_counted(iterable, length))

    def look(self, count: int) -> list[Any]:
        """Return the first samples, which `take` gives nevertheless."""
        first = list(islice(self._pairs, count))
        self._pairs = chain(first, self._pairs)
        return [sample for _, sample in first]

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> Assignment | None:
        return carrier.pack(task, slot, self._pairs, most)


class FromList(Source):
    """What a function makes of lines.

    Args:
        lines: an iterable of str, or the path of a text file in UTF-8. Empty ones count, and are left out.
        function: line without its end → sample.
        first: how many samples to leave out, because they were written before.
    """

    calls = items = True

    def __init__(
        self, lines: str | os.PathLike[str] | Iterable[str], function: Callable[[str], Any], first: int = 0
    ) -> None:
        self.arguments = {"function": function}
        numbered = _file_lines(os.fspath(lines)) if isinstance(lines, str | os.PathLike) else _given_lines(lines)
        self._pairs: Iterator[tuple[int, str]] = islice(_filled(numbered), first, None)

    def look(self, count: int) -> "FirstLines":
        """Return the first lines, which `take` gives nevertheless."""
        first = list(islice(self._pairs, count))
        self._pairs = chain(first, self._pairs)
        return FirstLines(first, self.arguments["function"])

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> Assignment | None:
        return carrier.pack(task, slot, self._pairs, most)

    def name(self, beat: Beat) -> str:
        return f"line {beat.index}"


class FirstLines:
    """What a function makes of a few lines, by index.

    Args:
        lines: with their numbers.
        function: line → sample.
    """

    def __init__(self, lines: list[tuple[int, str]], function: Callable[[str], Any]) -> None:
        self._lines, self._function = lines, function

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Any:
        return self._function(self._lines[index][1])

    def sample_name_for_errors(self, index: int) -> str:
        """Return what messages call a sample."""
        return f"line {self._lines[index][0]}"


class FromStreams(Source):
    """What a pipeline makes of each of some names, such as those of tar files.

    Args:
        names: of what there is.
        pipeline: name → samples.
    """

    reserve, ahead, counts = 0, AHEAD, False

    def __init__(self, names: list[str], pipeline: Callable[[str], Iterable[Any]]) -> None:
        self.arguments, self._names = {"pipeline": pipeline}, names

    def take(self, task: int, slot: int, most: int, carrier: Carrier) -> StreamTask | None:
        return StreamTask(task, self._names[task]) if task < len(self._names) else None

    def name(self, beat: Beat) -> str:
        return f"sample {beat.index} of {self._names[beat.task]}"


def shard_names(shards: Any) -> list[str]:
    """The names in a list of them, or of a pattern such as "train-{000..009}.tar".

    Raises:
        TypeError: not str or paths.
        ValueError: a pattern of too many names.
    """
    if isinstance(shards, str | os.PathLike):
        return expand_braces(os.fspath(shards))
    if not isinstance(shards, Iterable):
        raise ArgumentTypeError(f"shards must be a list of paths or a pattern, not {type(shards).__name__}")
    names = []
    for position, shard in enumerate(shards):
        if not isinstance(shard, str | os.PathLike):
            raise ArgumentTypeError(f"shards[{position}] must be str or os.PathLike, not {type(shard).__name__}")
        names.append(os.fspath(shard))
    return names


def _counted(iterable: Iterable[Item], length: int | None) -> Iterator[Item]:
    """Its items; CountError unless there are `length`."""
    count = 0
    for count, item in enumerate(iterable, 1):
        if length is not None and count > length:
            raise CountError(f"the iterable gives at least {plural(count, 'sample')}, but length is {length}")
        yield item
    if length is not None and count < length:
        raise CountError(f"the iterable gives {plural(count, 'sample')}, but length is {length}")


def _file_lines(path: str) -> Iterator[tuple[int, str]]:
    """(number from 1, line) of a text file; a byte order mark is no part of it."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(f"{path}: line {number} is not UTF-8: {error}") from None


def _given_lines(lines: Iterable[Any]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ArgumentTypeError(f"line {number} is {type(line).__name__}, expected str")
        yield number, line


def _filled(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Those that are not empty, without their ends."""
    return ((number, line.rstrip("\r\n")) for number, line in lines if line.strip("\r\n"))
