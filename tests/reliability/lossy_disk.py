"""A disk that a power cut leaves as it may: what was synced is there, of the rest any part, in any order.

Stricter than file systems are: entries of one directory reach the disk independently of each other, too, and of a write
any 512 bytes. One order is kept, that of any file system with a journal: what is written to a file after space was
inserted into it does not reach the disk before that.
"""

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from disk_calls import Call, Kind

SECTOR = 512
FALLOC_FL_KEEP_SIZE, FALLOC_FL_INSERT_RANGE = 1, 0x20
Choice = dict[int, list[tuple[int, int]]]


@dataclass
class Entry:
    """A name appears in a directory, or goes from one; both at once in a rename."""

    added: tuple[int, str] | None
    removed: tuple[int, str] | None
    file: int

    @property
    def synced_by(self) -> int:
        """The directory whose fsync makes it last: that of the new name."""
        return (self.added or self.removed or (0, ""))[0]


@dataclass
class Data:
    """A change of a file's content."""

    file: int
    call: Call

    @property
    def synced_by(self) -> int:
        return self.file


@dataclass
class Synced:
    """A file or directory is on the disk; None for all there are."""

    file: int | None


@dataclass
class Said:
    """Somebody was promised something."""

    value: int


Effect = Entry | Data | Synced | Said


@dataclass
class Files:
    """Content of files, and entries of directories, by numbers that are ours; 0 is the root."""

    files: dict[int, bytes] = field(default_factory=dict)
    directories: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})

    def copy(self) -> "Files":
        return Files(dict(self.files), {number: dict(entries) for number, entries in self.directories.items()})

    def enter(self, entry: Entry) -> None:
        """Change a directory, or two."""
        if entry.removed is not None:
            directory, name = entry.removed
            if self.directories[directory].get(name) == entry.file:
                del self.directories[directory][name]
        if entry.added is not None:
            directory, name = entry.added
            self.directories[directory][name] = entry.file

    def put(self, root: Path) -> None:
        """Make all of it below an empty directory."""
        made: dict[int, Path] = {}
        waiting = [(0, root)]
        while waiting:
            number, path = waiting.pop()
            for name, child in self.directories[number].items():
                if child in self.directories:
                    (path / name).mkdir()
                    waiting.append((child, path / name))
                elif child in made:
                    os.link(made[child], path / name)
                else:
                    (path / name).write_bytes(self.files[child])
                    made[child] = path / name


class LossyDisk:
    """What a process did to a directory.

    Args:
        root: the directory as it was before, all of it on the disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._numbers: dict[int, int] = {}  # of the file system → ours
        self._next = 1
        self.before = Files()
        self._take(root, 0)
        self.effects: list[Effect] = []
        self._live = self.before.copy()

    def _number(self, inode: int) -> int:
        """A new one."""
        number, self._next = self._next, self._next + 1
        self._numbers[inode] = number
        return number

    def _take(self, path: Path, number: int) -> None:
        self._numbers[path.stat().st_ino] = number
        for entry in path.iterdir():
            inode = entry.stat().st_ino
            child = self._numbers[inode] if inode in self._numbers else self._number(inode)
            self.before.directories[number][entry.name] = child
            if entry.is_dir():
                self.before.directories[child] = {}
                self._take(entry, child)
            else:
                self.before.files[child] = entry.read_bytes()

    def did(self, calls: Iterable[Call]) -> None:
        """Take note of calls of the process, in their order."""
        for call in calls:
            effect = self._effect(call)
            if effect is not None:
                self.effects.append(effect)
            if isinstance(effect, Entry):
                self._live.enter(effect)

    def _effect(self, call: Call) -> Effect | None:
        if call.kind is Kind.MARK:
            return Said(call.at)
        if call.path:
            return self._entry(call)
        if call.kind is Kind.FSYNC and call.flags:
            return Synced(None)
        number = self._numbers.get(call.file)
        if number is None:
            return None  # of another directory
        if call.kind is Kind.FSYNC:
            return Synced(number)
        return Data(number, call)

    def _entry(self, call: Call) -> Entry | None:
        place, other = self._place(call.path), self._place(call.other) if call.other else None
        if place is None:
            return None
        if call.kind in (Kind.CREATE, Kind.MKDIR):
            number = self._number(call.file)
            if call.kind is Kind.MKDIR:
                self.before.directories[number] = {}
                self._live.directories[number] = {}
            else:
                self.before.files[number] = b""
            return Entry(place, None, number)
        number = self._live.directories[place[0]][place[1]]
        if call.kind is Kind.LINK:
            return Entry(other, None, number)
        return Entry(other, place, number)

    def _place(self, path: str) -> tuple[int, str] | None:
        """Directory and name of a path."""
        relative = os.path.relpath(os.path.normpath(path), self._root).split(os.sep)
        if relative[0] in (".", ".."):
            return None
        directory = 0
        for name in relative[:-1]:
            directory = self._live.directories[directory][name]
        return directory, relative[-1]

    def pending(self, end: int) -> list[int]:
        """Which of the first `end` effects may be lost: nothing was told to be on the disk since."""
        synced: set[int] = set()
        found: list[int] = []
        for i in range(end - 1, -1, -1):
            effect = self.effects[i]
            if isinstance(effect, Synced) and effect.file is None:
                break
            if isinstance(effect, Synced):
                synced.add(effect.file)
            elif not isinstance(effect, Said) and effect.synced_by not in synced:
                found.append(i)
        return found[::-1]

    def said(self, end: int) -> int:
        """The latest promise."""
        return max((each.value for each in self.effects[:end] if isinstance(each, Said)), default=0)

    def after(self, end: int, lost: set[int], torn: Choice) -> Files:
        """The disk once the power is back.

        Args:
            end: the power went after so many effects.
            lost: those that did not reach the disk, of `pending`.
            torn: of writes among them that did in part, the parts of their data (from, to).
        """
        found, stuck = self.before.copy(), set()
        for i in range(end):
            effect = self.effects[i]
            if isinstance(effect, Entry):
                if i not in lost:
                    found.enter(effect)
            elif isinstance(effect, Data) and effect.file not in stuck:
                if i not in lost:
                    found.files[effect.file] = changed(found.files[effect.file], effect.call, None)
                elif i in torn:
                    found.files[effect.file] = changed(found.files[effect.file], effect.call, torn[i])
                elif effect.call.flags & FALLOC_FL_INSERT_RANGE:
                    stuck.add(effect.file)
        return found


def changed(content: bytes, call: Call, parts: list[tuple[int, int]] | None) -> bytes:
    """A file after a call; of a write only these parts of its data, if any are given."""
    if call.kind is Kind.TRUNCATE:
        return content[: call.size].ljust(call.size, b"\0")
    if call.kind is Kind.ALLOCATE:
        if call.flags & FALLOC_FL_INSERT_RANGE:
            return content[: call.at] + bytes(call.size) + content[call.at :]
        return content if call.flags & FALLOC_FL_KEEP_SIZE else content.ljust(call.at + call.size, b"\0")
    for start, stop in [(0, call.size)] if parts is None else parts:
        at = call.at + start
        content = content[:at].ljust(at, b"\0") + call.data[start:stop] + content[call.at + stop :]
    return content


def sectors(call: Call) -> list[tuple[int, int]]:
    """The parts of a write's data that go into sectors of their own."""
    first = -call.at % SECTOR or SECTOR
    bounds = [0, *range(first, call.size, SECTOR), call.size]
    return list(pairwise(bounds))


def cut(disk: LossyDisk, chance: random.Random, end: int) -> tuple[set[int], Choice]:
    """What is lost of what may be: all, nothing, all data, all names, or any of it; writes torn now and then."""
    pending = disk.pending(end)
    data = {i for i in pending if isinstance(disk.effects[i], Data)}
    how = chance.randrange(8)
    if how < 4:
        return [set(pending), set(), data, set(pending) - data][how], {}
    share = chance.random()
    lost = {i for i in pending if chance.random() < share}
    torn: Choice = {}
    for i in sorted(lost):
        effect = disk.effects[i]
        if isinstance(effect, Data) and effect.call.kind is Kind.WRITE and chance.random() < 0.5:
            parts = sectors(effect.call)
            kept = chance.randrange(len(parts) + 1)
            torn[i] = parts[:kept] if chance.random() < 0.5 else sorted(chance.sample(parts, kept))
    return lost, torn


def empty(directory: Path) -> None:
    """Remove what is there, and make it again."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
