"""Every exception of ours, and when it is raised.

    Exception
     └ FFRecordError
        ├ FormatError      not such a file, cut short, or its numbers contradict each other
        ├ ChecksumError    well-formed, but the bytes do not match their CRC-32
        ├ MismatchError    what is asked is not what was begun, or what is there
        ├ WorkerError      a worker process failed or died; names the sample it was at
        │  └ SampleError   a sample could not be had or encoded, in a worker or in this process; names it
        ├ UserFunctionError   a function given to a loader raised; names the sample
        ├ BatchTimeoutError   a batch of a loader was not there in time; a TimeoutError, too
        └ RemoteError      an object in storage, or behind HTTP, could not be read or written; an OSError, too
           └ ChangedError   it is another one than was opened

Everything else is built in: `IndexError`, `TypeError`, `ValueError` (bad argument, closed), and the `OSError` of the
errno.

Names of files, members, columns and objects may come from strangers, and hold line ends or what moves the cursor of a
terminal. So the text of every exception here shows what is not printable escaped (`escaped`), whoever made the message.

Programs written for ffrecord 1.x catch what it raised, mostly `RuntimeError` and `AssertionError`. So the errors raised
are private subclasses that are instances of both. Where an `OSError` is among the bases it stands first, or its `errno`
and `filename` would stay `None`. All of them pickle from their message, as worker processes need.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
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


TRACEBACK = "Traceback (most recent call last)"  # of another process: its line ends stay


def escaped(text: object, *, lines: bool = False) -> str:
    r"""Return a text for messages and logs, with each character that is not printable escaped: `\x1b`, `\u202e`.

    Args:
        lines: leave line ends as they are, as in a text with a traceback.
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
    """Base of all errors that only this package raises."""


class FormatError(FFRecordError, RuntimeError, ValueError):
    """The file is not of its format, is cut short, or its numbers contradict each other."""


class ChecksumError(FFRecordError, RuntimeError, ValueError):
    """Bytes do not match their CRC-32.

    Attributes (None where unknown, and after crossing a process; the message says them all):
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
    """What is asked differs from the interrupted write that it would go on with, or from the dataset it would add to.

    Attributes:
        differences: each in words, with both values.
    """

    def __init__(self, message: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class MissingNamesError(FFRecordError, LookupError):
    """Records of a format without names were asked for by name."""


class WorkerError(FFRecordError, RuntimeError):
    """A worker process failed; nothing was published.

    Attributes (None where unknown, and after crossing a process):
        index: the sample the worker was at.
        exitcode: how the process ended, negative for a signal; None if it reported the failure itself.
    """

    def __init__(self, message: str, *, index: int | None = None, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.index, self.exitcode = index, exitcode


class SampleError(WorkerError):
    """A sample could not be had from the dataset, or not be encoded, with worker processes or without; none died."""


class TruncatedError(OSError, FormatError):
    """A sample's bytes end before its size."""


class SampleIndexError(IndexError, RuntimeError):
    """An index outside a reader or dataset."""


class ConcatIndexError(IndexError, ValueError, RuntimeError):
    """An index below -len of a concatenation."""


class ClosedError(RuntimeError, ValueError):
    """The reader has been closed."""


class CountError(RuntimeError, ValueError):
    """More samples, or fewer, than the writer was made for."""


class ArgumentError(ValueError, AssertionError):
    """A wrong value of an argument."""


class ArgumentTypeError(TypeError, AssertionError):
    """A wrong type of an argument."""


class UnknownRankError(ArgumentError):
    """There are several ranks, and nobody says yet which of them this process is."""


class StateError(RuntimeError, AssertionError):
    """A call that this object was made not to support."""


class UserFunctionError(FFRecordError, RuntimeError):
    """A function given to a loader raised; its own error is the cause, or in the message if it crossed a process."""


class BatchTimeoutError(TimeoutError, FFRecordError):
    """A batch was not there in time."""


class RemoteError(OSError, FFRecordError):
    """An object in storage, or behind HTTP, could not be read or written. Its URL is said without what is secret."""


class RemotePermissionError(PermissionError, RemoteError):
    """An object may not be had with the credentials given, with those of the environment, or with none."""


class TransientError(RemoteError):
    """It might have gone well another time: what was asked for was asked for again, in vain."""


class ChangedError(RemoteError):
    """An object was replaced after it was opened."""


class NotSupportedError(RemoteError):
    """A store cannot do what was asked, such as to write an object only where there is none."""


class NoRangesError(RemoteError):
    """A server gives whole objects only."""


class MissingFileError(FileNotFoundError, AssertionError):
    """A path that does not exist."""


class NotAFileError(IsADirectoryError, AssertionError):
    """A directory where a file was expected."""


class NotAFolderError(NotADirectoryError, AssertionError):
    """A file where a directory was expected."""


class FileError(OSError, RuntimeError):
    """A file could not be created, read or written."""


class _EscapedLines(logging.Filter):
    """Shows what is not printable in lines of our log escaped, as in exceptions."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escaped(text), ()
        return True


logging.getLogger("ffrecord").addFilter(_EscapedLines())


def _escape(kind: type[Exception]) -> None:
    """Have the text of an exception class escaped. Its `args` stay as they are, so that it pickles as it was."""
    plain = kind.__str__

    def __str__(self: Exception) -> str:  # noqa: N807
        # Those two tell where in another process something failed.
        return escaped(plain(self), lines=isinstance(self, WorkerError | UserFunctionError))

    kind.__str__ = __str__  # type: ignore[assignment]


for _kind in [each for each in globals().values() if isinstance(each, type) and issubclass(each, Exception)]:
    if _kind.__module__ == __name__:
        _escape(_kind)
del _kind


def _file_error_of(builtin: type[OSError]) -> type[OSError]:
    """`FileError` of the errnos that Python gives a class of their own; named so that it pickles."""
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


def file_error(errno: int, sentence: str, path: Any) -> OSError:
    """The error of `errno` on `path`: an instance of the built-in class of that errno and of `RuntimeError`.

    Args:
        errno: of the failed call, > 0.
        sentence: what was being done, with both numbers where there are two; the errno's own words are added.
        path: the file.
    """
    message = f"{sentence}: {os.strerror(errno)}"
    wanted = _FILE_ERRORS.get(type(OSError(errno, message)), FileError)
    return wanted(errno, message, os.fspath(path))


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error that somebody else's code raised, whose text may fail to be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as failure:
        return f"{type(error).__name__} (its text cannot be made: {type(failure).__name__})"


def of_files(paths: Sequence[str]) -> str:
    """Which files a message is about, at least one: it names the first, and shows where there are more."""
    return f"{paths[0]} …" if len(paths) > 1 else paths[0]


def counted(count: int, what: str, *, commas: bool = False) -> str:
    """Return how many of something, with the plural that it needs: "1 shard", "2 shards", "3 directories".

    Args:
        what: the singular.
        commas: whether a comma separates thousands.
    """
    if count != 1:
        what = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what}" if commas else f"{count} {what}"


def add_note(error: BaseException, note: str) -> None:
    """Give an exception on its way what stays, or how to go on. As its own `add_note`, which Python has since 3.11."""
    error.__notes__ = [*getattr(error, "__notes__", []), note]


@contextlib.contextmanager
def doing(what: str, path: str) -> Iterator[None]:
    """Give an OSError that says no file's name this one's, and what was being done with it."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.errno or isinstance(error, RuntimeError):
            raise
        raise file_error(error.errno, f"{path}: {what}", path) from None
