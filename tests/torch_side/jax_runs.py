"""A training run of JAX through Grain that writes what it has seen, as a program: python jax_runs.py DIRECTORY CASE.

A case is JSON: "source" (what gives Grain the samples: "store" or "Dataset"), "rank" and "ranks", "batch" (samples of
all ranks), "workers", "stop" (steps until a checkpoint, after which the run ends; null: 3 epochs), and "resume"
(whether to go on there). It writes `seen-r.json` in DIRECTORY for rank r: for each step the epoch and its samples. The
data are in DIRECTORY/data.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import jax
from absl import flags
from grain.experimental import ElasticIterator

import ffrecord
from ffrecord.torch import Dataset

EPOCHS = 3


class Source:
    """Samples for Grain, of anything that `ffrecord.open` opens."""

    def __init__(self, path: str) -> None:
        self.store = ffrecord.open(path)

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.store.sample(index)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        return self.store.samples(indices)

    _getitems = __getitems__  # so Grain 0.2 calls it


def loss(weight: jax.Array, i: jax.Array) -> jax.Array:
    return ((weight * i - i) ** 2).mean() / 1000


def run(directory: str, case: dict[str, Any]) -> None:
    """One run of the case."""
    data, place = os.path.join(directory, "data"), Path(directory, "checkpoint.json")
    source: Any = Source(data) if case["source"] == "store" else Dataset(data)
    order = grain.MapDataset.source(source).shuffle(seed=1).repeat(EPOCHS)
    share = grain.sharding.ShardOptions(case.get("rank", 0), case.get("ranks", 1))
    workers = None
    if case.get("workers"):
        workers = grain.multiprocessing.MultiprocessingOptions(num_workers=case["workers"])
    batches = iter(ElasticIterator(order, case["batch"], share, multiprocessing_options=workers))
    weight, done = jax.numpy.zeros(()), 0
    if case.get("resume"):
        saved = json.loads(place.read_text())
        weight, done = jax.numpy.float32(saved["weight"]), saved["done"]
        batches.set_state(saved["loader"])
    steps: list[Any] = []
    gradient = jax.jit(jax.grad(loss))
    for batch in batches:
        weight -= gradient(weight, batch["i"].astype("float32"))
        steps.append([(done + len(steps)) * case["batch"] // len(source), batch["i"].tolist()])
        if len(steps) == case.get("stop"):
            saved = {"weight": float(weight), "done": done + len(steps), "loader": batches.get_state()}
            place.write_text(json.dumps(saved))
            break
    batches.close()
    Path(directory, f"seen-{case.get('rank', 0)}.json").write_text(json.dumps({"steps": steps}))


if __name__ == "__main__":
    flags.FLAGS(sys.argv[:1])  # Grain's workers ask for them
    for text in sys.argv[2:]:
        run(sys.argv[1], json.loads(text))
