"""What type checkers are told of samples. Never run: test_typing.py has mypy and pyright look at it."""

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import ffrecord
from ffrecord.fields import Schema
from ffrecord.reading.store import Store
from ffrecord.torch import Dataset

Bytes = npt.NDArray[np.uint8]


class Picture(TypedDict):
    """A sample."""

    image: npt.NDArray[np.uint8]
    label: int


def readers(picture: Picture) -> None:
    """Of one file format, of any, and bare ones."""
    reader: ffrecord.FileReader[Picture] = ffrecord.FileReader("pictures")
    assert_type(reader.sample(0), Picture)
    assert_type(reader.samples([0, 1]), list[Picture])
    assert_type(reader.sample(0)["label"], int)
    assert_type(reader[0], Bytes)
    assert_type(reader[[0, 1]], list[Bytes])
    assert_type(ffrecord.FileReader[Picture]("pictures").sample(0), Picture)
    store: Store[Picture] = ffrecord.open("pictures.zip")
    assert_type(store.samples(range(3)), list[Picture])
    store = reader  # a reader is a store of the same samples
    assert_type(ffrecord.FileReader("anything").sample(0), Any)
    with ffrecord.FileReader[Picture]("pictures") as opened:
        assert_type(opened, ffrecord.FileReader[Picture])
    reader.sample(0)["colour"]  # type: ignore[typeddict-item]
    other: Store[int] = reader  # type: ignore[assignment]
    print(store, other, picture)


def schemas(picture: Picture, record: Bytes) -> None:
    """From samples to records and back."""
    schema: Schema[Picture] = Schema.infer([picture])
    assert_type(schema.encode(picture), bytes)
    assert_type(schema.decode(record), Picture)
    assert_type(schema.decode_batch(record, [0, len(record)]), list[Picture])
    schema.encode(3)  # type: ignore[arg-type]


def datasets(reader: ffrecord.FileReader[Picture]) -> None:
    """Of torch: what a reader gives, or what a subclass says."""
    dataset = Dataset(reader)
    assert_type(dataset, Dataset[Picture])
    assert_type(dataset[0], Picture)
    assert_type(dataset[[0, 1]], list[Picture])
    assert_type(dataset[:2], Dataset[Picture])

    class Labels(Dataset[int]):
        def process(self, indices: list[int], data: list[Bytes]) -> list[int]:
            return [int(each[0]) for each in data]

    assert_type(Labels("pictures")[0], int)
