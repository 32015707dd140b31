"""TorchRecordReader: a database that TorchRecord wrote, and others of its layouts."""

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from lmdb_builders import write
from tensor_messages import default_sample

from ffrecord.errors import FormatError, MissingFileError
from ffrecord.sources.lmdb.torchrecord import TorchRecordReader

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"


def pixels(i: int) -> np.ndarray:
    return np.full((2 + i % 3, 5, 3), i, np.uint8)


def messages(start: int, stop: int, width: int) -> list[tuple[bytes, bytes]]:
    """As TorchRecord numbers them in a database, zeros before the number up to a width."""
    return [(b"%0*d" % (width, i - start), default_sample(pixels(i), i)) for i in range(start, stop)]


def test_golden():
    about = json.loads((SEEDS / "manifest.json").read_text())["torchrecord_lmdb"]
    with TorchRecordReader(SEEDS / "torchrecord_lmdb") as reader:
        assert len(reader) == about["n"] == 23
        for found, expected in zip(reader.samples(range(23)), about["samples"], strict=True):
            height, width, _ = found["image"].shape
            assert ([width, height], found["label"]) == (expected["size"], expected["label"])
            assert hashlib.sha256(found["image"].tobytes()).hexdigest() == expected["sha256"]
        assert list(reader.keys()) == [
            f"db{i}/{j}" for i in range(3) for j in range(int((i + 1) * 23 / 3) - int(i * 23 / 3))
        ]


def test_widths_that_differ_between_databases(tmp_path):
    """9, 10 and 101 items: keys of 1, 2 and 3 digits. TorchRecord's own reader pads them all alike."""
    bounds = [0, 9, 19, 120]
    for i in range(3):
        start, stop = bounds[i : i + 2]
        write(tmp_path, messages(start, stop, len(str(stop - start))), b"db%d" % i)
    with TorchRecordReader(tmp_path) as reader:
        assert [sample["label"] for sample in reader.samples(range(120))] == list(range(120))
        assert reader.keys()[9] == "db1/00" and reader.keys()[119] == "db2/100"


def test_more_than_ten_databases(tmp_path):
    for i in range(12):
        write(tmp_path, messages(i, i + 1, 1), b"db%d" % i)
    with TorchRecordReader(tmp_path) as reader:
        assert [sample["label"] for sample in reader.samples(range(12))] == list(range(12))


def test_the_layout_of_0_0(tmp_path):
    """An environment for each database, keys as they are: 10 comes before 2 in the file."""
    for i, (start, stop) in enumerate([(0, 120), (120, 125)]):
        write(tmp_path / f"db{i}", messages(start, stop, 0))
    with TorchRecordReader(tmp_path) as reader:
        assert [sample["label"] for sample in reader.samples(range(125))] == list(range(125))
        assert list(reader.keys())[:4] == ["db0/0", "db0/1", "db0/2", "db0/3"] and reader.keys()[120] == "db1/0"
        with pickle.loads(pickle.dumps(reader)) as again:
            assert again.sample(124)["label"] == 124 and again.keys() == reader.keys()
    with TorchRecordReader(tmp_path / "db1") as reader:
        assert reader.sample(0)["label"] == 120


def test_with_a_kept_index(tmp_path):
    write(tmp_path / "env", messages(0, 5, 1), b"db0")
    for _ in range(2):
        with TorchRecordReader(tmp_path / "env", index_cache=tmp_path / "cache") as reader:
            assert [sample["label"] for sample in reader.samples([4, 0])] == [4, 0]


def test_what_is_none(tmp_path):
    with pytest.raises(MissingFileError, match=r"no data\.mdb"):
        TorchRecordReader(tmp_path)
    write(tmp_path / "a", messages(0, 2, 1), b"db1")
    with pytest.raises(FormatError, match=r"databases are \['db1'\], expected db0 to db0"):
        TorchRecordReader(tmp_path / "a")
    write(tmp_path / "b", [(b"x", b"y")], b"db0")
    with pytest.raises(FormatError, match="expected numbers, as TorchRecord writes them"):
        TorchRecordReader(tmp_path / "b")


def test_a_damaged_message_is_named(tmp_path):
    write(tmp_path, [(b"0", default_sample(pixels(0), 0)), (b"1", b"\x0a\x7f")], b"db0")
    with (
        TorchRecordReader(tmp_path) as reader,
        pytest.raises(FormatError, match=r"^Sample 1: .*data\.mdb: key 'db0/1': field 1 at byte 0 ends at byte 129"),
    ):
        reader.samples([0, 1])
