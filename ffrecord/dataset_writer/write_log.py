"""The write log of a part directory: the request, the shards finished so far, and whether they are being published."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ffrecord.dataset_writer.layout import Start
from ffrecord.format import manifest
from ffrecord.format.leftovers import WRITE_LOG_MAX, Publishing
from ffrecord.format.manifest import Shard
from ffrecord.system import untrusted
from ffrecord.system.atomic_file import read_all, write_all

SHOWN = 60  # characters of a value
ABSENT = "nothing"


def differences(before: Any, now: Any) -> list[str]:
    """Where two values of builtins differ, each as "path was this, is that"; tuples count as lists."""
    return list(_differences(_plain(before), _plain(now), ""))


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            yield from _differences(before.get(key, ...), now.get(key, ...), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(now, list):
        for number, (one, other) in enumerate(itertools.zip_longest(before, now, fillvalue=...)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif before != now or type(before) is not type(now):
        yield f"{path} was {_shown(before)}, is {_shown(now)}"


def _shown(value: Any) -> str:
    text = ABSENT if value is ... else repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


VERSION = 1

Request = dict[str, Any]


class WriteBegun(msgspec.Struct, tag="begun"):
    """What was asked for, nothing for a write that cannot be gone on with; the first line."""

    version: int
    request: Request


class ShardFinished(msgspec.Struct, tag="finished"):
    """A shard is complete and durable.

    Attributes:
        shard: as the manifest will list it.
        next: where the layout goes on after it.
    """

    shard: Shard
    next: Start


class Claimed(msgspec.Struct, tag="claimed"):
    """The marker of this write is at the URL, or about to be.

    Attributes:
        token: what tells it from that of another write.
    """

    token: str


class Uploaded(msgspec.Struct, tag="uploaded"):
    """A finished shard is where it is to be, as was verified there; the local one goes after this is durable.

    Attributes:
        name: of the shard.
        etag: of the object; None where the store gives none.
        schema: the columns, said of the first shard only.
    """

    name: str
    etag: str | None
    schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        manifest.check_shard_name(self.name)


Entry = WriteBegun | ShardFinished | Claimed | Uploaded | Publishing


@dataclass
class LogState:
    """What a ledger tells.

    Attributes:
        request: what was asked for; None if it does not say, or in the words of another version.
        finished: by name, the latest of each.
        token: of the marker at the URL, for a write to one.
        uploaded: by name, of those finished.
        publishing: the last entry, if it is one.
        end: of what can be read, without that last entry, bytes.
    """

    request: Request | None = None
    finished: dict[str, ShardFinished] = field(default_factory=dict)
    token: str | None = None
    uploaded: dict[str, Uploaded] = field(default_factory=dict)
    publishing: Publishing | None = None
    end: int = 0


class WriteLog:
    """An open one.

    Args:
        fd: open for reading and writing; whoever opened it closes it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        size = 0 if untrusted.is_sparse(fd) else min(os.fstat(fd).st_size, WRITE_LOG_MAX)
        self.story = replay(read_all(fd, size, 0))
        self._end = self.story.end

    def clear(self) -> None:
        """Forget everything."""
        os.ftruncate(self._fd, 0)
        self._end, self.story = 0, LogState()

    def begin(self, request: Request) -> None:
        """Begin anew."""
        self.clear()
        self.append(WriteBegun(VERSION, request))

    def append(self, entry: Entry) -> None:
        """Add an entry, after those that can be read; durable after `sync`.

        Raises:
            OSError: of the failed call.
        """
        os.ftruncate(self._fd, self._end)
        line = msgspec.json.encode(entry) + b"\n"
        write_all(self._fd, memoryview(line), self._end)
        self._end += len(line)
        _add(self.story, entry, self._end)

    def sync(self) -> None:
        """Have all entries survive a crash."""
        os.fsync(self._fd)


def load_state(path: str) -> LogState:
    """Return what the ledger at `path` tells, or would if there were one of this user in a directory of this user."""
    part, name = os.path.split(path)
    try:
        with untrusted.enter_directory(part) as fd:
            return replay(untrusted.read_file(name, WRITE_LOG_MAX, directory=fd, owner=untrusted.owner_of(fd)))
    except OSError:
        return LogState()


def replay(data: bytes) -> LogState:
    """What these bytes of a ledger tell: all up to the first line that is none."""
    story, end = LogState(), 0
    for line in data.splitlines(keepends=True):
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            break
        if not line.endswith(b"\n") or isinstance(entry, WriteBegun) != (end == 0):
            break
        if isinstance(entry, WriteBegun) and entry.version != VERSION:
            break
        end += len(line)
        _add(story, entry, end)
    return story


def _add(story: LogState, entry: Entry, end: int) -> None:
    story.publishing = None
    if isinstance(entry, Publishing):
        story.publishing = entry
        return
    if isinstance(entry, WriteBegun):
        story.request = entry.request
    elif isinstance(entry, Claimed):
        story.token = entry.token
    elif isinstance(entry, Uploaded):
        story.uploaded[entry.name] = entry
    else:
        story.finished[entry.shard.name] = entry
        story.uploaded.pop(entry.shard.name, None)  # it was written anew
    story.end = end
