"""Small datasets of numbered samples, and what the command makes of them."""

import json

import numpy as np
from cli_runs import run

import ffrecord
from ffrecord import DatasetWriter


def written(path, start, stop):
    samples = [{"x": np.full(3, i, np.float32), "label": i} for i in range(start, stop)]
    DatasetWriter(path, samples_per_shard=7, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


def labels(path):
    with ffrecord.FileReader(path) as reader:
        return [sample["label"] for sample in reader.samples(range(reader.n))]


def done(*arguments, **more):
    ran = run(*arguments, "--json", **more)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)
