"""Writing and reading by tasks of Ray, and by as many processes without it, as contestants."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.data
import ray_data
import workloads
from harness import Contestant, WrongAnswerError
from ray.data.block import BlockAccessor
from write_timing import settled

import ffrecord.ray

PROGRAM = Path(__file__).with_name("ray_local.py")
BLOCK = 64 << 20  # bytes of samples that a writing task makes
SECONDS = 1800


class Ways:
    """All ways to write and to read one dataset.

    Args:
        directory: directory for the samples, and for the results.
        work: workload.
    """

    def __init__(self, directory: Path, work: workloads.Blocks) -> None:
        self._directory, self._work = directory, work
        ray_data.make(directory, work)
        self.samples = ray_data.samples(str(directory), work)
        self._written = directory / "dataset"
        self._local("write", self._written)

    def writing(self) -> list[Contestant]:
        return [
            self._contestant("ffrecord.ray.write", self._write),
            self._contestant("DatasetWriter", lambda path: float(self._local("write", path))),
        ]

    def _contestant(self, name: str, write: Any) -> Contestant:
        path = self._directory / "out"

        def run() -> float:
            settled()
            seconds: float = write(path)
            shutil.rmtree(path)
            return seconds

        def check() -> None:
            write(path)
            self.samples.check_written(name, str(path))
            shutil.rmtree(path)

        return Contestant(name, run, check)

    def _write(self, path: Path) -> float:
        directory, work = str(self._directory), self._work
        blocks = max(work.workers, -(-self.samples.size // BLOCK))

        def made(batch: dict[str, Any]) -> Any:
            return ray_data.samples(directory, work).batch(batch["id"])

        start = time.perf_counter()
        ds = ray.data.range(len(self.samples), override_num_blocks=blocks).map_batches(made, batch_size=None)
        ffrecord.ray.write(ds, path, schema=self.samples.schema)
        return time.perf_counter() - start

    def _local(self, what: str, path: Path) -> str:
        work = json.dumps(dataclasses.asdict(self._work))
        command = [sys.executable, str(PROGRAM), what, str(self._directory), work, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise WrongAnswerError(f"without Ray: {done.stderr[-2000:]}")
        return done.stdout

    def reading(self) -> list[Contestant]:
        return [
            self._reader("ffrecord.ray.read", self._read),
            self._reader("ffrecord.ray.read, blocks kept", self._read_to_store),
            Contestant("FileReader", lambda: float(self._local("read", self._written)), self._check_local),
        ]

    def _reader(self, name: str, read: Callable[[Callable[[Any], int]], int]) -> Contestant:
        def run() -> float:
            start = time.perf_counter()
            total = read(_bytes_of)
            seconds = time.perf_counter() - start
            if total != self.samples.size:
                raise WrongAnswerError(f"{name}: {total} bytes, expected {self.samples.size}")
            return seconds

        return Contestant(name, run, lambda: self.samples.check_read(name, read(_digest_of)))

    def _check_local(self) -> None:
        self.samples.check_read("FileReader", int(self._local("digest", self._written)))

    def _read(self, what: Callable[[Any], int]) -> int:
        """Read the dataset; its samples are used where they are read."""

        def found(table: Any) -> dict[str, Any]:
            return {"found": [what(table)]}

        ds = ffrecord.ray.read(self._written).map_batches(found, batch_format="pyarrow", batch_size=None)
        return sum(row["found"] for row in ds.iter_rows())

    def _read_to_store(self, what: Callable[[Any], int]) -> int:
        """Read all blocks into Ray's object store; they leave it as they are used."""
        return sum(map(what, ffrecord.ray.read(self._written).iter_batches(batch_format="pyarrow", batch_size=None)))


def _bytes_of(table: Any) -> int:
    """Return the bytes of the values alone, because tables count further memory too."""
    import pyarrow.compute as compute

    first = table.column(0)
    if str(first.type).startswith("large_binary"):
        return int(compute.sum(compute.binary_length(first)).as_py()) + 8 * table.num_rows
    return int(BlockAccessor.for_block(table).to_numpy("image").nbytes) + 8 * table.num_rows


def _digest_of(table: Any) -> int:
    return ray_data.digest_of(BlockAccessor.for_block(table).to_numpy())
