"""Other programs call their files dataset.json, too: nnU-Net, StyleGAN."""

from pathlib import Path

import pytest
from PIL import Image

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.errors import FormatError
from ffrecord.sources.detect import detect

FOREIGN = ['{"labels": [["a/0.png", 0]]}', '[["a/0.png", 0]]', '{"version": "1.0", "name": "faces"}', "{}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / "ud" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "ud" / name / "0.png")
    return tmp_path / "ud"


@pytest.mark.parametrize("text", FOREIGN)
def test_an_image_folder_with_one(folder: Path, tmp_path: Path, text: str) -> None:
    (folder / "dataset.json").write_text(text)
    assert detect(str(folder)) == "image folder"
    with ffrecord.open(folder) as store:
        assert len(store) == 2
    assert ffrecord.convert(folder, tmp_path / "out", num_workers=0).samples == 2


@pytest.mark.parametrize("text", FOREIGN)
def test_a_named_format_says_what_it_is(folder: Path, text: str) -> None:
    (folder / "dataset.json").write_text(text)
    with pytest.raises(ValueError, match=r"without one, whose dataset\.json is not ffrecord's manifest"):
        ffrecord.open(folder, "ffrecord")


def test_ours_stays_ours(folder: Path, tmp_path: Path) -> None:
    """Also damaged, or without its shards: nobody should get its pictures instead."""
    DatasetWriter(tmp_path / "out", num_workers=0).from_indexed_dataset([b"a"])
    listed = (tmp_path / "out" / "dataset.json").read_bytes()
    for data in (listed, listed[:-9], b"[" + listed[1:]):
        (folder / "dataset.json").write_bytes(data)
        assert detect(str(folder)) == "ffrecord"
    with pytest.raises(FormatError, match=r"dataset\.json"):
        ffrecord.open(folder)
