"""The calls of a process that change a disk, by way of disk_calls.c, which `in_child` preloads."""

import ctypes
import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

import children

HERE = Path(__file__).parent


class Site(IntFlag):
    """Of calls that are counted: of names, of data, of those of data that may need room, and waits for the disk."""

    NAMES = 1
    DATA = 2
    SPACE = 4
    SYNC = 8
    ALL = 15


class Action(IntEnum):
    """What happens at a call; FAIL_ON: there and at all that follow."""

    KILL_BEFORE = 0
    KILL_AFTER = 1
    FAIL = 2
    FAIL_ON = 3


class Victim(IntEnum):
    """Who is killed: the one that calls, the one that was armed, or it and all its forks."""

    SELF = 0
    FIRST = 1
    ALL = 2


class Kind(IntEnum):
    """Of a logged call."""

    CREATE = 0
    MKDIR = 1
    UNLINK = 2
    RMDIR = 3
    RENAME = 4
    LINK = 5
    WRITE = 6
    TRUNCATE = 7
    ALLOCATE = 8
    FSYNC = 9
    MARK = 10


class Call(NamedTuple):
    """One that succeeded: of a file or directory, by its inode's number; of names, by absolute paths."""

    kind: Kind
    flags: int
    file: int
    at: int
    size: int
    path: str
    other: str
    data: bytes


RECORD = struct.Struct("=IIQqqII")


def in_child(code: str, library: Path, *args: object, timeout: float = 300) -> str:
    """What `code` printed, run where the calls are counted and modules beside this one can be imported."""
    preamble = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
    return children.run(preamble + code, *args, timeout=timeout, LD_PRELOAD=str(library))


class Calls:
    """What disk_calls.c can do, where it is preloaded."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        self._c.disk_mark.argtypes = [ctypes.c_int64]

    def plan(
        self,
        wanted: int = 0,
        action: Action = Action.KILL_BEFORE,
        *,
        sites: Site = Site.ALL,
        value: int = 0,
        victim: Victim = Victim.SELF,
    ) -> None:
        """Call number `wanted` from now on, of armed processes, at one of `sites`; 0: they are only counted."""
        self._c.disk_plan(int(sites), wanted, int(action), value, int(victim))

    def arm(self, on: bool = True) -> None:
        """This process and its forks from now on."""
        self._c.disk_arm(int(on))

    @property
    def count(self) -> int:
        """Of calls since `plan`."""
        return int(self._c.disk_calls())

    @property
    def fired(self) -> bool:
        """Whether the wanted call came."""
        return bool(self._c.disk_fired())

    def log(self, fd: int, directory: Path) -> None:
        """Log what this process does on that file system; -1: no more."""
        self._c.disk_log(fd, str(directory).encode())

    def mark(self, value: int) -> None:
        """Put a number into the log."""
        self._c.disk_mark(value)


def logged(data: bytes) -> Iterator[Call]:
    """The calls of a log."""
    at = 0
    while at < len(data):
        kind, flags, file, start, size, path, other = RECORD.unpack_from(data, at)
        at += RECORD.size
        names = data[at : at + path].decode(), data[at + path : at + path + other].decode()
        at += path + other
        written = data[at : at + size] if kind == Kind.WRITE else b""
        at += len(written)
        yield Call(Kind(kind), flags, file, start, size, *names, written)
