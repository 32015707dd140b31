"""A dataset written to a URL: check it, make the shards on this machine, send them. Imported only for URLs."""

import contextlib
import errno
import logging
import os
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ffrecord.dataset_writer.append import Base, names_after
from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.remote import staging
from ffrecord.dataset_writer.remote.objects import MARKER, FoundObjects, Objects, same
from ffrecord.dataset_writer.remote.uploads import Uploads
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
    """See above, and `PartDirectory`.

    Args:
        objects: below the URL.
        staging: a path of this machine, of which this is the part directory; nothing comes to be there itself.
        appends: whether to a dataset that is there.
    """

    def __init__(self, objects: Objects, staging: str, *, appends: bool) -> None:
        super().__init__(staging)
        self.label = objects.label
        self._objects, self._appends = objects, appends
        self._uploads = Uploads(self._send)
        self._up: set[str] = set()  # shards that were seen to be there
        self._listing: dict[str, FoundObjects] | None = None
        self._looking = threading.Lock()

    @property
    def places(self) -> str:
        """Where finished shards are, for messages."""
        return f"{self.label} and {self.path}"

    def acquire(self) -> None:
        """Take the part directory, and see that nobody else writes to the URL."""
        super().acquire()
        try:
            self._objects.check_free(self.ledger.story.token)
        except BaseException:
            self._back_out()
            raise

    def begin(self, request: Request) -> None:
        """Take note of what is asked for, and put the marker."""
        before, token = self.ledger.story.token, secrets.token_hex(16)
        if before is not None:
            self._objects.release(before)  # while the ledger still tells whose it is
        super().begin(request)
        with self._naming("nothing was begun"):
            self.ledger.append(Claimed(token))
            self.ledger.sync()  # the marker must never be there and nobody know whose it is
        self._claim()

    def _claim(self) -> None:
        """Put the marker, or find it; only then what is there stays as it is."""
        story = self.ledger.story
        if story.token is None:
            raise FormatError(f"{self.path}: its ledger has finished shards, but not whose the marker at the URL is")
        self._objects.claim(story.token)
        if not self._appends:
            check_vacant(self._objects, story)

    # Shards

    def keep(self, shard: Shard, following: Start) -> None:
        """Take note that a shard is complete and durable, and have it sent; waits while others are to be sent first."""
        super().keep(shard, following)
        self._uploads.start()
        self._uploads.add(shard)
        self._uploads.make_room()

    def _send(self, shard: Shard, given_up: threading.Event) -> None:
        """In a thread of the uploads."""
        local = Path(self.finished) / shard.name
        entry = self.ledger.story.finished[shard.name]
        schema = super().schema_of(shard) if entry.next.shard - 1 == self.first else None
        found = self._objects.send(shard, str(local), given_up)
        with self._mutex, self._naming(f"{shard.name} is there, but that could not be noted"):
            if not self.held:
                raise StateError(f"{self.label}: given up")
            self.ledger.append(Uploaded(shard.name, found.etag, schema))
            self.ledger.sync()  # before the local one goes
            self._up.add(shard.name)
            local.unlink()

    def settle(self) -> None:
        """Wait until all are there."""
        self._uploads.wait()

    def has(self, name: str) -> bool:
        """Whether there is a finished shard of this name, or was one at the URL."""
        return name in self.ledger.story.uploaded or super().has(name)

    def is_whole(self, shard: Shard) -> bool:
        """Whether a finished shard is what it was."""
        if self._is_up(shard, self._there().get(shard.name)):
            self._up.add(shard.name)
            return True
        return super().is_whole(shard)

    def _is_up(self, shard: Shard, found: FoundObjects | None) -> bool:
        noted = self.ledger.story.uploaded.get(shard.name)
        return noted is not None and found is not None and found.size == shard.size and same(noted.etag, found.etag)

    def _there(self) -> dict[str, FoundObjects]:
        with self._looking:
            if self._listing is None:
                self._listing = self._objects.listing()
            return self._listing

    def schema_of(self, shard: Shard) -> dict[str, Any] | None:
        """The columns that the first finished shard says."""
        return self.ledger.story.uploaded[shard.name].schema if shard.name in self._up else super().schema_of(shard)

    def finished_names(self) -> list[str]:
        """Of all finished shards, here or at the URL, in order."""
        ledger = getattr(self, "ledger", None)
        return sorted({*super().finished_names(), *(ledger.story.uploaded if ledger else ())})

    def go_on_from(self, first: int, names: Collection[str]) -> None:
        """Keep these shards and no others; send what is not there yet."""
        if names:
            self._claim()
        super().go_on_from(first, names)
        for name in sorted(set(names) - self._up, key=lambda name: (len(name), name)):
            self._uploads.add(self.ledger.story.finished[name].shard)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all finished shards but these, here and at the URL."""
        self._remove_objects(self._objects, set(self.ledger.story.finished) - set(names))
        super().keep_only(set(names) - self._up)

    def _remove_objects(self, objects: Objects, names: Collection[str]) -> None:
        """Remove those of these shards that this write has sent, unless a manifest lists them."""
        story = self.ledger.story
        if story.token is None or not names:
            return
        there = objects.listing()
        ours = [name for name in names if name in there and _is_ours(story.finished[name], there[name])]
        objects.delete_unlisted(ours)

    def clear(self) -> None:
        """Remove all finished shards, the marker, and what is said of them."""
        token = self.ledger.story.token
        self.keep_only([])
        if token is not None:
            self._objects.release(token)
        self.ledger.clear()

    # Publication

    def happened(self, mark: Publishing) -> bool:
        """Whether a publication that was interrupted had got to its end, which is one request."""
        return self._objects.fingerprint() == mark.after

    def take_back(self, mark: Publishing) -> bool:
        """Whether a publication that was interrupted has changed nothing, and nobody else has since."""
        return self._objects.fingerprint() == mark.before

    def check_finished(self, shards: Sequence[Shard]) -> None:
        """Raise ChangedError unless all shards are at the URL as they were when they were verified there."""
        there = self._objects.listing()
        for shard in shards:
            if not self._is_up(shard, there.get(shard.name)):
                raise ChangedError(
                    f"{self._objects.url(shard.name)}: sent and verified, but now another one is there, or none; the "
                    "same call writes it again. Does anybody else write there?"
                )

    def publish(self, names: Sequence[str], fingerprint: str | None = None, skipped: int = 0) -> None:
        """Have the dataset appear: what makes it one is put last."""
        if fingerprint is None:
            raise ArgumentError(f"{self.label}: shards at a URL are no dataset without a manifest")
        self._publish(Publishing(list(names), None, fingerprint, skipped))

    def publish_more(self, names: Sequence[str], before: Manifest, listing: Manifest, skipped: int = 0) -> None:
        """Have the manifest replaced by one that lists the new shards too."""
        manifest.save(self.finished, listing)
        self._publish(Publishing(list(names), before.fingerprint, listing.fingerprint, skipped))

    def _publish(self, mark: Publishing) -> None:
        story = self.ledger.story
        self.check_finished([story.finished[name].shard for name in mark.names if name != manifest.NAME])
        data = manifest.read(str(Path(self.finished) / manifest.NAME), manifest.SIZE_MAX)
        with self._naming("nothing was published"):
            self._mark(mark)
        self._objects.put_manifest(data, mark.before, mark.after)
        self.published = True

    # Ends

    def advice(self, error: BaseException) -> str | None:
        """That shards are made on a disk, where that is full."""
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return (
            f"{self.label}: its shards are made in {os.path.dirname(self.path)}, some at a time, before they are sent; "
            "staging= names another directory, and shard_size= makes them smaller"
        )

    def discard(self) -> None:
        """As that of a directory, once nothing is on its way any more."""
        if self._is_quiet():
            super().discard()

    def leave(self) -> list[str]:
        """As that of a directory, once nothing is on its way any more."""
        return super().leave() if self._is_quiet() else self.finished_names()

    def release(self) -> None:
        """Likewise."""
        if self._is_quiet():
            super().release()

    def _is_quiet(self) -> bool:
        """Whether no thread sends anything; else the lock stays until none does."""
        if not self.held or self._uploads.stop():
            return True
        _log.warning("%s: shards that are on their way keep it locked until they are there", self.label)
        self._uploads.afterwards(super().release)
        return False

    def _has_published(self) -> bool:
        mark = self.ledger.story.publishing if hasattr(self, "ledger") else None
        if mark is None:
            return False
        with contextlib.suppress(FFRecordError, OSError):
            return self._objects.hurried().fingerprint() == mark.after
        return True  # it may have

    def _remove(self) -> None:
        """Of the URL too; what cannot be removed there is left to the next write, which the ledger tells of it."""
        try:
            self._tidy()
        except (FFRecordError, OSError) as error:
            _log.warning("%s: what is left of this write there is for the next one to remove: %s", self.label, error)
            self._unlock()
            return
        super()._remove()

    def _tidy(self) -> None:
        story, objects = self.ledger.story, self._objects.hurried()
        if story.token is None:
            return
        if not self.published:
            self._remove_objects(objects, story.finished)
        objects.release(story.token)


def _is_ours(entry: ShardFinished, found: FoundObjects) -> bool:
    # Its version is not compared: one that was on its way when the writer was killed has not been noted.
    return found.size == entry.shard.size


def check_vacant(objects: Objects, story: LogState) -> None:
    """Raise unless nothing is at the URL but what an interrupted write has put there, as its ledger tells.

    Raises:
        BlockingIOError, FileExistsError (also a RuntimeError): another one writes, or something else is there.
        OSError: nobody can tell.
    """
    there = objects.listing()
    if MARKER in there:
        objects.check_free(story.token)
    mark = story.publishing
    ours = {MARKER}
    ours |= {name for name, entry in story.finished.items() if name in there and there[name].size == entry.shard.size}
    if manifest.NAME in there and mark is not None and objects.fingerprint() == mark.after:
        ours.add(manifest.NAME)
    others = sorted(there.keys() - ours)
    if others:
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        message = f"{objects.label} is not empty, it holds {some}; delete that, or name another directory"
        raise file_error(errno.EEXIST, message, objects.label)


def check_extendable(objects: Objects) -> Manifest:
    """The manifest that is there, which a dataset of objects needs.

    Raises:
        FileNotFoundError: there is none.
    """
    found = objects.manifest()
    if found is None:
        raise MissingFileError(
            2, f"{objects.label} holds no {manifest.NAME}, so no dataset to append to", objects.label
        )
    return found[0]


def look(objects: Objects, ours: Collection[str]) -> Base:
    """The dataset at a URL.

    Args:
        ours: names of shards that an interrupted write has put there, and that no manifest lists.

    Raises:
        FormatError, ChecksumError, ChangedError: manifest or shards are damaged, or not of one another.
        OSError: one is missing or cannot be read.
    """
    listing, there = check_extendable(objects), objects.listing()
    check_listed(objects, listing.shards, there)
    said = extension_of(objects, listing.shards[0]) if listing.shards else None
    known = {shard.name for shard in listing.shards}
    names = [name for name in there if name.endswith(ffr_layout.SUFFIX) and (name in known or name not in ours)]
    stem, start = names_after([name for name in names if "/" not in name])
    return Base(listing, listing.fingerprint, None if said is None else said.serializer, stem, start)


def check_listed(objects: Objects, shards: Sequence[Shard], there: Mapping[str, FoundObjects]) -> None:
    """Raise unless all shards are among the objects that a listing has found, of the size that each is to have.

    Raises:
        FileNotFoundError, FormatError: one is not there, or of another size; names it.
    """
    for shard in shards:
        found = there.get(shard.name)
        if found is None:
            raise MissingFileError(2, f"{objects.url(shard.name)} does not exist", objects.url(shard.name))
        if found.size != shard.size:
            raise FormatError(f"{objects.url(shard.name)}: {found.size} bytes, expected {shard.size}")


def extension_of(objects: Objects, shard: Shard) -> Extension | None:
    """What a shard says about itself; its tables come with it.

    Raises:
        ChangedError: it is another file than is listed.
        FormatError, ChecksumError: it is damaged.
    """
    return shard_of_listing(objects.storage(), shard, check=True).extension


class RemoteTarget:
    """See `Target`.

    Args:
        url, storage_options: of the dataset.
        directory: for staging; None for one of this user below the system's temporary directory.
    """

    backlog = 2  # shards: what is on the disk of this machine is to stay little

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None, directory: str | os.PathLike[str] | None
    ) -> None:
        self._objects = Objects(url, storage_options)
        self.label = self._objects.label
        self.made = staging.place(url, storage_options, directory)
        self._own = directory is None

    def __repr__(self) -> str:
        return f"<RemoteTarget {self.label}>"

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError or FileExistsError unless there is something to append to, or nothing in the way."""
        if appends:
            check_extendable(self._objects)
        else:
            check_vacant(self._objects, load_state(PartDirectory(self.made).ledger_path))

    def part(self, *, appends: bool) -> PartDirectory:
        """Where shards are until they are published."""
        staging.make(self.made, own=self._own)
        return StagedPart(self._objects, self.made, appends=appends)

    def base(self, part: PartDirectory) -> Base:
        """The dataset that is appended to."""
        return look(self._objects, part.ledger.story.finished)
