"""Python work on samples in threads: with the GIL, and by a Python without one (PEP 703)."""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import environment
import numpy as np
import workloads
from harness import Contestant, Measurement, Report, WrongAnswerError, add_parts, arguments, measure, table
from human import per_second
from threads_work import count_words

from ffrecord import DatasetWriter, FileWriter

PARTS = ("reader", "loader")
WORK = Path(__file__).with_name("threads_work.py")
GIL, FREE = "with the GIL", "without a GIL"


def make_texts(work: workloads.Threads) -> list[str]:
    """Return texts of numbers as words."""
    random = np.random.default_rng(work.seed)
    return [" ".join(map(str, row)) for row in random.integers(0, 100_000, (work.samples, work.words)).tolist()]


class Child:
    """An interpreter that does the work.

    Args:
        python: path of the interpreter, which can import ffrecord.
        path, batch, part: arguments of threads_work.py.
    """

    def __init__(self, python: str, path: Path, batch: int, part: str) -> None:
        self._process = subprocess.Popen(
            [python, str(WORK), str(path), str(batch), part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = self._answer()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{WORK.name} ended with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, threads: int) -> dict[str, Any]:
        """Do the work once; return its seconds and its sum."""
        self._process.stdin.write(f"{threads}\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return self._answer()


def make_contestant(name: str, child: Child, threads: int, wanted: int) -> Contestant:
    """Return the contestant of an interpreter and a number of threads."""

    def run() -> float:
        found = child.run(threads)
        if found["sum"] != wanted:
            raise WrongAnswerError(f"{name}: the sum is {found['sum']}, expected {wanted}")
        return float(found["seconds"])

    return Contestant(name, run, lambda: None)


def write(part: str, path: Path, texts: list[str]) -> None:
    if part == "loader":
        DatasetWriter(path, num_workers=0).from_indexed_dataset([{"text": text} for text in texts])
        return
    with FileWriter(path, len(texts)) as writer:
        writer.write_many([text.encode() for text in texts])


def ratios(found: dict[str, list[float]], threads: int) -> list[float]:
    """Return, for each round, the time of the better number of threads with the GIL over that without one."""
    own = zip(*(found[f"{GIL}, {count}"] for count in (1, threads)), strict=True)
    return [min(pair) / free for pair, free in zip(own, found[f"{FREE}, {threads}"], strict=True)]


def measure_part(part: str, work: workloads.Threads, options: argparse.Namespace, report: Report) -> None:
    """Measure one part, and print its table and its ratio."""
    texts = make_texts(work)
    wanted = sum(map(count_words, texts))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as children:
        path = Path(directory) / f"{part}.ffr"
        write(part, path, texts)
        start = partial(Child, path=path, batch=work.batch, part=part)
        kinds = {GIL: children.enter_context(start(options.gil_python))}
        if options.free_python:
            kinds[FREE] = children.enter_context(start(options.free_python))
        for name, child in kinds.items():
            if "missing" in child.about:
                print(f"{part}: left out: {name}: {child.about['missing']}")
                return
            if child.about["gil"] is not (name == GIL):
                raise SystemExit(f"{name}: this Python has {'a' if child.about['gil'] else 'no'} GIL: name another one")
        contestants = [
            make_contestant(f"{name}, {threads}", child, threads, wanted)
            for name, child in kinds.items()
            for threads in sorted({1, work.threads})
        ]
        found = measure(contestants, options.rounds)
        details = {name: child.about for name, child in kinds.items()}
    rows = []
    for name, seconds in found.items():
        about = details[name.rpartition(",")[0]]
        report.add(Measurement(name, work, seconds, sum(map(len, texts)), work.samples, "hot", {"part": part, **about}))
        noun = "thread" if name.endswith(" 1") else "threads"
        rates = [per_second(work.samples / each) for each in (median(seconds), max(seconds), min(seconds))]
        rows.append(
            [
                f"{name} {noun}",
                about["python"],
                f"{rates[0]} ({rates[1]}..{rates[2]})",
            ]
        )
    print(table([f"{part}: samples/s, median (min..max)", "Python", ""], rows), "", sep="\n")
    if FREE in kinds:
        each = ratios(found, work.threads)
        print(f"{part}: {FREE}, {work.threads} threads / {GIL}: {median(each):.2f} ({min(each):.2f}..{max(each):.2f})")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_parts(parser, PARTS)
    parser.add_argument("--gil-python", default=sys.executable, help="Python with the GIL; this one unless told")
    parser.add_argument("--free-python", help="free-threaded Python into which ffrecord is installed; none unless told")


def main() -> None:
    options = arguments(__doc__, add_options)
    report = Report("threads", {"versions": environment.versions("torch"), "fs": None}, options.out)
    print(report.heading())
    for part in PARTS:
        if part in options.part:
            measure_part(part, workloads.SMOKE_THREADS if options.smoke else workloads.THREADS, options, report)


if __name__ == "__main__":
    main()
