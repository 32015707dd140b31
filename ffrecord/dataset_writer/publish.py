"""Give finished files their final names one by one, so that every step can be undone."""

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ffrecord.dataset_writer.shards import check_listed
from ffrecord.errors import FormatError, file_error
from ffrecord.format import manifest
from ffrecord.format.leftovers import Publishing
from ffrecord.format.manifest import Manifest, Shard
from ffrecord.system import access, named_calls, untrusted
from ffrecord.system.atomic_file import fsync_directory


def move(source: str, target: str, names: Sequence[str]) -> None:
    """Move files from one directory to another of the same file system, in this order.

    After a manifest, no file moves before the manifest is durable: file systems may write the names of a directory to
    the disk in any order. All moves are durable after another fsync of `target`.

    Raises:
        OSError: a step failed, or a name is taken; all moves are undone.
    """
    moved: list[str] = []
    try:
        for name in names:
            place = Path(target) / name
            # rename(2) would replace the file without a word.
            if os.path.lexists(place):
                raise FileExistsError(errno.EEXIST, f"another process has created {place} during this write")
            moved.append(name)  # before the rename: an exception may come between the two
            named_calls.rename(os.path.join(source, name), os.fspath(place))
            if name == manifest.NAME:
                fsync_directory(target)
    except BaseException as error:
        _undo(source, target, moved, error)
        raise


def _undo(source: str, target: str, names: Sequence[str], cause: BaseException) -> None:
    """Move files back because of an error; report a failure of this together with that error.

    Raises:
        OSError (also a RuntimeError): `cause`, if it is an OSError and some files stay at the target.
    """
    try:
        _move_back(source, target, names)
    except OSError as error:
        _raise_left_behind(target, cause, f" ({error})")


def _raise_left_behind(target: str, cause: BaseException, reason: str = "") -> None:
    """Raise an error that says which failure has left files at the target; do nothing unless `cause` is an OSError."""
    if isinstance(cause, OSError):
        sentence = f"{target}: publishing failed, and some files could not be removed from it again{reason}; the next "
        sentence += "write to it removes them. The first failure"
        raise file_error(cause.errno or errno.EIO, sentence, target) from None


def _move_back(source: str, target: str, names: Sequence[str]) -> None:
    """Undo `move`, the last file first. The removal of listed shards is durable before their manifest goes."""
    # A file that is still in the part directory has not moved.
    moved = [name for name in names if not os.path.lexists(Path(source) / name)]
    # The manifest moved first, so it goes last: while it is there, missing shards are noticed.
    for name in reversed(moved):
        if name == manifest.NAME and len(moved) > 1:
            fsync_directory(source)
            fsync_directory(target)
        named_calls.rename(os.path.join(target, name), os.path.join(source, name))


def add(source: str, target: str, names: Sequence[str], before: Manifest, listing: Manifest) -> None:
    """Move files into a dataset's directory, then replace its manifest by one that lists them too.

    All is durable after another fsync of `target`.

    Args:
        before: manifest of the existing dataset. It is saved if there is none: without a manifest, a reader would read
            new files as they come.
        listing: manifest of the dataset afterwards.

    Raises:
        OSError: a step failed. The directory reads as before.
    """
    # Another process may have changed the dataset since this write began.
    there = fingerprint(target)
    model = _mode_source(target, before)
    for name in names:
        # Readers get access before they can see the name.
        _share_shard(source, target, name, model)
    if there is None:
        _replace_manifest(source, target, before, model)
        fsync_directory(target)
    elif there != before.fingerprint:
        raise FileExistsError(
            errno.EEXIST, f"{target}: another process has changed its {manifest.NAME} during this write"
        )
    move(source, target, names)
    try:
        # The names must be durable before the manifest lists them.
        fsync_directory(target)
        _replace_manifest(source, target, listing, model)
    except BaseException as error:
        # Undo only if the old manifest is certainly there: files without a listing do less harm than a listing
        # without files.
        # The check comes after the failure: the rename may have happened before an error of the fsync.
        if fingerprint(target) == before.fingerprint:
            _undo(source, target, names, error)
        else:
            _raise_left_behind(target, error, f": {manifest.NAME} cannot be read")
        raise


def _mode_source(target: str, before: Manifest) -> str:
    """Return the file of a dataset whose mode decides who may read added files: its first shard, or its manifest."""
    names = [shard.name for shard in before.shards[:1]]
    return os.path.join(target, *(names or [manifest.NAME]))


def _share_shard(source: str, target: str, name: str, model: str) -> None:
    """Give the readers of a dataset access to a new shard of it; make the change durable."""
    fd = os.open(os.path.join(source, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if access.keep(fd, model, os.path.join(target, name), adds=True):
            named_calls.fsync(fd)
    finally:
        os.close(fd)


def _replace_manifest(source: str, target: str, listing: Manifest, model: str) -> None:
    """Write a manifest in the part directory, where a crash may leave a part of it, then rename it into place.

    Args:
        model: file whose mode decides who may read the manifest, if it replaces none.
    """
    there = os.path.join(target, manifest.NAME)
    # The manifest keeps the mode of the one that it replaces.
    manifest.save(source, listing, target, there if os.path.lexists(there) else model)
    named_calls.rename(os.path.join(source, manifest.NAME), os.path.join(target, manifest.NAME))


def fingerprint(directory: str) -> str | None:
    """Return the fingerprint of the manifest in a directory; None if there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        listed = manifest.load(directory)
        return None if listed is None else listed.fingerprint
    return None


def is_complete(target: str, mark: Publishing) -> bool:
    """Return whether an interrupted publication had reached its end."""
    there = all(os.path.lexists(Path(target) / name) for name in mark.names)
    return there and fingerprint(target) == mark.after


def is_undone(source: str, target: str, mark: Publishing) -> bool:
    """Return whether a publication is certainly as if it had not begun."""
    # An append of no samples has moved no file; only its manifest can tell.
    if not mark.names:
        return fingerprint(target) == mark.before
    return all(os.path.lexists(Path(source) / name) for name in mark.names)


def take_back(
    source: str, target: str, mark: Publishing, finished: Mapping[str, Shard], owner: int | None = None
) -> bool:
    """Undo a publication that was interrupted before its end.

    Args:
        finished: shards by name, as they were when they were finished.
        owner: user who must own the moved files; None for any.

    Returns:
        True if it is undone; False if the directory has become another dataset meanwhile, which is left alone.
    """
    gone = [name for name in mark.names if not os.path.lexists(Path(source) / name)]
    # Names of the log that are in neither place were removed by somebody.
    arrived = [name for name in gone if os.path.lexists(Path(target) / name)]
    found = fingerprint(target)
    # The manifest arrives before any other file. If it is gone, files of these names may be somebody else's.
    ours = all(_is_shard(target, finished.get(name), owner) for name in arrived) if found is None else False
    if not ours and (found is None or found not in (mark.before, mark.after)):
        return False
    # The publication did not put the files there that the old manifest lists, whatever the log says.
    if found is not None and found == mark.before and not _listed_names(target).isdisjoint(arrived):
        return False
    _move_back(source, target, arrived)
    return True


def _listed_names(directory: str) -> set[str]:
    """Return the names of the shards that a directory's manifest lists, and its own name."""
    listed = manifest.load(directory)
    return set() if listed is None else {manifest.NAME, *(shard.name for shard in listed.shards)}


def _is_shard(directory: str, shard: Shard | None, owner: int | None) -> bool:
    """Return whether a file is this finished shard; a link to it is not."""
    if shard is None or not untrusted.is_own(os.path.join(directory, shard.name), owner=owner):
        return False
    with contextlib.suppress(OSError, FormatError):
        check_listed(directory, shard).close()
        return True
    return False
