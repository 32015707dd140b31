"""ffrecord.convert: what people have, as typed shards; nothing lost."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader, MismatchError, WorkerError
from ffrecord.conversion import convert
from ffrecord.errors import ArgumentError, ArgumentTypeError, FFRecordError
from ffrecord.fields import BytesField, IntField, JPEGField, NDArrayField, schema_of
from ffrecord.fields.images.jpeg_codec import compress
from ffrecord.sources import TFRecordWriter, encode_example
from ffrecord.sources.zip.reader import ZipReader

JPEGS = [compress(np.full((8, 8 + i, 3), 20 * i, np.uint8), 90) for i in range(10)]
FILES = {f"{'ab'[i % 2]}/{i}.jpg": data for i, data in enumerate(JPEGS)}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def samples(path: Path) -> list:
    """What is in a result, JPEGs as their bytes."""
    with FileReader(path) as reader:
        schema = schema_of(reader)
        if schema is None:
            return [record.tobytes() for record in reader]
        jpegs = {
            name: JPEGField(as_bytes=True) for name, field in schema.fields.items() if isinstance(field, JPEGField)
        }
        return [schema.replace(jpegs).decode(record) for record in reader]


def fields(path: Path) -> dict:
    with FileReader(path) as reader:
        return dict(schema_of(reader).fields)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [zipped, tarred], ids=["zip", "tar"])
def test_archives_of_photographs(tmp_path, make, workers):
    source = make(tmp_path / "source", FILES)
    summary = convert(source, tmp_path / "out", num_workers=workers, verify=True)
    assert (summary.samples, summary.path) == (10, str(tmp_path / "out"))
    assert samples(tmp_path / "out") == [{"key": name, "data": data} for name, data in FILES.items()]
    assert fields(tmp_path / "out")["data"] == JPEGField()


def test_what_is_not_all_photographs_stays_bytes(tmp_path):
    """Two in a thousand are something else, which none of those looked at need be."""
    files = {f"{i:04}.jpg": JPEGS[i % 10] for i in range(300)} | {"0150.txt": b"no JPEG"}
    convert(zipped(tmp_path / "source", files), tmp_path / "out", num_workers=0, verify=True)
    assert fields(tmp_path / "out")["data"] == BytesField()
    assert {each["key"]: each["data"] for each in samples(tmp_path / "out")} == files


def test_names_that_are_no_text(tmp_path):
    source = tarred(tmp_path / "source", {"a\udcff.bin": b"1", "b.bin": b"23"})
    convert(source, tmp_path / "out", num_workers=0, verify=True)
    assert samples(tmp_path / "out") == [{"key": b"a\xff.bin", "data": b"1"}, {"key": b"b.bin", "data": b"23"}]


def test_webdataset(tmp_path):
    files = {f"{i}.{end}": data for i in range(9) for end, data in (("jpg", JPEGS[i]), ("cls", b"%d" % i))}
    source = tarred(tmp_path / "source.tar", files)
    convert(source, tmp_path / "out", format="webdataset", num_workers=0, verify=True)
    found = samples(tmp_path / "out")
    assert [(each["jpg"], each["cls"]) for each in found] == [(JPEGS[i], b"%d" % i) for i in range(9)]


@pytest.mark.parametrize("format", [None, "webdataset"])
def test_packed_tar(tmp_path, format):
    source = tarred(tmp_path / "source.tar.gz", FILES if format is None else {"a.x": b"1", "b.x": b"2"}, "w:gz")
    convert(source, tmp_path / "out", format=format, num_workers=0, verify=True)
    if format is None:
        assert samples(tmp_path / "out") == [{"key": name, "data": data} for name, data in FILES.items()]
    else:
        assert [each["x"] for each in samples(tmp_path / "out")] == [b"1", b"2"]


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_tar_of_pictures(tmp_path, workers):
    """Read in one process, and encoded in others."""
    files = {f"{i:02}.jpg": JPEGS[i % len(JPEGS)] for i in range(20)}
    convert(tarred(tmp_path / "source.tar.gz", files, "w:gz"), tmp_path / "out", num_workers=workers, verify=True)
    with FileReader(tmp_path / "out") as reader:
        schema = schema_of(reader)
        assert isinstance(schema.fields["data"], JPEGField)
        kept = schema.replace({"data": JPEGField(as_bytes=True)})
        assert [kept.decode(record)["data"] for record in reader] == list(files.values())


def test_typed_shards_again(tmp_path):
    """`.ffr` to `.ffr`, in other shards: records as they are, even JPEGs."""
    given = [{"image": data, "label": i} for i, data in enumerate(JPEGS)]
    columns = {"image": JPEGField(), "label": IntField()}
    DatasetWriter(tmp_path / "one", columns, num_workers=0).from_indexed_dataset(given)
    convert(tmp_path / "one", tmp_path / "many", num_workers=0, samples_per_shard=3, verify=True)
    assert samples(tmp_path / "many") == samples(tmp_path / "one")
    assert fields(tmp_path / "many") == fields(tmp_path / "one")
    assert len(list((tmp_path / "many").glob("*.ffr"))) == 4


def test_plain_records_again(tmp_path):
    DatasetWriter(tmp_path / "one", num_workers=0).from_indexed_dataset([b"a", b"", b"bc"])
    convert(tmp_path / "one", tmp_path / "two", num_workers=0, verify=True)
    assert samples(tmp_path / "two") == [b"a", b"", b"bc"]


def test_a_store_that_is_open(tmp_path):
    with ZipReader(zipped(tmp_path / "source", FILES)) as store:
        convert(store, tmp_path / "out", num_workers=0)
        assert not store.closed
        with pytest.raises(ArgumentTypeError, match="'index_cache' is not an argument for an open store"):
            convert(store, tmp_path / "other", index_cache=True)
    assert len(samples(tmp_path / "out")) == 10


def test_a_dataset_and_an_iterable(tmp_path):
    given = [{"x": i, "y": np.full(3, i)} for i in range(200)]
    for name, source in (("list", given), ("tuple", tuple(given)), ("generator", (each for each in given))):
        convert(source, tmp_path / name, num_workers=2, verify=name != "generator")
        assert [each["x"] for each in samples(tmp_path / name)] == list(range(200))
    with pytest.raises(
        ArgumentError, match="verify=True has to read the samples again, but generator gives them only once"
    ):
        convert((each for each in given), tmp_path / "again", verify=True)
    with pytest.raises(ArgumentTypeError, match=r"is int .*, expected a path, a store, a dataset or an iterable"):
        convert(3, tmp_path / "again")


def test_other_fields_for_some_columns(tmp_path):
    source = zipped(tmp_path / "source", FILES)
    convert(source, tmp_path / "out", fields={"data": BytesField()}, num_workers=0)
    assert fields(tmp_path / "out")["data"] == BytesField()
    with pytest.raises(ArgumentError, match="fields has 'image', expected some of the columns key, data"):
        convert(source, tmp_path / "other", fields={"image": JPEGField()}, num_workers=0)


def test_append(tmp_path):
    source = zipped(tmp_path / "source", FILES)
    for mode in ("create", "append"):
        convert(source, tmp_path / "out", num_workers=0, mode=mode, verify=True)
    assert [each["data"] for each in samples(tmp_path / "out")] == JPEGS * 2


def test_the_same_bytes_for_any_number_of_workers(tmp_path):
    source = zipped(tmp_path / "source", {f"{i}.bin": bytes([i % 251]) * (i * 13 % 999) for i in range(500)})
    for workers in (0, 1, 3):
        convert(source, tmp_path / str(workers), num_workers=workers, samples_per_shard=150)
    written = [[path.read_bytes() for path in sorted((tmp_path / str(i)).glob("*.ffr"))] for i in (0, 1, 3)]
    assert written[0] == written[1] == written[2] and len(written[0]) == 4


# What goes wrong


@pytest.mark.parametrize("workers", [0, 2])
def test_differences_are_named(tmp_path, workers):
    with pytest.raises(
        MismatchError, match="2 of 200 samples differ from their source: sample 30 has 8 bytes"
    ) as raised:
        convert(Fickle(tmp_path), tmp_path / "out", num_workers=workers, verify=True)
    assert len(raised.value.differences) == 2 and raised.value.differences[1].startswith(
        "sample 70 has 8 bytes with CRC-32"
    )


class Fickle:
    """Samples that are others once the result is there, which other processes see, too."""

    def __init__(self, directory: Path) -> None:
        self.result = directory / "out"

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"x": -1 if index in (30, 70) and self.result.exists() else index}


def test_a_damaged_record_is_named_and_nothing_is_there(tmp_path):
    source = zipped(tmp_path / "source", {f"{i}.bin": bytes([i]) * 100 for i in range(100)})
    data = bytearray(source.read_bytes())
    data[data.index(bytes([71]) * 100)] ^= 1  # none of those looked at first
    source.write_bytes(data)
    with pytest.raises(WorkerError, match=r"71\.bin"):
        convert(source, tmp_path / "out", num_workers=2)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_conversion_goes_on(tmp_path):
    source = zipped(tmp_path / "source", {f"{i}.bin": b"sample %4d" % i for i in range(400)})
    whole = source.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(b"sample  371")] ^= 1
    source.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"371\.bin"):
            convert(source, tmp_path / "out", num_workers=0, samples_per_shard=50)
    source.write_bytes(whole)
    summary = convert(source, tmp_path / "out", num_workers=0, samples_per_shard=50, verify=True)
    assert summary.kept_shards == 6 and summary.samples == 400


def test_a_store_that_leaves_out_is_refused(tmp_path):
    source = zipped(tmp_path / "source", {f"{i}.bin": bytes([i]) * 100 for i in range(10)})
    data = bytearray(source.read_bytes())
    data[data.index(bytes([7]) * 100)] ^= 1
    source.write_bytes(data)
    with pytest.raises(FFRecordError, match="only 9 of 10 samples could be read"):
        convert(source, tmp_path / "out", num_workers=0, on_error="skip")


def test_a_wrong_argument_costs_nothing(tmp_path):
    with pytest.raises(ValueError, match="num_workers is -2"):
        convert(tmp_path / "nothing", tmp_path / "out", num_workers=-2)
    for wrong in ({"verify": "x"}, {"resume": "x"}):
        with pytest.raises(ArgumentTypeError, match=f"{min(wrong)} is str .*, expected True or False"):
            convert(tmp_path / "nothing", tmp_path / "out", **wrong)
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(FileExistsError):
        convert(zipped(tmp_path / "source", FILES), tmp_path / "out")


def test_arrays_of_one_size_stay_arrays(tmp_path):
    given = [{"x": np.full((4, 4), i, np.uint8)} for i in range(9)]
    convert(given, tmp_path / "out", num_workers=0)
    assert isinstance(fields(tmp_path / "out")["x"], NDArrayField)


def damaged(path: Path, *parts: bytes) -> Path:
    """A file with one bit flipped in the last place where each of these is."""
    data = bytearray(path.read_bytes())
    for part in parts:
        data[data.rindex(part)] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_samples_among_those_looked_at(tmp_path, workers):
    """The first and the last are always looked at."""
    files = {f"{i:02}.txt": f"text {i:02}".encode() for i in range(30)}
    source = damaged(zipped(tmp_path / "source", files), b"text 00", b"text 29")
    with pytest.raises(FFRecordError, match=r"00\.txt"):
        convert(source, tmp_path / "out", num_workers=workers)
    with pytest.raises(WorkerError, match="2 samples could not be written, max_skipped is 1"):
        convert(source, tmp_path / "out", num_workers=workers, max_skipped=1)
    assert convert(source, tmp_path / "out", num_workers=workers, max_skipped=2).skipped == 2
    assert samples(tmp_path / "out") == [{"key": name, "data": files[name]} for name in list(files)[1:-1]]


def test_damaged_examples_among_those_looked_at(tmp_path):
    with TFRecordWriter(tmp_path / "s.tfrecord") as writer:
        for i in range(20):
            writer.write(encode_example({"text": f"text {i:02}", "number": i}))
    source = damaged(tmp_path / "s.tfrecord", b"text 00")
    assert convert(source, tmp_path / "out", num_workers=0, max_skipped=1).skipped == 1
    assert samples(tmp_path / "out") == [{"text": f"text {i:02}".encode(), "number": i} for i in range(1, 20)]


def test_only_damaged_samples(tmp_path):
    source = damaged(zipped(tmp_path / "source", {"a": b"text a", "b": b"text b"}), b"text a", b"text b")
    with pytest.raises(FFRecordError, match=r"member 'a'"):
        convert(source, tmp_path / "out", num_workers=0, max_skipped=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("bad", [0, 101], ids=["looked at", "not looked at"])
def test_a_file_that_is_no_picture_is_named(tmp_path, caplog, workers, bad):
    """One that can be read, and does not fit the column."""
    folder = tmp_path / "folder"
    picture = JPEGS[0]
    for number in range(300):
        path = folder / "a" / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not a jpeg" if number == bad else picture)
    with pytest.raises(WorkerError, match=rf"failed at sample {bad} \(.*folder/a/{bad:03}\.jpg\): ValueError: image: "):
        convert(folder, tmp_path / "out", num_workers=workers)
    with caplog.at_level("WARNING", "ffrecord"):
        assert convert(folder, tmp_path / "out", num_workers=workers, max_skipped=1).skipped == 1
    assert f"{bad:03}.jpg) skipped: ValueError: image: 10 bytes that begin with" in caplog.text
    assert fields(tmp_path / "out")["image"] == JPEGField()


def test_files_that_are_all_no_pictures_stay_bytes(tmp_path):
    (tmp_path / "folder" / "a").mkdir(parents=True)
    (tmp_path / "folder" / "a" / "0.jpg").write_bytes(b"not a jpeg")
    convert(tmp_path / "folder", tmp_path / "out", num_workers=0)
    assert fields(tmp_path / "out")["image"] == BytesField()
