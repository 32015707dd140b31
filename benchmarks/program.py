"""The common part of benchmarks on files: one run, in its own directory, with results shown as they come."""

import argparse
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import environment
from harness import Measurement, Report, table
from read_figures import Figure, figure_table
from tails import tail_rows

from ffrecord import _crc


class Program(ABC):
    """One run of a benchmark.

    Args:
        options: .smoke, .rounds, .part and its own.
        directory: directory for its files.
        report: report that keeps the results.
    """

    parts: Sequence[str]  # in order; each is a method, unless `run` is another

    def __init__(self, options: argparse.Namespace, directory: Path, report: Report) -> None:
        self.options, self.directory, self.report = options, directory, report
        self.smoke, self.rounds = options.smoke, options.rounds

    def run(self) -> None:
        """Measure the requested parts."""
        for part in self.parts:
            if part in self.options.part:
                getattr(self, part)()

    def add(self, found: Sequence[Measurement]) -> None:
        """Keep measurements, and show them at once, because the whole takes long."""
        for measurement in found:
            self.report.add(measurement)
        self.show(found)
        if rows := tail_rows(found):
            print(table(rows[0], rows[1:]), "", sep="\n", flush=True)

    @abstractmethod
    def show(self, found: Sequence[Measurement]) -> None:
        """Print measurements."""


def measure(
    program: type[Program],
    name: str,
    options: argparse.Namespace,
    versions: dict[str, Any],
    figures: Callable[[Sequence[Measurement]], Sequence[Figure]],
    **more: Any,
) -> None:
    """Run a program, and print its figures.

    Args:
        name: name of the benchmark.
        options: options with .data, the parent of the directory for its files.
        versions, more: further facts about the environment.
        figures: function that computes figures from all measurements.
    """
    context = {"versions": versions, "crc_kernel": _crc.kernel(), "fs": environment.filesystem(options.data), **more}
    report = Report(name, context, options.out)
    print(report.heading(), "", sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="ffrecord-bench-", dir=options.data) as directory:
        program(options, Path(directory).resolve(), report).run()
    print(figure_table(figures(report.measurements)))
