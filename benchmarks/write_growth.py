"""The memory cost of packing more samples: the peak private memory of the parent, and of its workers.

`python write_growth.py OUT SAMPLES PER_SHARD WORKERS` packs them, in its own process, watched from outside.
"""

import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import workloads
from harness import Measurement, WrongAnswerError

from ffrecord import DatasetWriter, FileReader

ROUNDS = 3  # for memory, which varies less than time
PERIOD = 0.02  # seconds between two samples of the memory
SIZE = 8  # bytes of a sample
AT_ONCE = 100_000  # samples compared at a time


class Tiny:
    """Samples that take no memory: bytes of their index, made when requested."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> bytes:
        return int(index).to_bytes(SIZE, "little")


def pack(out: str, samples: int, per_shard: int, workers: int) -> None:
    writer = DatasetWriter(
        out, num_workers=workers, samples_per_shard=per_shard, serializer=bytes, start_method="fork", progress=False
    )
    writer.from_indexed_dataset(Tiny(samples))


def private(process: str) -> int:
    """Return the bytes that no other process has mapped; 0 if it has ended."""
    with suppress(OSError):
        lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
        kib = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
        return 1024 * sum(kib)
    return 0


def children(process: str) -> list[str]:
    with suppress(OSError):
        return Path("/proc", process, "task", process, "children").read_text().split()
    return []


def watched(command: list[str]) -> dict[str, float]:
    """Return {"parent": peak of its private memory, "worker": that of the largest child, "seconds": running time}."""
    start = time.perf_counter()
    peaks = {"parent": 0, "worker": 0}
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            peaks["parent"] = max(peaks["parent"], private(str(process.pid)))
            peaks["worker"] = max(peaks["worker"], *map(private, children(str(process.pid))), 0)
            time.sleep(PERIOD)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {**peaks, "seconds": time.perf_counter() - start}


def check(out: Path, samples: int) -> None:
    """Check that all samples are there, in order."""
    with FileReader(out) as reader:
        if reader.n != samples:
            raise WrongAnswerError(f"{reader.n} samples, expected {samples}")
        for first in range(0, samples, AT_ONCE):
            indices = np.arange(first, min(first + AT_ONCE, samples))
            if not np.array_equal(reader.read_packed(indices)[0].view("<i8"), indices):
                raise WrongAnswerError(f"a sample from {first} on has other bytes")


def measure_growth(directory: Path, work: workloads.Growth, rounds: int) -> Measurement:
    out = directory / "tiny"
    arguments = [str(out), str(work.samples), str(work.per_shard), str(work.workers)]
    found = []
    for _ in range(rounds):
        try:
            found.append(watched([sys.executable, __file__, *arguments]))
            check(out, work.samples)
        finally:
            shutil.rmtree(out, ignore_errors=True)
    details = {
        "role": "ours",
        "parent_peak": [int(each["parent"]) for each in found],
        "worker_peak": [int(each["worker"]) for each in found],
    }
    seconds = [each["seconds"] for each in found]
    return Measurement("DatasetWriter", work, seconds, SIZE * work.samples, work.samples, "hot", details)


if __name__ == "__main__":
    pack(sys.argv[1], *map(int, sys.argv[2:]))
