"""A path where samples are expected: its letters are no samples."""

from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord import DatasetWriter


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


@pytest.mark.parametrize("given", ["abc", b"abc"])
def test_a_file_takes_no_letters(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError), ffrecord.FileWriter(tmp_path / "a.ffr") as writer:
        writer.write_many(given)
    assert not (tmp_path / "a.ffr").exists()
