"""The parts of a split: each is written hidden beside its final name, and all are published together at the end.

.NAME.split/      one for each part, locked by the one who writes
    part.json     what was asked for, and what was written when it is complete
    NAME/         the complete part, until it is published
    .NAME.part/   of its writer, until it is complete

Whether a part is published is asked of the disk each time: an exception, as of Ctrl-C, may come at any instant.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from errno import EEXIST, EIO
from typing import Any

import msgspec

from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer import publish as publishing
from ffrecord.dataset_writer.shards import check_whole
from ffrecord.dataset_writer.write_log import differences
from ffrecord.errors import ArgumentError, FFRecordError, MismatchError, add_note, file_error
from ffrecord.format import manifest
from ffrecord.format.leftovers import FINISHED
from ffrecord.system import atomic_directory, filesystems, untrusted
from ffrecord.system.atomic_file import PART_SUFFIX, fsync_directory
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.system.untrusted import Refused

STATE = "part.json"
STATE_MAX = 16 << 20  # bytes

Request = dict[str, Any]


class SplitState(msgspec.Struct, frozen=True):
    """The notes on a part.

    Attributes:
        request: what was asked for; None for nothing, or nothing that can be read.
        summary: of the part, once it is complete.
        fingerprint: of its manifest, then.
    """

    request: Request | None = None
    summary: Summary | None = None
    fingerprint: str | None = None


class SplitPart:
    """One of them, for `with`.

    Args:
        path: of the dataset, as given.
        restart: whether to discard what an interrupted split has left.

    Attributes:
        target: the real path.
        summary: of the dataset, once it is complete.
        settled: whether nothing of it is to be done any more, nor undone; else what is noted stays at the end.
    """

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self.path, self._restart = path, restart
        self.target = filesystems.real(path)
        parent, self._name = os.path.split(self.target)
        if os.path.ismount(self.target) or self.target == filesystems.working_directory():
            raise ArgumentError(f"{path}: nothing can take the place of this directory; name a new one in it")
        self.hidden = os.path.join(parent, f".{self._name}.split")
        self._written = os.path.join(self.hidden, self._name)
        self.summary: Summary | None = None
        self.settled = False

    def check_begun(self) -> None:
        """Raise FileExistsError if something is at the final name that no interrupted split has put there."""
        if self._is_taken() and not os.path.lexists(self.hidden):
            raise self._taken()

    def __enter__(self) -> "SplitPart":
        """Make the hidden directory, or take over what is there.

        Raises:
            OSError: it cannot be had; BlockingIOError: somebody else writes it. Names the part.
        """
        try:
            self._own = LockedDirectory(self.hidden)
        except BlockingIOError as error:
            raise OSError(error.errno, "another process splits into it", self.path) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None
        if self._restart:
            for name in self._own.names():
                self._own.remove(name)
        return self

    def begin(self, request: Request) -> None:
        """Take note of what is asked for; find out what is complete of it, and still whole.

        Raises:
            MismatchError: an interrupted split has something of another request.
            FileExistsError: something is at the final name.
            FormatError, ChecksumError: that has put it there, and it is damaged.
        """
        state = self._state()
        found = differences(state.request, request)
        if state.request is not None and found and self._of_use():
            told = f"{self.hidden} has what an interrupted split has finished that was asked for something else"
            raise MismatchError(f"{self.path}: {told}; --restart discards it", found)
        self.check_vacant()
        if state.summary and not found and self._is_whole(state.fingerprint):
            self.summary = replace(state.summary, path=self.path)
        else:
            self._own.remove(self._name)  # complete, but not noted: it cannot be told from what it should be
            self._note(SplitState(request))

    def _is_whole(self, fingerprint: str | None) -> bool:
        """Whether it is there, to the last byte what it was.

        Raises:
            FFRecordError, OSError: it is not, and cannot be written again since it was published.
        """
        if self.published:
            _check(self.target)
            return True
        self._own.check()
        with contextlib.suppress(FFRecordError, OSError, ValueError):
            if self._is_own() and publishing.fingerprint(self._written) == fingerprint:
                _check(self._written)
                return True
        return False

    def _is_own(self) -> bool:
        """Whether what is hidden is a directory of regular files of this user: a link is not to be published."""
        if not self._own.has_directory(self._name):
            return False
        with untrusted.opened_directory(self._name, directory=self._own.fd) as fd:
            return all(untrusted.is_own(name, directory=fd, owner=self._own.owner) for name in os.listdir(fd))

    @property
    def published(self) -> bool:
        """Whether it is under its final name, for sure."""
        noted = self._state().fingerprint
        there = noted is not None and not self._own.holds(self._name)
        return there and publishing.fingerprint(self.target) == noted

    def check_vacant(self) -> None:
        """Raise FileExistsError if something is at the final name, unless this has put it there."""
        if self._is_taken() and not self.published:
            raise self._taken()

    def _is_taken(self) -> bool:
        return os.path.lexists(self.target) and (not os.path.isdir(self.target) or bool(os.listdir(self.target)))

    def _taken(self) -> FileExistsError:
        return FileExistsError(EEXIST, "there is something, expected a new directory", self.path)

    def write(self, make: Callable[[str], Summary]) -> None:
        """Have the dataset made, at a path that `make` gets, unless it is complete."""
        if self.summary is None:
            self._own.check()
            made = make(self._written)
            self._own.check()
            summary = replace(made, path=self.path)
            self._note(SplitState(self._state().request, summary, publishing.fingerprint(self._written)))
            self.summary = summary

    def publish(self) -> None:
        """Give it its final name."""
        atomic_directory.replace(self._name, self.target, self._own.fd)

    def take_back(self) -> None:
        """Undo that, if it happened."""
        if self.published:
            os.rename(self.target, self._name, dst_dir_fd=self._own.fd)

    def _state(self) -> SplitState:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self._own.read(STATE, STATE_MAX), type=SplitState)
        return SplitState()

    def _note(self, state: SplitState) -> None:
        self._own.write(STATE, msgspec.json.encode(state))

    def _of_use(self) -> bool:
        """Whether something is finished: the part, or shards of it; not what a killed process leaves besides."""
        names, begun = self._own.names(), f".{self._name}{PART_SUFFIX}"
        if self._name in names:
            return True
        with contextlib.suppress(FileNotFoundError, Refused), contextlib.ExitStack() as stack:
            part = stack.enter_context(untrusted.opened_directory(begun, directory=self._own.fd))
            return bool(os.listdir(stack.enter_context(untrusted.opened_directory(FINISHED, directory=part))))
        return False

    def __exit__(self, *_: object) -> None:
        """Remove what is of no use, and let others have the rest."""
        with contextlib.suppress(OSError):
            if self.settled or not (self._of_use() or self.published):
                self._own.discard()
        self._own.close()


def _check(directory: str) -> None:
    """Raise what is wrong with a dataset."""
    listed = manifest.load(directory)
    for shard in listed.shards if listed is not None else []:
        check_whole(directory, shard)


def publish(parts: Sequence[SplitPart]) -> None:
    """Give all of them their final names, or none.

    Raises:
        OSError: refused; those that were published are hidden again, unless it says which are not. Or all are in place,
            and it says so.
    """
    for part in parts:
        part.check_vacant()
    try:
        for part in parts:
            if not part.published:
                part.publish()
    except BaseException as error:
        _take_back(parts, error)
        raise
    try:
        for directory in {os.path.dirname(part.target) for part in parts}:
            fsync_directory(directory)
    except OSError as error:
        sentence = "all parts are in place, but fsync of a directory failed and a crash may undo it"
        raise file_error(error.errno or EIO, f"{parts[0].path}: {sentence}", parts[0].path) from None
    for part in parts:
        part.settled = True


def _take_back(parts: Sequence[SplitPart], cause: BaseException) -> None:
    """Hide all of them; which ones cannot be is added to what has failed first."""
    for part in reversed(parts):
        try:
            part.take_back()
        except OSError as error:
            add_note(cause, f"{part.path} could not be taken back ({error.strerror})")
