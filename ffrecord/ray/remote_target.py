"""The place of shards at a URL, and the step that makes them a dataset at once. Imported only for URLs.

Objects cannot be renamed. Tasks send each finished shard under its final name, which contains the token of this write,
and the driver writes the manifest last. Without a manifest there is no dataset, and objects that a manifest does not
list are not read.

The marker says that the write is going on. At its end the driver removes the marker, and then shards that do not count.
A task that sends a shard checks the marker afterwards, and removes the shard if the marker is gone. So one of the two
removes the shard of a late task.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from errno import ENOENT
from threading import Event
from typing import Any

import msgspec

from ffrecord.dataset_writer.remote import target
from ffrecord.dataset_writer.remote.objects import Objects
from ffrecord.dataset_writer.remote.staging import ScratchDirectory
from ffrecord.dataset_writer.write_log import LogState
from ffrecord.errors import FFRecordError, MissingFileError, RemoteError
from ffrecord.fields import Schema
from ffrecord.format import manifest
from ffrecord.format.manifest import Shard
from ffrecord.ray.target import RayTarget, ShardPlace, empty_shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import signals

TOKEN_BYTES = 8

_log = logging.getLogger("ffrecord")


class RemotePlace:
    """The objects below a URL as a place for shards; each is made in a directory of this machine.

    Args:
        objects: objects of the dataset.
        token: token of the marker of this write.
    """

    def __init__(self, objects: Objects, token: str) -> None:
        self._objects, self._token = objects, token
        self._scratch: ScratchDirectory | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scratch": None}

    def path(self, name: str) -> str:
        """Return the path to write a shard of this name.

        Raises:
            FileNotFoundError: the write has ended.
            BlockingIOError (also a RuntimeError): another write has begun.
        """
        self._check_going_on()
        return self._local(name)

    def _check_going_on(self) -> None:
        if not self._objects.check_free(self._token):
            raise MissingFileError(ENOENT, f"{self._objects.label}: this write has already ended", self._objects.label)

    def _local(self, name: str) -> str:
        if self._scratch is None:
            self._scratch = ScratchDirectory("ray")
        return os.path.join(self._scratch.path, f"{prefix_of(self._token)}{name}")

    def finish(self, name: str) -> Shard:
        path = self._local(name)
        with closing(OpenedFile(path, check=False)) as opened:
            shard = Shard(os.path.basename(path), opened.n, opened.size, opened.crc)
        self._objects.send(shard, path, Event())
        os.unlink(path)
        try:
            self._check_going_on()
        except OSError:
            # The shard was not reported yet, so no manifest lists it; and perhaps nobody else removes it.
            with contextlib.suppress(RemoteError):
                self._objects.delete([shard.name])
            raise
        return shard

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


def prefix_of(token: str) -> str:
    """Return the beginning of the names of all shards of a write."""
    return f"ray-{token}-"


class RayRemoteTarget(RayTarget):
    """The objects below a URL as a target.

    Args:
        url, storage_options: URL of the dataset, and its options.
        appends: whether to add to it.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None, *, appends: bool) -> None:
        self._objects, self._appends = Objects(url, storage_options), appends
        super().__init__(self._objects.label)
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._held = False

    def begin(self) -> ShardPlace:
        if self._appends:
            target.check_extendable(self._objects)
        else:
            target.check_vacant(self._objects, LogState())
        self._held = True  # before `claim`: an exception may come after the marker was put
        self._objects.claim(self._token)
        if self._appends:
            self._found = target.load_remote_base(self._objects, ())
        return RemotePlace(self._objects, self._token)

    def commit(self, shards: Sequence[Shard], schema: Schema | None) -> None:
        builtins, found = None if schema is None else schema.to_builtins(), self._found
        new = list(shards) or ([] if found else [self._empty()])
        target.check_listed(self._objects, new, self._objects.listing())
        if found is None:
            listing = manifest.build(new, builtins)
        else:
            listing = found.manifest_with(new, builtins, tell=builtins is not None)
        data = msgspec.json.format(msgspec.json.encode(listing), indent=1) + b"\n"
        with signals.defer_signals():
            self._objects.put_manifest(data, None if found is None else found.fingerprint, listing.fingerprint)

    def _empty(self) -> Shard:
        with closing(RemotePlace(self._objects, self._token)) as place:
            return empty_shard(place)

    def abandon(self) -> None:
        with signals.defer_signals():
            if not self._held:
                return
            self._held = False
            objects = self._objects.with_deadline()
            for step in (self._release, self._remove_unlisted):
                try:
                    step(objects)
                except (FFRecordError, OSError) as error:
                    _log.warning("%s: files of this write could not be removed: %s", self.label, error)

    def _release(self, objects: Objects) -> None:
        objects.release(self._token)

    def _remove_unlisted(self, objects: Objects) -> None:
        """Remove shards that do not count.

        The current manifest decides, because the answer to its request may be lost.
        """
        objects.delete_unlisted([name for name in objects.listing() if name.startswith(prefix_of(self._token))])
