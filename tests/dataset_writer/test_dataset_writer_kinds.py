"""Columns of mixed kinds: every value comes back with its kind, or an error names sample, column and both kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import SampleError

items = st.sampled_from([1, 0, 2.5, 1.0, True, False, "1", "a", None, b"1", 2**53 + 1, 2**70, [1], ["1"], [True]])
lists = st.lists(items, max_size=3)


def kinds(value: Any) -> Any:
    """The value with the type of each part. An array counts as the list of its numbers, whose dtype is documented."""
    if isinstance(value, list):
        return [kinds(each) for each in value]
    return (type(value).__name__, value)


def is_same(written: Any, read: Any) -> bool:
    """Tell whether a value came back unchanged, ints among floats as floats that are equal."""
    if isinstance(read, list) and isinstance(written, list):  # a list of numbers in it is an array
        return len(read) == len(written) and all(map(is_same, written, read))
    if not isinstance(read, np.ndarray):
        return kinds(written) == kinds(read)
    flat = [item for row in written for item in (row if isinstance(row, list) else [row])]
    numbers = {"b": (bool,), "i": (int,), "f": (int, float)}[read.dtype.kind]
    same: bool = read.ravel().tolist() == flat
    return same and all(type(item) in numbers for item in flat)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.one_of(items, lists), min_size=1, max_size=12), by_iterable=st.booleans())
def test_no_value_changes_its_kind(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], by_iterable: bool
) -> None:
    out = tmp_path_factory.mktemp("mixed") / "set"
    samples = [{"x": value} for value in values]
    writer = DatasetWriter(out, num_workers=0)
    try:
        if by_iterable:
            writer.from_iterable(iter(samples))
        else:
            writer.from_indexed_dataset(samples)
    except (TypeError, ValueError, SampleError) as error:
        assert "x" in str(error)
        return
    with FileReader(out) as reader:
        read = [sample["x"] for sample in reader.samples(range(len(samples)))]
    for value, back in zip(values, read, strict=True):
        same = is_same(value, back) or (type(value) is int and type(back) is float and value == back)
        assert same, (value, back)


@pytest.mark.parametrize(
    ("usual", "odd", "words"),
    [
        ([1, 2], ["a", "b"], "a list with str 'a', expected an int64 array"),
        ([1, 2], [True, 2], "a list with True, expected an int64 array"),
        ([1.5, 2], [1.5, None], "a list with None, expected a float64 array"),
        ([True, False], [1, 0], "a list with int 1, expected a bool array"),
        (["a", "b"], ["a", 2], "item 1: int 2, expected a str"),
        (1, True, "True, expected an int"),
        ("1", 1, "int 1, expected a str"),
    ],
)
def test_a_late_sample_of_another_kind_is_named(tmp_path: Path, usual: Any, odd: Any, words: str) -> None:
    """The first samples show the columns; a later one is not converted to them."""

    def samples() -> Iterator[dict[str, Any]]:
        for index in range(30):
            yield {"x": odd if index == 20 else usual}

    with pytest.raises(SampleError, match=f"sample 20: TypeError: x: {words}"):
        DatasetWriter(tmp_path / "set", num_workers=0).from_iterable(samples())
