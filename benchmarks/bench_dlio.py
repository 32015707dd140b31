"""DLIO, the benchmark of MLPerf Storage: how busy an emulated accelerator is with `.ffr` files and with DLIO's own."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import coldness
import dlio_environment
import environment
import workloads
from dlio_figures import describe, figures, rows
from dlio_ways import Way, hosted
from harness import Measurement, add_data, add_parts, arguments, table, take_turns
from program import Program, measure

PARTS = ("unet3d", "resnet50")
ROOM = 10 << 30
PACKAGES = ("dlio_benchmark", "torch", "tensorflow_cpu", "mpi4py")
HANGS_FROM = 257  # batches of more samples: DLIO 2.0.0 compares integers by identity, and its npz reader never ends
VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


class Training(Program):
    """One run of the benchmark."""

    parts = PARTS

    def unet3d(self) -> None:
        for work in workloads.SMOKE_UNET3D if self.smoke else workloads.UNET3D:
            self._measure(work, ["npz", "ffr"])

    def resnet50(self) -> None:
        for work in workloads.SMOKE_RESNET50 if self.smoke else workloads.RESNET50:
            self._measure(work, ["tfrecord", *(["npz"] if work.batch < HANGS_FROM else []), "ffr"])

    def _measure(self, work: workloads.Emulated, kinds: Sequence[str]) -> None:
        directory = self.directory / "data"
        directory.mkdir()
        with hosted(self.options.dlio, work.framework) as host:
            ways = [Way(host, directory, work, kind) for kind in kinds]
            for way in ways:
                way.generate()
                way.check()
            taken = take_turns([way.contestant() for way in ways], 1 if self.smoke else self.rounds)
        shutil.rmtree(directory)
        self.add([measurement(way, taken[way.name]) for way in ways])

    def show(self, found: Sequence[Measurement]) -> None:
        header, *lines = rows(found)
        print(describe(found[0].workload), table(header, lines), "", sep="\n", flush=True)


def measurement(way: Way, seconds: list[float]) -> Measurement:
    role = "ours" if way.kind == "ffr" else "peer"
    details = {"role": role, "utilization": [epoch.utilization for epoch in way.epochs], "steps": way.steps}
    return Measurement(way.name, way.work, seconds, way.size, way.steps * way.work.batch, "cold", details)


def versions(python: Path) -> dict[str, str]:
    """Return the versions of DLIO and its frameworks, which another environment has."""
    done = subprocess.run([str(python), "-c", VERSIONS, *PACKAGES], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dlio_benchmark is not installed in {python.parents[1].name}/: use `python3 run.py bench dlio`")
    return dict(json.loads(done.stdout))


def options_of(parser: argparse.ArgumentParser) -> None:
    python = dlio_environment.WHERE / "bin" / "python"
    parser.add_argument("--dlio", type=Path, default=python, help="Python that has DLIO; that of dlio/ unless told")
    add_data(parser)
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing can be cold")
    found = environment.versions() | versions(options.dlio)
    measure(Training, "dlio", options, found, figures, read_ahead_kb=environment.read_ahead())


if __name__ == "__main__":
    main()
