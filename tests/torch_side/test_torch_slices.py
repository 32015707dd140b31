"""Slices and subsets: datasets that hold no list of their samples."""

import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch_builders import Ints, NewStyle

from ffrecord.torch import ConcatDataset, Dataset, Subset

bounds = st.none() | st.integers(-30, 30)
slices = st.builds(slice, bounds, bounds, st.none() | st.integers(-5, 5).filter(bool))


@given(first=slices, second=slices, wrap=st.sampled_from([range, np.arange, torch.arange, lambda n: list(range(n))]))
def test_slices_of_slices_are_those_of_a_list(path: str, values: list[int], first: slice, second: slice, wrap: Any):
    for whole in (Ints(path), Subset(Ints(path), wrap(23)), Ints(path)[:10] + Ints(path)[10:]):
        once = whole[first]
        assert isinstance(once, Dataset)
        assert (len(once), list(once)) == (len(values[first]), values[first])
        twice = once[second]
        assert list(twice) == values[first][second]
        assert [twice[-1], twice[[0]]] == [values[first][second][-1], values[first][second][:1]] if len(twice) else True


def test_a_slice_reads_nothing_and_holds_no_list(path: str):
    whole = Ints(path)
    part = whole[20:2:-3]
    assert isinstance(part, Subset)
    assert (part.indices, whole.asked) == (range(20, 2, -3), [])
    assert part[1:3].indices == range(17, 11, -3)
    assert part[1:3].dataset is whole


def test_subset_by_indices(path: str, values: list[int]):
    whole = Ints(path)
    picked = whole.subset([3, -1, 3])
    assert list(picked) == [values[3], values[-1], values[3]]
    assert list(picked.subset([-1, 1])) == [values[3], values[-1]]
    assert picked.subset([0]).dataset is picked
    with pytest.raises(IndexError, match=r"index >= number of samples \(3 >= 3\)"):
        picked.subset(range(4))[[3]]


def test_a_subclass_of_subset_is_not_cut_open(path: str, values: list[int]):
    class Doubled(Subset[int]):
        def __getitem__(self, indices: Any) -> Any:
            found = super().__getitem__(indices)
            return [2 * each for each in found] if isinstance(indices, list) else found

    part = Doubled(Ints(path), range(5, 10))[1:3]
    assert part[[0, 1]] == [2 * values[6], 2 * values[7]]


def test_slices_of_new_style_datasets(path: str, values: list[int]):
    part = NewStyle(path).subset(range(4, 8))
    assert part[[0, -1]] == [values[4], values[7]]
    assert list(part[1:]) == values[5:8]
    assert [batch.tolist() for batch in DataLoader(part, 3)] == [values[4:7], values[7:8]]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_arrays_are_kept_as_they_are(path: str, dtype: Any):
    indices = np.array([5, 6, 7], dtype)
    subset = Subset(Ints(path), indices)
    assert subset.indices is indices
    assert np.shares_memory(subset[1:].indices, indices)


@pytest.mark.parametrize(("cut", "step"), [(slice(None), 1), (slice(10, 15), 1), (slice(15, 10, -2), 2)])
def test_mapped_indices_stay_mapped(path: str, values: list[int], tmp_path: Path, cut: slice, step: int):
    name = tmp_path / "indices"
    np.arange(100, 123).tofile(name)
    mapped = np.memmap(name, np.int64, "r", 24)  # without the first three
    subset = Subset(Ints(path) + Ints(path) + Ints(path) + Ints(path) + Ints(path) + Ints(path), mapped)[cut]
    again = pickle.loads(pickle.dumps(subset))
    expected = [values[index % 23] for index in range(103, 123)][cut]
    assert list(subset) == list(again) == expected
    if step == 1:  # what is not in one piece has no place to be mapped from
        assert isinstance(again.indices, np.memmap)
        assert again.indices.filename == str(name)


def test_mapped_indices_are_pickled_by_name(path: str, tmp_path: Path):
    np.zeros(100_000, np.int64).tofile(tmp_path / "indices")
    mapped = np.memmap(tmp_path / "indices", np.int64, "r")
    assert len(pickle.dumps(Subset(Ints(path), mapped)[5:])) < 2_000


def test_a_subset_of_many_has_no_object_for_each(path: str):
    gc.collect()
    before = len(gc.get_objects())
    subset = Subset(Ints(path), np.zeros(1_000_000, np.int64))
    pieces = [subset, subset[::2], Ints(path)[:], ConcatDataset([subset])]
    assert pieces[0][[999_999]] == [-30]
    assert len(gc.get_objects()) - before < 1_000
    assert len(pickle.dumps(Ints(path)[:20])) < 2_000


@pytest.mark.parametrize("wrong", [[1.5], ["1"], [[1]], None, 3, "12"])
def test_subset_refuses(path: str, wrong: Any):
    with pytest.raises(TypeError):
        Subset(Ints(path), wrong)
