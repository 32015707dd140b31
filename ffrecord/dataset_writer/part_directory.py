"""A directory of shards that appears whole: filled in a hidden part directory, then given its final name.

    .NAME.part/            one for each target, so that a later write finds the shards of an interrupted one
        ledger             the write log: request and finished shards; locked by the writer
        open-<random>/     shards being filled; of no use to any other write
        finished/          complete, durable shards under their final names

If the target is missing or empty, one rename publishes everything. Some targets cannot be replaced: they hold other
files, are a mount point or the working directory, or have a parent without write permission. Then the part directory is
inside the target, as `.dataset.part`, and the files are renamed into the target one by one.
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
from ffrecord.system import atomic_directory, filesystems, named_calls, untrusted
from ffrecord.system.atomic_file import NAME_BYTES, PART_SUFFIX, fsync_directory
from ffrecord.system.forks import call_in_children
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.system.untrusted import Refused

SYNC_EVERY = 1.0  # seconds between two syncs of the write log; a power cut may lose the entries since


def check_vacant(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, unless nothing or an empty directory is at `path`.

    Files of an interrupted write do not count.
    """
    _check_directory(path)
    # Files that a killed publication has put there count as absent: the next write takes them back.
    ours = {INSIDE, *_published_names(path)}
    there = sorted(set(filesystems.list_names(path)) - ours) if os.path.isdir(path) else []
    if there:
        some = ", ".join(there[:3]) + (", …" if len(there) > 3 else "")
        remedy = "delete it, or name another directory"
        raise file_error(errno.EEXIST, f"{path} is not empty, it holds {some}; {remedy}", path)


def check_no_shards(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, if `path` is a directory with shards, or no directory.

    Files of an interrupted write do not count.
    """
    _check_directory(path)
    there = set(filesystems.list_names(path)) - set(_published_names(path)) if os.path.isdir(path) else set()
    for name in sorted(there):
        if name.endswith(ffr_layout.SUFFIX) or name == manifest.NAME:
            sentence = (
                f"{path} holds {name}, which readers would mix with the new files; delete it, or name another directory"
            )
            raise file_error(errno.EEXIST, sentence, path)


def _check_directory(path: str) -> None:
    if os.path.lexists(path) and not os.path.isdir(path):
        raise file_error(
            errno.EEXIST, f"{path} already exists and is not a directory; delete it, or name another path", path
        )


def _published_names(path: str) -> Sequence[str]:
    """Return the names in a directory that an interrupted publication has put there, or may have."""
    part = PartDirectory(path)  # not acquired: it only computes the paths
    mark = write_log.load_state(part.write_log_path).publishing
    if mark is None or not (part.inside or publishing.is_complete(part.target, mark)):
        return []
    return mark.names


def hidden_name(target: str) -> str:
    """Return the path of the part directory beside `target`."""
    directory, name = os.path.split(target)
    encoded = os.fsencode(name)
    if len(encoded) > NAME_BYTES:
        # The name would exceed NAME_MAX; the hash keeps long names apart that begin alike.
        name = f"{os.fsdecode(encoded[:NAME_BYTES])}.{hashlib.sha256(encoded).hexdigest()[:16]}"
    return os.path.join(directory, f".{name}{PART_SUFFIX}")


class PartDirectory:
    """The part directory of a target, and the steps to its final name.

    Call `acquire`, then one of `discard`, `leave` and `release`; these do nothing without a lock.

    Args:
        target: the final path; missing parents are made. A symbolic link is followed.
        among_others: whether other files may be there.

    Attributes:
        target: real path of the target.
        label: name for messages.
        inside: whether the part directory is inside the target.
        path: path of the part directory; it exists after `acquire`.
        open, finished, write_log_path: paths in it.
        write_log: the write log; set by `acquire`.
        first: number of the first shard of this write; None while unknown.
        published: whether all is durably under its final name, so that the write log is of no more use.
        claimed: whether no later write can use the contents, so that `leave` is `discard`; False at first.
    """

    def __init__(self, target: str, *, among_others: bool = False) -> None:
        self.target = self.label = filesystems.real_path(target)
        inside = str(Path(self.target) / INSIDE)
        # An earlier write that began inside must be found again, even if the target could be replaced now.
        others = among_others and os.path.isdir(self.target) and bool(filesystems.list_names(self.target))
        self.inside = others or os.path.lexists(inside) or _is_irreplaceable(self.target)
        self.path = inside if self.inside else hidden_name(self.target)
        # The fence: a late worker of an earlier write cannot find this name.
        self.open = str(Path(self.path) / f"open-{secrets.token_hex(6)}")
        self.finished = str(Path(self.path) / FINISHED)
        self.write_log_path = str(Path(self.path) / WRITE_LOG)
        self.claimed = False
        self.published = False
        self.first: int | None = None
        self._own: LockedDirectory | None = None
        self._mutex = threading.Lock()  # `keep` runs in a thread that may outlive a clean-up
        self._synced = 0.0

    @property
    def is_held(self) -> bool:
        """True in the process that holds the lock; False in its forked children."""
        return self._own is not None and self._own.fd >= 0

    def acquire(self) -> None:
        """Make the directory, or take over an existing one, and lock it.

        Raises:
            BlockingIOError (also a RuntimeError): another writer writes to this target.
            OSError (also a RuntimeError): refused.
        """
        try:
            self._own = LockedDirectory(self.path, WRITE_LOG)
            # Registered at once, so that a child forked from here on does not keep the lock.
            _part_directories.add(self)
            with contextlib.suppress(FileNotFoundError):
                os.lstat(self.target)  # fail now if the name is too long, not at the rename
            self.write_log = WriteLog(self._lock_fd)
            self._renew(self._own)
        except BlockingIOError:
            sentence = f"{self.label}: another process or thread is writing to it: it has the lock of {self.path}"
            raise file_error(errno.EWOULDBLOCK, sentence, self.label) from None
        except OSError as error:
            # Files that are not ours stay as they are.
            self._back_out(keep=isinstance(error, Refused))
            refused = error.strerror if isinstance(error, Refused) else None
            sentence = f"{self.label}: the directory, or {self.path} for it, could not be created"
            sentence += f" ({refused}; remove what is there, or write elsewhere)" if refused else ""
            raise file_error(error.errno or errno.EIO, sentence, self.label) from None

    @property
    def _holder(self) -> LockedDirectory:
        """The locked directory.

        Raises:
            StateError: this process does not hold it.
        """
        if self._own is None or not self.is_held:
            raise StateError(f"{self.label}: this write has ended; repeat the call")
        return self._own

    @property
    def _lock_fd(self) -> int:
        file = self._holder.file
        return -1 if file is None else file.fileno()

    def _back_out(self, *, keep: bool = False) -> None:
        """Remove the new directory after a failure, unless a write log may tell of an earlier write.

        Args:
            keep: keep the contents even without a write log.
        """
        if self._own is None or not self.is_held:
            return
        # Unknown counts as told: then nothing is removed.
        told = 1
        with contextlib.suppress(OSError):
            told = os.fstat(self._lock_fd).st_size
        if told or keep:
            self.release()
        else:
            self.leave()

    def _renew(self, own: LockedDirectory) -> None:
        """Make the directories to fill, and remove the open shards of earlier writes."""
        opened = os.path.basename(self.open)
        own.make_directory(opened)
        own.make_directory(FINISHED)
        # What an earlier write had open, nobody can complete.
        for entry in own.names():
            if entry.startswith("open-") and entry != opened:
                own.remove(entry)
        # Finished shards and log entries are durable only if the directories above them are.
        named_calls.fsync(own.fd)
        fsync_directory(os.path.dirname(self.path))

    def begin(self, request: Request) -> None:
        """Log the request, and forget all finished shards.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        with self._explain_errors("the write could not begin"):
            self.write_log.begin(request)

    def keep(self, shard: Shard, following: Start) -> None:
        """Log that a shard is complete and durable.

        Args:
            following: position where the layout goes on after it.

        Raises:
            StateError: the write was given up.
            OSError (also a RuntimeError): refused.
        """
        with self._mutex, self._explain_errors(f"{shard.name} is complete, but could not be logged"):
            # The finisher's thread may come here after the write was given up and another one began.
            if not self.is_held:
                raise StateError(f"{self.label}: this write has ended; repeat the call")
            # Renamed first: an entry of the log then never names a shard that is still open.
            named_calls.rename(os.path.join(self.open, shard.name), os.path.join(self.finished, shard.name))
            self.write_log.append(ShardFinished(shard, following))
            # An fsync for each shard would cost more than the few shards that a power cut takes.
            if time.monotonic() - self._synced >= SYNC_EVERY:
                # Names first, so that an entry that survives a power cut finds its shard.
                fsync_directory(self.finished)
                self.write_log.sync()
                self._synced = time.monotonic()

    # Finished shards, wherever they are: a resumed write uses these

    @property
    def places(self) -> str:
        """Places of the finished shards, for messages."""
        return self.path

    def has(self, name: str) -> bool:
        """Return whether there is a finished shard of this name."""
        return os.path.lexists(Path(self.finished) / name)

    def is_whole(self, shard: Shard) -> bool:
        """Return whether a finished shard is unchanged, to the last byte; a link to one does not count."""
        # Whatever is wrong with it, the shard is written again.
        with contextlib.suppress(FFRecordError, OSError, ValueError):
            if not untrusted.is_own(os.path.join(self.finished, shard.name), owner=self._holder.owner):
                # Somebody else may have put a file there; a link could lead anywhere.
                return False
            check_whole(self.finished, shard)
            return True
        return False

    def schema_of(self, shard: Shard) -> dict[str, Any] | None:
        """Return the schema in the first finished shard; None for plain bytes."""
        with closing(check_listed(self.finished, shard)) as opened:
            return None if opened.extension is None else opened.extension.schema

    def keep_from(self, first: int, names: Collection[str]) -> None:
        """Keep these finished shards and no others; `first` is the number of the first shard of the write."""
        self.first = first
        self.keep_only(names)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all finished shards but these."""
        with self._explain_errors("the finished shards of an earlier write could not be removed"):
            self._holder.remove_all_but(set(names), FINISHED)

    def clear(self) -> None:
        """Remove all finished shards, and their entries in the write log."""
        self.keep_only([])
        self.write_log.clear()

    def is_published(self, mark: Publishing) -> bool:
        """Return whether an interrupted publication had reached its end."""
        return publishing.is_complete(self.target, mark)

    def take_back(self, mark: Publishing) -> bool:
        """Undo a publication that was interrupted before its end; return whether that was possible."""
        finished = {name: entry.shard for name, entry in self.write_log.state.finished.items()}
        # Beside the target, publication was a single rename: it happened or not.
        if not self.inside:
            return True
        # The path may lead to another directory by now, whose files are none of our business.
        self._holder.check()
        return publishing.take_back(self.finished, self.target, mark, finished, self._holder.owner)

    def check_finished(self, shards: Sequence[Shard]) -> None:
        """Raise unless the tables of finished shards are unchanged."""
        for shard in shards:
            check_listed(self.finished, shard, check=True).close()

    def settle(self) -> None:
        """Wait until all kept shards can be published."""

    def advice(self, error: BaseException) -> str | None:
        """Return advice about an error that ended a write; None if its message is enough."""
        return None

    def publish(self, names: Sequence[str], fingerprint: str | None = None, skipped: int = 0) -> None:
        """Put everything, durable, under its final name.

        Args:
            names: names of all files in `finished`. The first one must not be missing while others are there.
            fingerprint: fingerprint of the manifest among them.
            skipped: number of samples skipped; a later write reads it if this writer is killed right after.

        Raises:
            FileExistsError: another file has appeared at the target.
            OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
                durability is unknown.
        """
        with self._explain_errors("nothing was published"):
            # Logged and synced before the first name changes, else the next write could not undo it.
            if fingerprint is not None:
                self._mark(Publishing(list(names), None, fingerprint, skipped))
            # Rename only from the directory that was locked.
            self._holder.check()
            if self.inside:
                publishing.move(self.finished, self.target, names)
            else:
                # The names in it become durable before the directory gets its final name.
                fsync_directory(self.finished)
                # By descriptor: the path of the part directory may lead elsewhere by now.
                atomic_directory.replace(FINISHED, self.target, self._holder.fd)
        self._make_durable(self.target if self.inside else os.path.dirname(self.target))
        # Only now the log is of no more use.
        self.published = True

    def _make_durable(self, directory: str) -> None:
        """Sync a directory after the last step.

        A failure does not undo that step: `leave` keeps the write log, and the same call finds the complete dataset.
        """
        with self._explain_errors("it is in place, but fsync of a directory failed and a crash may undo it"):
            fsync_directory(directory)

    def publish_bare(self, names: Sequence[str], guard: Manifest) -> None:
        """Publish shards without a manifest.

        If they are moved one by one, a manifest is there meanwhile. So a directory left half done names the missing
        shards, and is not read as a smaller dataset.

        Args:
            names: names of the shards, all in `finished`.
            guard: the manifest.

        Raises:
            FileExistsError, OSError: raised by `publish`.
            OSError: all is in place, but the manifest could not be removed.
        """
        # One rename publishes all of it: nobody sees a part of the shards, and no manifest is needed.
        if not self.inside:
            self.publish(names)
            return
        manifest.save(self.finished, guard, self.target)
        self.publish([manifest.NAME, *names], guard.fingerprint)
        with self._explain_errors(f"it is in place, but its {manifest.NAME} could not be removed"):
            # Clear the log before the manifest goes: else a later write would take the complete dataset back.
            self.write_log.clear()
            self.write_log.sync()
            (Path(self.target) / manifest.NAME).unlink()
            fsync_directory(self.target)

    def publish_more(self, names: Sequence[str], before: Manifest, listing: Manifest, skipped: int = 0) -> None:
        """Put everything, durable, beside the files at the target, then replace its manifest.

        Args:
            before: manifest that is there. If there is none, a manifest of the existing shards, which is saved first.
            listing: manifest afterwards.
            skipped: number of samples skipped, as for `publish`.

        Raises:
            OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
                durability is unknown.
        """
        with self._explain_errors("nothing was added"):
            self._holder.check()
            # The fingerprints of both manifests tell the next write how far this one came.
            self._mark(Publishing(list(names), before.fingerprint, listing.fingerprint, skipped))
            publishing.add(self.finished, self.target, names, before, listing)
        self._make_durable(self.target)
        self.published = True

    def _mark(self, mark: Publishing) -> None:
        fsync_directory(self.finished)
        self.write_log.append(mark)
        self.write_log.sync()

    @contextlib.contextmanager
    def _explain_errors(self, consequence: str) -> Iterator[None]:
        """Turn an OSError into one that names the target and the consequence."""
        try:
            yield
        except OSError as error:
            # `file_error` makes errors that are both; it has named file and reason.
            if isinstance(error, RuntimeError):
                raise  # it has a better message already
            where = "" if self.label == self.target else f", in {self.path}"  # a URL does not explain a full disk
            refused = f": {error.strerror}" if isinstance(error, Refused) else ""
            sentence = f"{self.label}: {consequence}{where}{refused}"
            raise file_error(_normalize_errno(error.errno), sentence, self.label) from None

    def leave(self) -> list[str]:
        """Remove everything that no later write can use, and unlock. May be repeated.

        A later write can use finished shards up to the first missing one. If files may be under their final names
        already, everything stays: only the write log tells the next write that they are the same. If nothing is of use,
        or the directory is claimed, all of it is removed.

        Returns:
            names of the finished shards that stay and are not published yet.
        """
        with self._mutex:
            if not self.is_held:
                return []
            self._remove_open()
            # Names may be in place already. Only the log can tell the next write that they are this dataset.
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
        """Return whether a publication has changed the target, or may have."""
        write_log: WriteLog | None = getattr(self, "write_log", None)
        mark = None if write_log is None else write_log.state.publishing
        return mark is not None and not publishing.is_undone(self.finished, self.target, mark)

    def _usable(self) -> list[str]:
        """Return the names of finished shards without a gap before them; remove the others."""
        # Sorted names, and only shards: a manifest may lie there too.
        there = self.finished_names()
        # During a publication some may have moved.
        if self.first is None or self.write_log.state.publishing is not None:
            return there
        state = self.write_log.state
        # An entry holds the number of the next shard, not of its own.
        names = {entry.next.shard - 1: name for name, entry in state.finished.items() if name in there}
        kept = [names[number] for number in takewhile(names.__contains__, range(self.first, self.first + len(names)))]
        # What cannot be removed does no harm: the next write checks each shard again.
        with contextlib.suppress(OSError):
            self.keep_only(
                # Shards behind a gap are of no use, but other files of a publication stay.
                {
                    *kept,
                    *(name for name in filesystems.list_names(self.finished) if not name.endswith(ffr_layout.SUFFIX)),
                }
            )
        return kept

    def finished_names(self) -> list[str]:
        """Return the names of all shards in `finished`, in order."""
        with contextlib.suppress(OSError):
            if self.is_held and self._holder.has_directory(FINISHED):
                return sorted(
                    name for name in filesystems.list_names(self.finished) if name.endswith(ffr_layout.SUFFIX)
                )
        return []

    def release(self) -> None:
        """Unlock, and leave everything as it was found; may be repeated."""
        with self._mutex:
            if self.is_held:
                self._remove_open()
                self._unlock()

    def discard(self) -> None:
        """Remove everything in it and unlock; may be repeated."""
        with self._mutex:
            if self.is_held:
                self._remove()

    def _remove_open(self) -> None:
        with contextlib.suppress(OSError):
            # Nobody else can find the open directory of this write, so nobody misses it.
            self._holder.remove(os.path.basename(self.open))

    def _remove(self) -> None:
        own = self._holder
        # The write log goes last: a writer that waits for its lock must not get a directory that is being emptied.
        self._remove_open()
        with contextlib.suppress(OSError):
            own.remove(FINISHED)
        with contextlib.suppress(OSError):
            os.unlink(WRITE_LOG, dir_fd=own.fd)
            own.remove_itself()
        # Closing the log frees the lock.
        self._unlock()
        # On NFS and FUSE the open log still has a name until now. Another writer may have come: then this fails.
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
        if not self.published:  # published: the parents hold the dataset now
            own.remove_made()  # parents that `acquire` made

    def _unlock(self) -> None:
        if self._own is not None:
            self._own.close()
        _part_directories.discard(self)

    def forget(self) -> None:
        """Close the lock in a forked child, and leave everything to the parent."""
        # A thread of the parent may have held the old one, and does not exist in the child.
        self._mutex = threading.Lock()
        self._unlock()


_part_directories: "weakref.WeakSet[PartDirectory]" = weakref.WeakSet()


def _forget_all() -> None:
    """Close all locks in a forked child. A lock lasts as long as any process has its descriptor, so the child of a
    killed writer would keep it.
    """
    for part in list(_part_directories):
        part.forget()


call_in_children(_forget_all)


def _is_irreplaceable(target: str) -> bool:
    """Return whether an existing directory cannot, or should not, be replaced by a rename."""
    if not os.path.isdir(target):
        return False
    # A rename over it would leave programs, a shell for instance, in a directory without a name.
    if filesystems.working_directory() == target:
        return True
    return os.path.ismount(target) or not os.access(os.path.dirname(target), os.W_OK | os.X_OK)


def _normalize_errno(code: int | None) -> int:
    """Return one error code for a name that is taken: file systems report ENOTEMPTY, EEXIST or ENOTDIR."""
    return errno.EEXIST if code in (errno.ENOTEMPTY, errno.ENOTDIR) else code or errno.EIO
