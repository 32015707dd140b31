"""Where shards of a URL go, and how all of them become a dataset at once. Imported only where one is given.

Objects have no renames: tasks send each finished shard under the name that it keeps, with the token of this write in
it, and the driver writes the manifest last. Without a manifest nothing is a dataset, and what a manifest does not list
is not read.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from ffrecord import manifest
from ffrecord.errors import RemoteError
from ffrecord.fields import Schema
from ffrecord.manifest import Shard
from ffrecord.opened import OpenedFile
from ffrecord.ray.target import Place, Target, empty_shard, together
from ffrecord.sharding import remote_base, staging
from ffrecord.sharding.ledger import Story
from ffrecord.sharding.objects import Objects
from ffrecord.workers import interrupts

TOKEN_BYTES = 8


class RemotePlace:
    """The objects below a URL; shards are made in a directory of this machine, one at a time.

    Args:
        objects: of the dataset.
        prefix: of all names.
    """

    def __init__(self, objects: Objects, prefix: str) -> None:
        self._objects, self._prefix = objects, prefix
        self._staging: Staging | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_staging": None}

    def path(self, name: str) -> str:
        if self._staging is None:
            self._staging = Staging()
        return os.path.join(self._staging.path, f"{self._prefix}{name}")

    def finished(self, name: str) -> Shard:
        path = self.path(name)
        with closing(OpenedFile(path, check=False)) as opened:
            shard = Shard(os.path.basename(path), opened.n, opened.size, opened.crc)
        self._objects.send(shard, path, Event())
        os.unlink(path)
        return shard

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()
            self._staging = None


class Staging:
    """A directory of this process. It goes when it is closed; that of a killed one when this user makes the next."""

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir()) / f"ffrecord-ray-{os.geteuid()}"
        self.path = str(root / secrets.token_hex(TOKEN_BYTES))
        staging.make(self.path, own=True)
        for name in os.listdir(root):
            _remove_if_left(str(root / name))
        os.mkdir(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)


def _remove_if_left(path: str) -> None:
    """Remove the directory of a process that has ended, which takes its lock along."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)


class RemoteTarget(Target):
    """Objects below a URL.

    Args:
        url, storage_options: of the dataset.
        appends: whether to add to it.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None, *, appends: bool) -> None:
        self._objects, self._appends = Objects(url, storage_options), appends
        super().__init__(self._objects.label)
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._prefix = f"ray-{self._token}-"
        self._held = False
        self._listed: frozenset[str] = frozenset()

    def begin(self) -> Place:
        if self._appends:
            remote_base.check_extendable(self._objects)
        else:
            remote_base.check_vacant(self._objects, Story())
        self._objects.claim(self._token)
        self._held = True
        if self._appends:
            self._found = remote_base.look(self._objects, ())
        return RemotePlace(self._objects, self._prefix)

    def commit(self, shards: Sequence[Shard], schema: Schema | None) -> None:
        builtins, found = None if schema is None else schema.to_builtins(), self._found
        if found is None:
            listing = manifest.build(list(shards) or [self._empty()], builtins)
        else:
            listing = together(found, shards, builtins)
        data = msgspec.json.format(msgspec.json.encode(listing), indent=1) + b"\n"
        self._objects.put_manifest(data, None if found is None else found.fingerprint, listing.fingerprint)
        self._listed = frozenset(shard.name for shard in listing.shards)

    def _empty(self) -> Shard:
        place = RemotePlace(self._objects, self._prefix)
        with closing(place):
            return empty_shard(place)

    def abandon(self) -> None:
        if not self._held:
            return
        with interrupts.undisturbed():
            self._held = False
            # What cannot be removed is in nobody's way but the next writer's, who is told its name.
            with contextlib.suppress(RemoteError):
                names = [name for name in self._objects.listing() if name.startswith(self._prefix)]
                self._objects.delete([name for name in names if name not in self._listed])
            with contextlib.suppress(RemoteError):
                self._objects.release(self._token)
