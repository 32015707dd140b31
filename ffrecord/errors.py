"""Exceptions of this package, and helpers that build their messages.

    Exception
     └ FFRecordError
        ├ FormatError      the file has another format, is cut short, or its numbers contradict each other
        ├ ChecksumError    the file is well-formed, but bytes do not match their CRC-32
        ├ MismatchError    the request differs from the interrupted write or from the existing dataset
        ├ WorkerError      a worker process failed or died; the message names its current sample
        │  └ SampleError   a sample could not be read or encoded, in any process; the message names it
        ├ UserFunctionError   a function that you gave to a loader raised; the message names the sample
        ├ BatchTimeoutError   a batch of a loader did not arrive in time; also a TimeoutError
        └ RemoteError      an object in storage or behind HTTP could not be read or written; also an OSError
           └ ChangedError   the object was replaced after it was opened

All other errors are built-in classes: `IndexError`, `TypeError`, `ValueError` (bad argument, closed reader), and the
`OSError` subclass of the errno.

Names of files, members, columns and objects may come from strangers. They may contain line ends, or control sequences
that move the cursor of a terminal. So every exception here escapes unprintable characters in its text: see
`escape_unprintable`.

Programs written for ffrecord 1.x catch the errors of 1.x, mostly `RuntimeError` and `AssertionError`. So the errors
raised are private subclasses of both the new and the old class. An `OSError` among the bases stands first, because
otherwise its `errno` and `filename` would stay `None`. All of them can be pickled from their message, as worker
processes require.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from errno import EINVAL, ENOSYS, EOPNOTSUPP, EPERM
from typing import Any

__all__ = [
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


TRACEBACK = "Traceback (most recent call last)"  # the text quotes a traceback of another process: keep its line ends


def escape_unprintable(text: object, *, lines: bool = False) -> str:
    r"""Return a text for messages and logs in which every unprintable character is escaped: `\x1b`, `\u202e`.

    Args:
        text: any object; its `str()` is used.
        lines: keep line ends, for a text that contains a traceback.
    """
    found = str(text)
    if found.isprintable():
        return found
    kept = "\n" if lines or TRACEBACK in found else ""
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape", "backslashreplace").decode()
        for each in found
    )


class FFRecordError(Exception):
    """Base class of all errors that only this package raises."""


class FormatError(FFRecordError, RuntimeError, ValueError):
    """Error of a file that has another format, is cut short, or contradicts itself."""


class ChecksumError(FFRecordError, RuntimeError, ValueError):
    """Error of bytes that do not match their CRC-32.

    Attributes (None where unknown, and after crossing a process; the message contains them all):
        path: the file.
        index: the sample, among all samples of the reader; None for a file's tables.
        stored, computed: the two CRC-32.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        index: int | None = None,
        stored: int | None = None,
        computed: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path, self.index, self.stored, self.computed = path, index, stored, computed


class MismatchError(FFRecordError, RuntimeError, ValueError):
    """Error of a write that differs from the interrupted write it would continue, or from the dataset it would extend.

    Attributes:
        differences: one text for each difference, with both values.
    """

    def __init__(self, message: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class MissingNamesError(FFRecordError, LookupError):
    """Error of reading a record by name in a format without names."""


class WorkerError(FFRecordError, RuntimeError):
    """Error of a failed worker process. Nothing was published.

    Attributes (None where unknown, and after crossing a process):
        index: the sample that the worker was processing.
        exitcode: exit code of the process, negative for a signal; None if the worker reported the failure itself.
    """

    def __init__(self, message: str, *, index: int | None = None, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.index, self.exitcode = index, exitcode


class SampleError(WorkerError):
    """Error of a sample that could not be read from the dataset or not be encoded. No worker process died."""


class TruncatedError(OSError, FormatError):
    """Error of a sample whose file ends before all of its bytes."""


class SampleIndexError(IndexError, RuntimeError):
    """Error of an index outside a reader or dataset."""


class ConcatIndexError(IndexError, ValueError, RuntimeError):
    """Error of an index below -len of a concatenation."""


class ClosedError(RuntimeError, ValueError):
    """Error of using a closed reader or writer."""


class CountError(RuntimeError, ValueError):
    """Error of writing more or fewer samples than the writer was created for."""


class ArgumentError(ValueError, AssertionError):
    """Error of an argument with a wrong value."""


class ArgumentTypeError(TypeError, AssertionError):
    """Error of an argument with a wrong type."""


class UnknownRankError(ArgumentError):
    """Error of a job with several ranks in which this process does not know its own rank yet."""


class StateError(RuntimeError, AssertionError):
    """Error of a call that this object was configured not to support."""


class UserFunctionError(FFRecordError, RuntimeError):
    """Error of a function that you gave to a loader. Its own error is the cause, or in the message if it crossed a
    process.
    """


class BatchTimeoutError(TimeoutError, FFRecordError):
    """Error of a batch that did not arrive in time."""


class RemoteError(OSError, FFRecordError):
    """Error of reading or writing an object in storage or behind HTTP. Its text contains the URL without secrets."""


class RemotePermissionError(PermissionError, RemoteError):
    """Error of an object that the given credentials, those of the environment, or no credentials may not access."""


class TransientError(RemoteError):
    """Error that may not occur another time. The request was repeated without success."""


class ChangedError(RemoteError):
    """Error of an object that was replaced after it was opened."""


class NotSupportedError(RemoteError):
    """Error of a request that a store does not support, such as writing an object only if none exists."""


class NoRangesError(RemoteError):
    """Error of a server that sends only whole objects."""


class MissingFileError(FileNotFoundError, AssertionError):
    """Error of a path that does not exist."""


class NotAFileError(IsADirectoryError, AssertionError):
    """Error of a directory where a file was expected."""


class NotAFolderError(NotADirectoryError, AssertionError):
    """Error of a file where a directory was expected."""


class FileError(OSError, RuntimeError):
    """Error of creating, reading or writing a file."""


class OutOfMemoryError(MemoryError):
    """Error of memory that ran out. Its text names the file or the sample."""


DAMAGE = {"damage": True}  # `extra` of a warning that data are missing or left out: commands then exit with 1


class _EscapedLines(logging.Filter):
    """Log filter that escapes unprintable characters, as exceptions do."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escape_unprintable(text), ()
        return True


logging.getLogger("ffrecord").addFilter(_EscapedLines())


def _escape(kind: type[Exception]) -> None:
    """Make an exception class escape its text. Its `args` stay unchanged, so that it pickles the original message."""
    plain = kind.__str__

    def __str__(self: Exception) -> str:  # noqa: N807
        # Both may quote the traceback of another process.
        return escape_unprintable(plain(self), lines=isinstance(self, WorkerError | UserFunctionError))

    kind.__str__ = __str__  # type: ignore[assignment]


for _kind in [each for each in globals().values() if isinstance(each, type) and issubclass(each, Exception)]:
    if _kind.__module__ == __name__:
        _escape(_kind)
del _kind  # pyright: ignore[reportPossiblyUnboundVariable]


def _file_error_of(builtin: type[OSError]) -> type[OSError]:
    """Create the `FileError` class of one built-in OSError subclass; its module attribute makes it picklable."""
    name = f"Record{builtin.__name__}"
    made = type(name, (builtin, RuntimeError), {"__doc__": f"`FileError` that is a `{builtin.__name__}`."})
    _escape(made)
    globals()[name] = made
    return made


_FILE_ERRORS: dict[type[OSError], type[OSError]] = {
    builtin: _file_error_of(builtin)
    for builtin in (
        *(BlockingIOError, ChildProcessError, BrokenPipeError, ConnectionAbortedError),
        *(ConnectionRefusedError, ConnectionResetError, FileExistsError, FileNotFoundError, InterruptedError),
        *(IsADirectoryError, NotADirectoryError, PermissionError, ProcessLookupError, TimeoutError),
    )
}


# How containers, kernels and file systems say that they have no such call, or do not allow it.
REFUSED = (EOPNOTSUPP, ENOSYS, EINVAL, EPERM)
ALLOW = (
    "allow this call where it is refused (seccomp of the container, mount options, immutable or sticky files), "
    "or use another file system"
)


def file_error(errno: int, sentence: str, path: Any, advice: str = "", *, call: str = "") -> OSError:
    """Return the error of `errno` on `path`: an instance of the built-in class of that errno and of `RuntimeError`.

    If the system refuses a call, the message names it, and says what to do.

    Args:
        errno: errno of the failed call, > 0.
        sentence: the failed action, with expected and found numbers if there are any; the text of the errno is
            appended.
        path: the file; None if the action has none.
        advice: what to do; it follows the text of the errno.
        call: name of the system call, if the error that is being handled does not know it, see `system.named_calls`.
    """
    handled = sys.exc_info()[1]
    if isinstance(handled, OSError) and handled.errno == errno:
        # An error of our own checks is no refusal of the system, though it has an errno of one.
        call = "" if getattr(handled, "is_ours", False) else getattr(handled, "call", call)
    if call and errno in REFUSED:
        sentence, advice = f"{sentence}: {call} is refused", advice or ALLOW
    message = f"{sentence}: {os.strerror(errno)}" + (f"; {advice}" if advice else "")
    wanted = _FILE_ERRORS.get(type(OSError(errno, message)), FileError)
    made = wanted(errno, message) if path is None else wanted(errno, message, os.fspath(path))
    if call:
        made.call = call  # type: ignore[attr-defined]
    return made


def name_memory_error(error: MemoryError, where: str) -> MemoryError:
    """Return the error of memory that ran out, with a file or a sample in its text.

    Args:
        error: error of any library. One that names a place already stays as it is.
        where: the file or the sample.
    """
    if isinstance(error, OutOfMemoryError):
        return error
    text = str(error).removeprefix("out of memory").removeprefix(": ")
    return OutOfMemoryError(f"{where}: out of memory{': ' if text else ''}{text}")


@contextlib.contextmanager
def add_place_to_memory_errors(where: Callable[[], str]) -> Iterator[None]:
    """Context manager that adds the file or the sample that `where` returns to a MemoryError that names none."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise name_memory_error(error, where()) from error


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error from foreign code, even if making its text fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as failure:
        return f"{type(error).__name__} (its text cannot be made: {type(failure).__name__})"


def name_files(paths: Sequence[str]) -> str:
    """Return the files that a message is about: the first of `paths` (at least one), and "…" if there are more."""
    return f"{paths[0]} …" if len(paths) > 1 else paths[0]


def describe_version(what: str, found: object, known: int) -> str:
    """Return the sentence that says that this release does not read a version of `what`."""
    return f"{what} has version {found!r}, this release of ffrecord reads version {known}; a later release may read it"


REPLACED = "the file was replaced or removed after it was opened"
REOPEN = "open it again"
UNFINISHED = "a write of it was interrupted, or is going on; repeat the same call to continue"


def describe_int(value: int) -> str:
    """Return an int for a message: its digits, or its number of bits if there are too many digits."""
    return str(value) if value.bit_length() <= 128 else f"an int of {value.bit_length()} bits"


def plural(count: int, what: str, *, commas: bool = False) -> str:
    """Return a count with its noun in singular or plural: "1 shard", "2 shards", "3 directories".

    Args:
        count: the number.
        what: the noun in the singular.
        commas: whether a comma separates thousands.
    """
    if count != 1:
        what = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what}" if commas else f"{count} {what}"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception that is being raised: where data was kept, or how to continue.

    It does the same as `BaseException.add_note`, which exists since Python 3.11.
    """
    error.__notes__ = [*getattr(error, "__notes__", []), note]


@contextlib.contextmanager
def add_file_to_errors(what: str, path: str) -> Iterator[None]:
    """Context manager that adds the path and the action to an OSError that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.errno or isinstance(error, RuntimeError):
            raise
        raise file_error(error.errno, f"{path}: {what} failed", path) from None
