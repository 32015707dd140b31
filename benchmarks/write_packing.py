"""Packing measured: each turn of each way in a process of its own, side by side."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, take_turns
from write_cifar import SHAPE, make
from write_packers import PACKERS
from write_timing import settled

SECONDS = 900  # after which a way that has not ended is given up
PROGRAM = Path(__file__).with_name("write_pack.py")


class PackingFailedError(Exception):
    """A package ended with an error, or did not end."""


def writers(given: Path | None) -> Path:
    """The Python of the environment that has the other packages: as told, or beside this one's, or this one."""
    beside = Path(sys.prefix, "writers", "bin", "python")
    return given or (beside if beside.exists() else Path(sys.executable))


@dataclass
class Packing:
    """All ways to pack one dataset.

    Attributes:
        directory: for the dataset and for what is made of it, on a disk.
        peers: the Python that has the packages that are not ours.
        returned: for each way and round, the seconds until the package said that it is done.
        missing: why those are not measured that cannot be imported.
        versions: of those that can.
    """

    work: workloads.Packs
    directory: Path
    peers: Path
    returned: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def once(self, name: str, samples: int) -> dict[str, Any]:
        """In a process of its own; what it wrote is deleted."""
        python = sys.executable if name == "DatasetWriter" else str(self.peers)
        out = self.directory / "packed"
        out.mkdir()
        settled()
        command = [python, str(PROGRAM), name, str(self.directory), str(out), str(samples), str(self.work.workers)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=self.directory)
        except subprocess.TimeoutExpired as error:
            raise PackingFailedError(f"{name}: not done after {SECONDS} s") from error
        finally:
            shutil.rmtree(out, ignore_errors=True)
        if result.returncode:
            kind = WrongAnswerError if "WrongAnswerError" in result.stderr else PackingFailedError
            raise kind(f"{name}: {result.stderr[-2000:]}")
        return dict(json.loads(result.stdout.splitlines()[-1]))

    def usable(self) -> list[str]:
        """Those whose package is there; the others are printed, with the reason."""
        reasons: dict[str, str] = {}
        for name, packer in PACKERS.items():
            if packer.package not in reasons:
                found = self.once(name, min(self.work.samples, 1000))
                reasons[packer.package] = found.get("missing", "")
                self.versions[packer.package] = found.get("version", "not installed")
            if reasons[packer.package]:
                self.missing[name] = reasons[packer.package]
                print(f"{name}: not measured, {packer.package}: {self.missing[name]}", flush=True)
            else:
                self.returned[name] = []
        return list(self.returned)

    def contestant(self, name: str) -> Contestant:
        def run() -> float:
            found = self.once(name, self.work.samples)
            self.returned[name].append(found["returned"])
            return float(found["seconds"])

        return Contestant(name, run, lambda: None)

    def measure(self, rounds: int) -> list[Measurement]:
        seconds = take_turns([self.contestant(name) for name in self.usable()], rounds)
        size = self.work.samples * (int(np.prod(SHAPE)) + 8)
        found = []
        for name, taken in seconds.items():
            role = "ours" if name == "DatasetWriter" else "peer"
            details = {"role": role, "package": PACKERS[name].package, "returned_seconds": self.returned[name]}
            found.append(Measurement(name, self.work, taken, size, self.work.samples, "hot", details))
        return found


def packing(work: workloads.Packs, directory: Path, peers: Path) -> Packing:
    made = directory / "dataset"
    made.mkdir()
    make(made, work)
    return Packing(work, made, peers)
