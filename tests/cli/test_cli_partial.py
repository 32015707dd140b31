"""What is left of a dataset of which shards are missing."""

import time
from argparse import Namespace

import numpy as np
import pytest

from ffrecord import DatasetWriter
from ffrecord.cli.partial import PartialDataset, PartialPiece, open_partial
from ffrecord.errors import FFRecordError


def rest_of(shards):
    """Of (samples, whether it is there)."""
    pieces, first, place = [], 0, 0
    for number, (samples, there) in enumerate(shards):
        pieces.append(
            PartialPiece(f"{number}", first, samples, place if there else None, "" if there else f"{number} is missing")
        )
        first, place = first + samples, place + (samples if there else 0)
    return PartialDataset(None, first, pieces)  # type: ignore[arg-type]  # which is not read


@pytest.mark.parametrize("seed", range(20))
def test_each_sample_has_its_place(seed):
    random = np.random.default_rng(seed)
    shards = [(int(random.integers(0, 4)), bool(random.integers(0, 2))) for _ in range(random.integers(1, 9))]
    rest, place, index = rest_of(shards), 0, 0
    for number, (samples, there) in enumerate(shards):
        for _ in range(samples):
            if there:
                assert (rest.place(index), rest.index(place)) == (place, index)
                place += 1
            else:
                with pytest.raises(FFRecordError, match=f"Sample {index} is missing: {number} is missing"):
                    rest.place(index)
            index += 1


def test_many_shards_do_not_make_it_slow():
    rest = rest_of([(10, number != 5000) for number in range(10_000)])
    began = time.process_time()
    for place in range(0, 99_990, 2):
        assert rest.place(rest.index(place)) == place
    assert time.process_time() - began < 5  # 0.1 s; 50 s by a look at each shard


def test_why_a_shard_is_not_there_is_said_once(tmp_path):
    DatasetWriter(tmp_path / "a", samples_per_shard=2, num_workers=0, progress=False).from_indexed_dataset([1, 2, 3, 4])
    shard = max((tmp_path / "a").glob("*.ffr"))
    shard.unlink()
    shard.symlink_to("nowhere")
    with open_partial(Namespace(source=str(tmp_path / "a"), format=None, io="auto")) as rest:
        assert rest.wrong == [f"{shard} does not exist"]
