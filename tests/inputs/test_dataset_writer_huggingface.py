"""Hugging Face datasets as samples: files stay as they are stored, and classes keep their names."""

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader
from ffrecord.conversion import convert
from ffrecord.errors import ArgumentError, FormatError, WorkerError
from ffrecord.fields import (
    ImageField,
    ImageFileField,
    IntField,
    JPEGField,
    LabelField,
    ListField,
    MsgpackField,
    OptionalField,
    RGBImageField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
    schema_of,
)
from ffrecord.inputs.recognise import input_of

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: images are not decoded")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: Hugging Face's are not written")


def file(i: int, format: str = "JPEG") -> bytes:
    """A photograph of 16 x (16 + i) pixels."""
    out = io.BytesIO()
    pixels = np.empty((16, 16 + i, 3), np.uint8)
    pixels[:] = np.arange(16)[:, None, None] * 9 + np.arange(16 + i)[:, None] * 3 + np.array([0, 5, 10 + i])
    Image.fromarray(pixels).save(out, format)
    return out.getvalue()


CLASSES = ["cat", "dog"]
JPEGS = [file(i) for i in range(9)]
PNGS = [file(i, "PNG") for i in range(9)]


def photographs(files: list[bytes] = JPEGS) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    rows = [{"image": {"bytes": data, "path": None}, "label": i % 2} for i, data in enumerate(files)]
    return datasets.Dataset.from_list(rows, features)


def write(path: Path, source: Any, fields: Any = None, **options: Any) -> dict[str, Any]:
    """Write it; return the fields of the result."""
    DatasetWriter(path, fields, num_workers=0, **options).from_indexed_dataset(source)
    with FileReader(path) as reader:
        schema = schema_of(reader)
        return {} if schema is None else dict(schema.fields)


def stored(path: Path) -> list[dict[str, Any]]:
    """The samples, image files as the bytes that they are stored as."""
    with FileReader(path) as reader:
        schema = schema_of(reader)
        assert schema is not None
        if isinstance(schema.fields["image"], JPEGField | ImageFileField):
            schema = schema.replace({"image": type(schema.fields["image"])(as_bytes=True)})
        return [schema.decode(record) for record in reader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("call", ["from_indexed_dataset", "from_iterable"])
def test_files_and_classes_stay(tmp_path: Path, call: str, workers: int) -> None:
    given = photographs()
    getattr(DatasetWriter(tmp_path / "out", num_workers=workers), call)(given)
    with FileReader(tmp_path / "out") as reader:
        schema = schema_of(reader)
    assert schema is not None
    assert dict(schema.fields) == {"image": JPEGField(), "label": LabelField(CLASSES)}
    assert [each["image"] for each in stored(tmp_path / "out")] == JPEGS
    assert [each["label"] for each in stored(tmp_path / "out")] == [i % 2 for i in range(9)]
    convert(given, tmp_path / "converted", num_workers=0)
    with FileReader(tmp_path / "out") as mine, FileReader(tmp_path / "converted") as other:
        assert [bytes(each) for each in mine] == [bytes(each) for each in other]


def test_files_of_other_formats_stay(tmp_path: Path) -> None:
    assert write(tmp_path / "out", photographs(PNGS))["image"] == ImageFileField()
    assert [each["image"] for each in stored(tmp_path / "out")] == PNGS
    assert write(tmp_path / "declared", photographs(PNGS), {"image": ImageFileField()})["image"] == ImageFileField()
    assert [each["image"] for each in stored(tmp_path / "declared")] == PNGS


def test_files_that_a_row_names(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(JPEGS[0])
    beside = {"bytes": None, "path": str(tmp_path / "0.jpg")}
    rows = [{"image": beside, "several": [beside, None], "inside": {"it": beside}}] * 2
    one = datasets.Image()
    features = datasets.Features({"image": one, "several": datasets.List(one), "inside": {"it": one}})
    write(tmp_path / "out", datasets.Dataset.from_list(rows, features))
    for sample in stored(tmp_path / "out"):
        assert sample["image"] == JPEGS[0]
        assert [each and each["bytes"] for each in sample["several"]] == [JPEGS[0], None]
        assert sample["inside"]["it"]["bytes"] == JPEGS[0]


def test_indices_and_order(tmp_path: Path) -> None:
    given = photographs()
    DatasetWriter(tmp_path / "some", num_workers=0).from_indexed_dataset(given, [-1, 3, 3])
    assert [each["image"] for each in stored(tmp_path / "some")] == [JPEGS[8], JPEGS[3], JPEGS[3]]
    write(tmp_path / "shuffled", given.shuffle(seed=1).select(range(5)))
    order = given.add_column("place", list(range(9))).shuffle(seed=1)["place"][:5]
    assert [each["image"] for each in stored(tmp_path / "shuffled")] == [JPEGS[place] for place in order]


def test_torchs_wrappers(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    given = photographs()
    joined = data.ConcatDataset([given, data.Subset(given, np.array([4, -1]))])
    assert write(tmp_path / "out", joined) == {"image": JPEGField(), "label": LabelField(CLASSES)}
    assert [each["image"] for each in stored(tmp_path / "out")] == [*JPEGS, JPEGS[4], JPEGS[8]]
    other = data.ConcatDataset([given, given.rename_column("label", "class")])
    assert len(other) == 18
    others = given.cast_column("label", datasets.ClassLabel(names=CLASSES[::-1]))
    with pytest.raises(FormatError, match=r"classes of column 'label' are \('dog', 'cat'\), .* \('cat', 'dog'\)"):
        write(tmp_path / "others", data.ConcatDataset([given, others]))
    mixed = data.ConcatDataset([given, [{"image": b"", "label": 1}]])
    with pytest.raises(Exception, match="image"):
        write(tmp_path / "mixed", mixed)


@pytest.mark.parametrize(
    "field",
    [ImageField(), OptionalField(ImageField()), ZstdField(RGBImageField()), RGBImageField(), JPEGField(quality=100)],
    ids=str,
)
@pytest.mark.parametrize("files", [JPEGS, PNGS], ids=["jpeg", "png"])
@pytest.mark.parametrize("by", ["write", "convert"])
def test_fields_of_images_get_images(tmp_path: Path, files: list[bytes], field: Any, by: str) -> None:
    """Or the file, where it is a JPEG and the field keeps or decodes those itself."""
    if isinstance(field, ZstdField):
        pytest.importorskip("zstandard", reason="zstandard is not installed")
    given = photographs(files)
    if by == "write":
        write(tmp_path / "out", given, {"image": field})
    else:
        convert(given, tmp_path / "out", fields={"image": field}, num_workers=0, verify=True)
    found = stored(tmp_path / "out")
    for i, sample in enumerate(found):
        assert sample["label"] == i % 2
        if isinstance(field, JPEGField) and files is JPEGS:
            assert sample["image"] == files[i]
            continue
        image = sample["image"]
        if isinstance(field, JPEGField):
            image = Image.open(io.BytesIO(image))
        expected = np.asarray(given[i]["image"]).astype(int)
        difference = np.abs(np.asarray(image).astype(int) - expected)
        assert difference.mean() < 2  # JPEG loses some; two decoders of one JPEG differ by rounding
        assert difference.max() == 0 or files is JPEGS or isinstance(field, JPEGField)


def test_lists_of_images(tmp_path: Path) -> None:
    rows = [{"image": [{"bytes": data, "path": None}] * 2} for data in PNGS]
    given = datasets.Dataset.from_list(rows, datasets.Features({"image": datasets.List(datasets.Image())}))
    assert write(tmp_path / "stored", given) == {"image": MsgpackField()}
    assert [[one["bytes"] for one in each["image"]] for each in stored(tmp_path / "stored")] == [[i, i] for i in PNGS]
    write(tmp_path / "decoded", given, {"image": ListField(ImageField())})
    for i, sample in enumerate(stored(tmp_path / "decoded")):
        assert [np.asarray(one).tolist() for one in sample["image"]] == [np.asarray(given[i]["image"][0]).tolist()] * 2


def test_a_schema_of_all_columns(tmp_path: Path) -> None:
    schema = Schema.of({"image": ImageField(), "label": IntField()})
    assert write(tmp_path / "out", photographs(), schema) == dict(schema.fields)
    assert [each["label"] for each in stored(tmp_path / "out")] == [i % 2 for i in range(9)]


def upright(batch: dict[str, Any]) -> dict[str, Any]:
    return {"image": [np.asarray(image) for image in batch["image"]]}


def test_transforms_and_formats_are_what_samples_are(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write(tmp_path / "transform", photographs(PNGS).with_transform(upright))
    for i, sample in enumerate(stored(tmp_path / "transform")):
        assert list(sample) == ["image"]
        assert np.array_equal(sample["image"], np.asarray(Image.open(io.BytesIO(PNGS[i]))))
    found = write(tmp_path / "format", photographs(PNGS).with_format("torch"))
    assert found == {"image": TensorField("uint8", (3, 16, None)), "label": TensorField("int64", ())}
    assert write(tmp_path / "columns", photographs().with_format("arrow", ["image"])) == {"image": JPEGField()}


class Own(datasets.Dataset):  # type: ignore[misc, name-defined]
    """A dataset whose samples are no rows."""

    def __getitem__(self, index: Any) -> Any:
        return {"n": index}

    def __getitems__(self, indices: Any) -> Any:
        return [{"n": index} for index in indices]


@pytest.mark.parametrize("by", ["write", "convert"])
def test_a_class_of_ones_own(tmp_path: Path, by: str) -> None:
    given = Own(photographs().data)
    if by == "write":
        write(tmp_path / "out", given)
    else:
        convert(given, tmp_path / "out", num_workers=0)
    with FileReader(tmp_path / "out") as reader:
        assert reader.samples(range(9)) == [{"n": i} for i in range(9)]


def test_a_serializer_gets_samples_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "out", photographs(), serializer=pickle.dumps)
    with FileReader(tmp_path / "out") as reader:
        sample = pickle.loads(bytes(reader.read_one(0)))
    assert np.array_equal(np.asarray(sample["image"]), np.asarray(photographs()[0]["image"])) and sample["label"] == 0


def test_a_stream_gives_what_is_decoded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its files may be anywhere; the log says that they are not kept, and neither are class names."""
    classes = (
        "columns 'label': class names are kept only where fields have them, such as LabelField(names), and matched by "
        "name; load the dataset without streaming to keep all"
    )
    DatasetWriter(tmp_path / "out", num_workers=0).from_iterable(photographs(PNGS).to_iterable_dataset())
    for i, sample in enumerate(stored(tmp_path / "out")):
        assert np.array_equal(np.asarray(sample["image"]), np.asarray(Image.open(io.BytesIO(PNGS[i]))))
    assert [each.getMessage() for each in caplog.records if each.name == "ffrecord"] == [
        classes,
        "columns 'image': files are decoded and encoded again; load the dataset without streaming to keep their bytes",
    ]
    caplog.clear()
    convert(photographs().select_columns("label").to_iterable_dataset(), tmp_path / "other", num_workers=0)
    assert [each.getMessage() for each in caplog.records if each.name == "ffrecord"] == [classes]


@pytest.mark.parametrize("call", ["from_indexed_dataset", "from_iterable"])
def test_several_are_refused(tmp_path: Path, call: str) -> None:
    both = datasets.DatasetDict(train=photographs(), test=photographs())
    with pytest.raises(ArgumentError, match="DatasetDict has several datasets: pass one of 'train', 'test'"):
        getattr(DatasetWriter(tmp_path / "out", num_workers=0), call)(both)


def test_a_file_that_is_no_image_is_named_by_its_sample(tmp_path: Path) -> None:
    given = photographs([*JPEGS[:8], b"no image"])
    with pytest.raises(WorkerError, match="failed at sample 8"):
        write(tmp_path / "out", given, {"image": JPEGField()})
    write(tmp_path / "out", given, {"image": JPEGField()}, on_error="skip")
    assert [each["image"] for each in stored(tmp_path / "out")] == JPEGS[:8]


def test_rows_are_told_from_others() -> None:
    """So that an interrupted write of others is not gone on with, by `DatasetWriter` and `convert`."""
    one, same, other = (input_of(photographs(files)) for files in (JPEGS, JPEGS, PNGS))
    assert one is not None and same is not None and other is not None
    assert one.fingerprint == same.fingerprint != other.fingerprint
    known = [each.dataset(None).fingerprint for each in (one, same, other)]
    assert known[0] == known[1] != known[2]


def test_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "out", photographs().select([]))
    with FileReader(tmp_path / "out") as reader:
        assert len(reader) == 0


PETS = ["dog", "cow", "cat"]  # CLASSES in another order, and one more
CLASS = datasets.ClassLabel(names=CLASSES)
AROUND: list[tuple[Any, Any, list[Any], list[Any]]] = [  # feature, fields around LabelField(PETS), values, expected
    (CLASS, lambda field: field, [0, 1], [2, 0]),
    (CLASS, OptionalField, [0, None, 1], [2, None, 0]),
    (CLASS, OptionalField, [1, 0], [0, 2]),
    (datasets.Sequence(CLASS), ListField, [[0, 1], [], [1]], [[2, 0], [], [0]]),
    (
        datasets.Sequence(CLASS),
        lambda field: OptionalField(ListField(OptionalField(field))),
        [[0, None], None],
        [[2, None], None],
    ),
    (
        datasets.Sequence(datasets.Sequence(CLASS)),
        lambda field: ListField(ListField(field)),
        [[[0], [1]]],
        [[[2], [0]]],
    ),
    (
        {"one": CLASS, "name": datasets.Value("string")},
        lambda field: {"one": field, "name": StrField()},
        [{"one": 0, "name": "x"}, {"one": 1, "name": "y"}],
        [{"one": 2, "name": "x"}, {"one": 0, "name": "y"}],
    ),
]


def of_classes(feature: Any, values: list[Any]) -> Any:
    return datasets.Dataset.from_list([{"x": value} for value in values], datasets.Features({"x": feature}))


def store_by(by: str, path: Path, source: Any, fields: Any = None) -> dict[str, Any]:
    """Write a Hugging Face dataset in a way; return the fields of the result."""
    if by == "write":
        return write(path, source, fields)
    if by == "stream":
        DatasetWriter(path, fields, num_workers=0).from_iterable(source.to_iterable_dataset())
        return {}
    if by == "converted stream":
        source = source.to_iterable_dataset()
    if by == "parquet":
        source.to_parquet(f"{path}.parquet")
        source = f"{path}.parquet"
    elif by == "arrow":
        source = source.with_format("arrow")[:]
    convert(source, path, fields=fields, num_workers=0, verify=True)
    with FileReader(path) as reader:
        schema = schema_of(reader)
        return {} if schema is None else dict(schema.fields)


WAYS = ["write", "convert", "parquet", "arrow"]
in_every_way = pytest.mark.parametrize("by", WAYS)
also_in_streams = pytest.mark.parametrize("by", [*WAYS, "stream", "converted stream"])


@also_in_streams
@pytest.mark.parametrize(("feature", "around", "values", "expected"), AROUND)
def test_classes_are_matched_by_name(
    tmp_path: Path, by: str, feature: Any, around: Any, values: list[Any], expected: list[Any]
) -> None:
    """At any depth: the numbers of the source are those of its names, not of the field that is asked for."""
    store_by(by, tmp_path / "out", of_classes(feature, values), {"x": around(LabelField(PETS))})
    with FileReader(tmp_path / "out") as reader:
        assert [each["x"] for each in reader.samples(range(len(expected)))] == expected
    store_by(by, tmp_path / "same", of_classes(feature, values), {"x": around(LabelField(CLASSES))})
    with FileReader(tmp_path / "same") as reader:
        assert [each["x"] for each in reader.samples(range(len(values)))] == values


@also_in_streams
def test_a_number_of_no_class_is_not_given_a_name(tmp_path: Path, by: str) -> None:
    """Names by number would take -1 for the last one."""
    given = of_classes(CLASS, [0, -1])
    with pytest.raises((FormatError, WorkerError), match="class is -1, expected 0 to 1") as caught:
        store_by(by, tmp_path / "out", given, {"x": OptionalField(LabelField(PETS))})
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_classes_of_a_format_are_not_mistaken(tmp_path: Path, kind: str) -> None:
    """Its numbers come as they are, so other names are refused."""
    if kind == "torch":
        pytest.importorskip("torch")
    given = of_classes(CLASS, [0, 1]).with_format(kind)
    with pytest.raises(FormatError, match=r"'x': the classes of the dataset are \('cat', 'dog'\).*with_format\(None\)"):
        write(tmp_path / "out", given, {"x": LabelField(PETS)})
    write(tmp_path / "same", of_classes(CLASS, [0, 1]).with_format("numpy"), {"x": LabelField(CLASSES)})
    with FileReader(tmp_path / "same") as reader:
        assert [each["x"] for each in reader.samples([0, 1])] == [0, 1]


@pytest.mark.parametrize("by", ["write", "convert"])
def test_classes_of_a_transform_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str) -> None:
    """It may have numbered them anew."""
    given = of_classes(CLASS, [0, 1]).with_transform(lambda batch: {"x": [2 - 2 * each for each in batch["x"]]})
    store_by(by, tmp_path / "out", given, {"x": LabelField(PETS)})
    with FileReader(tmp_path / "out") as reader:
        assert [each["x"] for each in reader.samples([0, 1])] == [2, 0]
    assert caplog.text.count("column 'x': the classes of the dataset are ('cat', 'dog')") == 1


@also_in_streams
def test_names_that_the_field_lacks_are_refused(tmp_path: Path, by: str) -> None:
    with pytest.raises(WorkerError, match="no class 'cat'"):
        store_by(
            by, tmp_path / "out", of_classes(datasets.Sequence(CLASS), [[0]]), {"x": ListField(LabelField(["dog"]))}
        )


@in_every_way
@pytest.mark.parametrize(
    ("feature", "values", "field"),
    [
        (CLASS, [0, None, 1], OptionalField(LabelField(CLASSES))),
        (datasets.Sequence(CLASS), [[0, 1], [], [1]], ListField(LabelField(CLASSES))),
        (datasets.Sequence(CLASS), [[0, None], [1]], ListField(OptionalField(LabelField(CLASSES)))),
        (datasets.Sequence(CLASS), [[0, 1], None], OptionalField(ListField(LabelField(CLASSES)))),
        (
            datasets.Sequence(datasets.Sequence(CLASS)),
            [[[0], [1, 1]], []],
            ListField(ListField(LabelField(CLASSES))),
        ),
    ],
)
def test_class_names_are_kept_where_a_field_has_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str, feature: Any, values: list[Any], field: Any
) -> None:
    assert store_by(by, tmp_path / "out", of_classes(feature, values)) == {"x": field}
    with FileReader(tmp_path / "out") as reader:
        assert [each["x"] for each in reader.samples(range(len(values)))] == values
    assert "class names" not in caplog.text


@in_every_way
@pytest.mark.parametrize(
    ("feature", "values", "why"),
    [
        (CLASS, [0, -1], "some numbers may be those of no class, such as -1"),
        (datasets.Sequence(CLASS), [[0, -1]], "some numbers may be those of no class, such as -1"),
        ({"one": CLASS}, [{"one": 1}], "no field of whole columns has them for the type struct<one: int64>"),
        (datasets.List({"one": CLASS}), [[{"one": 1}]], "no field of whole columns has them for the type list<"),
    ],
)
def test_class_names_that_are_not_kept_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str, feature: Any, values: list[Any], why: str
) -> None:
    store_by(by, tmp_path / "out", of_classes(feature, values))
    with FileReader(tmp_path / "out") as reader:
        found = [each["x"] for each in reader.samples(range(len(values)))]
    assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found] == values
    told = [each for each in caplog.records if "class names" in each.getMessage()]
    assert [each.levelname for each in told] == ["WARNING"]
    assert told[0].getMessage().startswith(f"column 'x': its class names are not kept, because {why}")
