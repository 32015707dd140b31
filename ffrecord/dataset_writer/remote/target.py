"""A dataset written to a URL: check it, make the shards on this machine, upload them. Imported only for URLs."""

import contextlib
import errno
import logging
import os
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.remote import staging
from ffrecord.dataset_writer.remote.objects import MARKER, FoundObjects, Objects, same_etag
from ffrecord.dataset_writer.remote.uploads import Uploads
from ffrecord.dataset_writer.target import Base, next_shard_name
from ffrecord.dataset_writer.write_log import Claimed, LogState, Request, ShardFinished, Uploaded, load_state
from ffrecord.errors import (
    ArgumentError,
    ChangedError,
    FFRecordError,
    FormatError,
    MissingFileError,
    StateError,
    file_error,
)
from ffrecord.format import ffr_layout, manifest
from ffrecord.format.extension import Extension
from ffrecord.format.leftovers import Publishing
from ffrecord.format.manifest import Manifest, Shard
from ffrecord.remote.shard import shard_of_listing

_log = logging.getLogger("ffrecord")


class StagedPart(PartDirectory):
    """The part directory of a write to a URL: finished shards go from there to the URL.

    Args:
        objects: objects below the URL.
        staging: path of this machine whose part directory this is; nothing is created at the path itself.
        appends: whether the write appends to an existing dataset.
    """

    def __init__(self, objects: Objects, staging: str, *, appends: bool) -> None:
        super().__init__(staging)
        self.label = objects.label
        self._objects, self._appends = objects, appends
        self._uploads = Uploads(self._send)
        self._sent: set[str] = set()  # names of the shards verified at the URL
        self._listing: dict[str, FoundObjects] | None = None
        self._listing_lock = threading.Lock()

    @property
    def places(self) -> str:
        """Places of the finished shards, for messages."""
        return f"{self.label} and {self.path}"

    def acquire(self) -> None:
        """Take the part directory, and check that no other writer writes to the URL."""
        super().acquire()
        try:
            # The lock keeps out writers of this machine, the marker those of others.
            self._objects.check_free(self.write_log.state.token)
        except BaseException:
            # The lock must not stay behind when this write is refused.
            self._back_out()
            raise

    def begin(self, request: Request) -> None:
        """Log the request, and put the marker."""
        before, token = self.write_log.state.token, secrets.token_hex(16)
        if before is not None:
            self._objects.release(before)  # while the log still has its token
        super().begin(request)
        with self._explain_errors("the write could not begin"):
            self.write_log.append(Claimed(token))
            self.write_log.sync()  # before the marker: there must never be a marker whose token is unknown
        self._claim()

    def _claim(self) -> None:
        """Put the marker, or find it. Only while it is there do the objects at the URL stay unchanged."""
        state = self.write_log.state
        if state.token is None:
            raise FormatError(  # a log of another program, or one that was cut
                f"{self.path}: its write log has finished shards, but not the owner of the marker at the URL"
            )
        # Claimed again also when a write is resumed: somebody may have removed the marker meanwhile.
        self._objects.claim(state.token)
        # An append finds the objects of the dataset there.
        if not self._appends:
            check_vacant(self._objects, state)

    # Shards

    def keep(self, shard: Shard, following: Start) -> None:
        """Log that a shard is complete and durable, and queue its upload; wait while the queue is long."""
        super().keep(shard, following)
        # Only now, because a thread must not exist when workers are forked.
        self._uploads.start()
        self._uploads.add(shard)
        # Shards that wait for their upload take space on the local disk.
        self._uploads.make_room()

    def _send(self, shard: Shard, given_up: threading.Event) -> None:
        """Upload a shard; runs in a thread of the uploads."""
        local = Path(self.finished) / shard.name
        entry = self.write_log.state.finished[shard.name]
        # The local file goes, so the log keeps the columns for a resumed write.
        schema = super().schema_of(shard) if entry.next.shard - 1 == self.first else None
        found = self._objects.send(shard, str(local), given_up)
        with self._mutex, self._explain_errors(f"{shard.name} was sent, but could not be logged"):
            # A thread may come here after the write was given up and its lock freed.
            if not self.is_held:
                raise StateError(f"{self.label}: this write has ended; repeat the call")
            self.write_log.append(Uploaded(shard.name, found.etag, schema))
            self.write_log.sync()  # before the local file goes
            self._sent.add(shard.name)
            local.unlink()

    def settle(self) -> None:
        """Wait until all shards are uploaded."""
        self._uploads.wait()

    def has(self, name: str) -> bool:
        """Return whether a finished shard of this name is here, or was uploaded."""
        return name in self.write_log.state.uploaded or super().has(name)

    def is_whole(self, shard: Shard) -> bool:
        """Return whether a finished shard is unchanged."""
        # No byte is downloaded: size and etag are those of the object that was verified after its upload.
        if self._is_sent(shard, self._load_listing().get(shard.name)):
            self._sent.add(shard.name)
            return True
        return super().is_whole(shard)

    def _is_sent(self, shard: Shard, found: FoundObjects | None) -> bool:
        noted = self.write_log.state.uploaded.get(shard.name)
        return (
            noted is not None and found is not None and found.size == shard.size and same_etag(noted.etag, found.etag)
        )

    def _load_listing(self) -> dict[str, FoundObjects]:
        # Several threads verify shards; one request serves them all.
        with self._listing_lock:
            if self._listing is None:
                self._listing = self._objects.listing()
            return self._listing

    def schema_of(self, shard: Shard) -> dict[str, Any] | None:
        """Return the schema in the first finished shard."""
        return (
            self.write_log.state.uploaded[shard.name].schema if shard.name in self._sent else super().schema_of(shard)
        )

    def finished_names(self) -> list[str]:
        """Return the names of all finished shards, here or at the URL, in order."""
        # A failure in `acquire` may come before the log is open.
        write_log = getattr(self, "write_log", None)
        return sorted({*super().finished_names(), *(write_log.state.uploaded if write_log else ())})

    def keep_from(self, first: int, names: Collection[str]) -> None:
        """Keep these shards and no others; upload those that are not at the URL yet."""
        if names:
            # Objects may be relied on only while the marker keeps other writers out.
            self._claim()
        super().keep_from(first, names)
        # Shorter names first: PART_100000 follows PART_99999.
        for name in sorted(set(names) - self._sent, key=lambda name: (len(name), name)):
            self._uploads.add(self.write_log.state.finished[name].shard)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all finished shards but these, here and at the URL."""
        # Objects first: if a request fails, the local shards stay for another try.
        self._remove_objects(self._objects, set(self.write_log.state.finished) - set(names))
        super().keep_only(set(names) - self._sent)

    def _remove_objects(self, objects: Objects, names: Collection[str]) -> None:
        """Remove the shards `names` from the URL if this write has uploaded them and no manifest lists them."""
        state = self.write_log.state
        if state.token is None or not names:
            return
        # Deleting only what is there, at its size, saves requests and spares the objects of others.
        there = objects.listing()
        ours = [name for name in names if name in there and _is_ours(state.finished[name], there[name])]
        objects.delete_unlisted(ours)

    def clear(self) -> None:
        """Remove all finished shards, the marker, and the entries of the write log."""
        token = self.write_log.state.token
        # The marker goes after the objects that it protects.
        self.keep_only([])
        if token is not None:
            self._objects.release(token)
        self.write_log.clear()

    # Publication

    def is_published(self, mark: Publishing) -> bool:
        """Return whether an interrupted publication, which is one request, has succeeded."""
        return self._objects.fingerprint() == mark.after

    def take_back(self, mark: Publishing) -> bool:
        """Return whether an interrupted publication has changed nothing, and nobody else has since."""
        return self._objects.fingerprint() == mark.before

    def check_finished(self, shards: Sequence[Shard]) -> None:
        """Raise ChangedError unless all shards are at the URL as they were when they were verified there."""
        there = self._objects.listing()
        for shard in shards:
            if not self._is_sent(shard, there.get(shard.name)):
                raise ChangedError(
                    f"{self._objects.url(shard.name)}: the object was replaced or removed after it was sent and "
                    "verified; repeat the same call to write it again, and check that no other program writes there"
                )

    def publish(self, names: Sequence[str], fingerprint: str | None = None, skipped: int = 0) -> None:
        """Put the manifest, which makes the dataset appear, as the last object."""
        if fingerprint is None:
            # Without one, readers would take every object as it comes.
            raise ArgumentError(f"{self.label}: a dataset at a URL needs a manifest")
        self._publish(Publishing(list(names), None, fingerprint, skipped))

    def publish_more(self, names: Sequence[str], before: Manifest, listing: Manifest, skipped: int = 0) -> None:
        """Replace the manifest by one that lists the new shards too."""
        manifest.save(self.finished, listing)  # a file here only to be sent from; `_mark` makes it durable
        self._publish(Publishing(list(names), before.fingerprint, listing.fingerprint, skipped))

    def _publish(self, mark: Publishing) -> None:
        state = self.write_log.state
        # Again, right before they become visible: other programs may write to the bucket.
        self.check_finished([state.finished[name].shard for name in mark.names if name != manifest.NAME])
        data = manifest.read(str(Path(self.finished) / manifest.NAME), manifest.SIZE_MAX)
        # Logged before the request, because its answer may be lost.
        with self._explain_errors("nothing was published"):
            self._mark(mark)
        self._objects.put_manifest(data, mark.before, mark.after)
        self.published = True

    # Ends

    def advice(self, error: BaseException) -> str | None:
        """Return advice for a full disk: shards are made on a disk of this machine."""
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return (  # our path does not exist yet; its parent has the disk
            f"{self.label}: some shards at a time are kept in {os.path.dirname(self.path)} before they are sent; pass "
            "staging= for another directory, or a smaller shard_size="
        )

    def discard(self) -> None:
        """Remove everything in it and unlock, once no upload is running."""
        # An upload that still runs could replace objects of the next writer, so the lock stays until it ends.
        if self._stop_uploads():
            super().discard()

    def leave(self) -> list[str]:
        """Remove everything that no later write can use and unlock, once no upload is running."""
        return super().leave() if self._stop_uploads() else self.finished_names()

    def release(self) -> None:
        """Unlock and leave everything as it was found, once no upload is running."""
        if self._stop_uploads():
            super().release()

    def _stop_uploads(self) -> bool:
        """Stop the uploads; return False if one is still running, and then keep the lock until it ends."""
        if not self.is_held or self._uploads.stop():
            return True
        _log.warning("%s: it stays locked until the shards that are being sent have arrived", self.label)
        # The thread of the last upload frees the lock.
        self._uploads.call_when_idle(super().release)
        return False

    def _has_published(self) -> bool:
        mark = self.write_log.state.publishing if hasattr(self, "write_log") else None
        if mark is None:
            return False
        with contextlib.suppress(FFRecordError, OSError):
            return self._objects.with_deadline().fingerprint() == mark.after
        return True  # unknown: assume that it has

    def _remove(self) -> None:
        """Remove the objects at the URL, then the part directory.

        If objects stay, the write log stays for the next write.
        """
        try:
            self._tidy()
        except (FFRecordError, OSError) as error:
            _log.warning(
                "%s: files of this write could not be removed, the next write removes them: %s", self.label, error
            )
            self._unlock()  # the token in the log lets the next write remove the objects and the marker
            return
        super()._remove()

    def _tidy(self) -> None:
        state, objects = self.write_log.state, self._objects.with_deadline()
        # Without a token this write has put nothing there.
        if state.token is None:
            return
        if not self.published:
            self._remove_objects(objects, state.finished)
        objects.release(state.token)


def _is_ours(entry: ShardFinished, found: FoundObjects) -> bool:
    # Compare no etag: the upload of a killed writer may have succeeded without an entry in the log.
    return found.size == entry.shard.size


def check_vacant(objects: Objects, state: LogState) -> None:
    """Raise unless the URL has no objects but those of an interrupted write, as its log lists them.

    Raises:
        BlockingIOError, FileExistsError (also a RuntimeError): another writer is at work, or other objects are there.
        OSError: the objects cannot be listed.
    """
    there = objects.listing()
    # Our own marker may be there from an interrupted write.
    if MARKER in there:
        objects.check_free(state.token)
    mark = state.publishing
    ours = {MARKER}
    ours |= {name for name, entry in state.finished.items() if name in there and there[name].size == entry.shard.size}
    if manifest.NAME in there and mark is not None and objects.fingerprint() == mark.after:
        ours.add(manifest.NAME)
    others = sorted(there.keys() - ours)
    if others:
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        message = f"{objects.label} is not empty, it holds {some}; delete it, or name another directory"
        raise file_error(errno.EEXIST, message, objects.label)


def check_extendable(objects: Objects) -> Manifest:
    """Return the existing manifest, which a dataset of objects needs.

    Raises:
        FileNotFoundError: there is none.
    """
    found = objects.manifest()
    if found is None:
        raise MissingFileError(
            errno.ENOENT,
            f"{objects.label} holds no dataset to append to: {manifest.NAME} does not exist",
            objects.label,
        )
    return found[0]


def load_remote_base(objects: Objects, ours: Collection[str]) -> Base:
    """Load the dataset at a URL.

    Args:
        ours: names of shards that an interrupted write has put there, and that no manifest lists.

    Raises:
        FormatError, ChecksumError, ChangedError: manifest or shards are damaged, or do not belong together.
        OSError: one is missing or cannot be read.
    """
    listing, there = check_extendable(objects), objects.listing()
    check_listed(objects, listing.shards, there)
    said = extension_of(objects, listing.shards[0]) if listing.shards else None
    known = {shard.name for shard in listing.shards}
    names = [name for name in there if name.endswith(ffr_layout.SUFFIX) and (name in known or name not in ours)]
    stem, start = next_shard_name([name for name in names if "/" not in name])
    return Base(listing, listing.fingerprint, None if said is None else said.serializer, stem, start)


def check_listed(objects: Objects, shards: Sequence[Shard], there: Mapping[str, FoundObjects]) -> None:
    """Raise unless a listing has all shards, each with its size.

    Raises:
        FileNotFoundError, FormatError: one is missing, or has another size; names it.
    """
    # Size only: the manifest knows no etags.
    for shard in shards:
        found = there.get(shard.name)
        if found is None:
            raise MissingFileError(errno.ENOENT, f"{objects.url(shard.name)} does not exist", objects.url(shard.name))
        if found.size != shard.size:
            raise FormatError(f"{objects.url(shard.name)}: it has {found.size} bytes, expected {shard.size}")


def extension_of(objects: Objects, shard: Shard) -> Extension | None:
    """Return the extension block of a shard; this reads its tables too.

    Raises:
        ChangedError: it is another file than is listed.
        FormatError, ChecksumError: it is damaged.
    """
    return shard_of_listing(objects.storage(), shard, check=True).extension


class RemoteTarget:
    """A URL as a target.

    Args:
        url, storage_options: URL of the dataset, and its options.
        directory: staging directory; None for one of this user below the system's temporary directory.
    """

    backlog = 2  # shards; few, so that they take little of this machine's disk

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None, directory: str | os.PathLike[str] | None
    ) -> None:
        self._objects = Objects(url, storage_options)
        self.label = self._objects.label
        self.made = staging.staging_path(url, storage_options, directory)
        self._own = directory is None

    def __repr__(self) -> str:
        return f"<RemoteTarget {self.label}>"

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError if there is nothing to append to, or FileExistsError if something is in the way."""
        if appends:
            check_extendable(self._objects)
        else:
            check_vacant(self._objects, load_state(PartDirectory(self.made).write_log_path))

    def part(self, *, appends: bool) -> PartDirectory:
        """Return the part directory, which holds the shards until they are published."""
        staging.make_staging(self.made, own=self._own)
        return StagedPart(self._objects, self.made, appends=appends)

    def base(self, part: PartDirectory) -> Base:
        """Return the dataset that is appended to."""
        return load_remote_base(self._objects, part.write_log.state.finished)
