"""The newest packages beside this one: random batches by index, shuffled epochs of small samples, photographs decoded
and cropped, and the first batch after a resume.
"""

import argparse
import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import coldness
import environment
import loader_folder
import newest_environment
import workloads
import write_cifar
import write_pictures
from bench_loader import WINDOWS
from harness import Measurement, add_data, add_parts, arguments, table
from loader_hosts import Hosts
from newest_figures import describe, figures, rows
from newest_resuming import Stops
from program import Program, measure

PARTS = ("index", "epochs", "photographs", "resume")
PACKAGES = ("torch", "simplejpeg", "pillow")
DECODERS = ("torch", "simplejpeg", "opencv-python-headless")  # of the peers
ROOM = 3 << 29  # bytes of the disk
RESUME_ROUNDS = 5  # each starts about twenty processes, which import their packages
VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


class Newest(Program):
    """One run of the benchmark."""

    def run(self) -> None:
        if {"index", "epochs", "resume"} & self.options.part:
            self.small()
        if "photographs" in self.options.part:
            self.photographs()

    def small(self) -> None:
        """Measure three parts over the same images."""
        indexed = workloads.SMOKE_GATHERS if self.smoke else workloads.GATHERS
        shuffled = workloads.SMOKE_SHUFFLES if self.smoke else workloads.SHUFFLES
        directory = self.directory / "small"
        directory.mkdir()
        write_cifar.make(directory, workloads.Packs(shuffled.samples, shuffled.workers, shuffled.seed))
        size = shuffled.samples * (math.prod(write_cifar.SHAPE) + 8)
        for part, work in (("index", indexed), ("epochs", shuffled)):
            if part in self.options.part:
                self.hosted(directory, work, size, work.samples)
        if "resume" in self.options.part:
            self.resume(directory)
        shutil.rmtree(directory)

    def resume(self, directory: Path) -> None:
        stops = Stops(directory, self.options.peers)
        work = workloads.SMOKE_RESUMES if self.smoke else workloads.RESUMES
        found = stops.measure(work, 1 if self.smoke else min(self.rounds, RESUME_ROUNDS), alone=self.smoke)
        self.note(stops.versions, stops.missing, "resume")
        self.add(found)

    def photographs(self) -> None:
        work = workloads.SMOKE_CROPS_BESIDE if self.smoke else workloads.CROPS_BESIDE
        directory = self.directory / "photographs"
        directory.mkdir()
        pictures = workloads.Pictures(work.files, work.workers, work.seed)
        with write_pictures.made(directory, pictures, WINDOWS, self.smoke) as folder:
            if folder is not None:
                loader_folder.save_bounds(directory)
                self.hosted(directory, work, loader_folder.Files(directory).size, work.files)
        shutil.rmtree(directory)

    def hosted(self, directory: Path, work: Any, size: int, count: int) -> None:
        hosts = Hosts(directory, self.options.peers, lenient=True)
        found = hosts.measure(work, size, count, 1 if self.smoke else self.rounds)
        self.note(hosts.versions, hosts.missing, describe(work))
        self.add(found)

    def note(self, versions: dict[str, str], missing: dict[str, str], part: str) -> None:
        """Keep the versions, and why some are not measured, for the results of this part and the later ones."""
        self.report.context["versions"] |= versions
        self.report.context["not_measured"] |= {f"{name} ({part})": why[:200] for name, why in missing.items()}

    def show(self, found: Sequence[Measurement]) -> None:
        header, *lines = rows(found)
        print(describe(found[0].workload), table(header, lines), "", sep="\n", flush=True)


def decoders(python: Path) -> dict[str, str]:
    """Return the versions of the packages that the peers share; none if their environment is not there."""
    try:
        done = subprocess.run([str(python), "-c", VERSIONS, *DECODERS], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {f"{name} of the peers": version for name, version in json.loads(done.stdout).items()}


def options_of(parser: argparse.ArgumentParser) -> None:
    python = newest_environment.WHERE / "bin" / "python"
    about = "Python that has the packages of newest.txt; that of newest/ unless told"
    parser.add_argument("--peers", type=Path, default=python, help=about)
    add_data(parser, "directory for up to 1.5 GB of files")
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    if not options.peers.exists():
        raise SystemExit(f"{options.peers.name} of the peers is not there: use `python3 run.py bench newest`")
    coldness.check_disk(options.data, ROOM, options.smoke, "all files are cached anyway")
    versions = environment.versions(*PACKAGES) | decoders(options.peers)
    measure(Newest, "newest", options, versions, figures, not_measured={})


if __name__ == "__main__":
    main()
