"""The parts of a split: each is written hidden beside its final name, and all are published together at the end.

.NAME.split/      one for each part, locked by the one who writes
    part.json     what was asked for, and what was written when it is complete
    NAME/         the complete part, until it is published
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from errno import EPERM, ESTALE, EWOULDBLOCK
from pathlib import Path
from typing import Any

from ffrecord.cli.saving import save
from ffrecord.dataset_writer import Summary
from ffrecord.durable import fsync_directory
from ffrecord.errors import ArgumentError, MismatchError
from ffrecord.sharding import publishing
from ffrecord.sharding.differences import differences

PATIENCE = 1.0  # seconds for the workers of a split that was killed to end, and its lock with them
PAUSE = 0.02
PASSING = (EWOULDBLOCK, ESTALE)  # while the one who had the lock tidies up
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STATE = "part.json"

Request = dict[str, Any]


class Part:
    """One of them, for `with`.

    Args:
        path: of the dataset, as given.
        restart: whether to discard what an interrupted split has left.

    Attributes:
        target: the real path.
        summary: of the dataset, once it is complete.
        published: whether it is under its final name.
    """

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self.path, self._restart = path, restart
        self.target = os.path.realpath(path)
        parent, name = os.path.split(self.target)
        if os.path.ismount(self.target) or self.target == os.path.realpath(os.getcwd()):
            raise ArgumentError(f"{path}: nothing can take the place of this directory; name a new one in it")
        self.hidden = os.path.join(parent, f".{name}.split")
        self._written = os.path.join(self.hidden, name)
        self._lock = -1
        self.summary: Summary | None = None
        self.published = False

    def __enter__(self) -> "Part":
        """Make the hidden directory, or take over what is there.

        Raises:
            OSError: it cannot be had; BlockingIOError: somebody else writes it. Names the part.
        """
        deadline = time.monotonic() + PATIENCE
        while self._lock < 0:
            try:
                os.makedirs(self.hidden, exist_ok=True)
                self._lock = self._locked()
            except OSError as error:
                if error.errno not in PASSING or time.monotonic() >= deadline:
                    raise type(error)(error.errno, error.strerror, self.path) from None
                time.sleep(PAUSE)
        if self._restart:
            self._clear()
        return self

    def _locked(self) -> int:
        try:
            fd = os.open(self.hidden, DIRECTORY)
        except NotADirectoryError:
            raise PermissionError(EPERM, f"{self.hidden} is a symbolic link, or no directory") from None
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid():  # nothing in it is ours to remove
                raise PermissionError(EPERM, f"{self.hidden} belongs to another user")
            _flock(fd, self.path)
            if not os.path.lexists(self.hidden) or not os.path.samestat(found, os.lstat(self.hidden)):
                raise OSError(ESTALE, os.strerror(ESTALE))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def begin(self, request: Request) -> None:
        """Take note of what is asked for; find out what is complete of it.

        Raises:
            MismatchError: an interrupted split has something of another request.
            FileExistsError: something is at the final name.
        """
        state = self._state()
        found = differences(state.get("request"), request)
        if state and found and self._of_use():
            told = f"{self.hidden} has what an interrupted split has finished that was asked for something else"
            raise MismatchError(f"{self.path}: {told}; --restart discards it", found)
        if state.get("summary") and not found:
            self.published = publishing.fingerprint(self.target) == state["fingerprint"]
            if self.published or publishing.fingerprint(self._written) == state["fingerprint"]:
                self.summary = Summary(**state["summary"])
        self.check_vacant()
        if self.summary is None:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._written)  # complete, but not noted: it cannot be told from what it should be
            self._note({"request": request})

    def check_vacant(self) -> None:
        """Raise FileExistsError if something is at the final name, unless this has put it there."""
        there = os.path.lexists(self.target) and (not os.path.isdir(self.target) or os.listdir(self.target))
        if there and not self.published:
            raise FileExistsError(17, "there is something, expected a new directory", self.path)

    def write(self, make: Callable[[str], Summary]) -> None:
        """Have the dataset made, at a path that `make` gets, unless it is complete."""
        if self.summary is None:
            made = make(self._written)
            self.summary = replace(made, path=self.path)
            complete = {"summary": asdict(self.summary), "fingerprint": publishing.fingerprint(self._written)}
            self._note(self._state() | complete)

    def publish(self) -> None:
        """Give it its final name."""
        publishing.replace(self._written, self.target)
        self.published = True

    def take_back(self) -> None:
        """Undo that."""
        os.rename(self.target, self._written)
        self.published = False

    def _state(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(Path(self.hidden, STATE).read_bytes())
            return found if isinstance(found, dict) else {}
        return {}

    def _note(self, state: dict[str, Any]) -> None:
        save(json.dumps(state).encode(), os.path.join(self.hidden, STATE))

    def _of_use(self) -> bool:
        """Whether something is finished: a part, or shards of one."""
        return any(name != STATE for name in os.listdir(self.hidden))

    def _clear(self) -> None:
        for entry in os.scandir(self.hidden):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def __exit__(self, *_: object) -> None:
        """Remove what is of no use, and let others have the rest."""
        with contextlib.suppress(OSError):
            if self.published or not self._of_use():
                self._clear()
                os.rmdir(self.hidden)
        os.close(self._lock)
        self._lock = -1


def publish(parts: Sequence[Part]) -> None:
    """Give all of them their final names, or none.

    Raises:
        OSError: refused; those that were published are hidden again.
    """
    for part in parts:
        part.check_vacant()
    done: list[Part] = []
    try:
        for part in parts:
            if not part.published:
                part.publish()
                done.append(part)
    except BaseException:
        for part in reversed(done):
            with contextlib.suppress(OSError):
                part.take_back()
        raise
    for directory in {os.path.dirname(part.target) for part in parts}:
        fsync_directory(directory)


def _flock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(EWOULDBLOCK, "another process splits into it", path) from None
    except OSError:
        pass  # directories cannot be locked there, as on NFS; the datasets in them are
