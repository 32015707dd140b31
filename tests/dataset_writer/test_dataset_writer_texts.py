"""A path where samples are expected: its letters are no samples."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.utils import dump


@pytest.mark.parametrize("given", ["photos/", "", b"photos/", bytearray(b"ab")])
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
            with pytest.raises(TypeError, match=r"^\w+ is a \w+ that gives batches, expected samples; give its"):
                write(loader)
    writer.from_iterable(torch.utils.data.DataLoader(dataset, batch_size=None))
    assert len(ffrecord.open(tmp_path / "out")) == 4
