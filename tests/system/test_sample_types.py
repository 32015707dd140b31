"""Types of samples are for type checkers: what is told of one is pickled without it."""

import pickle
from typing import Any

import builders
import pytest

from ffrecord import FileReader
from ffrecord.fields import Schema


@pytest.fixture
def path(tmp_path: Any) -> Any:
    return builders.write_samples(tmp_path / "a.ffr", [b"one", b"two"])


def again(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))


def test_stores_of_a_type_that_nobody_else_can_import(path: Any) -> None:
    class Local:
        pass

    with FileReader[Local](path) as reader, again(reader) as found:
        assert (type(found), found.n) == (FileReader, 2)
    schema = Schema.infer([{"x": 1}])
    assert again(Schema[Local](schema._tree)) == schema


def test_datasets_of_a_type_that_nobody_else_can_import(path: Any) -> None:
    pytest.importorskip("torch")
    from ffrecord.torch import ConcatDataset, Dataset, IterableDataset, Subset

    class Local:
        pass

    dataset = Dataset[Local](path)
    for made in (
        dataset,
        Subset[Local](dataset, [1]),
        ConcatDataset[Local]([dataset, dataset]),
        IterableDataset[Local](dataset, 1, rank=0, num_replicas=1),
    ):
        assert type(again(made)) is type(made)
