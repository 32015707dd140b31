"""Damaged and hostile MDS datasets: refused with an error of ours, or read; never anything else."""

import json
import os
import struct
from pathlib import Path

import children
import numpy as np
import pytest
from mds_twin import write_mds, zstd
from mutations import mutants

from ffrecord.errors import FFRecordError, FormatError, TruncatedError
from ffrecord.sources.mds.encodings import encoding
from ffrecord.sources.mds.reader import MDSReader

COLUMNS = {"a": "str", "b": "int", "c": "ndarray", "d": "list[jpeg]", "e": "json"}
SAMPLES = [
    {"a": "x" * i, "b": i, "c": np.arange(i + 1, dtype="int16"), "d": [b"j" * i, b""], "e": {"i": i}} for i in range(4)
]


@pytest.fixture
def directory(tmp_path):
    return write_mds(tmp_path / "data", COLUMNS, SAMPLES, per_shard=4)


@pytest.fixture
def packed(tmp_path):
    return write_mds(tmp_path / "packed", COLUMNS, SAMPLES, per_shard=4, compression="zstd")


def outcome(directory: Path) -> list | None:
    """The samples, or None if the dataset was refused."""
    try:
        with MDSReader(directory) as reader:
            columns = reader.columns(range(len(reader)))
            samples = reader.samples(range(len(reader)))
            assert [each["e"] for each in samples] == columns["e"]
            return samples
    except (FFRecordError, TruncatedError, FileNotFoundError) as error:
        assert str(directory) in str(error)
        return None


def test_every_flipped_byte_of_a_shard(directory):
    """Whatever says where something is must be noticed; there is no checksum for the values themselves."""
    path = directory / "shard.00000.mds"
    data = path.read_bytes()
    first = struct.unpack_from("<I", data, 4)[0]
    for at in [*range(first), *range(first, len(data), 3)]:
        changed = bytearray(data)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        assert outcome(directory) is None or at >= 24, at  # spaces in the JSON may be anything that JSON allows
    path.write_bytes(data)
    assert outcome(directory) is not None


def test_every_cut_of_a_shard(directory, packed):
    for path in (directory / "shard.00000.mds", packed / "shard.00000.mds.zstd"):
        data = path.read_bytes()
        for size in range(0, len(data), 5):
            path.write_bytes(data[:size])
            assert outcome(path.parent) is None, size


def edited(directory: Path, **changes: object) -> Path:
    """The dataset with changes to its first shard in the index; dots in names for what is inside."""
    index = json.loads((directory / "index.json").read_text())
    for name, value in changes.items():
        inner = index["shards"][0]
        *outer, last = name.split("__")
        for each in outer:
            inner = inner[each]
        inner[last] = value
    (directory / "index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 5}, "4 samples, index.json says 5"),
        ({"samples": 2**31}, "417 bytes, too few for the 2147483648 samples in"),
        ({"samples": -1}, "samples is -1"),
        ({"samples": 2**70}, "samples is 1180591620717411303424"),
        ({"version": 1}, "version 1, expected 'mds' and 2"),
        ({"format": "csv"}, "format is 'csv'"),
        ({"raw_data__bytes": 7}, "bytes, index.json says 7"),
        ({"raw_data__basename": "../x"}, "'../x' is not a valid name of a file below the directory"),
        ({"raw_data__basename": "/etc/passwd"}, "'/etc/passwd' is not a valid name of a file below"),
        ({"raw_data__basename": "a//b"}, "'a//b' is not a valid name of a file below"),
        ({"column_names": ["a", "b", "c", "d"]}, "with 5 encodings and 5 sizes, expected each name once"),
        ({"column_names": ["a", "b", "c", "d", "a"]}, "expected each name once"),
        ({"column_names": ["a", "b", "c", "d", "x"]}, "index.json says MDSColumns"),
        ({"column_encodings": ["str", "int", "ndarray", "list[jpeg]", "what"]}, "encoding is 'what', expected one of"),
        ({"column_sizes": [None, 4, None, None, None]}, "values of int have 8 bytes, the index says 4 bytes"),
        ({"column_sizes": [3, 8, None, None, None]}, "values of str have varying sizes, the index says 3 bytes"),
        ({"column_encodings": ["str", "int", "ndarray:f4", "list[jpeg]", "json"]}, "expected ndarray:dtype:axes"),
        (
            {"column_encodings": ["str", "int", "ndarray:uint8:0,4294967296", "list[jpeg]", "json"]},
            "an array of shape (0, 4294967296) and uint8 has up to 4294967296 bytes, a shard at most 4294967295",
        ),
        (
            {"column_encodings": ["str", "int", f"ndarray:uint8:1{',1' * 63}", "list[jpeg]", "json"]},
            "encoding is 'ndarray:uint8:1,1",
        ),
        ({"compression": "zstd"}, "compression is 'zstd', but it lists no compressed file"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(directory, changes, message):
    with pytest.raises(FormatError) as caught:
        MDSReader(edited(directory, **changes))
    assert message in str(caught.value) and str(directory) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 2, "shards": 3}', "[" * 100_000])
def test_an_index_that_is_none_is_refused(directory, text):
    (directory / "index.json").write_text(text)
    with pytest.raises(FormatError, match=r"index\.json is not an index of MDS shards"):
        MDSReader(directory)


def test_another_version(directory):
    (directory / "index.json").write_text('{"version": 3, "shards": []}')
    with pytest.raises(FormatError, match="version is 3, expected 2"):
        MDSReader(directory)


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (b"nothing compressed", {}, "the zstd data are damaged"),
        (lambda: zstd(b"x" * 10), {}, "10 bytes after decompression, the index says"),
        (lambda: zstd(bytes(1 << 20)), {}, "more than the 4"),
        (b"\x0a" * 9, {"compression": "br"}, "the br data are damaged"),
        (b"\xff" * 9, {"compression": "snappy:1"}, "the snappy:1 data are damaged"),
        (b"\x1f\x8b\x08", {"compression": "gz:9"}, "the gz:9 data are damaged"),
        (b"BZh9", {"compression": "bz2"}, "after decompression|the bz2 data are damaged"),
        (b"x", {"compression": "xz"}, "compression is 'xz', expected one of zstd, gz, bz2, br, snappy"),
        (b"x", {"compression": "gz", "raw_data__bytes": 1 << 32}, "after decompression, expected at most 4294967295"),
    ],
)
def test_bad_compressed_shards_are_refused(packed, data, changes, message):
    data = data() if callable(data) else data
    (packed / "shard.00000.mds.zstd").write_bytes(data)
    edited(packed, zip_data__bytes=len(data), **changes)
    with pytest.raises(FormatError, match=message), MDSReader(packed) as reader:
        reader.read([0])


def test_a_bad_compressed_shard_does_not_hide_the_others(tmp_path):
    directory = write_mds(tmp_path / "a", COLUMNS, SAMPLES, per_shard=2, compression="zstd")
    path = directory / "shard.00000.mds.zstd"
    path.write_bytes(bytes(path.stat().st_size))
    with MDSReader(directory, on_error="skip") as reader:
        assert [each["b"] for each in reader.samples(range(4))] == [2, 3]
        assert reader.columns(range(4))["b"].tolist() == [2, 3]
    message = r"Sample 1: .*shard\.00000\.mds\.zstd: the zstd data are damaged"
    with MDSReader(directory) as reader, pytest.raises(FormatError, match=message):
        reader.read([2, 1])


@children.limits_memory
@pytest.mark.parametrize(
    "compression", ["zstd", *(pytest.param(each, marks=pytest.mark.long) for each in ("br", "gz", "bz2"))]
)
def test_bombs_stop_at_the_size_that_the_index_says(tmp_path, compression):
    """A shard that would be 2 GiB after decompression takes neither the memory nor the disk."""
    code = """
import os, resource, shutil, sys, tempfile
from ffrecord.errors import FormatError
from ffrecord.sources.mds.reader import MDSReader
limit = 3 << 29
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with MDSReader(sys.argv[1]) as reader:
        reader.read([0])
except FormatError as error:
    print("refused")
"""
    import bz2
    import gzip

    import cramjam

    zeros = bytes(64 << 20)
    data = {
        "zstd": lambda: zstd(zeros) * 32,
        "gz": lambda: gzip.compress(zeros, 1) * 32,
        "bz2": lambda: bz2.compress(zeros) * 32,
        "br": lambda: bytes(cramjam.brotli.compress(zeros, level=1)),
    }[compression]()
    directory = write_mds(tmp_path / "a", COLUMNS, SAMPLES, per_shard=4, compression=compression)
    (directory / f"shard.00000.mds.{compression}").write_bytes(data)
    edited(directory, zip_data__bytes=len(data))
    assert children.run(code, directory) == "refused\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("ndarray", b"", "dtype of an array is b''"),
        ("ndarray", b"\7\4\1x", "dtype of an array is b'"),
        ("ndarray", b"\x08", "an array has no shape"),
        ("ndarray", b"\x08\xff" + b"\xff" * 8, "an array of 63 axes has 9 bytes"),
        ("ndarray", b"\x08\x07" + b"\xff" * 8, "an array of shape (18446744073709551615,) and uint8 has 0 bytes"),
        ("ndarray", b"\x08\x0b\0\0\0\0\0\0\0\0" + b"\xff" * 8, "an array of shape (0, 18446744073709551615) and uint8"),
        ("ndarray:uint8", b"\x08\0" + b"\xff\xff", "an array of shape (0, 255) and uint8 has 1 bytes"),
        ("pil", b"123", "an image has 3 bytes"),
        ("pil", struct.pack("<III", 2**32 - 1, 2**32 - 1, 3) + b"RGBxyz", "and uint8 has 3 bytes"),
        ("pil", struct.pack("<III", 1, 1, 2**32 - 1) + b"RGBxyz", "mode of an image is 'RGBxyz'"),
        ("pil", struct.pack("<III", 1, 1, 2) + b"??xyz", "mode of an image is '??'"),
        ("list[jpeg]", b"", "a list has 0 bytes, expected at least 4"),
        ("list[jpeg]", struct.pack("<II", 0, 2**32 - 1), "a list of 4294967295 items has 4 bytes"),
        ("jpeg_array", struct.pack("<III", 1, 2**32 - 1, 0), "a list of 1 items has 12 bytes, expected 4294967303"),
        ("jpeg_array", struct.pack("<II", 0, 0), "a list of 0 items has 8 bytes, expected 4"),
        ("json", b"[" * 100_000, "its JSON is nested too deeply"),
        ("json", b"{", "Expecting property name"),
        ("str", b"\xff", "can't decode"),
        ("str_int", b"9" * 10_000, "Exceeds the limit"),
        ("str_float", b"x", "could not convert"),
        ("str_decimal", b"x", "is not a decimal number"),
    ],
)
def test_values_that_are_none_are_refused(name, data, message):
    with pytest.raises(ValueError) as caught:
        encoding(name, images=False, allow_pickle=False).decode(memoryview(data))
    assert message in str(caught.value)


def test_a_sample_whose_sizes_do_not_fit_is_named(directory):
    path = directory / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    start = struct.unpack_from("<I", data, 4 + 4 * 2)[0]
    struct.pack_into("<I", data, start, 2**32 - 1)
    path.write_bytes(data)
    with MDSReader(directory) as reader:
        for read in (reader.samples, reader.columns):
            with pytest.raises(
                FormatError, match=rf"Sample 2: {path}: sample 2: the record has \d+ bytes, its columns have 42949"
            ):
                read([1, 2])
        assert reader.sample(3)["b"] == 3


def test_a_shard_cut_under_an_open_reader(directory):
    with MDSReader(directory) as reader:
        os.truncate(directory / "shard.00000.mds", 100)
        with pytest.raises(TruncatedError):
            reader.read(range(4))


def fuzz(path: Path, count: int, seed: int) -> None:
    data = path.read_bytes()
    read = 0
    for changed in mutants(data, count, seed):
        path.write_bytes(changed)
        read += outcome(path.parent) is not None
    path.write_bytes(data)
    assert 0 < read < count  # some damage is harmless, some is not


def test_fuzzing(directory):
    fuzz(directory / "shard.00000.mds", 400, 1)
    fuzz(directory / "index.json", 300, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 9))
def test_fuzzing_for_long(directory, seed):
    fuzz(directory / "shard.00000.mds", 15_000, seed)
    fuzz(directory / "index.json", 15_000, seed)


VALUES = [
    ("ndarray", b"\x11\x08\2\3\0\0\0\0\0\0\0\0\0\0\0\0"),
    ("pil", struct.pack("<III", 2, 2, 3) + b"RGB" + bytes(12)),
    ("list[pil]", struct.pack("<III", 0, 1, 27) + struct.pack("<III", 2, 2, 3) + b"RGB" + bytes(12)),
    ("list[png]", struct.pack("<IIII", 0, 2, 3, 1) + b"abcd"),
    ("json", b'{"a": [1, 2.5, null, "x"]}'),
    ("str_decimal", b"-12.50E+3"),
]


@pytest.mark.parametrize(("name", "data"), VALUES)
def test_fuzzing_of_values(name, data):
    decode = encoding(name, images=False, allow_pickle=False).decode
    decode(memoryview(data))
    for changed in mutants(data, 400, 5):
        try:
            decode(memoryview(changed))
        except ValueError:
            continue
