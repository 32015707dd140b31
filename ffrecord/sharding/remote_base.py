"""What is at a URL before a write to it: nothing, or the dataset that is appended to."""

import errno
from collections.abc import Collection, Mapping, Sequence

from ffrecord import format, manifest
from ffrecord.errors import FormatError, MissingFileError, file_error
from ffrecord.extension import Extension
from ffrecord.manifest import Manifest, Shard
from ffrecord.remote.shard import listed
from ffrecord.sharding.base import Base, names_after
from ffrecord.sharding.ledger import Story
from ffrecord.sharding.objects import MARKER, Found, Objects


def check_vacant(objects: Objects, story: Story) -> None:
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
    names = [name for name in there if name.endswith(format.SUFFIX) and (name in known or name not in ours)]
    stem, start = names_after([name for name in names if "/" not in name])
    return Base(listing, listing.fingerprint, None if said is None else said.serializer, stem, start)


def check_listed(objects: Objects, shards: Sequence[Shard], there: Mapping[str, Found]) -> None:
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
    return listed(objects.storage(), shard, check=True).extension
