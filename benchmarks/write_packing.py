"""Packing measured: each turn of each way in its own process, side by side."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, take_turns
from write_cifar import SHAPE, make
from write_figures import SCRIPT
from write_packers import PACKERS
from write_timing import FIO, MIB, fio_contestant, settled

SECONDS = 900  # time limit of a way
PROGRAM = Path(__file__).with_name("write_pack.py")
SLOW = ("litdata, sample by sample",)  # not run as a whole script: that would take a minute a round


class PackingFailedError(Exception):
    """The error that a package failed or did not end."""


def writers(given: Path | None) -> Path:
    """Return the Python of the environment with the other packages: the given one, or one beside this one, or this
    one.
    """
    beside = Path(sys.prefix, "writers", "bin", "python")
    return given or (beside if beside.exists() else Path(sys.executable))


@dataclass
class Packing:
    """All ways to pack one dataset.

    Attributes:
        directory: directory on a disk for the dataset and the results.
        peers: Python that has the packages of others.
        returned, used: for each way and round, the seconds until the package returned, and those of CPU until then.
        missing: reasons why some cannot be imported, and are not measured.
        versions: versions of the packages that can be imported.
    """

    work: workloads.Packs
    directory: Path
    peers: Path
    returned: dict[str, list[float]] = field(default_factory=dict)
    used: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def once(self, name: str, samples: int, *, whole: bool = False) -> dict[str, Any]:
        """Pack in a separate process, and delete the result.

        Args:
            whole: whether its time is from the start of that process.
        """
        python = sys.executable if name == "DatasetWriter" else str(self.peers)
        out = self.directory / "packed"
        out.mkdir()
        settled()
        command = [python, str(PROGRAM), name, str(self.directory), str(out), str(samples), str(self.work.workers)]
        try:
            command += [str(time.monotonic())] if whole else []
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
        """Return the ways whose package is installed; print the others, with the reason."""
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
                self.returned[name], self.used[name] = [], []
        return list(self.returned)

    def contestant(self, name: str) -> Contestant:
        def run() -> float:
            found = self.once(name, self.work.samples)
            self.returned[name].append(found["returned"])
            self.used[name].append(found["cpu"])
            return float(found["seconds"])

        return Contestant(name, run, lambda: None)

    def script(self, name: str) -> Contestant:
        def run() -> float:
            return float(self.once(name, self.work.samples, whole=True)["seconds"])

        return Contestant(f"{name}{SCRIPT}", run, lambda: None)

    @property
    def size(self) -> int:
        """Size of all samples, bytes."""
        return self.work.samples * (int(np.prod(SHAPE)) + 8)

    def measure(self, rounds: int, *, with_fio: bool) -> list[Measurement]:
        usable = self.usable()
        contestants = [self.contestant(name) for name in usable]
        contestants += [self.script(name) for name in usable if name not in SLOW]
        whole = max(1, self.size // MIB) * MIB
        contestants += [fio_contestant(whole, self.directory)] if with_fio else []
        seconds = take_turns(contestants, rounds)
        found = []
        for name in usable:
            about = {"role": "ours" if name == "DatasetWriter" else "peer", "package": PACKERS[name].package}
            more = {"returned_seconds": self.returned[name], "cpu_seconds": self.used[name]}
            found.append(self.measurement(name, seconds, about | more))
            if f"{name}{SCRIPT}" in seconds:
                found.append(self.measurement(f"{name}{SCRIPT}", seconds, about))
        if with_fio:
            found.append(Measurement(FIO, self.work, seconds[FIO], whole, whole // MIB, "hot", {"role": "limit"}))
        return found

    def measurement(self, name: str, seconds: dict[str, list[float]], details: dict[str, Any]) -> Measurement:
        return Measurement(name, self.work, seconds[name], self.size, self.work.samples, "hot", details)


def packing(work: workloads.Packs, directory: Path, peers: Path) -> Packing:
    made = directory / "dataset"
    made.mkdir()
    make(made, work)
    return Packing(work, made, peers)
