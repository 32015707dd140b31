"""The first batch after a resume, each in its own process: `python newest_resuming.py NAME DIRECTORY WORKLOAD STATE
MODE`.

MODE "save" runs half an epoch, saves the state in the file STATE, and prints {"version": of the package} or {"missing":
reason}. "resume" prints {"seconds": from nothing to the first batch, "right": whether it has the samples that came next
in the run before}. "rest" also tells, of the whole epoch in both processes together, how many samples came "twice" and
how many "never".
"""

import importlib
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import environment
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, take_turns
from loader_ways import Way
from newest_parts import RESUMED
from write_cifar import SHAPE, Cifar

SECONDS = 300  # time limit of a process
# What functions import when they are called.
IMPORTED = {
    "pylance": ["torchdata.stateful_dataloader"],
    "datasets": ["torchdata.stateful_dataloader"],
    "torchdata": ["torchdata.nodes"],
    "litdata": ["litdata"],
    "mosaicml-streaming": ["base.dataset", "base.dataloader"],
}


# In a separate process


def imported(way: Way) -> Any:
    """Import everything that the way needs, and return its function."""
    module, name = way.where.split(".")
    function = getattr(importlib.import_module(module), name)
    load = importlib.import_module("write_packers").mosaicml if "mosaic" in way.package else importlib.import_module
    for each in [*IMPORTED.get(way.package, [])]:
        load(each)
    importlib.import_module("torch.utils.data")
    return function


def labels_of(batch: Any) -> Any:
    return np.array(batch[1], np.int64)


def save(way: Way, directory: Path, work: workloads.Resumes, path: Path) -> dict[str, Any]:
    """Run half an epoch, and keep its labels, its state then, and the labels of the next batch."""
    try:
        function = imported(way)
    except ImportError as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    iterator, state_of = function(directory, work, state=None, **way.options)
    before = [labels_of(batch) for batch in islice(iterator, work.samples // work.batch // 2)]
    state = state_of()
    after = labels_of(next(iterator))
    path.write_bytes(pickle.dumps({"state": state, "before": np.concatenate(before), "after": after}))
    return {"version": environment.versions(way.package)[way.package]}


def resume(way: Way, directory: Path, work: workloads.Resumes, path: Path, *, rest: bool) -> dict[str, Any]:
    """Return the seconds to the first batch from the state on, and what is wrong with it."""
    saved, function = pickle.loads(path.read_bytes()), imported(way)
    start = time.perf_counter()
    iterator, _ = function(directory, work, state=saved["state"], **way.options)
    batch = next(iterator)
    seconds = time.perf_counter() - start
    check(batch, directory, work)
    first = labels_of(batch)
    found = {"seconds": seconds, "right": bool(np.array_equal(first, saved["after"]))}
    if rest:
        together = np.concatenate([saved["before"], first, *map(labels_of, iterator)])
        times = np.bincount(together, minlength=work.samples)
        found |= {"twice": int((times > 1).sum()), "never": int((times == 0).sum())}
    return found


def check(batch: Any, directory: Path, work: workloads.Resumes) -> None:
    """Compare the pixels of a batch with those of its labels."""
    data = Cifar(directory, work.samples)
    expected = data.images[np.argsort(data.labels)[labels_of(batch)]]
    if not np.array_equal(np.asarray(batch[0]).reshape(-1, *SHAPE), expected):
        raise WrongAnswerError("other pixels in the first batch")


# The parent


class ResumeFailedError(Exception):
    """The error that a process failed, or did not end."""


@dataclass
class Stop:
    """A run of one contestant that was stopped, to be resumed again and again.

    Attributes:
        answers: answers of the rounds.
        rest: numbers of samples of the whole epoch that came twice and never.
    """

    name: str
    way: Way
    python: str
    directory: Path
    work: workloads.Resumes
    answers: list[dict[str, Any]] = field(default_factory=list)
    rest: dict[str, int] = field(default_factory=dict)

    def ask(self, mode: str) -> dict[str, Any]:
        fields = {"kind": type(self.work).__name__, **asdict(self.work)}
        state = self.directory / f"{self.name}.state"
        command = [self.python, __file__, self.name, str(self.directory), json.dumps(fields), str(state), mode]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=self.directory)
        except subprocess.TimeoutExpired as error:
            raise ResumeFailedError(f"{self.name}: not done after {SECONDS} s") from error
        if done.returncode:
            kind = WrongAnswerError if "WrongAnswerError" in done.stderr else ResumeFailedError
            raise kind(f"{self.name}: {done.stderr[-3000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def run(self) -> float:
        self.answers.append(self.ask("resume"))
        return float(self.answers[-1]["seconds"])

    def measurement(self, seconds: list[float]) -> Measurement:
        right = [answer["right"] for answer in self.answers]
        details = {"role": self.way.role, "package": self.way.package, "right": right, **self.rest}
        size = self.work.batch * int(np.prod(SHAPE))
        return Measurement(self.name, self.work, seconds, size, self.work.batch, "hot", details)


@dataclass
class Stops:
    """All contestants.

    Attributes:
        missing: reasons why some are not measured.
        versions: versions of the packages of the others.
    """

    directory: Path
    peers: Path
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def measure(self, work: workloads.Resumes, rounds: int, *, alone: bool = False) -> list[Measurement]:
        """Stop each once, resume it once up to the end of the epoch, then in turns up to the first batch.

        Args:
            alone: leave out worker processes, which take seconds to begin.
        """
        ways = {name: way for name, way in RESUMED.items() if not (alone and name.endswith("2 workers"))}
        made = [Stop(name, way, self._python(way), self.directory, work) for name, way in ways.items()]
        stops = [stop for stop in made if self._begun(stop)]
        taken = take_turns([Contestant(stop.name, stop.run, lambda: None) for stop in stops], rounds)
        return [stop.measurement(taken[stop.name]) for stop in stops]

    def _begun(self, stop: Stop) -> bool:
        try:
            found = stop.ask("save")
            if not found.get("missing"):
                stop.rest = {name: value for name, value in stop.ask("rest").items() if name in ("twice", "never")}
        except ResumeFailedError as error:
            if not stop.way.foreign:
                raise
            found = {"missing": str(error).strip().splitlines()[-1]}
        if found.get("missing"):
            self.missing[stop.name] = found["missing"]
            print(f"{stop.name}: not measured, {stop.way.package}: {found['missing']}", flush=True)
            return False
        if stop.way.foreign:
            self.versions[stop.way.package] = found["version"]
        return True

    def _python(self, way: Way) -> str:
        return str(self.peers) if way.foreign else sys.executable


def main(arguments: Sequence[str]) -> None:
    name, directory, fields, path, mode = arguments
    way, work = RESUMED[name], workloads.from_fields(json.loads(fields))
    if mode == "save":
        found = save(way, Path(directory), work, Path(path))
    else:
        found = resume(way, Path(directory), work, Path(path), rest=mode == "rest")
    print(json.dumps(found), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
