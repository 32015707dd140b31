"""What the benchmarks share that work on files: one run, in a directory of its own, shown as it goes on."""

import argparse
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import environment
from harness import Measurement, Report
from read_figures import Figure, figure_table

from ffrecord import _crc


class Program(ABC):
    """One run of a benchmark.

    Args:
        options: .smoke, .rounds, .part and its own.
        directory: where its files are made.
        report: where what is found is kept.
    """

    parts: Sequence[str]  # in order; each is a method, unless `run` is another

    def __init__(self, options: argparse.Namespace, directory: Path, report: Report) -> None:
        self.options, self.directory, self.report = options, directory, report
        self.smoke, self.rounds = options.smoke, options.rounds

    def run(self) -> None:
        """Measure what was asked for."""
        for part in self.parts:
            if part in self.options.part:
                getattr(self, part)()

    def add(self, found: Sequence[Measurement]) -> None:
        """Keeps them, and shows them at once: the whole takes long."""
        for measurement in found:
            self.report.add(measurement)
        self.show(found)

    @abstractmethod
    def show(self, found: Sequence[Measurement]) -> None:
        """Print them."""


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
        name: of the benchmark.
        options: with .data, the directory in which that of its files is made.
        versions, more: what there is to say of what it is measured on.
        figures: of all that was measured.
    """
    context = {"versions": versions, "crc_kernel": _crc.kernel(), "fs": environment.filesystem(options.data), **more}
    report = Report(name, context, options.out)
    print(report.heading(), "", sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="ffrecord-bench-", dir=options.data) as directory:
        program(options, Path(directory).resolve(), report).run()
    print(figure_table(figures(report.measurements)))
