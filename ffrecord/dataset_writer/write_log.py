"""The write log of a part directory: the request, the finished shards, and the start of a publication."""

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
from ffrecord.system import named_calls, untrusted
from ffrecord.system.atomic_file import read_all, write_all

SHOWN = 60  # longest text of a value, characters
ABSENT = "nothing"


def differences(before: Any, now: Any) -> list[str]:
    """Return the differences of two values of builtins, each as "path was this, is that"; tuples count as lists."""
    return list(_differences(_as_json(before), _as_json(now), ""))


def _as_json(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    # JSON makes lists of tuples and text of number keys; so both sides take that way.
    return msgspec.json.decode(msgspec.json.encode(value))


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        # Keys in their own order, the earlier request first.
        for key in [*before, *(key for key in now if key not in before)]:
            yield from _differences(before.get(key, ...), now.get(key, ...), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(now, list):
        for number, (one, other) in enumerate(itertools.zip_longest(before, now, fillvalue=...)):
            yield from _differences(one, other, f"{path}[{number}]")
    # In Python 1 == True and 1 == 1.0, but a request with another type is another one.
    elif before != now or type(before) is not type(now):
        yield f"{path} was {_format_value(before)}, is {_format_value(now)}"


def _format_value(value: Any) -> str:
    text = ABSENT if value is ... else repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


VERSION = 1

Request = dict[str, Any]


class WriteBegun(msgspec.Struct, tag="begun"):
    """The first entry: the request, empty for a write that cannot be resumed."""

    version: int
    request: Request


class ShardFinished(msgspec.Struct, tag="finished"):
    """The entry of a shard that is complete and durable.

    Attributes:
        shard: its manifest entry.
        next: position where the layout goes on after it.
    """

    shard: Shard
    next: Start


class Claimed(msgspec.Struct, tag="claimed"):
    """The entry before the marker of this write is put at the URL.

    Attributes:
        token: token that identifies the marker of this write.
    """

    token: str


class Uploaded(msgspec.Struct, tag="uploaded"):
    """The entry of a finished shard that is verified at the URL; the local file is removed after this entry is durable.

    Attributes:
        name: name of the shard.
        etag: etag of the object; None if the store gives none.
        schema: schema of the columns, for the first shard only.
    """

    name: str
    etag: str | None
    schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        manifest.check_shard_name(self.name)


Entry = WriteBegun | ShardFinished | Claimed | Uploaded | Publishing


@dataclass
class LogState:
    """The contents of a write log.

    Attributes:
        request: request of the write; None if there is none, or it has another version.
        finished: latest entry of each finished shard, by name.
        token: token of the marker at the URL, for a write to a URL.
        uploaded: entries of the finished shards that were uploaded, by name.
        publishing: the last entry, if it starts a publication.
        end: end of the readable entries without that last one, bytes.
    """

    request: Request | None = None
    finished: dict[str, ShardFinished] = field(default_factory=dict)
    token: str | None = None
    uploaded: dict[str, Uploaded] = field(default_factory=dict)
    publishing: Publishing | None = None
    end: int = 0


class WriteLog:
    """An open write log.

    Args:
        fd: descriptor, open for reading and writing; the caller closes it.

    Attributes:
        state: its contents.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # A file of holes can claim any size without using the disk, so it is no log of ours.
        size = 0 if untrusted.is_sparse(fd) else min(os.fstat(fd).st_size, WRITE_LOG_MAX)
        self.state = replay(read_all(fd, size, 0))
        self._end = self.state.end

    def clear(self) -> None:
        """Remove all entries."""
        named_calls.ftruncate(self._fd, 0)
        self._end, self.state = 0, LogState()

    def begin(self, request: Request) -> None:
        """Start a new log with this request."""
        self.clear()
        self.append(WriteBegun(VERSION, request))

    def append(self, entry: Entry) -> None:
        """Add an entry after the readable ones; it is durable after `sync`.

        Raises:
            OSError: of the failed call.
        """
        # Cuts off a torn line, and the mark of a publication that came to nothing.
        named_calls.ftruncate(self._fd, self._end)
        line = msgspec.json.encode(entry) + b"\n"
        write_all(self._fd, memoryview(line), self._end)
        self._end += len(line)
        _add(self.state, entry, self._end)

    def sync(self) -> None:
        """Make all entries durable."""
        named_calls.fsync(self._fd)


def load_state(path: str) -> LogState:
    """Return the contents of the log at `path`; an empty state unless file and directory belong to this user."""
    part, name = os.path.split(path)
    try:
        with untrusted.enter_directory(part) as fd:
            return replay(untrusted.read_file(name, WRITE_LOG_MAX, directory=fd, owner=untrusted.owner_of(fd)))
    except OSError:
        return LogState()


def replay(data: bytes) -> LogState:
    """Return the contents of a log from its bytes: all entries before the first line that is damaged."""
    state, end = LogState(), 0
    for line in data.splitlines(keepends=True):
        try:
            entry = msgspec.json.decode(line, type=Entry)
        # Deeply nested JSON in a file from anywhere ends in a RecursionError.
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            break
        # A line without its end was torn; the request can only be the first entry.
        if not line.endswith(b"\n") or isinstance(entry, WriteBegun) != (end == 0):
            break
        if isinstance(entry, WriteBegun) and entry.version != VERSION:
            break
        end += len(line)
        _add(state, entry, end)
    return state


def _add(state: LogState, entry: Entry, end: int) -> None:
    # Any later entry shows that the publication was undone and the write went on.
    state.publishing = None
    if isinstance(entry, Publishing):
        state.publishing = entry
        return
    if isinstance(entry, WriteBegun):
        state.request = entry.request
    elif isinstance(entry, Claimed):
        state.token = entry.token
    elif isinstance(entry, Uploaded):
        state.uploaded[entry.name] = entry
    else:
        state.finished[entry.shard.name] = entry
        state.uploaded.pop(entry.shard.name, None)  # the shard was written again
    state.end = end
