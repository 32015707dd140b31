"""Finished files get their final names: all at once where a rename can do that, else one by one and so that it can be
undone."""

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
from ffrecord.system import access, untrusted
from ffrecord.system.atomic_file import fsync_directory


def move(source: str, target: str, names: Sequence[str]) -> None:
    """Move files from one directory to another of the same file system, in this order; after a manifest nothing moves
    before that is durable, since file systems may bring names of one directory to the disk in any order. When all are
    moved they are durable after another fsync of `target`.

    Raises:
        OSError: a step failed, or a name is taken; what was moved is back.
    """
    moved: list[str] = []
    try:
        for name in names:
            place = Path(target) / name
            if os.path.lexists(place):
                raise FileExistsError(errno.EEXIST, f"{place} came to be meanwhile")
            moved.append(name)  # first: an exception may come between the two
            os.rename(Path(source) / name, place)
            if name == manifest.NAME:
                fsync_directory(target)
    except BaseException as error:
        _undo(source, target, moved, error)
        raise


def _undo(source: str, target: str, names: Sequence[str], cause: BaseException) -> None:
    """Move files back because of an error; one of this is told only along with that.

    Raises:
        OSError (also a RuntimeError): that error, if it was one, and some files stay at the target.
    """
    try:
        _move_back(source, target, names)
    except OSError as error:
        _stay(target, cause, f" ({error})")


def _stay(target: str, cause: BaseException, reason: str = "") -> None:
    """Raise an error that says which one has left files at the target; nothing if it was none of a call."""
    if isinstance(cause, OSError):
        sentence = f"{target}: not published, but some files stay there that could not be taken back{reason}; the next "
        sentence += "write to it does that. What failed first"
        raise file_error(cause.errno or errno.EIO, sentence, target) from None


def _move_back(source: str, target: str, names: Sequence[str]) -> None:
    """Undo `move` of those that are not at the source, the last one first; what a manifest lists is durably gone before
    that goes."""
    moved = [name for name in names if not os.path.lexists(Path(source) / name)]
    for name in reversed(moved):
        if name == manifest.NAME and len(moved) > 1:
            fsync_directory(source)
            fsync_directory(target)
        os.rename(Path(target) / name, Path(source) / name)


def add(source: str, target: str, names: Sequence[str], before: Manifest, listing: Manifest) -> None:
    """Move files to the others in a directory, then have its manifest replaced by one that lists them too.

    Args:
        before: what is there; saved where there is no manifest, since without one the files would be read as they come.
        listing: what is there afterwards.

    All is in place then, and durable after another fsync of `target`.

    Raises:
        OSError: a step failed. The directory reads as before.
    """
    there = fingerprint(target)
    model = _model(target, before)
    for name in names:
        _share(source, target, name, model)
    if there is None:
        _put(source, target, before, model)
        fsync_directory(target)
    elif there != before.fingerprint:
        raise FileExistsError(errno.EEXIST, f"{target}: its {manifest.NAME} was changed meanwhile")
    move(source, target, names)
    try:
        fsync_directory(target)
        _put(source, target, listing, model)
    except BaseException as error:
        # Unless this is sure they stay: a manifest that lists what is gone is worse than files that none lists.
        if fingerprint(target) == before.fingerprint:
            _undo(source, target, names, error)
        else:
            _stay(target, error, f": {manifest.NAME} cannot be read")
        raise


def _model(target: str, before: Manifest) -> str:
    """The file of a dataset by whose mode others may read what is added to it: its first shard, or its manifest."""
    names = [shard.name for shard in before.shards[:1]]
    return os.path.join(target, *(names or [manifest.NAME]))


def _share(source: str, target: str, name: str, model: str) -> None:
    """Let those read a new shard who may read the dataset that it is added to. What is changed is made durable."""
    fd = os.open(os.path.join(source, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if access.keep(fd, model, os.path.join(target, name), adds=True):
            os.fsync(fd)
    finally:
        os.close(fd)


def _put(source: str, target: str, listing: Manifest, model: str) -> None:
    """Write a manifest where a crash may leave a part of it, then put it in place at once.

    Args:
        model: the file by whose mode others may read it, where there is no manifest that it replaces.
    """
    there = os.path.join(target, manifest.NAME)
    manifest.save(source, listing, target, there if os.path.lexists(there) else model)
    os.rename(Path(source) / manifest.NAME, Path(target) / manifest.NAME)


def fingerprint(directory: str) -> str | None:
    """That of the manifest in a directory; None for none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        listed = manifest.load(directory)
        return None if listed is None else listed.fingerprint
    return None


def happened(target: str, mark: Publishing) -> bool:
    """Whether a publication that was interrupted had got to its end."""
    there = all(os.path.lexists(Path(target) / name) for name in mark.names)
    return there and fingerprint(target) == mark.after


def undone(source: str, target: str, mark: Publishing) -> bool:
    """Whether a publication is as if it had not begun, for sure."""
    if not mark.names:
        return fingerprint(target) == mark.before
    return all(os.path.lexists(Path(source) / name) for name in mark.names)


def take_back(
    source: str, target: str, mark: Publishing, finished: Mapping[str, Shard], owner: int | None = None
) -> bool:
    """Undo a publication that was interrupted before its end.

    Args:
        finished: shards by name, as they were when they were finished.
        owner: the user that what was moved belongs to; None for any.

    Returns:
        whether that could be done; not if the directory has become another dataset meanwhile, which is left alone.
    """
    gone = [name for name in mark.names if not os.path.lexists(Path(source) / name)]
    arrived = [name for name in gone if os.path.lexists(Path(target) / name)]
    found = fingerprint(target)
    # A manifest is there before anything else arrives. If it is gone, files of these names may be somebody else's.
    ours = all(_is_shard(target, finished.get(name), owner) for name in arrived) if found is None else False
    if not ours and (found is None or found not in (mark.before, mark.after)):
        return False
    # What the manifest listed before the publication was not put there by it, whatever a ledger says.
    if found is not None and found == mark.before and not _listed(target).isdisjoint(arrived):
        return False
    _move_back(source, target, arrived)
    return True


def _listed(directory: str) -> set[str]:
    """Names of the shards that the manifest of a directory lists, and its own."""
    listed = manifest.load(directory)
    return set() if listed is None else {manifest.NAME, *(shard.name for shard in listed.shards)}


def _is_shard(directory: str, shard: Shard | None, owner: int | None) -> bool:
    """Whether a file is this finished shard; a link to it is none."""
    if shard is None or not untrusted.is_own(os.path.join(directory, shard.name), owner=owner):
        return False
    with contextlib.suppress(OSError, FormatError):
        check_listed(directory, shard).close()
        return True
    return False
