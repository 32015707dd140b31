"""Epochs of DLIO over files of several formats, as contestants."""

import json
import math
import os
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Timer

import coldness
import numpy as np
import workloads
from environment import ROOT
from harness import Contestant, WrongAnswerError

from ffrecord import FileReader

PROGRAM = Path(__file__).with_name("dlio_host.py")
SECONDS = 1800  # time limit of one run
SEED = 10  # of DLIO's generators
OVERHEAD = 100  # most bytes of a record beside the bytes of its sample: shape, label, names
READERS = {"ffr": "dlio_ffr.FfrReader"}
NAMES = {"npz": "DLIO's npz", "tfrecord": "DLIO's TFRecord", "ffr": "ffrecord"}


class DLIOFailedError(Exception):
    """The error that a run of DLIO failed."""


class Host:
    """A process that runs DLIO with one framework, imported once.

    Args:
        python: Python that has DLIO.
        framework: "pytorch" or "tensorflow".
    """

    def __init__(self, python: Path, framework: str) -> None:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, "PYTHONPATH": path, "HYDRA_FULL_ERROR": "1", "CUDA_VISIBLE_DEVICES": ""}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `close`
        self._process = subprocess.Popen(
            [str(python), str(PROGRAM), framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=variables,
        )

    def run(self, out: Path, overrides: list[str]) -> tuple[int, int]:
        """Run DLIO, with its output in `out`. Return the number of samples and bytes that its reader reported."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(out), *overrides]) + "\n")
        self._process.stdin.flush()
        timer = Timer(SECONDS, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._errors.seek(0)
            raise DLIOFailedError(self._errors.read()[-3000:])
        answer = json.loads(line)
        if answer["status"]:
            raise DLIOFailedError((out / "log.txt").read_text(errors="replace")[-3000:])
        return answer["samples"], answer["bytes"]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


@contextmanager
def hosted(python: Path, framework: str) -> Iterator[Host]:
    host = Host(python, framework)
    try:
        yield host
    finally:
        host.close()


@dataclass
class Epoch:
    """What DLIO said of one epoch.

    Attributes:
        seconds: of the whole epoch, its first batch included.
        utilization: DLIO's figure, percent: it leaves the first step out.
        steps: number of batches.
    """

    seconds: float
    utilization: float
    steps: int

    @classmethod
    def of(cls, out: Path, batch: int) -> "Epoch":
        metric = json.loads((out / "summary.json").read_text())["metric"]
        steps = len(json.loads((out / "0_output.json").read_text())["1"]["proc"]["block1"])
        (rate,) = metric["train_throughput_samples_per_second"]
        (utilization,) = metric["train_au_percentage"]
        return cls(steps * batch / rate, utilization, steps)


@dataclass
class Way:
    """One format of a workload.

    Args:
        directory: directory of the data.
        kind: the format, as DLIO names it: "npz", "tfrecord" or "ffr".

    Attributes:
        epochs: epochs that were timed.
    """

    host: Host
    directory: Path
    work: workloads.Emulated
    kind: str
    epochs: list[Epoch] = field(default_factory=list)

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    @property
    def steps(self) -> int:
        return self.work.files * self.work.samples // self.work.batch

    @cached_property
    def files(self) -> list[Path]:
        return sorted((self.directory / self.kind / "train").glob(f"*.{self.kind}"))

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of a sample in each file, as DLIO's generators draw them."""
        return sizes(self.work)

    @property
    def size(self) -> int:
        """Bytes of all samples that an epoch uses, if those of a file are equal."""
        return round(sum(self.sizes) * self.work.samples * self.steps * self.work.batch / self.work.total)

    def generate(self) -> None:
        """Let DLIO write the files, and compare them with what was asked for."""
        if self.kind == "tfrecord":  # for indices that are not there DLIO calls a program of DALI; nobody reads them
            index = self.directory / self.kind / "index" / "train"
            index.mkdir(parents=True)
            for name in names(self.work.files, self.kind):
                (index / f"{name}.idx").touch()
        self._run(False)
        if [path.name for path in self.files] != names(self.work.files, self.kind):
            raise WrongAnswerError(f"{self.name}: {len(self.files)} files, expected {self.work.files}")
        for path, size in zip(self.files, self.sizes, strict=True):
            records = list(RECORDS[self.kind](path))
            if len(records) != self.work.samples:
                raise WrongAnswerError(f"{path.name}: {len(records)} samples, expected {self.work.samples}")
            if not all(size <= found <= size + OVERHEAD for found in records):
                raise WrongAnswerError(f"{path.name}: samples of {min(records)} bytes, expected {size}")

    def check(self) -> None:
        """Run one epoch, which is not timed."""
        self._epoch()

    def run(self) -> float:
        """Return the seconds of an epoch from an empty page cache."""
        coldness.evict(self.files)
        epoch = self._epoch()
        self.epochs.append(epoch)
        return epoch.seconds

    def _epoch(self) -> Epoch:
        out, samples, size = self._run(True)
        epoch = Epoch.of(out, self.work.batch)
        if epoch.steps != self.steps:
            raise WrongAnswerError(f"{self.name}: {epoch.steps} batches, expected {self.steps}")
        if self.kind != "tfrecord":  # whose reader reports nothing
            check_counts(self.name, self.work, samples, size)
        return epoch

    def _run(self, train: bool) -> tuple[Path, int, int]:
        out = Path(tempfile.mkdtemp(dir=self.directory))
        return out, *self.host.run(out, overrides(self.work, self.kind, self.directory / self.kind, out, train))

    def contestant(self) -> Contestant:
        return Contestant(self.name, self.run, self.check)


def overrides(work: workloads.Emulated, kind: str, data: Path, out: Path, train: bool) -> list[str]:
    """Return what differs from DLIO's own definition of the workload."""
    given: dict[str, object] = {
        "workflow.generate_data": not train,
        "workflow.train": train,
        "workflow.checkpoint": False,
        "checkpoint.model_size": 0,
        "checkpoint.checkpoint_folder": out / "checkpoints",
        "dataset.data_folder": data,
        "dataset.format": kind,
        "dataset.num_files_train": work.files,
        "dataset.num_samples_per_file": work.samples,
        "dataset.record_length": work.mean,
        "dataset.record_length_stdev": work.deviation,
        "dataset.record_length_resize": work.resized,
        "reader.batch_size": work.batch,
        "reader.read_threads": work.threads,
        "train.epochs": 1,
        "train.computation_time": work.compute,
    }
    if kind in READERS:
        given["reader.reader_classname"] = READERS[kind]
    return [f"workload={work.definition}", *(f"++workload.{name}={value}" for name, value in given.items())]


def names(files: int, kind: str) -> list[str]:
    return [f"img_{i:0{len(str(files))}}_of_{files}.{kind}" for i in range(files)]


def sizes(work: workloads.Emulated) -> list[int]:
    """Return the bytes of a sample in each file, as DLIO's generators draw them: the product of two sides."""
    side = int(math.sqrt(work.mean))
    if not work.deviation:
        return [side * side] * work.files
    sides = np.random.RandomState(SEED).normal(side, work.deviation / 2 / math.sqrt(work.mean), 2 * work.files)
    whole = [max(int(each), 1) for each in sides]
    return [whole[2 * i] * whole[2 * i + 1] for i in range(work.files)]


def check_counts(name: str, work: workloads.Emulated, samples: int, size: int) -> None:
    """Compare what a reader reported with what was generated. It may be ahead of the last batch by some samples."""
    used = work.total // work.batch * work.batch
    if not used <= samples <= work.total:
        raise WrongAnswerError(f"{name}: {samples} samples read, expected {used} to {work.total}")
    whole = sum(sizes(work)) * work.samples
    if size != (whole if samples == work.total else samples * sizes(work)[0]):
        raise WrongAnswerError(f"{name}: {size} bytes read for {samples} samples, generated were {whole}")


def npz_records(path: Path) -> Iterator[int]:
    """Yield the bytes of each sample of a file, by its header."""
    with zipfile.ZipFile(path) as archive, archive.open("x.npy") as member:
        np.lib.format.read_magic(member)
        *shape, samples = np.lib.format.read_array_header_1_0(member)[0]
    yield from [math.prod(shape)] * samples


def tfrecord_records(path: Path) -> Iterator[int]:
    """Yield the bytes of each record of a TFRecord file, by its own lengths."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < end:
            (size,) = struct.unpack("<Q4x", file.read(12))
            yield size
            file.seek(size + 4, os.SEEK_CUR)


def ffr_records(path: Path) -> Iterator[int]:
    with FileReader(path) as reader:
        yield from reader.record_sizes(range(len(reader))).tolist()


RECORDS: dict[str, Callable[[Path], Iterator[int]]] = {
    "npz": npz_records,
    "tfrecord": tfrecord_records,
    "ffr": ffr_records,
}
