"""A directory of shards that appears whole: filled in a hidden part directory, then given its final name.

    .NAME.part/            one for each target, so that a later write finds what an interrupted one has finished
        ledger            what was asked for and what is finished; locked by the one who writes
        open-<random>/     shards being filled; of no use to anybody else
        finished/          complete, durable shards under their final names

The target may be missing or empty; then one rename publishes everything. Where the target cannot be replaced (it holds
other files, is a mount point or the working directory, or its parent is not ours to write to) the part directory is
inside it, as `.dataset.part`, and the files are renamed into it one by one.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any

from ffrecord.dataset_writer import publish as publishing
from ffrecord.dataset_writer import write_log
from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.shards import check_listed, check_whole
from ffrecord.dataset_writer.write_log import Request, ShardFinished, WriteLog
from ffrecord.errors import FFRecordError, StateError, file_error
from ffrecord.format import ffr_layout, manifest
from ffrecord.format.leftovers import FINISHED, INSIDE, WRITE_LOG, Publishing
from ffrecord.format.manifest import Manifest, Shard
from ffrecord.system import atomic_directory, filesystems, untrusted
from ffrecord.system.atomic_file import NAME_BYTES, PART_SUFFIX, fsync_directory
from ffrecord.system.forks import call_in_children
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.system.untrusted import Refused

SYNC_EVERY = 1.0  # seconds' worth of finished shards that a power cut may make forget


def check_vacant(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, unless nothing or an empty directory is at `path`.

    What an interrupted write has left there does not count.
    """
    _check_directory(path)
    ours = {INSIDE, *_being_published(path)}
    there = sorted(set(os.listdir(path)) - ours) if os.path.isdir(path) else []
    if there:
        some = ", ".join(there[:3]) + (", …" if len(there) > 3 else "")
        remedy = "delete it, or name another directory"
        raise file_error(errno.EEXIST, f"{path} is not empty, it holds {some}; {remedy}", path)


def check_no_shards(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, if `path` is no directory or one that holds shards.

    What an interrupted write has left there does not count.
    """
    _check_directory(path)
    there = set(os.listdir(path)) - set(_being_published(path)) if os.path.isdir(path) else set()
    for name in sorted(there):
        if name.endswith(ffr_layout.SUFFIX) or name == manifest.NAME:
            raise file_error(errno.EEXIST, f"{path} holds {name}, which a reader would mix with what is written", path)


def _check_directory(path: str) -> None:
    if os.path.lexists(path) and not os.path.isdir(path):
        raise file_error(errno.EEXIST, f"{path} is there and no directory", path)


def _being_published(path: str) -> Sequence[str]:
    """Names in a directory that an interrupted publication has put there, or might have."""
    part = PartDirectory(path)
    mark = write_log.load_state(part.ledger_path).publishing
    if mark is None or not (part.inside or publishing.happened(part.target, mark)):
        return []
    return mark.names


def hidden_name(target: str) -> str:
    """The part directory beside `target`."""
    directory, name = os.path.split(target)
    encoded = os.fsencode(name)
    if len(encoded) > NAME_BYTES:
        name = f"{os.fsdecode(encoded[:NAME_BYTES])}.{hashlib.sha256(encoded).hexdigest()[:16]}"
    return os.path.join(directory, f".{name}{PART_SUFFIX}")


class PartDirectory:
    """The part directory of a target, and its way to the final name.

    Args:
        target: the final path; missing parents are made. A symbolic link is followed.
        among_others: whether other files may be there.

    Attributes:
        target: its real path.
        label: what messages call it.
        inside: whether it is inside the target.
        path: of the part directory; there after `acquire`.
        open, finished, ledger_path: what is in it.
        ledger: there after `acquire`.
        first: number of the shard that a later write goes on from if none is finished; None while that is unknown.
        published: whether all is durably under its final name, so that the ledger has nothing more to tell.
        claimed: whether what is in it is of no use to a later write, so that `leave` is `discard`; not at first.

    Use: `acquire`, then `discard`, `leave` or `release`, which do nothing without a lock.
    """

    def __init__(self, target: str, *, among_others: bool = False) -> None:
        self.target = self.label = filesystems.real_path(target)
        inside = str(Path(self.target) / INSIDE)
        others = among_others and os.path.isdir(self.target) and bool(os.listdir(self.target))
        self.inside = others or os.path.lexists(inside) or _irreplaceable(self.target)
        self.path = inside if self.inside else hidden_name(self.target)
        self.open = str(Path(self.path) / f"open-{secrets.token_hex(6)}")
        self.finished = str(Path(self.path) / FINISHED)
        self.ledger_path = str(Path(self.path) / WRITE_LOG)
        self.claimed = False
        self.published = False
        self.first: int | None = None
        self._own: LockedDirectory | None = None
        self._mutex = threading.Lock()  # shards are kept by a thread that may outlive the patience of a clean-up
        self._synced = 0.0

    @property
    def held(self) -> bool:
        """Whether this process has it, not one that was forked from that."""
        return self._own is not None and self._own.fd >= 0

    def acquire(self) -> None:
        """Make the directory, or take over what is there, and lock it.

        Raises:
            BlockingIOError (also a RuntimeError): another one writes to this target.
            OSError (also a RuntimeError): refused.
        """
        try:
            self._own = LockedDirectory(self.path, WRITE_LOG)
            _ours.add(self)
            with contextlib.suppress(FileNotFoundError):
                os.lstat(self.target)  # a name that is too long would be found out at the very end
            self.ledger = WriteLog(self._lock_fd)
            self._renew(self._own)
        except BlockingIOError:
            sentence = f"{self.label}: another process, or another thread, writes to it: it has the lock of {self.path}"
            raise file_error(errno.EWOULDBLOCK, sentence, self.label) from None
        except OSError as error:
            self._back_out(keep=isinstance(error, Refused))
            refused = error.strerror if isinstance(error, Refused) else None
            sentence = f"Failed to create directory {self.label}, or {self.path} for it"
            sentence += f" ({refused}; remove what is there, or write elsewhere)" if refused else ""
            raise file_error(error.errno or errno.EIO, sentence, self.label) from None

    @property
    def _holder(self) -> LockedDirectory:
        """The part directory itself.

        Raises:
            StateError: this process does not have it.
        """
        if self._own is None or not self.held:
            raise StateError(f"{self.label}: given up")
        return self._own

    @property
    def _lock_fd(self) -> int:
        file = self._holder.file
        return -1 if file is None else file.fileno()

    def _back_out(self, *, keep: bool = False) -> None:
        """Remove what was made, unless there is a ledger that tells of an earlier write, or nobody knows.

        Args:
            keep: what was there, though it tells of nothing.
        """
        if self._own is None or not self.held:
            return
        told = 1
        with contextlib.suppress(OSError):
            told = os.fstat(self._lock_fd).st_size
        if told or keep:
            self.release()
        else:
            self.leave()

    def _renew(self, own: LockedDirectory) -> None:
        """Make room for what will be filled, and remove what was being."""
        opened = os.path.basename(self.open)
        own.make_directory(opened)
        own.make_directory(FINISHED)
        for entry in own.names():
            if entry.startswith("open-") and entry != opened:
                own.remove(entry)
        # What is finished, and the mark of a publication, are durable only if the way to them is.
        os.fsync(own.fd)
        fsync_directory(os.path.dirname(self.path))

    def begin(self, request: Request) -> None:
        """Take note of what is asked for, and that nothing of it is finished.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        with self._naming("nothing was begun"):
            self.ledger.begin(request)

    def keep(self, shard: Shard, following: Start) -> None:
        """Take note that a shard is complete and durable.

        Args:
            following: where the layout goes on after it.

        Raises:
            StateError: too late.
            OSError (also a RuntimeError): refused.
        """
        with self._mutex, self._naming(f"{shard.name} is complete, but could not be noted"):
            if not self.held:
                raise StateError(f"{self.label}: given up")
            os.rename(os.path.join(self.open, shard.name), os.path.join(self.finished, shard.name))
            self.ledger.append(ShardFinished(shard, following))
            if time.monotonic() - self._synced >= SYNC_EVERY:
                fsync_directory(self.finished)
                self.ledger.sync()
                self._synced = time.monotonic()

    # What a write that goes on asks of finished shards, wherever they are.

    @property
    def places(self) -> str:
        """Where finished shards are, for messages."""
        return self.path

    def has(self, name: str) -> bool:
        """Whether there is a finished shard of this name."""
        return os.path.lexists(Path(self.finished) / name)

    def is_whole(self, shard: Shard) -> bool:
        """Whether a finished shard is, to the last byte, what it was; a link to one is none."""
        with contextlib.suppress(FFRecordError, OSError, ValueError):
            if not untrusted.is_own(os.path.join(self.finished, shard.name), owner=self._holder.owner):
                return False
            check_whole(self.finished, shard)
            return True
        return False

    def schema_of(self, shard: Shard) -> dict[str, Any] | None:
        """The columns that the first finished shard says; None for plain bytes."""
        with closing(check_listed(self.finished, shard)) as opened:
            return None if opened.extension is None else opened.extension.schema

    def go_on_from(self, first: int, names: Collection[str]) -> None:
        """Keep these finished shards and no others; the first one of all has this number."""
        self.first = first
        self.keep_only(names)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all finished shards but these."""
        with self._naming("what an earlier write has finished could not be removed"):
            self._holder.remove_all_but(set(names), FINISHED)

    def clear(self) -> None:
        """Remove all finished shards, and what is said of them."""
        self.keep_only([])
        self.ledger.clear()

    def happened(self, mark: Publishing) -> bool:
        """Whether a publication that was interrupted had got to its end."""
        return publishing.happened(self.target, mark)

    def take_back(self, mark: Publishing) -> bool:
        """Undo a publication that was interrupted before its end; whether that could be done."""
        finished = {name: entry.shard for name, entry in self.ledger.story.finished.items()}
        if not self.inside:
            return True
        self._holder.check()
        return publishing.take_back(self.finished, self.target, mark, finished, self._holder.owner)

    def check_finished(self, shards: Sequence[Shard]) -> None:
        """Raise unless the tables of finished shards are what they were."""
        for shard in shards:
            check_listed(self.finished, shard, check=True).close()

    def settle(self) -> None:
        """Wait until all that was kept can be published."""

    def advice(self, error: BaseException) -> str | None:
        """What could be done about an error that ended a write; None where it says so itself."""
        return None

    def publish(self, names: Sequence[str], fingerprint: str | None = None, skipped: int = 0) -> None:
        """Put everything, durable, under its final name.

        Args:
            names: of all files in `finished`, the one that must not be missing while others are first.
            fingerprint: of the manifest among them.
            skipped: samples left out, for who finds out that this was the last thing a killed writer did.

        Raises:
            FileExistsError: something came to be at the target meanwhile.
            OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
                durability is unknown.
        """
        with self._naming("nothing was published"):
            if fingerprint is not None:
                self._mark(Publishing(list(names), None, fingerprint, skipped))
            self._holder.check()
            if self.inside:
                publishing.move(self.finished, self.target, names)
            else:
                fsync_directory(self.finished)
                atomic_directory.replace(FINISHED, self.target, self._holder.fd)
        self._make_durable(self.target if self.inside else os.path.dirname(self.target))
        self.published = True

    def _make_durable(self, directory: str) -> None:
        """After the last step, which a failure does not undo: `leave` keeps the ledger, and the same call written
        again finds what is there."""
        with self._naming("all is in place, but fsync of a directory failed and a crash may undo it"):
            fsync_directory(directory)

    def publish_bare(self, names: Sequence[str], guard: Manifest) -> None:
        """`publish` shards without a manifest. Where they are moved in one by one, there is one meanwhile: a directory
        left half done says what is missing, and is not read as a smaller dataset.

        Args:
            names: of the shards, all in `finished`.
            guard: the manifest.

        Raises:
            as `publish`, and OSError if all is in place, but the manifest stays.
        """
        if not self.inside:
            self.publish(names)
            return
        manifest.save(self.finished, guard, self.target)
        self.publish([manifest.NAME, *names], guard.fingerprint)
        with self._naming(f"all is in place, but its {manifest.NAME} could not be removed"):
            # First: nobody may take back what is complete, as if it had never been whole.
            self.ledger.clear()
            self.ledger.sync()
            (Path(self.target) / manifest.NAME).unlink()
            fsync_directory(self.target)

    def publish_more(self, names: Sequence[str], before: Manifest, listing: Manifest, skipped: int = 0) -> None:
        """Put everything, durable, beside what is at the target, then replace its manifest.

        Args:
            before: the manifest that is there; where there is none, one of what is there, which is saved first.
            listing: the one that is there afterwards.
            skipped: as `publish` takes it.

        Raises:
            OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
                durability is unknown.
        """
        with self._naming("nothing was added"):
            self._holder.check()
            self._mark(Publishing(list(names), before.fingerprint, listing.fingerprint, skipped))
            publishing.add(self.finished, self.target, names, before, listing)
        self._make_durable(self.target)
        self.published = True

    def _mark(self, mark: Publishing) -> None:
        fsync_directory(self.finished)
        self.ledger.append(mark)
        self.ledger.sync()

    @contextlib.contextmanager
    def _naming(self, consequence: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, RuntimeError):
                raise  # it says more
            where = "" if self.label == self.target else f", in {self.path}"  # a URL says nothing of a full disk
            refused = f": {error.strerror}" if isinstance(error, Refused) else ""
            sentence = f"{self.label}: {consequence}{where}{refused}"
            raise file_error(_as_exists(error.errno), sentence, self.label) from None

    def leave(self) -> list[str]:
        """Remove what no later write can use, and if nothing else is there, or it is claimed, everything; unlock.

        Of use are finished shards up to the first that is missing; and everything, where files are under their final
        names already: only the ledger tells the next write that they are no others. May be repeated.

        Returns:
            the names of the finished shards that stay and are to be published yet.
        """
        with self._mutex:
            if not self.held:
                return []
            self._remove_open()
            if not self.published and self._has_published():
                self._unlock()
                return []
            kept = [] if self.claimed or self.published else self._usable()
            if kept:
                self._unlock()
            else:
                self._remove()
            return kept

    def _has_published(self) -> bool:
        """Whether a publication has left its traces at the target, or may have."""
        write_log: WriteLog | None = getattr(self, "ledger", None)
        mark = None if write_log is None else write_log.story.publishing
        return mark is not None and not publishing.undone(self.finished, self.target, mark)

    def _usable(self) -> list[str]:
        """Names of finished shards without a gap before them; removes the others."""
        there = self.finished_names()
        # While they are being published some may have moved.
        if self.first is None or self.ledger.story.publishing is not None:
            return there
        story = self.ledger.story
        names = {entry.next.shard - 1: name for name, entry in story.finished.items() if name in there}
        kept = [names[number] for number in takewhile(names.__contains__, range(self.first, self.first + len(names)))]
        with contextlib.suppress(OSError):
            self.keep_only(
                {*kept, *(name for name in os.listdir(self.finished) if not name.endswith(ffr_layout.SUFFIX))}
            )
        return kept

    def finished_names(self) -> list[str]:
        """Of all shards in `finished`, in order."""
        with contextlib.suppress(OSError):
            if self.held and self._holder.has_directory(FINISHED):
                return sorted(name for name in os.listdir(self.finished) if name.endswith(ffr_layout.SUFFIX))
        return []

    def release(self) -> None:
        """Unlock, and leave everything as it was found; may be repeated."""
        with self._mutex:
            if self.held:
                self._remove_open()
                self._unlock()

    def discard(self) -> None:
        """Remove everything in it and unlock; may be repeated."""
        with self._mutex:
            if self.held:
                self._remove()

    def _remove_open(self) -> None:
        with contextlib.suppress(OSError):
            self._holder.remove(os.path.basename(self.open))

    def _remove(self) -> None:
        own = self._holder
        # The ledger last: who waits for its lock must not be given a directory that is being emptied.
        self._remove_open()
        with contextlib.suppress(OSError):
            own.remove(FINISHED)
        with contextlib.suppress(OSError):
            os.unlink(WRITE_LOG, dir_fd=own.fd)
            own.remove_itself()
        self._unlock()
        # On NFS and FUSE what is open still has a name in there. It is not empty either where somebody else has come.
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
        if not self.published:
            own.remove_made()  # its parents, too

    def _unlock(self) -> None:
        if self._own is not None:
            self._own.close()
        _ours.discard(self)

    def forget(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._mutex = threading.Lock()
        self._unlock()


_ours: "weakref.WeakSet[PartDirectory]" = weakref.WeakSet()


def _forget_all() -> None:
    """A lock lasts as long as any process has its descriptor, so a child of a dead writer must not."""
    for part in list(_ours):
        part.forget()


call_in_children(_forget_all)


def _irreplaceable(target: str) -> bool:
    """Whether a directory that is there cannot, or should not, become another one by a rename."""
    if not os.path.isdir(target):
        return False
    if filesystems.working_directory() == target:
        return True
    return os.path.ismount(target) or not os.access(os.path.dirname(target), os.W_OK | os.X_OK)


def _as_exists(code: int | None) -> int:
    """Some file systems say ENOTEMPTY, some EEXIST, and ENOTDIR is a file in the way."""
    return errno.EEXIST if code in (errno.ENOTEMPTY, errno.ENOTDIR) else code or errno.EIO
