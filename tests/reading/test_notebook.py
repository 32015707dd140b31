"""Readers and batches in notebooks: a small table that is always there."""

import base64
import html.parser
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import FileReader, FileWriter
from ffrecord.fields import JPEGField
from ffrecord.reading.indices import spread_indices
from ffrecord.reading.notebook import show

LARGEST = 400 << 10  # characters


class Checked(html.parser.HTMLParser):
    """Tags that are opened and closed in order, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.images: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "code", "table", "tr", "th", "td", "img", "pre")
        assert {name for name, _ in attrs} <= {"style", "src", "title"}
        if tag == "img":
            self.images.append(dict(attrs)["src"])
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(shown: Any) -> Checked:
    text = shown._repr_html_()
    assert len(text) < LARGEST
    return Checked(text)


def write(path: Path, samples: list[Any], fields: Any = None) -> FileReader[Any]:
    ffrecord.DatasetWriter(path, fields, num_workers=0).from_indexed_dataset(samples)
    return FileReader(path)


def test_a_reader_shows_columns_samples_and_pictures(tmp_path: Path):
    random = np.random.default_rng(0)
    samples = [
        {"image": random.integers(0, 256, (300, 200, 3), np.uint8), "id": i, "name": f"<b>{i}</b>"} for i in range(9)
    ]
    with write(tmp_path / "d", samples) as reader:
        found = checked(reader)
        assert reader.stats().records == 3
    assert {"image", "id", "name", "0", "4", "8", "'<b>4</b>'"} <= set(found.text)
    assert len(found.images) == 3
    for source in found.images:
        kind, data = source.split(";base64,")
        assert kind == "data:image/png" and base64.b64decode(data).startswith(b"\x89PNG")


def test_files_are_pictures_too(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    image.effect_noise((900, 700), 80).convert("RGB").save(tmp_path / "a.jpg", quality=95)
    data = (tmp_path / "a.jpg").read_bytes()
    samples = [{"image": data}, {"image": data}]
    with write(tmp_path / "d", samples, {"image": JPEGField()}) as reader:
        assert len(checked(reader).images) == 2 and "JPEGField(quality=90, as_bytes=False)" in checked(reader).text
    with ffrecord.open(write_zip(tmp_path, {"a.jpg": data, "<i>.txt": b"x"})) as store:
        found = checked(store)
        assert len(found.images) == 1 and "'<i>.txt'" in found.text
        (source,) = found.images
        assert len(source) < 32 << 10


def write_zip(directory: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(directory / "a.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return directory / "a.zip"


def test_many_columns_and_long_values(tmp_path: Path):
    long = {f"column {i}": "x" * 100_000 for i in range(60)}
    with write(tmp_path / "d", [{**long, "list": list(range(10_000))}]) as reader:
        found = checked(reader)
    assert "37 more columns" in "".join(found.text)


def test_bad_records_are_notes(tmp_path: Path):
    with write(tmp_path / "d", [{"x": i} for i in range(5)]) as reader:
        path, place = reader.fnames[0], int(reader.get_offsets(0)[2])
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    Path(path).write_bytes(data)
    with FileReader(tmp_path / "d") as reader:
        text = "".join(checked(reader).text)
        assert "sample 2 is not shown: ChecksumError" in text and "IntField()" in text
    assert "is not shown: " in "".join(checked(reader).text)  # closed


def test_large_records_are_not_read(tmp_path: Path):
    with FileWriter(tmp_path / "a.ffr") as writer:
        writer.write_one(bytes(65 << 20))
        writer.write_one(b"small")
    with FileReader(tmp_path / "a.ffr") as reader:
        assert "sample 0 is not shown: " in "".join(checked(reader).text)
        assert reader.stats().bytes < 100


def test_empty(tmp_path: Path):
    with FileWriter(tmp_path / "a.ffr"):
        pass
    with FileReader(tmp_path / "a.ffr") as reader:
        assert "0 samples" in "".join(checked(reader).text)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 3]), (2**62, [0, 2**61 - 1, 2**62 - 1])]
)
def test_spread_indices(count: int, expected: list[int]):
    assert spread_indices(count, 3) == expected


class Odd:
    """An object that fails whenever it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "batch",
    [
        {},
        [],
        (),
        None,
        Odd(),
        {"x": Odd()},
        {"x": [Odd()] * 3},
        {"x": np.zeros((3, 0))},
        {"x": np.array(7)},
        {"x": np.full((2, 3, 9, 9), np.nan, np.float32)},
        {"x": np.full((2, 3, 9, 9), np.inf)},
        {"x": ["</td><script>alert(1)</script>"]},
        {"</td><script>": np.arange(3)},
        {1: {2: [3]}, None: "x"},
        [np.zeros((2, 2)), ["a", "b"]],
        [{"x": 1}, {"y": 2}],
        [{"x": 10**5000}],
        np.zeros((4, 8, 8), np.uint8),
        "text",
        {"x": np.array(["a", "b"])},
        {"x": np.array([1, None], object)},
        {"x": [b"\xff\xd8\xff broken"] * 2},
        {"x": [b"\xff\xd8\xff" + bytes(100_000)] * 2},
        {"x": ["\u202e\x00"]},
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_anything_is_shown(batch: Any, recwarn: pytest.WarningsRecorder):
    found = checked(show(batch))
    assert not recwarn.list
    assert "script" not in found.open
    assert not re.search("[\u202e\x00]", "".join(found.text))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_pictures_with_odd_floats(odd: float):
    """Numbers without a shade of grey do not hide the others, and give no warning."""
    image = np.linspace(0, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    image[0, 0, 0, 0] = odd
    assert len(checked(show({"x": image})).images) == 1


def test_a_batch():
    batch = {"image": np.zeros((8, 3, 16, 16), np.uint8), "label": np.arange(8), "name": list("abcdefgh")}
    found = checked(show(batch))
    assert {"uint8 [8, 3, 16, 16]", "int64 [8]", "batch of 8 samples", "3", "'d'"} <= set(found.text)
    assert len(found.images) == 4
    assert repr(show([1, 2])).startswith("<BatchPreview of ")


def test_only_columns_that_are_shown_are_described():
    described = []

    class Column(list[int]):
        def __getitem__(self, i: Any) -> Any:
            described.append(i)
            return super().__getitem__(i)

    class Setting:
        def __repr__(self) -> str:
            described.append(self)
            return "a setting"

    batch = {f"{i}": Column(range(8)) if i % 2 else Setting() for i in range(3000)}
    text = "".join(checked(show(batch)).text)
    assert "2976 more columns" in text and "batch of 8 samples" in text and "a setting" in text
    assert len(described) == 12 * 4 + 12
