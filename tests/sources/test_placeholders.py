"""Git LFS pointers and HTML pages in place of files, with the format named: every reader says what they are."""

import json
from pathlib import Path

import pytest

import ffrecord
from ffrecord import FormatError, sources
from ffrecord.errors import ArgumentError, MissingFileError

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
PAGE = b"\n<!DOCTYPE html>\n<html><body>404</body></html>\n" * 40
HINTS = {
    POINTER: r"; it is a Git LFS pointer: run `git lfs pull`$",
    PAGE: "; it is an HTML page, so the download failed",
}
both = pytest.mark.parametrize("data", HINTS, ids=["pointer", "page"])

FORMATS = ("zip", "tar", "webdataset", "tfrecord", "recordio", "lmdb", "torchrecord", "beton", "path list")
READERS = [
    "ZipReader",
    "TarReader",
    "WebDatasetReader",
    "TFRecordReader",
    "RecordIOReader",
    "LMDBReader",
    "TorchRecordReader",
    "BetonReader",
    "PathListReader",
]


@both
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}, {"index_cache": True}], ids=str)
def test_the_format_is_named(tmp_path, data, format, options):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FormatError, match=rf"^{tmp_path}/a(:| is not an?) .*{HINTS[data]}"):
        ffrecord.open(tmp_path / "a", format, **options)
    (tmp_path / "b").write_bytes(b"something else, " * 100)
    if format == "path list":
        return
    with pytest.raises(FormatError, match=rf"^{tmp_path}/b(: | is not an? )") as caught:
        ffrecord.open(tmp_path / "b", format, **options)
    assert "; it is" not in str(caught.value)


@both
@pytest.mark.parametrize("reader", READERS)
def test_the_reader_is_named(tmp_path, data, reader):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FormatError, match=HINTS[data]):
        getattr(sources, reader)(tmp_path / "a")


@both
@pytest.mark.parametrize("stream", ["iter_members", "iter_samples", "stream_tfrecord"])
def test_streams(tmp_path, data, stream):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FormatError, match=HINTS[data]):
        list(getattr(sources, stream)(tmp_path / "a"))


def test_a_torn_end_may_be_skipped_but_no_pointer(tmp_path):
    (tmp_path / "a").write_bytes(POINTER)
    for on_torn in ("raise", "skip"):
        for check_data in (True, False):
            with pytest.raises(FormatError, match=HINTS[POINTER]):
                sources.TFRecordReader(tmp_path / "a", check_data, on_torn=on_torn)


@both
@pytest.mark.parametrize("format", [None, "lmdb"])
def test_files_of_directories(tmp_path, data, format):
    (tmp_path / "data.mdb").write_bytes(data)
    with pytest.raises(FormatError, match=rf"data\.mdb(: it)? is not an LMDB .*{HINTS[data]}"):
        ffrecord.open(tmp_path, format)


@both
def test_files_of_mds(tmp_path, data):
    index = tmp_path / "index.json"
    index.write_bytes(data)
    with pytest.raises(FormatError, match=rf"index\.json is not an index of MDS .*{HINTS[data]}"):
        ffrecord.open(tmp_path, "mds")
    columns = {"column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8]}
    shard = {"format": "mds", "version": 2, "samples": 1, "compression": None, "hashes": [], "size_limit": None}
    file = {"basename": "a.mds", "bytes": 20, "hashes": {}}
    for more in ({"zip_data": None}, {"compression": "zstd", "zip_data": {**file, "basename": "a.mds.zstd"}}):
        index.write_text(json.dumps({"version": 2, "shards": [{**columns, **shard, "raw_data": file, **more}]}))
        (tmp_path / file["basename"]).write_bytes(data)
        (tmp_path / "a.mds.zstd").write_bytes(data)
        with pytest.raises(FormatError, match=rf"a\.mds.*: .*{HINTS[data]}"):
            ffrecord.open(tmp_path)


@both
def test_files_of_ours(tmp_path, data):
    ffrecord.DatasetWriter(tmp_path / "a", num_workers=0).from_indexed_dataset([{"x": 1}])
    for name in ("PART_00000.ffr", "dataset.json"):
        (tmp_path / "a" / name).write_bytes(data)
        with pytest.raises(FormatError, match=rf"{name}.*: .*{HINTS[data]}"):
            ffrecord.open(tmp_path / "a", "ffrecord")
    (tmp_path / "a.any").write_bytes(data)
    with pytest.raises(ArgumentError, match=r"a\.any does not end with \.ffr"):  # another fault, which hides this one
        ffrecord.FileReader(tmp_path / "a.any")
    with pytest.raises(MissingFileError):
        ffrecord.open(tmp_path / "missing", "tar")


@both
def test_parquet(tmp_path, data):
    pytest.importorskip("pyarrow")
    (Path(tmp_path) / "a.parquet").write_bytes(data)
    with pytest.raises(FormatError, match=rf"a\.parquet: .*{HINTS[data]}"):
        ffrecord.convert(tmp_path / "a.parquet", tmp_path / "out", format="parquet")
