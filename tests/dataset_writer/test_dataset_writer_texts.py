"""A path where samples are expected: its letters are no samples."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.errors import ArgumentTypeError
from ffrecord.utils import dump


@pytest.mark.parametrize("given", ["photos/", "", b"photos/", bytearray(b"ab"), Path("photos")])
@pytest.mark.parametrize("method", ["from_indexed_dataset", "from_iterable"])
def test_letters_are_no_samples(tmp_path: Path, method: str, given: Any) -> None:
    out = tmp_path / "out"
    name = "dataset" if method == "from_indexed_dataset" else "iterable"
    with pytest.raises(TypeError, match=rf"^{name} is .*, expected samples; of a path: pass ffrecord.open\(path\)"):
        getattr(DatasetWriter(out, num_workers=0), method)(given)
    assert not out.exists()


def test_convert_takes_no_bytes(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^source is a bytes of 4, expected samples"):
        ffrecord.convert(b"abcd", tmp_path / "out")


WRONG: list[tuple[Any, str]] = [
    (dict, "the class dict, expected samples; pass an object of it"),
    (ffrecord.FileReader, "the class FileReader, expected samples; pass an object of it"),
    (test_convert_takes_no_bytes, "the function test_convert_takes_no_bytes, expected samples; pass its result"),
    (np.array(3), r"an int64 array of shape \(\), expected samples; an array needs an axis of samples"),
    (b"ab", "a bytes of 2, expected samples"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=[words[:20] for _, words in WRONG])
def test_what_has_no_samples_says_what_it_is(tmp_path: Path, given: Any, words: str) -> None:
    writer, out = DatasetWriter(tmp_path / "out", num_workers=0), tmp_path / "out.zip"
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("dataset", lambda: writer.from_indexed_dataset(given)),
        ("iterable", lambda: writer.from_iterable(given)),
        ("source", lambda: ffrecord.convert(given, tmp_path / "out")),
        ("source", lambda: ffrecord.export(given, out)),
        ("dataset", lambda: dump(given, tmp_path / "out.ffr", 1, pickle.dumps)),
    ]
    for name, call in calls:
        with pytest.raises(ArgumentTypeError, match=f"^{name} is {words}"):
            call()
    assert not list(tmp_path.iterdir())


def test_list_is_advised_only_for_what_can_be_listed(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out", num_workers=0)
    for given in (3, None, 2.5):
        with pytest.raises(ArgumentTypeError, match=r"^dataset is .*, expected samples with len\(\) and \[i\]$"):
            writer.from_indexed_dataset(given)
    with pytest.raises(ArgumentTypeError, match=r"type set has no samples by index .* pass list\(dataset\)"):
        writer.from_indexed_dataset({1, 2})


def test_tables_have_no_samples_to_export_or_dump(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for table in ({"a": [1, 2]}, pandas.DataFrame({"a": [1, 2]})):
        with pytest.raises(ArgumentTypeError, match=r"^source is .*, expected samples; make a dataset of its columns"):
            ffrecord.export(table, tmp_path / "out.zip")
        with pytest.raises(ArgumentTypeError, match=r"^dataset is .*; write its rows with DatasetWriter"):
            dump(table, tmp_path / "out.ffr", 1, pickle.dumps)
    dump({0: 1, 1: 2}, tmp_path / "out.ffr", 1, pickle.dumps)  # as ffrecord 1.x does
    assert len(ffrecord.FileReader(tmp_path / "out.ffr")) == 2


def test_names_of_columns_are_no_lines_and_no_shards(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out", num_workers=0)
    for table in ({"a": [1, 2]}, pytest.importorskip("pandas").DataFrame({"a": [1, 2]})):
        with pytest.raises(ArgumentTypeError, match=r"^lines_or_file is .*, expected a path or an iterable of lines$"):
            writer.from_list(table, len)
        with pytest.raises(ArgumentTypeError, match=r"^shards is .*, expected a list of paths or a pattern$"):
            writer.from_webdataset(table, lambda path: [path])


def test_samples_may_be_texts(tmp_path: Path) -> None:
    DatasetWriter(tmp_path / "out", num_workers=0).from_indexed_dataset([b"photos/", b"ab"])
    assert len(ffrecord.open(tmp_path / "out")) == 2


@pytest.mark.parametrize("given", ["ab", b"ab"])
def test_letters_are_no_samples_elsewhere(tmp_path: Path, given: Any) -> None:
    for nfiles in (1, 2):
        with pytest.raises(TypeError, match=r"^dataset is .*, expected samples"):
            dump(given, tmp_path / "out", nfiles, pickle.dumps)
    with pytest.raises(TypeError, match=r"^samples is .*, expected samples"):
        ffrecord.fields.Schema.infer(given)
    with pytest.raises(ffrecord.WorkerError, match=r"the result of pipeline is .*, expected samples"):
        DatasetWriter(tmp_path / "out", num_workers=0).from_webdataset(["a.tar"], lambda path: given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", ["abc", b"abc"])
def test_a_file_takes_no_letters(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError), ffrecord.FileWriter(tmp_path / "a.ffr") as writer:
        writer.write_many(given)
    assert not (tmp_path / "a.ffr").exists()


def test_batches_are_no_samples(tmp_path: Path) -> None:
    """They became records, in silence."""
    torch = pytest.importorskip("torch")
    from ffrecord.torch import Loader

    DatasetWriter(tmp_path / "in", num_workers=0).from_indexed_dataset([{"x": i} for i in range(4)])
    dataset = ffrecord.torch.Dataset(tmp_path / "in")
    sampler = ffrecord.torch.BatchSampler(dataset, 2)
    loaders = [
        Loader(tmp_path / "in", 2),
        torch.utils.data.DataLoader(dataset, 2),
        torch.utils.data.DataLoader(dataset, batch_sampler=sampler),
    ]
    writer = DatasetWriter(tmp_path / "out", num_workers=0)
    for loader in loaders:
        for write in (writer.from_iterable, writer.from_indexed_dataset):
            with pytest.raises(TypeError, match=r"^\w+ is a \w+ that gives batches, expected samples; pass its"):
                write(loader)
    writer.from_iterable(torch.utils.data.DataLoader(dataset, batch_size=None))
    assert len(ffrecord.open(tmp_path / "out")) == 4


def test_iterators_of_batches_are_no_samples(tmp_path: Path) -> None:
    """They became records, in silence."""
    torch = pytest.importorskip("torch")
    from ffrecord.torch import DataLoader, Loader

    DatasetWriter(tmp_path / "in", num_workers=0).from_indexed_dataset([{"x": i} for i in range(4)])
    with ffrecord.torch.Dataset(tmp_path / "in") as dataset:
        iterators = [
            (iter(Loader(tmp_path / "in", 2)), "pass the dataset of its Loader instead"),
            (iter(torch.utils.data.DataLoader(dataset, 2)), ", or make that with batch_size=None"),
            (iter(DataLoader(dataset, 2)), ", or make that with batch_size=None"),
            (dataset.reader.iter_batches([[0, 1], [2, 3]]), "pass the reader instead, or some of its samples"),
        ]
        for iterator, advice in iterators:
            with pytest.raises(
                TypeError, match=rf"^iterable is a \w+ that gives batches, expected samples; .*{advice}"
            ):
                DatasetWriter(tmp_path / "out", num_workers=0).from_iterable(iterator)
            with pytest.raises(TypeError, match=r"^source is a .* that gives batches, expected samples; pass"):
                ffrecord.convert(iterator, tmp_path / "out", num_workers=0)
        samples = iter(torch.utils.data.DataLoader(dataset, batch_size=None))
        assert DatasetWriter(tmp_path / "out", num_workers=0).from_iterable(samples).samples == 4
