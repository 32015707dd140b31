"""Lists of lines, in files and elsewhere."""

from pathlib import Path
from typing import Any

import pytest
from written_datasets import files_in, left_behind, read_all

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.errors import FormatError, WorkerError
from ffrecord.fields import schema_of

pytestmark = pytest.mark.usefixtures("nothing_leaks")


def test_list_in_a_file(tmp_path: Path) -> None:
    text = "\ufeffa.jpg 3\r\n\n\r\n b \u00e9.jpg 4\nlast 5"
    (tmp_path / "list.txt").write_bytes(text.encode())
    lines = []
    DatasetWriter(tmp_path / "set", num_workers=0, serializer=str.encode).from_list(
        tmp_path / "list.txt", lambda line: lines.append(line) or line
    )
    assert lines == ["a.jpg 3", " b \u00e9.jpg 4", "last 5"]
    assert read_all(tmp_path / "set") == [line.encode() for line in lines]
    DatasetWriter(tmp_path / "other", num_workers=2, serializer=str.encode).from_list(str(tmp_path / "list.txt"), str)
    assert files_in(tmp_path / "other") == files_in(tmp_path / "set")
    with open(tmp_path / "list.txt", encoding="utf-8-sig") as file:
        DatasetWriter(tmp_path / "open", num_workers=2, serializer=str.encode).from_list(file, str)
    assert read_all(tmp_path / "open") == read_all(tmp_path / "set")


@pytest.mark.parametrize("workers", [0, 2])
def test_list_that_is_no_text(tmp_path: Path, workers: int) -> None:
    (tmp_path / "list.txt").write_bytes(b"one\ntwo\n\xff\n")
    writer = DatasetWriter(tmp_path / "set", num_workers=workers, serializer=str.encode)
    with pytest.raises(FormatError, match=r"list\.txt: line 3 is not UTF-8"):
        writer.from_list(tmp_path / "list.txt", str)
    with pytest.raises(TypeError, match=r"line 2 is a tuple.*, expected str"):
        writer.from_list(["a", ("b", 1)], str)  # type: ignore[list-item]
    with pytest.raises(FileNotFoundError):
        writer.from_list(tmp_path / "none.txt", str)
    with pytest.raises(TypeError, match="function is str 'b', expected a callable"):
        writer.from_list(["a"], "b")  # type: ignore[arg-type]
    assert left_behind(tmp_path) == ["list.txt"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_line_is_named_by_its_number(tmp_path: Path, workers: int) -> None:
    lines = [str(number) for number in range(60)]
    lines[10:10] = ["", "\n"]
    lines[41] = "x"
    with pytest.raises(WorkerError, match="failed at line 42: ValueError: invalid literal") as caught:
        DatasetWriter(tmp_path / "set", num_workers=workers).from_list(lines, int, chunksize=7)
    assert caught.value.index == 42 and isinstance(caught.value.__cause__, ValueError)
    assert left_behind(tmp_path) == []


def read_picture(line: str) -> dict[str, Any]:
    path, label = line.rsplit(" ", 1)
    return {"image": Path(path).read_bytes(), "label": int(label)}


def test_list_of_jpeg_files(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    fields = pytest.importorskip("ffrecord.fields")
    lines, pictures = [], []
    for number in range(12):
        picture = image.effect_noise((40 + number, 30), 50).convert("RGB")
        path = tmp_path / f"picture {number}.jpg"
        picture.save(path, quality=90)
        lines.append(f"{path} {number % 3}\n")
        pictures.append(path.read_bytes())
    (tmp_path / "list.txt").write_text("".join(lines))
    columns = {"image": fields.JPEGField(), "label": fields.IntField()}
    writer = DatasetWriter(tmp_path / "set", columns, num_workers=2)
    assert writer.from_list(tmp_path / "list.txt", read_picture, chunksize=2).samples == 12
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None
        as_bytes = schema.replace({"image": fields.JPEGField(as_bytes=True)})
        samples = [as_bytes.decode(record) for record in reader]
    assert [bytes(sample["image"]) for sample in samples] == pictures  # to the byte, not encoded again
    assert [sample["label"] for sample in samples] == [number % 3 for number in range(12)]
