"""Forms of columns by name: the same in every batch, for every source."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ffrecord import DatasetWriter
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.torch import Loader, Padded

COUNT = 12


def sample(i: int) -> dict[str, Any]:
    """Return a sample whose "ids" have one length in batches of two, and another in the next."""
    return {
        "ids": np.arange(1 + i // 2 % 3),
        "image": np.full((2, 3), i, np.float32),
        "list": [i] * (1 + i // 2 % 2),
        "one": i,
    }


SAMPLES = [sample(i) for i in range(COUNT)]


def in_columns() -> Any:
    return {"ids": np.arange(3 * COUNT).reshape(COUNT, 3), "image": torch.ones(COUNT, 2, 3), "one": list(range(COUNT))}


def check_padded(column: Any, expected: list[Any]) -> None:
    assert type(column) is Padded
    assert column.lengths.tolist() == [len(each) for each in expected]
    for row, length, each in zip(column.values, column.lengths.tolist(), expected, strict=True):
        assert row[:length].tolist() == np.asarray(each).tolist() and not row[length:].any()


@pytest.mark.parametrize("how", [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}], ids=str)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_named_columns_have_their_form_in_every_batch(size: int, how: Any) -> None:
    forms = {"ids": "padded", "list": "padded"}
    with Loader(SAMPLES, size, shuffle=False, ragged=forms, **how) as loader:
        for first, batch in zip(range(0, COUNT, size), loader, strict=True):
            expected = SAMPLES[first : first + size]
            check_padded(batch["ids"], [each["ids"] for each in expected])
            check_padded(batch["list"], [each["list"] for each in expected])
            assert batch["image"].tolist() == [each["image"].tolist() for each in expected]
            assert batch["one"].tolist() == [each["one"] for each in expected]


def test_a_list_in_every_batch() -> None:
    """Its tensors have memory of their own."""
    with Loader(SAMPLES, 2, shuffle=False, ragged={"ids": "list", "image": "list"}) as loader:
        for batch in loader:
            assert [type(batch[name]) for name in ("ids", "image")] == [list, list]
            for tensor in batch["image"]:
                assert tensor.untyped_storage().nbytes() == tensor.nbytes
                tensor.zero_()
    assert SAMPLES[3]["image"].tolist() == [[3.0] * 3] * 2


def test_lists_of_numbers_are_tensors() -> None:
    """Without a name, those of one length become columns, as with torch."""
    with Loader(SAMPLES, 2, shuffle=False, ragged={"list": "list"}) as loader:
        found = [each.tolist() for batch in loader for each in batch["list"]]
    assert found == [each["list"] for each in SAMPLES]


@pytest.mark.skipif(not hasattr(torch, "jagged"), reason="torch before 2.2 has no jagged layout")
def test_nested_in_every_batch() -> None:
    with Loader(SAMPLES, 2, shuffle=False, ragged={"ids": "nested"}) as loader:
        found = [each.tolist() for batch in loader for each in batch["ids"].unbind()]
    assert found == [each["ids"].tolist() for each in SAMPLES]


def test_columns_that_are_taken_whole() -> None:
    source = in_columns()
    with Loader(source, 5, shuffle=False, ragged={"ids": "padded", "image": "list"}) as loader:
        for first, batch in zip(range(0, COUNT, 5), loader, strict=True):
            check_padded(batch["ids"], list(source["ids"][first : first + 5]))
            assert type(batch["image"]) is list and batch["image"][0].shape == (2, 3)


def test_files(tmp_path: Path) -> None:
    """Also for a column of one shape; names of other columns are refused."""
    DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset(SAMPLES)
    with Loader(tmp_path / "set", 5, shuffle=False, ragged={"image": "padded", "ids": "padded"}) as loader:
        batch = next(iter(loader))
        assert batch["image"].lengths.tolist() == [[2, 3]] * 5
        check_padded(batch["ids"], [each["ids"] for each in SAMPLES[:5]])
    with pytest.raises(ArgumentError, match="ragged has 'idz', expected some of the columns ids, image, list, one"):
        Loader(tmp_path / "set", 5, ragged={"idz": "padded"})


def test_results_of_a_transform() -> None:
    def pair(each: Any) -> Any:
        return {"t": torch.ones(1 + each["one"] // 2 % 2), "in": {"x": np.ones(2)}}

    with Loader(SAMPLES, 2, shuffle=False, transform=pair, ragged={"t": "padded", "in.x": "padded"}) as loader:
        for batch in loader:
            assert type(batch["t"]) is Padded and type(batch["in"]["x"]) is Padded


@pytest.mark.parametrize(
    ("ragged", "error", "message"),
    [
        ({"ids": "full"}, ArgumentError, r"ragged\['ids'\] is 'full', expected one of list, nested, padded"),
        ({3: "padded"}, ArgumentTypeError, "ragged has 3, expected names of columns"),
        ("full", ArgumentError, "ragged is 'full', expected one of list, nested, padded"),
        (None, ArgumentError, "ragged is None, expected one of"),
    ],
)
def test_wrong_forms(ragged: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Loader(SAMPLES, 2, ragged=ragged)
