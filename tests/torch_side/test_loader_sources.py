"""Forty ways in: whatever a `Loader` takes, with the answers of torch's DataLoader over the same source."""

import json
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import data as torch_data
from torch_builders import WORKERS_ANYWHERE

import ffrecord
from ffrecord import ChecksumError, FileReader
from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    SampleIndexError,
    UserFunctionError,
)
from ffrecord.sources import TFRecordWriter, encode_example
from ffrecord.torch import ConcatDataset, Dataset, IterableDataset, Loader, Subset, track
from ffrecord.torch.images import CenterCrop

pytestmark = WORKERS_ANYWHERE
COUNT = 24
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]
in_every_way = pytest.mark.parametrize("how", MAKERS, ids=str)


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "point": np.float32([i, -i, 0.5]), "name": f"sample {i}"}


def row(i: int) -> dict[str, Any]:
    """A sample of fixed size."""
    return {"id": i, "share": i / 4, "even": i % 2 == 0}


class Mapped(torch_data.Dataset):
    """A dataset as anybody writes it."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {**sample(index), "nested": {"pair": (index, float(index)), "list": [index, index + 1]}}


class Batched(Mapped):
    """It has samples in batches only."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [row(index) for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("one by one")


class Processed(Dataset[Any]):
    """Samples made of bytes."""

    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        return [{"id": index, "bytes": len(each)} for index, each in zip(indices, data, strict=True)]


class Indexed(Dataset[Any]):
    """A subclass of the kind that takes lists itself."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, indices: Any) -> Any:
        return [row(index) for index in indices]

    def ffreaders(self) -> list[Any]:
        return []


def doubled(each: Any) -> Any:
    return {"id": each["id"] * 2, "name": each["name"]}


def noted(each: Any, seed: int) -> Any:
    return {"id": each["id"], "seed": seed >> 1}


class Way(NamedTuple):
    """A source for `Loader`, and the same for torch; `python` if its samples are made by Python."""

    source: Any
    dataset: Any
    python: bool


def hugging(count: int = COUNT) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list([row(i) for i in range(count)])


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame([row(i) for i in range(COUNT)])


def arrow() -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist([row(i) for i in range(COUNT)])


def both(source: Any, *, python: bool = False) -> Way:
    return Way(source, source, python)


def rows(source: Any) -> Way:
    return Way(source, [row(i) for i in range(COUNT)], True)


def split(source: Any, number: int) -> Any:
    return torch_data.random_split(source, [15, COUNT - 15], torch.Generator().manual_seed(1))[number]


WAYS = {
    "directory": lambda at: Way(f"{at}/all", Dataset(f"{at}/all"), False),
    "Path": lambda at: Way(Path(at, "all"), Dataset(f"{at}/all"), False),
    "file": lambda at: Way(f"{at}/one.ffr", Dataset(f"{at}/one.ffr"), False),
    "files": lambda at: Way([f"{at}/one.ffr", f"{at}/two.ffr"], Dataset([f"{at}/one.ffr", f"{at}/two.ffr"]), False),
    "pattern": lambda at: Way(f"{at}/t*.ffr", Dataset(f"{at}/two.ffr"), False),
    "TFRecord": lambda at: Way(f"{at}/a.tfrecord", Dataset(ffrecord.open(f"{at}/a.tfrecord")), False),
    "zip": lambda at: Way(f"{at}/a.zip", Dataset(ffrecord.open(f"{at}/a.zip")), False),
    "packed folder": lambda at: Way(f"{at}/packed.ffr", Dataset(ffrecord.open(f"{at}/packed.ffr")), False),
    "PackedFolder": lambda at: Way(
        ffrecord.PackedFolder(f"{at}/packed.ffr"), Dataset(ffrecord.open(f"{at}/packed.ffr")), False
    ),
    "image folder": lambda at: Way(f"{at}/pictures", Dataset(ffrecord.open(f"{at}/pictures")), False),
    "reader": lambda at: Way(reader := FileReader(f"{at}/all"), Dataset(reader), False),
    "store": lambda at: Way(store := ffrecord.open(f"{at}/a.tfrecord"), Dataset(store), False),
    "slice of a reader": lambda at: Way(FileReader(f"{at}/all")[3:9], Dataset(f"{at}/all")[3:9], False),
    "Dataset": lambda at: both(Dataset(f"{at}/all")),
    "Dataset of a store": lambda at: both(Dataset(ffrecord.open(f"{at}/a.tfrecord"))),
    "Dataset with process": lambda at: both(Processed(f"{at}/all"), python=True),
    "Dataset with __getitem__": lambda at: both(Indexed(), python=True),
    "Dataset with transform": lambda at: both(Dataset(f"{at}/all", transform=doubled), python=True),
    "random_split with transform": lambda at: both(split(Dataset(f"{at}/all", transform=doubled), 0), python=True),
    "slice": lambda at: both(Dataset(f"{at}/all")[20:2:-3]),
    "Subset": lambda at: both(Subset(Dataset(f"{at}/all"), [5, 3, -1, 3])),
    "Subset of a Subset": lambda at: both(Subset(Subset(Dataset(f"{at}/all"), range(4, 20)), np.array([0, 7, 15]))),
    "Subset with process": lambda at: both(Subset(Processed(f"{at}/all"), [5, 3, -1]), python=True),
    "ConcatDataset": lambda at: both(ConcatDataset([Dataset(f"{at}/one.ffr"), Dataset(f"{at}/two.ffr")])),
    "sum": lambda at: both(Dataset(f"{at}/one.ffr") + Dataset(f"{at}/two.ffr")[::-1]),
    "sum of other columns": lambda at: both(
        ConcatDataset([Dataset(f"{at}/one.ffr"), Processed(f"{at}/two.ffr")])[:7], python=True
    ),
    "twice the same": lambda at: both(ConcatDataset([dataset := Dataset(f"{at}/one.ffr"), dataset])),
    "torch's Subset": lambda at: both(torch_data.Subset(Dataset(f"{at}/all"), [5, 3, 3, 1])),
    "random_split": lambda at: both(split(Dataset(f"{at}/all"), 0)),
    "random_split of a Subset": lambda at: both(split(Dataset(f"{at}/all")[::-1], 1)),
    "torch's ConcatDataset": lambda at: both(
        torch_data.ConcatDataset([Dataset(f"{at}/one.ffr"), torch_data.Subset(Dataset(f"{at}/two.ffr"), [4, 2])])
    ),
    "nested": lambda at: both(
        torch_data.Subset(
            torch_data.ConcatDataset([Dataset(f"{at}/one.ffr")[3:], Dataset(f"{at}/two.ffr")]), [0, 20, 7, 5]
        )
    ),
    "list of readers": lambda at: Way(
        [FileReader(f"{at}/one.ffr"), FileReader(f"{at}/two.ffr")], Dataset([f"{at}/one.ffr", f"{at}/two.ffr"]), False
    ),
    "list of dicts": lambda at: both([sample(i) for i in range(COUNT)], python=True),
    "tuple of tuples": lambda at: both(tuple((i, float(i)) for i in range(COUNT)), python=True),
    "list of numbers": lambda at: both(list(range(COUNT)), python=True),
    "array": lambda at: both(np.arange(3 * COUNT).reshape(COUNT, 3), python=True),
    "TensorDataset": lambda at: both(
        torch_data.TensorDataset(torch.arange(COUNT), torch.arange(COUNT * 2).view(COUNT, 2)), python=True
    ),
    "map-style": lambda at: both(Mapped(), python=True),
    "map-style in batches": lambda at: both(Batched(), python=True),
    "dict of samples": lambda at: both({i: row(i) for i in range(COUNT)}, python=True),
    "Subset of a list": lambda at: both(torch_data.Subset([row(i) for i in range(COUNT)], [3, 1]), python=True),
    "random_split of map-style": lambda at: both(split(Mapped(), 0), python=True),
    "ConcatDataset of map-style": lambda at: both(torch_data.ConcatDataset([Mapped(5), Mapped(7)]), python=True),
    "Hugging Face": lambda at: both(hugging(), python=True),
    "Hugging Face as torch": lambda at: both(hugging().with_format("torch"), python=True),
    "Hugging Face, selected": lambda at: both(hugging().select([4, 2, 9]), python=True),
    "DataFrame": lambda at: rows(frame()),
    "Arrow table": lambda at: rows(arrow()),
    "dict of columns": lambda at: rows({name: np.array([row(i)[name] for i in range(COUNT)]) for name in row(0)}),
}


@pytest.fixture(scope="module")
def at(tmp_path_factory) -> str:
    """A directory with the files of all ways."""
    import zipfile

    folder = tmp_path_factory.mktemp("sources")
    write = {"num_workers": 0}
    ffrecord.DatasetWriter(folder / "all", **write).from_indexed_dataset([sample(i) for i in range(COUNT)])
    for name, start in (("one", 0), ("two", 100)):
        samples = [row(i) for i in range(start, start + 12)]
        ffrecord.DatasetWriter(folder / name, **write).from_indexed_dataset(samples)
        next((folder / name).glob("*.ffr")).rename(folder / f"{name}.ffr")
    with TFRecordWriter(folder / "a.tfrecord") as writer:
        for i in range(COUNT):
            writer.write(encode_example({"id": i}))
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i in range(COUNT):
            archive.writestr(f"{i:03}.txt", bytes(range(i)))
    for i in range(COUNT):
        path = folder / "pictures" / "ab"[i % 2] / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(i))
    ffrecord.pack_folder(folder / "pictures", folder / "packed.ffr")
    return str(folder)


def columns(samples: list[Any]) -> Any:
    """A batch of samples as torch makes it; a list where it cannot."""
    first = samples[0]
    if isinstance(first, dict):
        return {name: columns([each[name] for each in samples]) for name in first}
    if isinstance(first, (tuple, list)):
        return [columns(list(column)) for column in zip(*samples, strict=True)]
    try:
        return torch_data.default_collate(samples)
    except (TypeError, RuntimeError):
        return samples


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        if isinstance(ours, list):  # of arrays that may vary, by the format
            ours = torch.stack(ours)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for name in theirs:
            assert_same(ours[name], theirs[name])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert np.array_equal(ours, theirs)
    else:
        assert ours == theirs


def key(batch: Any, i: int) -> str:
    """A text for sample i of a batch."""
    if isinstance(batch, dict):
        return str({name: key(column, i) for name, column in batch.items()})
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], (torch.Tensor, list)):
        ragged = isinstance(batch[0], torch.Tensor) and batch[0].dim() and batch[0].dtype == torch.uint8
        return str(batch[i].tolist()) if ragged else str([key(column, i) for column in batch])
    return str(batch[i].tolist() if isinstance(batch, (torch.Tensor, np.ndarray)) else batch[i])


def keys(loader: Any) -> list[str]:
    """A text for each sample of an epoch."""
    found = []
    for batch in loader:
        count = len(loader.batch_indices)
        found += [key(batch, i) for i in range(count)]
    return found


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in(at, name):
    """In sequence, the batches are torch's; in random order, the samples are."""
    way = WAYS[name](at)
    expected = list(torch_data.DataLoader(way.dataset, 5, collate_fn=columns))
    loader = Loader(way.source, 5, "sequential", num_threads=1)
    found = list(loader)
    assert len(loader) == len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)
    assert ("made by Python" in loader.stats().source) == way.python
    assert sorted(keys(Loader(way.source, 3, seed=2))) == sorted(keys(loader))


def test_there_are_forty_ways():
    assert len(WAYS) >= 40


STATES = ["Dataset", "random_split", "torch's ConcatDataset", "Dataset with process", "list of dicts", "map-style"]


@pytest.mark.parametrize("name", [*STATES, "map-style in batches", "Hugging Face", "DataFrame", "image folder"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_states(at, name, ranks):
    """An epoch goes on where it stopped, on any ranks; all samples come once."""
    way = WAYS[name](at)

    def make(rank: int, size: int, **more: Any) -> Loader:
        return Loader(way.source, 2, seed=5, rank=rank, world_size=size, policy="uneven", num_threads=1, **more)

    whole = keys(make(0, 1))
    before, states = [], []
    for rank in range(ranks):
        loader = make(rank, ranks)
        iterator = iter(loader)
        batch = next(iterator)
        before.append([key(batch, i) for i in range(2)])
        states.append(json.loads(json.dumps(loader.state_dict())))
        iterator.close()
    assert all(state == states[0] for state in states)
    assert [before[i % ranks][i // ranks] for i in range(2 * ranks)] == whole[: 2 * ranks]
    after = make(0, 1)
    after.load_state_dict(states[0])
    assert keys(after) == whole[2 * ranks :]
    halves = [make(rank, 2) for rank in range(2)]
    for half in halves:
        half.load_state_dict(states[0])
    parts = [keys(half) for half in halves]
    assert [parts[i % 2][i // 2] for i in range(len(whole) - 2 * ranks)] == whole[2 * ranks :]


@in_every_way
def test_every_way_to_work_gives_the_same(how):
    def doubled(each: Any, seed: int) -> Any:
        return {"id": each["id"], "seed": seed >> 1, "tokens": torch.arange(each["id"] % 3)}

    def run(**more: Any) -> list[Any]:
        made = Loader(Mapped(), 4, seed=1, transform=doubled, ragged="padded", fields=["id"], **more)
        return [(batch["id"].tolist(), batch["seed"].tolist(), batch["tokens"].values.tolist()) for batch in made]

    assert run(**how) == run(num_threads=1)


def test_indices_of_a_subset_are_those_of_its_store(at):
    """So the states of both fit each other."""
    dataset = Dataset(f"{at}/all")
    subset = Loader(torch_data.Subset(dataset, [9, 8, -1, 4]), 2, seed=1)
    store = Loader(dataset.reader, 2, seed=1, indices=[9, 8, COUNT - 1, 4])
    assert subset.reader is dataset.reader
    assert keys(subset) == keys(store)
    store.load_state_dict(subset.state_dict())
    assert keys(Loader(dataset[::-1], 2, "sequential", indices=[0, -1])) == [
        keys(Loader(dataset, 2, "sequential", indices=[COUNT - 1, 0]))[i] for i in range(2)
    ]


def test_loader_closes_only_what_it_opened(at):
    dataset = Dataset(f"{at}/all")
    with Loader(dataset[2:5], 2) as loader:
        list(loader)
    assert not dataset.reader.closed
    joined = Loader(ConcatDataset([Dataset(f"{at}/one.ffr"), Dataset(f"{at}/two.ffr")]), 2)
    joined.close()
    assert joined.reader.closed


def test_what_is_read_how_is_said_once(at, caplog):
    with caplog.at_level("INFO", "ffrecord"):
        loader = Loader(Mapped(), 4, num_threads=2)
        list(loader)
    assert [each.message for each in caplog.records] == [f"Loader: {loader.stats().source}"]
    assert loader.stats().source == f"{COUNT} samples of Mapped, made by Python one by one; Python work in 2 threads"
    assert loader.stats().fetch > 0 and "the dataset's Python code" in str(loader.stats())
    fast = Loader(Dataset(f"{at}/one.ffr")[:5], 4)
    assert fast.stats().source == "5 samples of 12 records of ffrecord, read by the engine; no Python for each sample"


@in_every_way
def test_seeds_of_a_dataset_are_those_of_the_loader(at, how):
    """So a dataset with `transform` gives what a loader with it gives: in every epoch, on any ranks, as a subset."""
    dataset = Dataset(f"{at}/all", transform=noted)

    def run(source: Any, **more: Any) -> list[Any]:
        made = Loader(source, 4, seed=6, epoch=3, **how, **more)
        return [(batch["id"].tolist(), batch["seed"].tolist()) for batch in made]

    plain = Dataset(f"{at}/all")
    assert run(dataset) == run(plain, transform=noted)
    assert run(dataset[2:9]) == run(plain[2:9], transform=noted)
    chosen = torch_data.Subset(torch_data.Subset(dataset, [9, 8, -1, 4]), [3, 2, 0])
    assert run(chosen) == run(torch_data.Subset(plain, [4, COUNT - 1, 9]), transform=noted)
    ranks = {"rank": 1, "world_size": 2}
    assert run(dataset, **ranks) == run(plain, transform=noted, **ranks)


def test_progress_of_samplers():
    """`track` asks for the batches that are left."""
    for given in ({"batch_size": 4, "sampler": range(22)}, {"batch_sampler": [[1, 2], [3], [4, 5, 6]]}):
        loader = Loader(Mapped(), **given)
        iterator = iter(loader)
        next(iterator)
        assert loader._cursor.whole - len(loader._cursor) == 1
        state = loader.state_dict()
        resumed = Loader(Mapped(), **given)
        resumed.load_state_dict(state)
        assert len(list(track(resumed, disable=True))) == len(loader) - 1
        next(iter(loader := Loader(Mapped(), **given)))
        loader.load_state_dict(state)
        next(iter(loader))
        assert loader._cursor.whole - len(loader._cursor) == 2


@pytest.mark.long
@in_every_way
def test_source_goes_to_spawned_workers(how):
    if "num_workers" not in how:
        pytest.skip("no workers")
    assert len(list(Loader(Batched(), 4, multiprocessing_context="spawn", **how))) == COUNT // 4


def test_store_of_samples_pickles():
    loader = Loader(Mapped(5), 2)
    copy = pickle.loads(pickle.dumps(loader.reader))
    assert copy.samples([4])[0]["id"] == 4 and copy.fingerprint() == "Mapped"
    assert repr(copy) == "<PythonStore of 5 samples of Mapped>"


# Bad input


class NoLength(torch_data.Dataset):
    def __getitem__(self, index: int) -> int:
        return index


class Streamed(torch_data.IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


class Fails(Mapped):
    """Sample 7 cannot be had."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise KeyError("no such thing")
        return {"id": index}


class Short(Mapped):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [row(index) for index in indices if index != 3]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (NoLength(), ArgumentTypeError, "NoLength, without the length that an order needs: give it a __len__"),
        (Streamed(), ArgumentTypeError, "Streamed, which has no samples by index.*torch's DataLoader"),
        (iter([1]), ArgumentTypeError, "list_iterator, which has no samples by index: pass files"),
        ({1, 2}, ArgumentTypeError, "set, which has no samples by index"),
        (5, ArgumentTypeError, "int, which has no samples by index"),
        (None, ArgumentTypeError, "NoneType, which has no samples by index"),
        ([], ArgumentError, "list and has 0 samples, expected at least 1"),
        (Mapped(0), ArgumentError, "Mapped and has 0 samples, expected at least 1"),
        (Mapped(-1), ArgumentError, "Mapped, whose length is out of range"),
        (Mapped(1 << 64), ArgumentError, "Mapped, whose length is out of range"),
        ({"a": [1, 2], "b": [1]}, ArgumentError, "columns of different lengths"),
        ((np.zeros((3, 2)), torch.zeros(3)), ArgumentTypeError, "tuple of 2 arrays of 3 rows: pass a dict of them"),
        (["a.ffr", Mapped()], ArgumentTypeError, "list of paths, but item 1 is of type Mapped: pass paths only"),
        ([Mapped(), Mapped()], ArgumentTypeError, "item 0 is of type Mapped: .* pass torch's ConcatDataset"),
        ([{"a": 1}, Mapped()], ArgumentTypeError, "item 1 is of type Mapped, and item 0 is of type dict: "),
        ("no/such/place", FileNotFoundError, "no/such/place"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_sources_that_are_none(source, error, message):
    with pytest.raises(error, match=message):
        Loader(source)


def test_arrays_in_a_tuple_may_be_samples():
    (batch,) = Loader((np.zeros(3), np.ones(3)), 2, "sequential")
    assert batch.tolist() == [[0] * 3, [1] * 3]


def test_datasets_that_do_not_join(at):
    twice = [Dataset(f"{at}/all"), Dataset(f"{at}/all")]
    with pytest.raises(ArgumentTypeError, match="item 0 is of type Dataset: only files of one kind, each once"):
        Loader(twice)
    assert len(Loader(ConcatDataset(twice))) == 2 * COUNT


@pytest.mark.parametrize("kind", [np.float64, torch.tensor], ids=["arrays", "tensors"])
def test_batches_share_no_memory_with_samples(kind):
    samples = [kind([0.0] * (1 + i)) for i in range(2)] if kind is torch.tensor else [np.zeros(1 + i) for i in range(2)]
    (batch,) = Loader(samples, 2, "sequential")
    for values in batch:
        values += 1
    assert not samples[0].any() and not samples[1].any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ragged", ["list", "padded"])
@pytest.mark.parametrize("longer", [0, 1])
def test_samples_that_are_read_only(longer, ragged):
    samples = [np.frombuffer(b"x" * (30000 + longer * i), np.uint8) for i in range(2)]
    (batch,) = Loader(samples, 2, "sequential", ragged=ragged)
    first = batch.values[0] if longer and ragged == "padded" else batch[0]
    assert bytes(first[:3].numpy()) == b"xxx"


@pytest.mark.parametrize("size", [3, 5000])
def test_samples_that_are_reversed(size):
    samples = [np.arange(i, size + i)[::-1] for i in range(2)]
    (batch,) = Loader(samples, 2, "sequential")
    assert torch.equal(batch, torch.from_numpy(np.stack(samples)))


@pytest.mark.parametrize(
    "samples",
    [[True, False], [1, -(1 << 63)], [0.5, float("inf")], [1j, 2j], [False, 2], [1, 2.5], [1.5, 2j]],
    ids=str,
)
def test_numbers_as_torch_makes_them(samples):
    (batch,) = Loader(samples, 2, "sequential")
    expected = torch.tensor(samples)
    kind = torch.float64 if expected.is_floating_point() else torch.complex128 if expected.is_complex() else None
    assert batch.dtype == (kind or expected.dtype)
    assert torch.equal(batch, torch.tensor(samples, dtype=kind))


def test_streams_are_refused(at):
    with pytest.raises(ArgumentTypeError, match=r"of an ffrecord.torch.IterableDataset: its .dataset"):
        Loader(IterableDataset(Dataset(f"{at}/all")))
    datasets = pytest.importorskip("datasets")
    with pytest.raises(ArgumentTypeError, match="IterableDataset, which has no samples by index"):
        Loader(hugging().to_iterable_dataset())
    with pytest.raises(ArgumentTypeError, match="DatasetDict: pass one of 'train', 'test'"):
        Loader(datasets.DatasetDict({"train": hugging(), "test": hugging()}))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"a": 1}, (1, 2)], "sample 1: it is a tuple of 2, the first of the batch a dict of 1"),
        ([(1, 2), {"a": 1, "b": 2}], "sample 1: it is a dict of 2, the first of the batch a tuple of 2"),
        ([{"a": 1}, {"a": 1, "b": 2}], "sample 1: it has column 'b', which the first of the batch lacks"),
        ([{"a": 1, "b": 2}, {"a": 1}], "sample 1: it lacks column 'b', which the first of the batch has"),
        ([1, "two"], "sample 1: it is str"),
        ([1, 1 << 70], "sample 1: it is int 1180591620717411303424, expected -2"),
        ([np.int8(1), 1 << 70], "sample 1: it is int 1180591620717411303424, but numpy int8 .* in the first"),
        ([np.int8(1), None], "sample 1: it is None, but numpy int8 .* in the first sample"),
        ([{"a": np.zeros(2, np.int8)}, {"a": "text"}], "sample 1: column 'a' is str"),
    ],
)
def test_mixed_kinds(samples, message):
    with pytest.raises(UserFunctionError, match=f"samples of list do not make a batch: {message}"):
        list(Loader(samples, 2, "sequential"))


@in_every_way
def test_samples_that_cannot_be_had(how):
    with pytest.raises(UserFunctionError, match="dataset Fails failed on sample 7: KeyError: 'no such thing'"):
        list(Loader(Fails(), 4, "sequential", **how))
    found = [batch["id"].tolist() for batch in Loader(Fails(), 4, "sequential", on_error="skip", **how)]
    assert found == [[0, 1, 2, 3], [4, 5, 6], *([i, i + 1, i + 2, i + 3] for i in range(8, COUNT, 4))]
    found = [i for batch in Loader(Fails(), 4, "sequential", on_error="replace", **how) for i in batch["id"].tolist()]
    assert len(found) == COUNT and 7 not in found


def test_errors_of_reading_stay_what_they_are(tmp_path):
    """The `on_error` of a dataset is ignored, as that of a reader is."""
    ffrecord.DatasetWriter(tmp_path, num_workers=0).from_indexed_dataset([row(i) for i in range(5)])
    path = next(tmp_path.glob("*.ffr"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for dataset in (Processed(str(path)), Processed(str(path), on_error="skip")):
        with pytest.raises(ChecksumError, match="Sample 4: "):
            list(Loader(dataset, 2, "sequential"))
        assert [len(batch["id"]) for batch in Loader(dataset, 2, "sequential", on_error="skip")] == [2, 2]


def test_batches_that_are_short():
    with pytest.raises(UserFunctionError, match="Short failed on sample 3: __getitems__ gave 0 samples, expected 1"):
        list(Loader(Short(), 4, "sequential"))


def test_indices_out_of_range(at):
    with pytest.raises(SampleIndexError, match=rf"indices\[1\] of a subset is 100, expected -{COUNT} <= index"):
        Loader(torch_data.Subset(Dataset(f"{at}/all"), [1, 100]))
    with pytest.raises(SampleIndexError, match=r"indices\[0\] is 2, expected -2 <= index < 2"):
        Loader(torch_data.Subset(Dataset(f"{at}/all"), [1, 10]), indices=[2])
    with pytest.raises(SampleIndexError, match=r"indices\[0\] is 3, expected -2 <= index < 2"):
        Loader([1, 2], indices=[3])
    with pytest.raises(SampleIndexError, match=r"indices\[0\] is 3, expected -2 <= index < 2"):
        Loader([1, 2], sampler=[0], indices=[3])


@pytest.mark.parametrize("indices", [np.arange(COUNT) % 2 == 0, torch.arange(COUNT) % 2 == 0, [True] * COUNT, [1.0]])
@pytest.mark.parametrize("kind", ["ours", "Python", "Hugging Face"])
def test_a_subset_by_a_mask_is_refused(at, kind, indices):
    """As indices they would be samples 0 and 1, many times."""
    source = Dataset(f"{at}/all") if kind == "ours" else Mapped() if kind == "Python" else hugging()
    with pytest.raises(ArgumentTypeError, match=r"indices is .*expected .*ints"):
        Loader(torch_data.Subset(source, indices))


def test_states_of_other_sources():
    state = Loader(Mapped(), 2).state_dict()
    with pytest.raises(ValueError, match="24 samples then, 5 now"):
        Loader(Mapped(5), 2).load_state_dict(state)
    with pytest.raises(ValueError, match="fingerprint Mapped then, Batched now"):
        Loader(Batched(), 2).load_state_dict(state)


def classes_at(path: Path, names: list[str]) -> str:
    fields = {"label": ffrecord.fields.LabelField(names), "id": ffrecord.fields.IntField()}
    samples = [{"label": 0, "id": 5}, {"label": 1, "id": 6}]
    ffrecord.DatasetWriter(path, fields, num_workers=0, progress=False).from_indexed_dataset(samples)
    return str(path)


NAMES = [f"class {i}" for i in range(9)]
JOINED = {
    "the files": lambda a, b: [a, b],
    "ours": lambda a, b: ConcatDataset([Dataset(a), Dataset(b)]),
    "torch's": lambda a, b: torch_data.ConcatDataset([Dataset(a), Dataset(b)]),
    "stores": lambda a, b: torch_data.ConcatDataset([FileReader(a), FileReader(b)]),
    "subsets": lambda a, b: torch_data.ConcatDataset([Dataset(a)[1:], torch_data.Subset(Dataset(b), [0])]),
    "nested": lambda a, b: torch_data.ConcatDataset(
        [ConcatDataset([Dataset(a)]), torch_data.ConcatDataset([Dataset(b)])]
    ),
    "a function": lambda a, b: torch_data.ConcatDataset([Dataset(a, transform=dict), Dataset(b, transform=dict)]),
}


@pytest.mark.parametrize(("names", "place"), [(["d", "c"], 0), (["c", "d", "e"], 2), ([*NAMES[:8], "other"], 8)])
@pytest.mark.parametrize("load", [Loader, ffrecord.torch.DataLoader])
@pytest.mark.parametrize("kind", JOINED)
def test_classes_of_other_names_are_not_mixed(tmp_path, kind, load, names, place):
    """The same number would mean two classes."""
    a = classes_at(tmp_path / "a", NAMES if names[0] == NAMES[0] else ["c", "d"])
    b = classes_at(tmp_path / "b", names)
    if load is not Loader and kind == "the files":
        pytest.skip("torch's arguments know no files")
    told = r"b/?.*: its schema differs from that of .*a/?.*: column 'label' is LabelField\(.*\), there LabelField\(.*"
    with pytest.raises(ffrecord.FormatError, match=told + rf"\(class {place} is '{names[place]}', there "):
        load(JOINED[kind](a, b), 2)
    same = classes_at(tmp_path / "same", names)
    assert len(list(load(JOINED[kind](b, same), 1))) in (2, 4)


@pytest.mark.parametrize("load", [Loader, ffrecord.torch.DataLoader])
@pytest.mark.parametrize("kind", JOINED)
def test_classes_are_not_mixed_with_numbers(tmp_path, kind, load):
    named, plain = classes_at(tmp_path / "named", ["c", "d"]), str(tmp_path / "plain")
    samples = [{"label": 0, "id": 5}, {"label": 1, "id": 6}]
    ffrecord.DatasetWriter(plain, num_workers=0, progress=False).from_indexed_dataset(samples)
    if load is not Loader and kind == "the files":
        pytest.skip("torch's arguments know no files")
    for pair in ((named, plain), (plain, named)):
        with pytest.raises(ffrecord.FormatError, match=r"column 'label' is \w+Field\(.*\), there \w+Field\("):
            load(JOINED[kind](*pair), 2)
    with pytest.raises(
        ffrecord.FormatError, match=r"plain/?.*: its schema .* is IntField\(\), there LabelField\(.*; write"
    ):
        Dataset(plain) + Dataset(named)
    assert len(list(Loader(Dataset(plain) + Dataset(plain), 1))) == 4
    assert len(Dataset(plain, fields=["id"]) + Dataset(named)) == 4


def test_a_bad_file_of_a_folder_has_one_number(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.jpg").write_bytes(b"")
    store = ffrecord.open(folder)
    decode = {"image": CenterCrop(8)}
    told = rf"^Sample 1: {folder}/b\.jpg: image: 0 bytes"
    for load in (lambda: next(iter(Loader(store[1:], 1, decode=decode))), lambda: Dataset(store, decode=decode)[1]):
        with pytest.raises(ffrecord.FormatError, match=told):
            load()

    def fail(sample):
        raise KeyError(len(sample["image"]))

    told = rf"transform failed on sample 1 \({folder}/b\.jpg\): KeyError: 0$"
    for load in (lambda: next(iter(Loader(store[1:], 1, transform=fail))), lambda: Dataset(store, transform=fail)[1]):
        with pytest.raises(UserFunctionError, match=told):
            load()
    writer = ffrecord.DatasetWriter(tmp_path / "out", {"image": ffrecord.fields.JPEGField()}, num_workers=0)
    with pytest.raises(ffrecord.WorkerError, match=rf"failed at sample 0 \({folder}/b\.jpg\): "):
        writer.from_indexed_dataset(store[1:])


LABELS = ffrecord.fields.LabelField(["c", "d"])


@pytest.mark.parametrize(
    ("field", "value", "named", "of_named"),
    [
        (ffrecord.fields.ScalarField("uint8"), np.uint8(1), LABELS, 1),
        (ffrecord.fields.TensorField("int64", ()), torch.tensor(1), LABELS, 1),
        (ffrecord.fields.NDArrayField("int32", (None,)), np.ones(2, np.int32), ffrecord.fields.ListField(LABELS), [1]),
        *(
            (around(ffrecord.fields.IntField()), value, around(LABELS), value)
            for around, value in ((ffrecord.fields.OptionalField, 1), (ffrecord.fields.ListField, [1]))
        ),
    ],
    ids=["numpy", "torch", "array", "optional", "list"],
)
def test_classes_are_not_mixed_with_numbers_of_other_fields(tmp_path, field, value, named, of_named):
    for name, kind, each in (("plain", field, value), ("named", named, of_named)):
        writer = ffrecord.DatasetWriter(tmp_path / name, {"at": {"label": kind}}, num_workers=0, progress=False)
        writer.from_indexed_dataset([{"at": {"label": each}}] * 2)
    plain, classes = Dataset(tmp_path / "plain"), Dataset(tmp_path / "named")
    for pair in ((plain, classes), (classes, plain)):
        with pytest.raises(
            ffrecord.FormatError, match=r"plain.*column 'at\.label' is .*, there .*'c'.*; write the numb"
        ):
            ConcatDataset(pair)


def test_classes_that_are_not_read_or_not_known_may_differ(tmp_path):
    a, b = classes_at(tmp_path / "a", ["c", "d"]), classes_at(tmp_path / "b", ["d", "c"])
    joined = ConcatDataset([Dataset(a, fields=["id"]), Dataset(b, fields={"id": None})])
    (batch,) = Loader(joined, 4, "sequential")
    assert batch["id"].tolist() == [5, 6, 5, 6]
    assert len(ConcatDataset([Processed(a), Processed(b)])) == 4


def test_classes_of_folders_are_not_mixed(tmp_path):
    for folder, names in {"a": "xy", "b": "xz"}.items():
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "1.jpg").write_bytes(b"")
    stores = [ffrecord.open(tmp_path / folder) for folder in "ab"]
    with pytest.raises(
        ffrecord.FormatError, match=r"column 'label' is \('x', 'z'\), there \('x', 'y'\) \(class 1 is 'z'"
    ):
        Loader(torch_data.ConcatDataset([Dataset(store) for store in stores]))


def test_classes_of_hugging_face_are_not_mixed():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: Hugging Face's are not read")
    sets = [
        datasets.Dataset.from_dict({"x": [0]}, datasets.Features({"x": datasets.ClassLabel(names=names)}))
        for names in (["c", "d"], ["d", "c"])
    ]
    with pytest.raises(ffrecord.FormatError, match=r"column 'x' is \('d', 'c'\), there \('c', 'd'\)"):
        Loader(torch_data.ConcatDataset(sets))


# Lists of numbers

LISTS: dict[str, tuple[list[Any], list[list[Any]], torch.dtype]] = {
    "ints": ([[1], [2, 3], []], [[1, 0], [2, 3], [0, 0]], torch.int64),
    "ints and floats": ([[1], [2.5, 3]], [[1, 0], [2.5, 3]], torch.float64),
    "alike": ([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 6]], torch.int64),
    "a single one": ([[1, 2]], [[1, 2]], torch.int64),
    "of numpy": ([[np.float32(1)], [np.float32(2)] * 2], [[1, 0], [2, 2]], torch.float32),
    "bools": ([[True], [False, True]], [[True, False], [False, True]], torch.bool),
    "none at all": ([[], []], [[], []], torch.int64),
    "boxes": ([[[1, 2]], [], [[3, 4], [5, 6]]], [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 4], [5, 6]]], torch.int64),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("how", [{}, {"transform": dict}, {"num_workers": 1}], ids=str)
def test_lists_of_numbers_are_padded(name, how):
    """In every batch, also where all are of one length; they stayed lists, or were split into columns."""
    values, expected, dtype = LISTS[name]
    samples = [{"tokens": value, "size": (7, 8)} for value in values]
    (batch,) = Loader(samples, len(samples), "sequential", ragged="padded", **how)
    assert batch["tokens"].values.tolist() == expected and batch["tokens"].values.dtype is dtype
    lengths = batch["tokens"].lengths
    assert (lengths if lengths.dim() == 1 else lengths[:, 0]).tolist() == [len(value) for value in values]
    assert [each.tolist() for each in batch["size"]] == [[7] * len(samples), [8] * len(samples)]
    (whole,) = Loader(values, len(samples), "sequential", ragged="padded")
    assert torch.equal(whole.values, batch["tokens"].values)


def test_lists_of_numbers_are_nested():
    for values in ([[1], [2, 3]], [[1, 2], [3, 4]]):
        (batch,) = Loader([{"tokens": value} for value in values], 2, "sequential", ragged="nested")
        assert batch["tokens"].is_nested and [each.tolist() for each in batch["tokens"].unbind()] == values


@pytest.mark.parametrize("value", [["a"], [None], [1, "a"], [{"b": 1}], [[1], [2, 3]], [torch.tensor(1)]], ids=str)
def test_lists_of_other_things_are_not_padded(value):
    samples = [{"tokens": value}] * 2
    padded, plain = (next(iter(Loader(samples, 2, ragged=ragged))) for ragged in ("padded", "list"))
    assert type(padded["tokens"]) is type(plain["tokens"]) is list


def test_lists_of_numbers_are_structure_by_default():
    samples = [{"size": [i, 2 * i], "tokens": list(range(i))} for i in range(3)]
    (batch,) = Loader(samples, 3, "sequential")
    assert [each.tolist() for each in batch["size"]] == [[0, 1, 2], [0, 2, 4]]
    assert batch["tokens"] == [[], [0], [0, 1]]


def test_numbers_in_lists_that_are_too_large():
    with pytest.raises(UserFunctionError, match=r"tokens\[0\]' is int 18446744073709551615, expected -2\*\*63 <= int"):
        list(Loader([{"tokens": [(1 << 64) - 1]}] * 2, 2, ragged="padded"))


# Samples that are not alike

PairXY = namedtuple("PairXY", ["x", "y"])
PairYX = namedtuple("PairYX", ["y", "x"])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, "it has column 'a.y', which the first of the batch lacks"),
        ((0, {"x": 1}), (0, {"x": 1, "y": 2}), r"it has column '\[1\].y', which the first of the batch lacks"),
        ({"a": ("p", "q")}, {"a": "xy"}, "column 'a' is str 'xy', but a tuple of 2 in the first sample"),
        ({"a": [1, 2]}, {"a": {0: 3, 1: 4}}, "column 'a' is a dict of 2, but a list of 2 in the first sample"),
        ({"a": {0: 3, 1: 4}}, {"a": [1, 2]}, "column 'a' is a list of 2, but a dict of 2 in the first sample"),
        ({"a": (1, 2)}, {"a": None}, "column 'a' is None, but a tuple of 2 in the first sample"),
        ({"a": PairXY(1, 2)}, {"a": PairYX(1, 2)}, "column 'a' is a PairYX of 2, but a PairXY of 2"),
    ],
)
@pytest.mark.parametrize("how", [{}, {"transform": lambda sample: sample}], ids=["plain", "transform"])
def test_samples_that_differ_inside(first, second, words, how):
    """What only the later one has was lost, or mixed with something else, without a word."""
    with pytest.raises(UserFunctionError, match=f"sample 1: {words}"):
        list(Loader([first, second], 2, shuffle=False, **how))


def test_columns_that_only_a_later_result_of_transform_has():
    rows = [{"id": 0}, {"id": 1}]
    with pytest.raises(UserFunctionError, match="sample 1: it has column 'more', which the first of the batch lacks"):
        list(Loader(rows, 2, shuffle=False, transform=lambda row: row | ({"more": 1} if row["id"] else {})))


def test_the_mask_of_an_array_is_not_lost():
    with pytest.raises(UserFunctionError, match=r"column 'x' is .*its mask would be lost: give"):
        list(Loader([{"x": np.ma.masked_array([1, 2], [0, 1])}] * 2, 2))


MIXED: dict[str, tuple[list[Any], torch.dtype]] = {
    "ints and floats": ([np.array([1]), np.array([1.5, 2.5])], torch.float64),
    "bools and ints": ([np.array([True]), np.array([7, 8])], torch.int64),
    "half floats": ([torch.ones(1, dtype=torch.bfloat16), torch.full((2,), 1.1, dtype=torch.float16)], torch.float32),
    "large ints": ([torch.tensor([(1 << 24) + 1]), torch.ones(2)], torch.float64),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("ragged", ["list", "padded", "nested"])
def test_values_of_several_dtypes_keep_their_numbers(name, ragged):
    """Padded ones were rounded to the dtype of the first."""
    values, dtype = MIXED[name]
    for order in (values, values[::-1]):
        batch = next(iter(Loader([{"x": value} for value in order], 2, shuffle=False, ragged=ragged)))["x"]
        found = [row[:n] for row, n in zip(*batch, strict=True)] if ragged == "padded" else list(batch)
        assert [each.tolist() for each in found] == [value.tolist() for value in order]
        assert {each.dtype for each in found} == {dtype}
    alike = [torch.as_tensor(value)[:1] for value in values]
    assert next(iter(Loader([{"x": value} for value in alike], 2)))["x"].dtype == dtype
