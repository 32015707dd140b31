"""More files than a process may have mappings, of every format that has many."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_files import in_memory, many_names
from mds_twin import write_mds

import ffrecord
from ffrecord.sources import TFRecordWriter

MANY = 80_000


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs."""
    with in_memory() as made:
        yield made


def tfrecords(directory: Path) -> str:
    with TFRecordWriter(directory / "a-0.tfrecord") as writer:
        writer.write(b"x")
    return "a-0.tfrecord"


def tars(directory: Path) -> str:
    ffrecord.export([{"a.txt": b"x"}], directory / "a-0.tar", "webdataset", progress=False)
    return "a-0.tar"


def mds(directory: Path) -> str:
    write_mds(directory, {"a": "bytes"}, [{"a": b"x"}])
    index = json.loads((directory / "index.json").read_bytes())
    (shard,) = index["shards"]
    os.rename(directory / shard["raw_data"]["basename"], directory / "a-0.mds")
    index["shards"] = [
        shard | {"raw_data": shard["raw_data"] | {"basename": f"a-{number:07}.mds"}} for number in range(MANY)
    ]
    (directory / "index.json").write_text(json.dumps(index))
    return "a-0.mds"


def images(directory: Path) -> str:
    (directory / "a-0.png").write_bytes(b"x")
    return "a-0.png"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("made", "options"),
    [
        (tfrecords, {"format": "tfrecord"}),
        (tfrecords, {"format": "tfrecord", "index_cache": True}),
        (tars, {"format": "webdataset"}),
        (tars, {"format": "tar", "index_cache": True}),
        (mds, {"format": "mds"}),
        (images, {"format": "image folder"}),
    ],
)
def test_very_many_files_of_other_formats(memory: Path, made: Callable[[Path], str], options: dict[str, Any]) -> None:
    names = many_names(memory, made(memory), MANY)
    for _ in range(2 if "index_cache" in options else 1):
        with ffrecord.open(memory, **options) as store:
            assert len(store) == len(names)
            assert len(Path("/proc/self/maps").read_text().splitlines()) < 20_000
            indices = np.random.default_rng(0).integers(0, len(store), 300)
            (found,) = {bytes(record) for record in store.read(indices)}  # all are the same file
            assert b"x" in found
