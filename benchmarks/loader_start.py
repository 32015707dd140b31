"""The first batch of a shuffled epoch over very many samples, in its own process.

`python loader_start.py FILE WORKLOAD STATE` prints one JSON object.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import coldness
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, take_turns
from read_memory import less, private

from ffrecord import FileWriter
from ffrecord.fields import IntField, Schema
from ffrecord.format.extension import Extension
from ffrecord.order import Random

SEED = 7
SIZE = 16  # bytes of a sample
PIECE = 1 << 22  # samples made at once
AFTER = 40  # batches before memory is measured: each worker has read some by then
LOADER, WORKERS = "Loader", "DataLoader"


@contextmanager
def made(directory: Path, samples: int) -> Iterator[Path]:
    """Write samples of two int64 columns: the number of the sample, and its complement."""
    path = directory / "many.ffr"
    schema = Schema.of({"index": IntField(), "check": IntField()})
    with FileWriter(path, samples, extension=Extension(schema.to_builtins())) as writer:
        for first in range(0, samples, PIECE):
            numbers = np.arange(first, min(first + PIECE, samples))
            data = np.stack([numbers, ~numbers], 1).view(np.uint8).reshape(-1)
            writer.write_packed(data, np.arange(len(numbers) + 1) * SIZE)
    coldness.warm(path)
    try:
        yield path
    finally:
        path.unlink()


# In a separate process


def loader(path: str, work: workloads.Starts, state: dict[str, Any] | None) -> Any:
    made = importlib.import_module("ffrecord.torch").Loader(path, work.batch, "random", seed=SEED)
    if state is not None:
        made.load_state_dict(state)
    return made


def through_torch(path: str, work: workloads.Starts, state: dict[str, Any] | None) -> Any:
    module, data = importlib.import_module("ffrecord.torch"), importlib.import_module("torch.utils.data")
    dataset = module.Dataset(path)
    sampler = module.BatchSampler(dataset, work.batch, seed=SEED)
    options = {"num_workers": work.processes, "collate_fn": module.collate, "multiprocessing_context": "fork"}
    return data.DataLoader(dataset, batch_sampler=sampler, **options)


def first_batch(path: str, work: workloads.Starts, state: dict[str, Any] | None) -> dict[str, Any]:
    """Return the seconds from nothing to the first batch, then the memory that this and some more batches took."""
    importlib.import_module("ffrecord.torch")
    before = private()
    start = time.perf_counter()
    made = (through_torch if work.processes else loader)(path, work, state)
    batches = iter(made)
    batch = next(batches)
    seconds = time.perf_counter() - start
    check(batch, work)
    for _last in islice(batches, AFTER):
        pass
    workers = [private(worker.pid) for worker in getattr(batches, "_workers", ())]
    return {"seconds": seconds, "memory": less(private(), before), "workers": workers, "state": state_of(made)}


def state_of(made: Any) -> Any:
    return made.state_dict() if hasattr(made, "state_dict") else None


def check(batch: Any, work: workloads.Starts) -> None:
    first = position(work)
    positions = np.arange(first, min(first + work.batch, work.samples))
    expected = Random().indices(positions, work.samples, SEED, 0)
    if not np.array_equal(batch["index"].numpy(), expected) or not np.array_equal(batch["check"].numpy(), ~expected):
        raise WrongAnswerError(f"the first batch from {first} on has other samples")


def position(work: workloads.Starts) -> int:
    return int(work.at * work.samples)


# The parent


def ask(path: Path, work: workloads.Starts, state: dict[str, Any] | None) -> dict[str, Any]:
    fields = {"kind": "Starts", **asdict(work)}
    command = [sys.executable, __file__, str(path), json.dumps(fields), json.dumps(state)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output))


def contestant(path: Path, work: workloads.Starts, state: dict[str, Any], found: list[dict[str, Any]]) -> Contestant:
    given = {**state, "position": position(work)} if work.at else None

    def run() -> float:
        found.append(ask(path, work, given))
        return float(found[-1]["seconds"])

    return Contestant(str(work), run, lambda: None)


def measure_starts(path: Path, samples: int, batch: int, rounds: int) -> list[Measurement]:
    """Measure from the start, the middle and near the end, in turns; then with worker processes."""
    plain = workloads.Starts(samples, batch)
    works = [replace(plain, at=at) for at in workloads.STARTS_AT]
    works.append(replace(plain, processes=workloads.START_PROCESSES))
    state = ask(path, plain, None)["state"]
    found: dict[str, list[dict[str, Any]]] = {str(work): [] for work in works}
    taken = take_turns([contestant(path, work, state, found[str(work)]) for work in works], rounds)
    return [measurement(path, work, taken[str(work)], found[str(work)]) for work in works]


def measurement(path: Path, work: workloads.Starts, seconds: list[float], found: list[dict[str, Any]]) -> Measurement:
    details: dict[str, Any] = {"role": "ours", "memory": [each["memory"] for each in found]}
    if work.processes:
        details["workers"] = [each["workers"] for each in found]
    name = WORKERS if work.processes else LOADER
    return Measurement(name, work, seconds, work.batch * SIZE, work.batch, "hot", details)


if __name__ == "__main__":
    path, work, state = sys.argv[1:]
    print(json.dumps(first_batch(path, workloads.from_fields(json.loads(work)), json.loads(state))))
