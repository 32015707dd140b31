"""Datasets: what may stand in the brackets, and what comes out."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, random_split
from torch_builders import Ints, NewStyle, value_of, write_file

from ffrecord import FileWriter
from ffrecord.errors import SampleIndexError
from ffrecord.reader import FileReader
from ffrecord.torch import ConcatDataset, Dataset, Subset

MANY: list[tuple[Any, list[int]]] = [
    ([3, 0, 3], [3, 0, 3]),
    ((5, -1), [5, 22]),
    ([], []),
    ([np.int32(4), np.uint8(2), torch.tensor(1)], [4, 2, 1]),
    (range(2, 9, 3), [2, 5, 8]),
    (np.array([1, 1, -23]), [1, 1, 0]),
    (np.array([7], np.uint64), [7]),
    (np.array([], np.int64), []),
    (torch.tensor([2, -1]), [2, 22]),
    (torch.tensor([9], dtype=torch.int16), [9]),
]
ONE: list[tuple[Any, int]] = [(3, 3), (-1, 22), (np.int64(5), 5), (np.array(6), 6), (torch.tensor(-2), 21)]
WRONG: list[Any] = [
    True,
    False,
    np.True_,
    "3",
    b"3",
    3.0,
    np.float32(1),
    None,
    {1, 2},
    {1: 2},
    iter([1]),
    [1.0],
    ["1"],
    [None],
    [[1]],
    (slice(2),),
    np.array([1.0]),
    np.array([True]),
    [True, False],
    [False, False, True],
    [2, True],
    (np.bool_(False), 1),
    np.array([[1]]),
    np.array(1.0),
    torch.tensor([True]),
    torch.tensor([1.0]),
    torch.tensor(True),
    torch.tensor([[1]]),
    slice("a", "b"),
]


def ways(path: str) -> list[Dataset[int]]:
    """The same samples by each class that decides about indices itself."""
    whole = Ints(path)
    n = len(whole)
    halves = ConcatDataset([Subset(whole, range(10)), Subset(whole, np.arange(10, n))])
    return [whole, Subset(whole, torch.arange(n)), halves]


@pytest.fixture(scope="module", params=range(3), ids=["Dataset", "Subset", "ConcatDataset"])
def dataset(request: pytest.FixtureRequest, path: str) -> Dataset[int]:
    return ways(path)[request.param]


@pytest.mark.parametrize(("indices", "positions"), MANY, ids=str)
def test_many(dataset: Dataset[int], values: list[int], indices: Any, positions: list[int]):
    assert dataset[indices] == [values[position] for position in positions]


@pytest.mark.parametrize(("index", "position"), ONE, ids=str)
def test_one(dataset: Dataset[int], values: list[int], index: Any, position: int):
    assert dataset[index] == values[position]


@pytest.mark.parametrize("indices", WRONG)
def test_wrong_types(dataset: Dataset[int], indices: Any):
    several = r"indices is .*, expected (a list of |a flat collection of |)ints|slice indices must be"
    with pytest.raises(TypeError, match=rf"{several}|index is .*, expected an int, a slice or a list of ints"):
        dataset[indices]


@pytest.mark.parametrize("wrap", [lambda i: i, lambda i: [0, i], lambda i: np.array([i]), lambda i: range(i, i + 1)])
def test_out_of_range(dataset: Dataset[int], path: str, wrap: Any):
    n = len(dataset)
    for index in (n, n + 5):
        with pytest.raises(SampleIndexError, match=rf"index >= number of samples \({index} >= {n}\).*{path}") as caught:
            dataset[wrap(index)]
        assert isinstance(caught.value, RuntimeError)
    with pytest.raises(
        IndexError, match=rf"index {-n - 1}: absolute value of index should not exceed dataset length {n}: .*{path}"
    ) as caught:
        dataset[wrap(-n - 1)]
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, ValueError) == isinstance(dataset, ConcatDataset)


def test_nothing_is_read_before_all_indices_are_checked(path: str):
    whole = Ints(path)
    with pytest.raises(IndexError):
        whole[[0, 99]]
    assert whole.asked == []


def test_iteration_and_length(dataset: Dataset[int], values: list[int]):
    assert len(dataset) == len(values)
    assert list(dataset) == values
    assert values[3] in dataset


def test_getitems(dataset: Dataset[int], values: list[int]):
    assert dataset.__getitems__([2, -1, 2]) == [values[2], values[-1], values[2]]
    assert dataset.__getitems__(np.array([2, 1])) == [values[2], values[1]]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(dataset: Dataset[int], values: list[int], clone: Any):
    assert clone(dataset)[[0, -1]] == [values[0], values[-1]]


def test_repr(path: str):
    whole, subset, both = ways(path)
    assert repr(whole) == f"<Ints of 23 samples in 1 file: {path}>"
    assert repr(Subset(whole, [1])) == f"<Subset of 1 sample in 1 file: {path}>"
    assert repr(whole + both) == f"<ConcatDataset of 46 samples in 3 files: {path}, ..., {path}>"
    assert repr(NewStyle(path)) == f"<NewStyle of 23 samples in 1 file: {path}>"
    assert subset.ffreaders() == [whole.reader]


def test_close(path: str):
    with Ints(path) as whole:
        assert whole[0] == -30
        both = whole + NewStyle(path)
    with pytest.raises(RuntimeError, match="FileReader has been closed"):
        whole[0]
    assert both[[30]]
    both.close()
    both.close()
    with pytest.raises(ValueError, match="FileReader has been closed"):
        both[[30]]


# Styles


def test_old_style(path: str, values: list[int]):
    whole = Ints(path, True)
    assert whole.fnames == path
    assert isinstance(whole.reader, FileReader)
    assert (whole.reader.check_data, whole.reader.io) == (True, "auto")
    assert whole[(1, -1)] == [values[1], values[-1]]
    assert whole[3] == values[3]
    assert whole.asked == [[1, 22], [3]]
    assert Ints([path, path], False, io="pread").reader.io == "pread"
    assert len(Ints(fnames=[path, path], check_data=False)) == 46


def test_new_style_always_gets_the_list(path: str, values: list[int]):
    new = NewStyle(path)
    assert new[[0, -1]] == new.__getitems__([0, -1]) == [values[0], values[-1]]
    assert list(new) == values
    first, _ = random_split(new, [20, 3])
    assert first.__getitems__([1]) == [values[first.indices[1]]]
    assert (new + Ints(path))[[22, 23]] == [values[22], values[0]]
    assert Subset(new, [5, 4])[-1] == values[4]


def test_new_style_without_files():
    class Toy(Dataset[float]):
        def __init__(self) -> None:
            self.data = [0.5, 1.5]

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, indices: Any) -> Any:
            return [self.data[i] for i in indices]

    assert [batch.tolist() for batch in DataLoader(Toy(), 2)] == [[0.5, 1.5]]
    assert Toy().ffreaders() == []
    assert repr(Toy()) == "<Toy of 2 samples in 0 files: >"


def test_process_may_return_fewer(path: str, caplog: pytest.LogCaptureFixture):
    """The log says so once, as it may be a mistake."""

    class Positive(Ints):
        def process(self, indices: list[int], data: list[Any]) -> list[int]:
            return [value for value in super().process(indices, data) if value > 0]

    for _ in range(2):
        assert Positive(path)[[0, 6, 7]] == [12, 19]
    (said,) = caplog.messages
    assert said.startswith("process of Positive gave 2 samples for 3: its batches have other sizes then")
    with pytest.raises(ValueError, match=r"datasets\[1\] gave 2 samples for 3 indices"):
        (Ints(path) + Positive(path))[[0, 23, 29, 30]]


def test_own_getitem_may_return_fewer(path: str, caplog: pytest.LogCaptureFixture):
    """The same, also through torch's DataLoader and for datasets that contain it."""

    class Few(Dataset[int]):
        def __init__(self) -> None:
            pass

        def __len__(self) -> int:
            return 10

        def __getitem__(self, indices: Any) -> Any:
            return [index for index in indices if index < 3]

    few = Few()
    assert [len(batch) for batch in DataLoader(few, batch_size=5, sampler=range(5))] == [3]
    assert Subset(few, range(5))[[0, 4]] == [0]
    (said,) = caplog.messages
    assert said.startswith("__getitem__ of Few gave 3 samples for 5: its batches have other sizes then")


def test_process_not_overridden(path: str):
    with pytest.raises(NotImplementedError, match=r"Dataset does not override process.*no schema"):
        Dataset(path)[[0]]


def test_process_of_one_object(path: str):
    whole = Dataset(path)
    whole.process = lambda indices, data: [(i, value_of(record)) for i, record in zip(indices, data, strict=True)]
    assert whole[[-1, 0]] == [(22, 124), (0, -30)]


def test_samples_are_writable_and_independent(path: str):
    class Raw(Dataset[Any]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return data

    for dataset in (Raw(path), Raw(path) + Raw(path)):
        first, second = dataset[[2, 2]]
        assert (first.dtype, first.ndim) == (np.uint8, 1)
        first[:] = 0
        assert value_of(second) == value_of(dataset[2]) == -16


# torch's own tools


def test_torchs_own_loader_reads_a_batch_at_once(path: str, values: list[int]):
    whole = Ints(path)
    assert [batch.tolist() for batch in DataLoader(whole, 20)] == [values[:20], values[20:]]
    assert whole.asked == [list(range(20)), list(range(20, 23))]


def test_torchs_own_subsets_read_a_batch_at_once(path: str, values: list[int]):
    whole = Ints(path)
    part, _ = random_split(whole, [10, 13], generator=torch.Generator().manual_seed(0))
    assert part[1] == values[part.indices[1]]
    whole.asked.clear()
    (batch,) = DataLoader(part, 10)
    assert batch.tolist() == [values[i] for i in part.indices]
    assert whole.asked == [list(part.indices)]


def test_torchs_own_concatenation(path: str, values: list[int]):
    both = torch.utils.data.ConcatDataset([Ints(path), Ints(path)])
    assert [both[-1], both[23]] == [values[-1], values[0]]


# Subset and ConcatDataset

N = 6


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Ints]:
    """Files of 6, 0, 1 and 6 samples; sample i of file f is 100 f + i."""
    found = []
    for number, count in enumerate((N, 0, 1, N)):
        name = tmp_path_factory.mktemp("small") / "x.ffr"
        with FileWriter(name, count) as writer:
            for i in range(count):
                writer.write_one((100 * number + i).to_bytes(8, "little"))
        found.append(Ints(name))
    return found


@given(st.data())
def test_trees_of_datasets_are_lists(small: list[Ints], data: st.DataObject):
    """Any nesting of subsets and concatenations selects what the same operations on lists do."""
    dataset, model = data.draw(trees(small, depth=3))
    assert len(dataset) == len(model)
    n = len(model)
    indices = data.draw(st.lists(st.integers(-n, n - 1), max_size=8) if n else st.just([]))
    assert dataset[indices] == [model[i] for i in indices]


def trees(small: list[Ints], depth: int) -> st.SearchStrategy[tuple[Dataset[int], list[int]]]:
    leaves = st.sampled_from(range(4)).map(lambda f: (small[f], [100 * f + i for i in range(len(small[f]))]))
    if depth == 0:
        return leaves

    @st.composite
    def subset(draw: st.DrawFn) -> tuple[Dataset[int], list[int]]:
        dataset, model = draw(trees(small, depth - 1))
        n = len(model)
        indices = draw(st.lists(st.integers(-n, n - 1), max_size=8)) if n else []
        return Subset(dataset, draw(st.sampled_from([list, np.array]))(indices)), [model[i] for i in indices]

    @st.composite
    def concatenation(draw: st.DrawFn) -> tuple[Dataset[int], list[int]]:
        members = draw(st.lists(trees(small, depth - 1), min_size=1, max_size=3))
        return ConcatDataset([dataset for dataset, _ in members]), [value for _, model in members for value in model]

    return st.one_of(leaves, subset(), concatenation())


def test_concat_reads_each_member_once_and_keeps_repeats(small: list[Ints]):
    first, _, _, last = small
    for member in small:
        member.asked.clear()
    both = ConcatDataset(iter(small))
    assert both[[0, 12, 0, 5, -1, 6, 0]] == [0, 305, 0, 5, 305, 200, 0]
    assert [member.asked for member in small] == [[[0, 0, 5, 0]], [], [[0]], [[5, 5]]]
    assert both.cumulative_sizes == ConcatDataset.cumsum(["a" * 6, "", "b", [0] * 6]) == [6, 6, 7, 13]
    assert both.datasets == small
    assert both.ffreaders() == [member.reader for member in small]
    assert (first + last)[[-1, 0]] == [305, 0]
    assert ConcatDataset.cumsum([]) == []


def test_concat_refuses(small: list[Ints]):
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="datasets should not be an empty iterable"):
            ConcatDataset([])
    for error in (TypeError, AssertionError):
        with pytest.raises(error, match=r"datasets\[1\] is a list.*, expected an ffrecord.torch.Dataset"):
            ConcatDataset([small[0], [1, 2]])
    with pytest.raises(TypeError, match=r" is .*, expected"):
        small[0] + torch.utils.data.TensorDataset(torch.zeros(1))


def test_subset_holds_what_it_was_given(small: list[Ints]):
    indices = np.array([5, 5, -1])
    subset = Subset(small[0], indices)
    assert subset.indices is indices
    assert subset.dataset is small[0]
    assert subset[[0, 1, 2]] == [5, 5, 5]
    with pytest.raises(TypeError, match=r"index is float 1\.5, expected an int"):
        Subset(small[0], [1.5])[[0]]
    with pytest.raises(IndexError, match="index >= number of samples \\(6 >= 6\\)"):
        Subset(small[0], [6])[[0]]


def test_an_empty_dataset_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """torch refuses to shuffle it without a name of the file. It may be a validation set, so it is no error."""
    dataset = Ints(write_file(tmp_path / "none.ffr", []))
    assert caplog.messages == [f"Dataset: {tmp_path / 'none.ffr'} has 0 samples"]
    assert len(dataset) == 0 and list(torch.utils.data.DataLoader(dataset)) == []
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        torch.utils.data.DataLoader(dataset, shuffle=True)
    caplog.clear()
    assert len(Ints(write_file(tmp_path / "one.ffr", [1]))) == 1 and not caplog.messages
