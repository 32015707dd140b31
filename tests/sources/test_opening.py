import gzip
import io
import struct
import tarfile
import zipfile
from inspect import signature
from pathlib import Path

import pytest

import ffrecord
from ffrecord.errors import FormatError
from ffrecord.sources import opening


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def zip_at(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"x")
    return path


def tar_at(path, *names):
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return path


@pytest.mark.parametrize("read", [ffrecord.FileReader, ffrecord.PackedFolder])
def test_readers_of_one_format_name_what_opens_others(read):
    zip_at("s.zip")
    with pytest.raises(ValueError, match=r"s\.zip does not end with \.ffr; ffrecord\.open opens others"):
        read("s.zip")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("list.txt", b"cat/1.jpg 3\ndog/2.jpg 4\n", r"pass format=\"path list\""),
        ("list.csv", b"path,label\r\ncat/1.jpg,cat\r\n", r"pass format=\"path list\""),
        ("1.jpg", b"\xff\xd8\xff\xe0" + bytes(600), "open its directory"),
        ("m.rec", struct.pack("<II", 0xCED7230A, 16) + bytes(200), "RecordIO of MXNet.*ffrecord.convert"),
        ("a.arrow", b"\xff\xff\xff\xff\xf8" + bytes(600), "datasets.Dataset.from_file"),
        ("a.parquet", b"PAR1" + bytes(600), "looks like a Parquet file that was cut: .* does not end with it$"),
        ("a.tfrecord", bytes(range(64)), 'it has the name of a TFRecord, .* pass format="tfrecord" to see how$'),
        ("a.TFRecords", b"\x0c" + bytes(64), 'it has the name of a TFRecord, .* pass format="tfrecord" to see how$'),
        ("nothing", b"", "the file is empty"),
        ("notes", b"some text\n" * 100, "unknown format: 1000 bytes that begin with [0-9a-f ]+$"),
    ],
)
def test_what_is_not_known_is_led_on(name, data, said):
    Path(name).write_bytes(data)
    with pytest.raises(FormatError, match=f"{name}: .*{said}"):
        ffrecord.open(name)


def test_directories_of_saved_datasets(folder):
    for name in ("state.json", "dataset_info.json", "data-00000-of-00001.arrow"):
        (folder / name).write_bytes(b"{}")
    with pytest.raises(FormatError, match=r"datasets\.load_from_disk"):
        ffrecord.open(folder)


@pytest.mark.parametrize("format", [None, "tar"])
def test_braces_where_nothing_expands_them(format):
    with pytest.raises(FileNotFoundError, match='does not exist; braces are expanded only with format="webdataset"'):
        ffrecord.open("a-{0..1}.tar", format)


def test_tars_without_members():
    tar_at("empty.tar")
    tar_at("full.tar", "a", "b")
    with ffrecord.open("empty.tar") as store:
        assert (store.format, len(store)) == ("tar", 0)
    with ffrecord.open(["empty.tar", "full.tar"]) as store:
        assert len(store) == 2
    Path("zeros.bin").write_bytes(bytes(10240))
    with pytest.raises(FormatError, match="unknown format"):
        ffrecord.open("zeros.bin")


@pytest.mark.parametrize("format", [None, "tar", "webdataset"])
def test_small_compressed_tars(format):
    tar_at("plain.tar", "a")
    Path("small.tar.gz").write_bytes(gzip.compress(Path("plain.tar").read_bytes()))
    assert Path("small.tar.gz").stat().st_size < 512
    with pytest.raises(FormatError, match="compressed by gzip, so its members cannot be read in place"):
        ffrecord.open("small.tar.gz", format)


def test_options_that_a_format_does_not_have():
    zip_at("s.zip")
    with pytest.raises(TypeError, match=r"^zip takes no option 'decode'; it takes check_data, .*max_ratio$"):
        ffrecord.open("s.zip", decode=True)
    with pytest.raises(TypeError, match=r"^mds takes no option 'x'; it takes check_data, .*cache_bytes$"):
        ffrecord.open("s.zip", "mds", x=1)


def test_lists_are_of_one_format():
    zip_at("s.zip")
    tar_at("a.tar", "a")
    for source in (["s.zip", "a.tar"], ["a.tar", "s.zip"], ["*.zip", "a.tar"]):
        with pytest.raises(FormatError, match=r"(a\.tar|s\.zip) is .*: all files of a list must have one format"):
            ffrecord.open(source)
    Path("bad.zip").write_bytes(b"PK\3\4" + bytes(50))
    with pytest.raises(FormatError, match=r"bad\.zip: it is not a zip archive"):
        ffrecord.open(["s.zip", "bad.zip"])


def packed_at(path, *names):
    for name in names:
        Path(f"{path}.in", name).parent.mkdir(parents=True, exist_ok=True)
        Path(f"{path}.in", name).write_bytes(name.encode())
    ffrecord.pack_folder(f"{path}.in", path)


def test_packed_folders_in_directories(folder):
    packed_at("b.ffr", "x", "y/z")
    for source in (folder, "b.ffr", "*.ffr", ["b.ffr"]):
        with ffrecord.open(source) as store:
            assert (store.format, len(store)) == ("packed folder", 2)
    packed_at("c.ffr", "x")
    with pytest.raises(FormatError, match=r"b\.ffr is a packed folder, .* with other files, here 1: open it alone"):
        ffrecord.open(folder)
    with ffrecord.open(folder, "ffrecord") as store:
        assert len(store) == 5


def test_options_that_functions_hand_on():
    zip_at("s.zip")
    tar_at("plain.tar", "a")
    Path("a.tar.gz").write_bytes(gzip.compress(Path("plain.tar").read_bytes()))
    said = r"has no argument 'x', and its source, {}, takes no such option; it takes .*{}$"
    for source, format, known in (("s.zip", "zip", "max_ratio"), ("a.tar.gz", "compressed tar", "ignore_zeros")):
        with pytest.raises(TypeError, match="^ffrecord.convert " + said.format(format, known)):
            ffrecord.convert(source, "out", x=3)
    with pytest.raises(TypeError, match="^ffrecord.export " + said.format("zip", "max_ratio")):
        ffrecord.export("s.zip", "out.zip", x=3)
    assert not Path("out").exists() and not Path("out.zip").exists()


@pytest.mark.parametrize("format", opening.FORMATS)
def test_every_reader_takes_the_same_arguments_first(format):
    names = [*signature(opening._reader(format).__init__).parameters][1:]
    first = "fname" if format == "ffrecord" else "source"  # as ffrecord 1.x calls it
    assert names[:4] == [first, "check_data", "io", "on_error"]
    assert names[4:5] == ["index_cache"] or format == "ffrecord"
