"""Loading: shuffled epochs of small samples and of photographs by several loaders, from the page cache and from disk;
of every kind of source; the first batch of very many samples."""

import argparse
import importlib
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import coldness
import environment
import loader_cold
import loader_folder
import loader_start
import workloads
import write_cifar
import write_pictures
from harness import Measurement, add_data, add_parts, arguments, table
from loader_figures import describe, figures, groups
from loader_hosts import Hosts
from program import Program, measure
from write_packing import writers

SMALL = {"cifar": "a loader", "dataloader": "DataLoader", "weighted": "weights", "python": "Python"}
PICTURES = ("photographs", "normalised", "png", "gpu")
PARTS = (*SMALL, *PICTURES, "ways", "cold", "start")
PACKAGES = ("torch", "simplejpeg", "pillow")
SOURCE_PACKAGES = ("datasets", "pandas", "pyarrow")
WINDOWS = write_pictures.Windows((448, 640), 97)  # of about 110 kB, as large as those of ImageNet
ROOM = 6 << 30  # of the disk; the largest part takes 4 GB


class Loading(Program):
    """One run of the benchmark."""

    def run(self) -> None:
        if self.options.part.intersection(SMALL):
            self.small()
        if self.options.part.intersection(PICTURES):
            self.photographs()
        for part in ("ways", "cold", "start"):
            if part in self.options.part:
                getattr(self, part)()

    def small(self) -> None:
        """Measure the parts over the same small images."""
        work = workloads.SMOKE_EPOCHS if self.smoke else workloads.EPOCHS
        directory = self.directory / "small"
        directory.mkdir()
        write_cifar.make(directory, workloads.Packs(work.samples, work.workers, work.seed))
        size = work.samples * (math.prod(write_cifar.SHAPE) + 8)
        for part, through in SMALL.items():
            if part in self.options.part:
                self.hosted(directory, replace(work, through=through), size, work.samples)
        shutil.rmtree(directory)

    def photographs(self) -> None:
        """Measure the parts over the same photographs."""
        work, pngs = (workloads.SMOKE_CROPS, workloads.SMOKE_PNGS) if self.smoke else (workloads.CROPS, workloads.PNGS)
        directory = self.directory / "photographs"
        directory.mkdir()
        pictures = workloads.Pictures(work.files, work.workers, work.seed)
        with write_pictures.made(directory, pictures, WINDOWS) as folder:
            if folder is not None:
                loader_folder.save_bounds(directory)
                size = loader_folder.Files(directory).size
                for part, form in (("photographs", "bytes"), ("normalised", "normalised"), ("gpu", "GPU")):
                    if part in self.options.part:
                        self.hosted(directory, replace(work, form=form), size, work.files)
                if "png" in self.options.part:
                    loader_folder.write_pngs(directory, pngs.files)
                    self.hosted(directory, pngs, loader_folder.Files(directory, "png").size, pngs.files)
        shutil.rmtree(directory)

    def hosted(self, directory: Path, work: object, size: int, count: int) -> None:
        hosts = Hosts(directory, writers(self.options.writers))
        found = hosts.measure(work, size, count, self.rounds)
        self.report.context["versions"] |= hosts.versions
        self.report.context["not_measured"] |= hosts.missing
        self.add(found)

    def ways(self) -> None:
        """Measure every kind of source that `Loader` takes."""
        directory = self.directory / "ways"
        directory.mkdir()
        asked = importlib.import_module("loader_sources").asked(self.smoke)
        hosts = Hosts(directory, writers(self.options.writers))
        for found in hosts.measure_each(asked, self.rounds):
            self.report.context["not_measured"] |= hosts.missing
            for measurement in found:
                self.report.add(measurement)
            print(*(" ".join(figure.row()) for figure in figures(found)), sep="\n", flush=True)
        shutil.rmtree(directory)

    def cold(self) -> None:
        if not coldness.on_disk(self.directory):
            return
        for work in workloads.SMOKE_COLD_EPOCHS if self.smoke else workloads.COLD_EPOCHS:
            with loader_cold.made(self.directory, work) as path:
                self.add(loader_cold.measure_cold(path, work, self.rounds))

    def start(self) -> None:
        rounds = 1 if self.smoke else self.rounds
        for samples in workloads.SMOKE_START_SAMPLES if self.smoke else workloads.START_SAMPLES:
            with loader_start.made(self.directory, samples) as path:
                self.add(loader_start.measure_starts(path, samples, workloads.START_BATCH, rounds))

    def show(self, found: Sequence[Measurement]) -> None:
        if isinstance(found[0].workload, workloads.Starts):
            print(start_grid(found), "", sep="\n", flush=True)
            return
        for (_, work), group in groups(found).items():
            print(describe(work), grid(list(group.of.values())), "", sep="\n", flush=True)


def grid(found: Sequence[Measurement]) -> str:
    """Return the rows, fastest first."""
    return table(
        ["", "samples/s", "GB/s", "ms (min..max)"],
        [
            [
                m.contestant,
                f"{m.count / m.median:,.0f}",
                f"{m.gigabytes_per_second:.3f}",
                milliseconds(m),
            ]
            for m in sorted(found, key=lambda m: m.median)
        ],
    )


def start_grid(found: Sequence[Measurement]) -> str:
    return table(["", "ms (min..max)"], [[describe(m.workload), milliseconds(m)] for m in found])


def milliseconds(m: Measurement) -> str:
    return f"{1000 * m.median:.1f} ({1000 * min(m.seconds):.1f}..{1000 * max(m.seconds):.1f})"


def options_of(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_data(parser, "directory for up to 4 GB of files")
    add_parts(parser, PARTS)
    add(
        "--writers", type=Path, help="Python that has the packages of writers.txt; writers/bin/python beside this one's"
    )


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing can be cold, that part is left out")
    more = {"read_ahead_kb": environment.read_ahead(), "usable_cpus": len(os.sched_getaffinity(0)), "not_measured": {}}
    more["gpus"] = environment.gpus()
    packages = (*PACKAGES, *(SOURCE_PACKAGES if "ways" in options.part else ()))
    measure(Loading, "loader", options, environment.versions(*packages), figures, **more)


if __name__ == "__main__":
    main()
