"""Errors are instances of everything programs catch, and survive a process boundary."""

import copy
import errno
import os
import pickle

import pytest

from ffrecord import errors
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
