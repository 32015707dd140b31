"""Contestants of bench_loader.py: `Loader` and torch's DataLoader over each kind of source that `Loader` takes."""

import importlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import workloads
from harness import WrongAnswerError
from loader_parts import Part
from loader_ways import Batches, Opened, Way
from torch.utils import data as torch_data

import ffrecord
from ffrecord.sources import TFRecordWriter
from ffrecord.torch import ConcatDataset, Dataset, Loader, Subset

CLASSES = 10  # of an image folder
SMOKE = ("directory", "list of dicts")  # with workers, which take long to start


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "point": np.float32([i, -i, 0.5]), "name": f"sample {i}"}


def row(i: int) -> dict[str, Any]:
    """Return a sample of numbers and text alone."""
    return {"id": i, "x": float(i), "y": float(-i), "z": 0.5, "name": f"sample {i}"}


def record(i: int) -> bytes:
    """Return 32 bytes, the first eight of which are the number."""
    return np.int64(i).tobytes() + sample(i)["point"].tobytes() + b"text %7d" % i


class Mapped(torch_data.Dataset[Any]):
    """A dataset as anybody writes it."""

    def __init__(self, count: int) -> None:
        self.points = np.stack([sample(i)["point"] for i in range(count)])
        self.names = [sample(i)["name"] for i in range(count)]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "point": self.points[index], "name": self.names[index]}


class Batched(Mapped):
    """A dataset that gives whole batches, too."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Columns(torch_data.Dataset[Any]):
    """The rows of a dict of columns."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["id"])

    def __getitem__(self, index: int) -> Any:
        return {name: column[index] for name, column in self.columns.items()}


class Processed(Dataset[Any]):
    """Samples made of bytes."""

    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        return [{"id": index, "bytes": len(each)} for index, each in zip(indices, data, strict=True)]


class Indexed(Dataset[Any]):
    """A subclass that takes lists of indices by itself."""

    def __init__(self, count: int) -> None:
        self.samples = [sample(i) for i in range(count)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, indices: Any) -> Any:
        return [self.samples[index] for index in indices]

    def ffreaders(self) -> list[Any]:
        return []


def doubled(each: Any) -> Any:
    return {**each, "point": each["point"] * 2}


class Data:
    """The samples of a way, and its files, which are written when they are first asked for.

    Args:
        directory: directory of the files.
        count: number of samples.
    """

    def __init__(self, directory: Path, count: int) -> None:
        self.directory, self.count = directory, count

    def _path(self, kind: str, write: Callable[[Path], Any]) -> str:
        path = self.directory / f"{self.count}-{kind}"
        if not path.exists():
            write(path)
        return str(path)

    @cached_property
    def all(self) -> str:
        return self._path("all", lambda path: self._write(path, range(self.count)))

    @cached_property
    def halves(self) -> list[str]:
        half = self.count // 2
        one = self._path("one", lambda path: self._write(path, range(half)))
        two = self._path("two", lambda path: self._write(path, range(half, self.count)))
        return [str(next(Path(path).glob("*.ffr"))) for path in (one, two)]

    @cached_property
    def tfrecord(self) -> str:
        def write(path: Path) -> None:
            with TFRecordWriter(path) as writer:
                for i in range(self.count):
                    writer.write(record(i))

        return self._path("a.tfrecord", write)

    @cached_property
    def zip(self) -> str:
        def write(path: Path) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                for i in range(self.count):
                    archive.writestr(str(i), record(i))

        return self._path("a.zip", write)

    @cached_property
    def pictures(self) -> str:
        """The path of an image folder, whose files have other sizes."""

        def write(path: Path) -> None:
            for label in range(CLASSES):
                (path / str(label)).mkdir(parents=True)
            for i in range(self.count):
                (path / str(i % CLASSES) / f"{i}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(i % 50))

        return self._path("pictures", write)

    @cached_property
    def packed(self) -> str:
        def write(path: Path) -> None:
            folder = path.with_suffix(".folder")
            folder.mkdir()
            for i in range(self.count):
                (folder / str(i)).write_bytes(record(i))
            ffrecord.pack_folder(folder, path)

        return self._path("packed.ffr", write)

    def _write(self, path: Path, numbers: range) -> None:
        writer = ffrecord.DatasetWriter(path, num_workers=0, progress=False)
        writer.from_indexed_dataset([sample(i) for i in numbers])

    def dataset(self, **options: Any) -> Any:
        return Dataset(self.all, **options)

    def joined(self, kind: Any) -> Any:
        """Return both halves, joined by a class."""
        return kind([Dataset(half) for half in self.halves])

    @property
    def samples(self) -> list[Any]:
        return [sample(i) for i in range(self.count)]

    @property
    def rows(self) -> list[Any]:
        return [row(i) for i in range(self.count)]

    @property
    def order(self) -> list[int]:
        """All samples in random order."""
        found: list[int] = np.random.default_rng(7).permutation(self.count).tolist()
        return found

    def split(self, source: Any) -> Any:
        """Return the only part of torch's random_split."""
        return torch_data.random_split(source, [self.count], torch.Generator().manual_seed(1))[0]

    @property
    def hugging(self) -> Any:
        columns = {name: [each[name] for each in self.samples] for name in sample(0)}
        return importlib.import_module("datasets").Dataset.from_dict(columns)


Pair = tuple[Any, Any]  # a source for `Loader`, and the same for torch's DataLoader


def opened(path: str) -> Pair:
    return path, Dataset(ffrecord.open(path))


def both(source: Any) -> Pair:
    return source, source


def frame(data: Data) -> Pair:
    return importlib.import_module("pandas").DataFrame(data.rows), data.rows


def arrow(data: Data) -> Pair:
    return importlib.import_module("pyarrow").Table.from_pylist(data.rows), data.rows


def columns(data: Data) -> Pair:
    found = {name: np.array([each[name] for each in data.samples]) for name in sample(0)}
    return found, Columns(found)


def ids_of_keys(batch: Any) -> Any:
    return np.array(list(map(int, batch["key"])))


def ids_of_records(batch: Any) -> Any:
    """Return the first eight bytes of each record; equal sizes make no tensor by themselves in `Loader`."""
    data = batch["data"] if isinstance(batch["data"], torch.Tensor) else torch.stack(batch["data"])
    return data[:, :8].contiguous().view(torch.int64)


def lists(samples: list[Any]) -> Any:
    """Return a batch of values that make no tensor."""
    return {name: [each[name] for each in samples] for name in samples[0]}


def numbered(batch: Any) -> Any:
    return batch["id"]


@dataclass(frozen=True)
class Source:
    """A way in.

    Attributes:
        make: function that returns both sources.
        samples: number of samples: enough for an epoch of a few tenths of a second.
        alone: number of samples without workers, if Python makes the samples: in worker processes of both, or in none.
            0 if threads of `Loader` read them.
        ids: function from a batch to the numbers that are compared: an array or a tensor.
        numbers: function from the number of samples to the numbers of an epoch.
        collate: collate_fn of torch's DataLoader, if its own does not take these samples.
    """

    make: Callable[[Data], Pair]
    samples: int
    alone: int = 0
    ids: Callable[[Any], Any] = numbered
    numbers: Callable[[int], Any] = np.arange
    collate: Callable[[list[Any]], Any] | None = None


def read(make: Callable[[Data], Pair], samples: int = 40_000, **more: Any) -> Source:
    return Source(make, samples, **more)


def made(make: Callable[[Data], Pair], samples: int = 20_000, alone: int = 60_000, **more: Any) -> Source:
    return Source(make, samples, alone, **more)


# The same store as that of another way: a Path, a pattern, a list of readers, a reader or a store, a PackedFolder.
SOURCES = {
    "directory": read(lambda data: (data.all, data.dataset())),
    "file": read(lambda data: (data.halves[0], Dataset(data.halves[0])), numbers=lambda n: np.arange(n // 2)),
    "files": read(lambda data: (data.halves, Dataset(data.halves))),
    "TFRecord": read(lambda data: opened(data.tfrecord), 20_000, ids=ids_of_records),
    "zip": read(lambda data: opened(data.zip), 20_000, ids=ids_of_keys),
    "packed folder": read(lambda data: opened(data.packed), 20_000, ids=ids_of_keys),
    "image folder": read(
        lambda data: opened(data.pictures),
        10_000,
        ids=lambda batch: np.array(batch["label"]),
        numbers=lambda n: np.arange(n) % CLASSES,
        collate=lists,
    ),
    "slice of a reader": read(lambda data: (ffrecord.FileReader(data.all)[::-1], data.dataset()[::-1])),
    "Dataset": read(lambda data: both(data.dataset())),
    "slice": read(lambda data: both(data.dataset()[::-1])),
    "Subset": read(lambda data: both(Subset(data.dataset(), data.order))),
    "Subset of a Subset": read(lambda data: both(Subset(Subset(data.dataset(), data.order), range(data.count)))),
    "ConcatDataset": read(lambda data: both(data.joined(ConcatDataset)), 10_000),
    "sum": read(lambda data: both(Dataset(data.halves[0]) + Dataset(data.halves[1])[::-1]), 10_000),
    "torch's Subset": read(lambda data: both(torch_data.Subset(data.dataset(), data.order))),
    "random_split": read(lambda data: both(data.split(data.dataset()))),
    "random_split of a slice": read(lambda data: both(data.split(data.dataset()[::-1]))),
    "torch's ConcatDataset": read(lambda data: both(data.joined(torch_data.ConcatDataset)), 4_000),
    "torch's Subset of its ConcatDataset": read(
        lambda data: both(torch_data.Subset(data.joined(torch_data.ConcatDataset), data.order)), 4_000
    ),
    "Dataset with process": made(lambda data: both(Processed(data.all))),
    "Dataset with __getitem__": made(lambda data: both(Indexed(data.count))),
    "Dataset with transform": made(lambda data: both(data.dataset(transform=doubled))),
    "random_split with transform": made(lambda data: both(data.split(data.dataset(transform=doubled)))),
    "Subset with process": made(lambda data: both(Subset(Processed(data.all), data.order))),
    "list of dicts": made(lambda data: both(data.samples)),
    "tuple of tuples": made(
        lambda data: both(tuple((i, float(i)) for i in range(data.count))), ids=lambda batch: batch[0]
    ),
    "list of numbers": made(lambda data: both(list(range(data.count))), ids=lambda batch: batch),
    "array": made(lambda data: both(np.arange(4 * data.count).reshape(-1, 4)), ids=lambda batch: batch[:, 0] // 4),
    "TensorDataset": made(
        lambda data: both(torch_data.TensorDataset(torch.arange(data.count), torch.rand(data.count, 3))),
        ids=lambda batch: batch[0],
    ),
    "map-style": made(lambda data: both(Mapped(data.count))),
    "map-style in batches": made(lambda data: both(Batched(data.count))),
    "dict of samples": made(lambda data: both(dict(enumerate(data.samples)))),
    "Subset of a list": made(lambda data: both(torch_data.Subset(data.samples, data.order))),
    "random_split of map-style": made(lambda data: both(data.split(Mapped(data.count)))),
    "ConcatDataset of map-style": made(
        lambda data: both(torch_data.ConcatDataset([Mapped(data.count // 2)] * 2)),
        numbers=lambda n: np.arange(n) % (n // 2),
    ),
    "Hugging Face": made(lambda data: both(data.hugging), 10_000, 20_000),
    "Hugging Face as torch": made(lambda data: both(data.hugging.with_format("torch")), 10_000, 10_000),
    "Hugging Face, selected": made(lambda data: both(data.hugging.select(data.order)), 10_000, 10_000),
    "DataFrame": made(frame),
    "Arrow table": made(arrow),
    "dict of columns": made(columns),
}


def pairs(batches: Any, ids: Callable[[Any], Any]) -> Any:
    return ((None, ids(batch)) for batch in batches)


def loader(directory: Path, work: workloads.Sources) -> Opened:
    """Open this package's loader; worker processes stay."""
    way = SOURCES[work.way]
    source, _ = way.make(Data(directory, work.samples))
    if way.alone and work.workers:
        options: dict[str, Any] = {"num_workers": work.workers, "persistent_workers": True}
    else:
        options = {"num_threads": work.workers}
    found = Loader(source, work.batch, seed=work.seed, **options)
    return Opened(lambda: pairs(found, way.ids))


def through_torch(directory: Path, work: workloads.Sources) -> Opened:
    """Open torch's DataLoader; worker processes stay, which is its fastest way."""
    way = SOURCES[work.way]
    _, source = way.make(Data(directory, work.samples))
    options = {"num_workers": work.workers, "persistent_workers": True} if work.workers else {}
    found = torch_data.DataLoader(source, work.batch, shuffle=True, collate_fn=way.collate, **options)
    return Opened(lambda: pairs(found, way.ids))


def expected(work: workloads.Sources) -> Any:
    """Return the numbers of an epoch, in the order of the source."""
    return SOURCES[work.way].numbers(work.samples)


def check(name: str, batches: Batches, directory: Path, work: workloads.Sources) -> None:
    """Check that each sample comes as often as in the source, and that they are shuffled."""
    found, source = np.concatenate([np.array(ids).reshape(-1) for _, ids in batches]), expected(work)
    if not np.array_equal(np.sort(found), np.sort(source)):
        told = f"{len(found)} samples, {len(np.unique(found))} of them different, of {len(source)}"
        raise WrongAnswerError(f"{work.way}, {name}: {told}")
    following = np.mean(np.diff(found) == 1)
    if following > 0.5:
        told = f"{following:.0%} of the samples follow their neighbour of the source"
        raise WrongAnswerError(f"{work.way}, {name}: {told}")


PART = Part(
    {
        "Loader": Way("ours", "ffrecord", "loader_sources.loader"),
        "DataLoader": Way("plain", "torch", "loader_sources.through_torch"),
    },
    check,
)


def asked(smoke: bool) -> Iterator[tuple[workloads.Sources, list[int]]]:
    """Yield each workload and the numbers of its epoch: with two workers, and without any if Python makes samples."""
    for way, source in SOURCES.items():
        for workers, samples in ((2, source.samples), (0, source.alone)):
            if smoke:
                samples = 256 if not workers or way in SMOKE else 0
            if samples:
                work = workloads.Sources(way, samples, workers=workers)
                yield work, expected(work).tolist()
