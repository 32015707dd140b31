"""Errors are instances of everything programs catch, and survive a process boundary."""

import contextlib
import copy
import errno
import json
import logging
import os
import pickle
import zipfile
from pathlib import Path

import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, errors
from ffrecord.errors import ChecksumError, FFRecordError, FormatError, MismatchError, WorkerError, file_error

BASES = [
    (FormatError, (FFRecordError, RuntimeError, ValueError)),
    (ChecksumError, (FFRecordError, RuntimeError, ValueError)),
    (WorkerError, (FFRecordError, RuntimeError)),
    (MismatchError, (FFRecordError, RuntimeError, ValueError)),
    (errors.MissingNamesError, (FFRecordError, LookupError)),
    (errors.TruncatedError, (FormatError, OSError, RuntimeError)),
    (errors.SampleIndexError, (IndexError, RuntimeError)),
    (errors.ConcatIndexError, (IndexError, ValueError, RuntimeError)),
    (errors.ClosedError, (RuntimeError, ValueError)),
    (errors.CountError, (RuntimeError, ValueError)),
    (errors.ArgumentError, (ValueError, AssertionError)),
    (errors.ArgumentTypeError, (TypeError, AssertionError)),
    (errors.StateError, (RuntimeError, AssertionError)),
    (errors.UserFunctionError, (FFRecordError, RuntimeError)),
    (errors.BatchTimeoutError, (FFRecordError, TimeoutError, OSError)),
    (errors.RemoteError, (FFRecordError, OSError)),
    (errors.RemotePermissionError, (errors.RemoteError, PermissionError)),
    (errors.TransientError, (errors.RemoteError, OSError)),
    (errors.ChangedError, (errors.RemoteError, OSError)),
    (errors.NoRangesError, (errors.RemoteError, OSError)),
    (errors.MissingFileError, (FileNotFoundError, AssertionError)),
    (errors.NotAFileError, (IsADirectoryError, AssertionError)),
    (errors.NotAFolderError, (NotADirectoryError, AssertionError)),
]


@pytest.mark.parametrize(("kind", "bases"), BASES, ids=lambda value: getattr(value, "__name__", None))
def test_caught_as(kind, bases):
    assert all(issubclass(kind, base) for base in bases)


def test_public_names():
    assert sorted(errors.__all__) == [
        "BatchTimeoutError",
        "ChangedError",
        "ChecksumError",
        "FFRecordError",
        "FormatError",
        "MismatchError",
        "RemoteError",
        "SampleError",
        "UserFunctionError",
        "WorkerError",
    ]


@pytest.mark.parametrize("kind", [kind for kind, _ in BASES], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_survives_a_process_boundary(kind, again):
    """torch, too, rebuilds a worker's error from its class and message alone."""
    error = again(kind("P: sample 3 of 5"))
    assert type(error) is kind
    assert str(error) == "P: sample 3 of 5"


def test_checksum_error_attributes():
    error = ChecksumError("m", path="a.ffr", index=3, stored=1, computed=2)
    assert (error.path, error.index, error.stored, error.computed) == ("a.ffr", 3, 1, 2)
    assert (ChecksumError("m").path, ChecksumError("m").index) == (None, None)


def test_worker_error_attributes():
    error = WorkerError("m", index=3, exitcode=-9)
    assert (error.index, error.exitcode) == (3, -9)


@pytest.mark.parametrize("number", sorted(errno.errorcode), ids=lambda number: errno.errorcode[number])
def test_file_error_of_every_errno(number):
    error = file_error(number, "Failed to open file a.ffr", "a.ffr")
    assert isinstance(error, RuntimeError)
    assert isinstance(error, type(OSError(number, "")))
    assert (error.errno, error.filename) == (number, "a.ffr")
    assert "Failed to open file a.ffr" in str(error)
    assert os.strerror(number) in str(error)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOSPC])
def test_file_error_pickles(number):
    error = file_error(number, "sentence", "a.ffr")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.errno, again.filename, str(again)) == (number, "a.ffr", str(error))


def test_plurals():
    assert [errors.plural(count, "sample") for count in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert errors.plural(3, "directory") == "3 directories"
    assert errors.plural(12345, "finished shard", commas=True) == "12,345 finished shards"


def test_a_summary_of_one(tmp_path):
    summary = DatasetWriter(tmp_path / "a", num_workers=0, progress=False).from_indexed_dataset([b"x"])
    assert f"{tmp_path}/a: 1 sample, 1 B in 1 shard, " in str(summary)
    with FileReader(tmp_path / "a") as reader:
        assert repr(reader).startswith("<FileReader of 1 sample in 1 file, ")


EVIL = "\r\n\x1b[2Jevil\x9b\u202e\udcff"
SAFE = r"\r\n\x1b[2Jevil\x9b\u202e\udcff"


@pytest.mark.parametrize("kind", [kind for kind, _ in BASES], ids=lambda kind: kind.__name__)
def test_texts_have_no_control_characters(kind):
    error = kind(f"a{EVIL}: wrong")
    safe = SAFE.replace(r"\n", "\n") if kind in (WorkerError, errors.UserFunctionError) else SAFE
    assert str(error) == f"a{safe}: wrong"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert error.args == (f"a{EVIL}: wrong",)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EIO])
def test_file_errors_have_no_control_characters(number):
    error = file_error(number, f"a{EVIL}", f"a{EVIL}")
    assert str(error).isprintable()
    assert error.filename == f"a{EVIL}"


def test_tracebacks_of_other_processes_keep_their_lines():
    text = "Caught\nOriginal Traceback (most recent call last):\n  File\nFormatError: \x1b"
    assert str(FormatError(text)) == text.replace("\x1b", r"\x1b")


def test_lines_of_the_log_have_no_control_characters(caplog):
    with caplog.at_level("INFO", "ffrecord"):
        logging.getLogger("ffrecord").info("%s: %d", f"a{EVIL}", 3)
        logging.getLogger("ffrecord").info("%s: %d", "plain", 3)
    assert caplog.messages == [f"a{SAFE}: 3", "plain: 3"]
    assert caplog.records[1].args == ("plain", 3)


def damaged(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)


def test_names_of_files_are_escaped(tmp_path):
    """Of a manifest, of archives, and of files that are not what they are called."""
    DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset([b"a" * 9] * 3)
    (name,) = [path.name for path in (tmp_path / "set").glob("*.ffr")]
    evil = "e\r\n\x1b[2J.ffr"
    os.rename(tmp_path / "set" / name, tmp_path / "set" / evil)
    listing = json.loads((tmp_path / "set" / "dataset.json").read_text())
    listing["shards"][0]["name"] = evil
    (tmp_path / "set" / "dataset.json").write_text(json.dumps(listing))
    shard = tmp_path / "set" / evil
    damaged(str(shard))
    told = []
    with FileReader(tmp_path / "set") as reader, pytest.raises(ChecksumError) as wrong:
        reader.read(range(3))
    told.append(wrong)
    shard.write_bytes(b"short")
    for source in (tmp_path / "set", shard, tmp_path / "set" / f"missing{evil}"):
        for use in (FileReader, ffrecord.open):
            with pytest.raises((FormatError, OSError, ValueError)) as wrong:
                use(source)
            told.append(wrong)
    for suffix in (".zip", ".tar", ".tfrecord", ".rec", ".beton", ".mdb", ".mds", ".ffr", ".parquet"):
        path = tmp_path / f"x\r\n\x1b[2J{suffix}"
        path.write_bytes(b"PK\x05\x06 nothing of any use" * 30)
        for format in (
            None,
            "zip",
            "tar",
            "webdataset",
            "tfrecord",
            "recordio",
            "lmdb",
            "beton",
            "mds",
            "image folder",
        ):
            with contextlib.suppress(ImportError), pytest.raises((FormatError, OSError, ValueError)) as wrong:
                ffrecord.open(path, format)
            told.append(wrong)
    for each in told:
        assert str(each.value).isprintable(), repr(str(each.value))


def test_names_of_members_are_escaped(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("m\r\n\x1b[2J", b"a" * 100)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(b"a" * 50)] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    with ffrecord.open(tmp_path / "a.zip") as store, pytest.raises(ChecksumError) as told:
        store.read([0])
    assert str(told.value).isprintable()
    with ffrecord.open(tmp_path / "a.zip") as store, pytest.raises(FileNotFoundError) as missing:
        store["n\r\n\x1b"]
    assert str(missing.value).isprintable()
