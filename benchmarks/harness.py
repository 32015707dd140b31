"""The common way of measuring: contestants take turns, answers are checked first, every round is kept.

A benchmark makes a `Contestant` of each thing to compare, lets `measure` time them, and passes the `Measurement`s to a
`Report`. This appends them, with everything they depend on, to results/<date>-<machine>-<commit>.jsonl.
"""

import argparse
import dataclasses
import datetime
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import environment
import workloads
from waits import Waits

RESULTS = Path(__file__).with_name("results")
ROUNDS = 7


@dataclass(frozen=True)
class Contestant:
    """Something to be timed.

    Attributes:
        name: name in the table and in the results.
        run: function that does the work once, and returns the seconds it took; see `timed`.
        check: function that raises `WrongAnswerError` unless the result is right. Called once, before the first `run`.
        waits: what `run` records of each batch; None if it has no batches.
    """

    name: str
    run: Callable[[], float]
    check: Callable[[], None]
    waits: Waits | None = None

    @property
    def details(self) -> dict[str, Any]:
        """Details of a measurement: the tails of all rounds."""
        return {} if self.waits is None else self.waits.details()


class WrongAnswerError(Exception):
    """The error that a contestant computed a wrong result; nothing was measured."""


@dataclass(frozen=True)
class Measurement:
    """The times of one contestant for one workload.

    Attributes:
        workload: a frozen dataclass of workloads.py.
        seconds: seconds of one repetition, for each round.
        size: bytes processed in one repetition.
        count: samples in one repetition.
        cache: place of the data: "hot" (CPU cache or page cache, as far as it fits) or "cold" (storage).
        details: further details, such as the kind of contestant.
    """

    contestant: str
    workload: Any
    seconds: list[float]
    size: int
    count: int = 1
    cache: str = "hot"
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def gigabytes_per_second(self) -> float:
        return self.size / self.median / 1e9

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Measurement":
        """Return the measurement that `as_record` made a record of."""
        names = ("contestant", "seconds", "size", "count", "cache")
        fields = {name: record[name] for name in names}
        return cls(workload=workloads.from_fields(record["workload"]), details=record.get("details", {}), **fields)

    def as_record(self) -> dict[str, Any]:
        return {
            "contestant": self.contestant,
            "workload": {"kind": type(self.workload).__name__, **dataclasses.asdict(self.workload)},
            "cache": self.cache,
            "checked": True,
            "seconds": self.seconds,
            "size": self.size,
            "count": self.count,
            "median_seconds": self.median,
            "min_seconds": min(self.seconds),
            "max_seconds": max(self.seconds),
            "gigabytes_per_second": self.gigabytes_per_second,
            "samples_per_second": self.count / self.median,
            **({"details": self.details} if self.details else {}),
        }


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a `Contestant.run` that times `work`."""

    def run() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return run


def measure(contestants: Sequence[Contestant], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each contestant, by name, for each round.

    They take turns, and each round begins with another one: a machine that is slow for a while is slow for all of them.

    Raises:
        WrongAnswerError: raised by a contestant; nothing was timed.
    """
    for contestant in contestants:
        contestant.check()
    return take_turns(contestants, rounds)


def take_turns(contestants: Sequence[Contestant], rounds: int) -> dict[str, list[float]]:
    """Measure contestants whose answers were compared before."""
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for turn in range(rounds):
        first = turn % max(1, len(contestants))
        for contestant in [*contestants[first:], *contestants[:first]]:
            seconds[contestant.name].append(contestant.run())
    return seconds


@dataclass
class Report:
    """The measurements of one benchmark, with everything they depend on.

    Attributes:
        bench: name of the benchmark.
        context: further facts: library versions, the CRC-32 kernel, the file system.
        out: file to which JSON lines are appended; None for none.
    """

    bench: str
    context: dict[str, Any]
    out: Path | None
    measurements: list[Measurement] = field(default_factory=list)

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement, and write it at once, so that an interrupted run loses nothing."""
        self.measurements.append(measurement)
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            with self.out.open("a") as lines:
                lines.write(json.dumps(self._record(measurement)) + "\n")

    def _record(self, measurement: Measurement) -> dict[str, Any]:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        record = {"bench": self.bench, "time": now, **measurement.as_record(), **environment.commit()}
        return {**record, "machine": environment.machine(), **self.context}

    def heading(self) -> str:
        """Return one line about the environment."""
        commit = environment.commit()
        dirty = " with changes" if commit["dirty"] else ""
        return f"{self.bench} on {environment.machine()['cpu']}, commit {commit['commit']}{dirty}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with columns as wide as needed; the first is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def default_out() -> Path:
    today = datetime.date.today().isoformat()
    return RESULTS / f"{today}-{environment.slug()}-{environment.commit()['commit']}.jsonl"


def some_of(names: Sequence[str]) -> Callable[[str], set[str]]:
    """Return the type of an option that takes some of `names`, separated by commas."""

    def parse(text: str) -> set[str]:
        asked = set(text.split(","))
        if not asked <= set(names):
            raise argparse.ArgumentTypeError(f"{text}, expected some of {','.join(names)}")
        return asked

    return parse


def add_data(parser: argparse.ArgumentParser, about: str = "directory to write in") -> None:
    """Add the option --data: .data is a Path."""
    parser.add_argument("--data", type=Path, default=Path(), help=f"{about}; the current one unless told")


def add_parts(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add the option --part: .part is a set."""
    about = f"some of {','.join(names)}, with commas between; all unless told"
    parser.add_argument("--part", type=some_of(names), default=set(names), help=about)


def arguments(description: str, add: Callable[[argparse.ArgumentParser], object] = vars) -> argparse.Namespace:
    """Parse the options of all benchmarks: .smoke, .rounds (>= 5), and .out (a Path, or None).

    Args:
        description: description of the program.
        add: function that adds further options to the parser.
    """
    parser = argparse.ArgumentParser(description=description)
    add(parser)
    parser.add_argument(
        "--smoke", action="store_true", help="a second's worth, to see that it runs; the numbers mean nothing"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds to time, at least 5; {ROUNDS} unless told")
    parser.add_argument(
        "--out",
        type=Path,
        help="file to append JSON lines to; results/<date>-<machine>-<commit>.jsonl, with --smoke none",
    )
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error(f"--rounds is {options.rounds}, expected >= 5")
    if options.out is None and not options.smoke:
        options.out = default_out()
    return options
