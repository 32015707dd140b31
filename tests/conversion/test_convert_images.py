"""Image files of all formats, from every kind of source: stored byte for byte, in a column that decodes."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader, WorkerError
from ffrecord.conversion import convert, export
from ffrecord.fields import BytesField, ImageField, ImageFileField, JPEGField, RGBImageField, schema_of
from ffrecord.fields.field import Field

Image = pytest.importorskip("PIL.Image")

FORMATS = {"png": "PNG", "webp": "WEBP", "tif": "TIFF", "bmp": "BMP", "gif": "GIF", "jpg": "JPEG"}


def picture(i: int, suffix: str) -> bytes:
    """Number `i` as a file."""
    out = io.BytesIO()
    Image.fromarray(np.full((8, 9 + i, 3), 15 * i, np.uint8)).save(out, FORMATS[suffix])
    return out.getvalue()


def mixed(count: int = 12) -> dict[str, bytes]:
    """Names and files of all formats."""
    suffixes = sorted(FORMATS)
    return {f"{i:02}.{suffixes[i % 6]}": picture(i, suffixes[i % 6]) for i in range(count)}


# Image folders have the files of torchvision's: no GIF.
LISTED = {name: data for name, data in mixed(15).items() if not name.endswith("gif")}
PNGS = {f"{i:02}.png": picture(i, "png") for i in range(12)}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for i, (name, data) in enumerate(files.items()):
        (path / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (path / "ab"[i % 2] / name).write_bytes(data)
    return path


def column(path: Path, name: str) -> tuple[Field, list[Any], list[Any]]:
    """The field of a column, the stored bytes, and the decoded values."""
    with FileReader(path) as reader:
        schema = schema_of(reader)
        assert schema is not None
        field: Any = schema.fields[name]
        raw = schema.replace({name: type(field)(as_bytes=True)}) if hasattr(field, "as_bytes") else schema
        return (
            field,
            [raw.decode(record)[name] for record in reader],
            [schema.decode(record)[name] for record in reader],
        )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("files", [PNGS, LISTED], ids=["png", "mixed"])
def test_folders(tmp_path: Path, files: dict[str, bytes], workers: int) -> None:
    convert(folder(tmp_path / "folder", files), tmp_path / "out", num_workers=workers, verify=True)
    field, stored, images = column(tmp_path / "out", "image")
    assert field == ImageFileField()
    assert sorted(stored) == sorted(files.values())
    assert sorted(image.shape[1] for image in images) == [9 + int(name[:2]) for name in files]


@pytest.mark.parametrize("files", [PNGS, mixed()], ids=["png", "mixed"])
def test_zip_tar_webdataset(tmp_path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with tarfile.open(tmp_path / "x.tar", "w") as tar, tarfile.open(tmp_path / "web.tar", "w") as web:
        for name, data in files.items():
            for target, given in ((tar, name), (web, f"{name[:2]}.png")):
                member = tarfile.TarInfo(given)
                member.size = len(data)
                target.addfile(member, io.BytesIO(data))
    for name, options, wanted in (
        ("x.zip", {}, "data"),
        ("x.tar", {"format": "tar"}, "data"),
        ("web.tar", {"format": "webdataset"}, "png"),
    ):
        out = tmp_path / f"{name}.out"
        convert(tmp_path / name, out, num_workers=0, verify=True, **options)  # type: ignore[arg-type]
        field, stored, _ = column(out, wanted)
        assert field == ImageFileField() and stored == list(files.values())


def test_columns_of_tables(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"image": list(mixed().values())}), tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "out", num_workers=0, verify=True)
    field, stored, _ = column(tmp_path / "out", "image")
    assert field == ImageFileField() and stored == list(mixed().values())


def test_one_picture_of_another_format_among_photographs(tmp_path: Path) -> None:
    files = {f"{i:02}.jpg": picture(i, "jpg") for i in range(8)} | {"03.jpg": picture(3, "png")}
    convert(folder(tmp_path / "folder", files), tmp_path / "out", num_workers=0, verify=True)
    field, stored, _ = column(tmp_path / "out", "image")
    assert field == ImageFileField() and sorted(stored) == sorted(files.values())


def test_all_photographs_whatever_their_names(tmp_path: Path) -> None:
    files = {f"{i:02}.png": picture(i, "jpg") for i in range(8)}
    convert(folder(tmp_path / "folder", files), tmp_path / "out", num_workers=0, verify=True)
    assert column(tmp_path / "out", "image")[0] == ImageFileField()  # its name says that a PNG may come


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    files = PNGS | {"05.png": PNGS["05.png"][:-20], "07.png": b"no image"}
    source = folder(tmp_path / "folder", files)
    with pytest.raises(WorkerError, match=r"0[57]\.png\): ValueError: image: .*, expected the bytes or"):
        convert(source, tmp_path / "out", num_workers=0)
    assert convert(source, tmp_path / "out", num_workers=0, max_skipped=2).skipped == 2
    assert column(tmp_path / "out", "image")[0] == ImageFileField()


def test_other_names_stay_bytes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, data in (PNGS | {"README.md": b"text"}).items():
            archive.writestr(name, data)
    convert(tmp_path / "x.zip", tmp_path / "out", num_workers=0)
    assert column(tmp_path / "out", "data")[0] == BytesField()


@pytest.mark.parametrize("field", [BytesField(), JPEGField(), RGBImageField(), ImageField()])
def test_from_and_to_other_fields(tmp_path: Path, field: Field) -> None:
    """Files keep their bytes between fields of bytes; pixels are the same from lossless ones."""
    pixels = [np.full((8, 9, 3), i, np.uint8) for i in range(4)]
    values: Any = {
        BytesField(): [picture(i, "png") for i in range(4)],
        JPEGField(): [picture(i, "jpg") for i in range(4)],
        RGBImageField(): pixels,
        ImageField(): [Image.fromarray(each) for each in pixels],
    }[field]
    DatasetWriter(tmp_path / "one", {"x": field}, num_workers=0).from_indexed_dataset([{"x": each} for each in values])
    convert(tmp_path / "one", tmp_path / "two", fields={"x": ImageFileField()}, num_workers=0)
    _, stored, images = column(tmp_path / "two", "x")
    if isinstance(field, BytesField | JPEGField):
        assert stored == values
    else:
        assert all(np.array_equal(*pair) for pair in zip(images, pixels, strict=True))
    if isinstance(field, BytesField | JPEGField):
        convert(tmp_path / "two", tmp_path / "three", fields={"x": field}, num_workers=0)
        assert column(tmp_path / "three", "x")[1] == values


def test_tiffs_of_other_things_stay_bytes(tmp_path: Path) -> None:
    """Bands of a satellite: Pillow does not know such pixels, so nobody could look at the column."""
    bands = picture(3, "tif").replace(b"\x15\x01\x03\x00\x01\x00\x00\x00\x03", b"\x15\x01\x03\x00\x01\x00\x00\x00\x07")
    with pytest.raises(Exception, match=r"unknown pixel mode|cannot identify"):
        Image.open(io.BytesIO(bands))
    convert(folder(tmp_path / "folder", {f"{i}.tif": bands for i in range(4)}), tmp_path / "out", num_workers=0)
    field, stored, _ = column(tmp_path / "out", "image")
    assert field == BytesField() and stored == [bands] * 4


def test_exported_as_they_are(tmp_path: Path) -> None:
    files = LISTED
    convert(folder(tmp_path / "folder", files), tmp_path / "out", num_workers=0)
    export(tmp_path / "out", tmp_path / "x.tar", format="webdataset")
    with tarfile.open(tmp_path / "x.tar") as archive:
        found = {member.name: archive.extractfile(member) for member in archive if not member.name.endswith("cls")}
        assert sorted(each.read() for each in found.values() if each is not None) == sorted(files.values())
        assert {Path(name).suffix[1:] for name in found} == {Path(name).suffix[1:] for name in files}
