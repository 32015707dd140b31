"""What is at a URL before a write to it: nothing, or the dataset that is appended to."""

import errno
from collections.abc import Collection

from ffrecord import extension, format, manifest
from ffrecord.errors import FormatError, MissingFileError, file_error
from ffrecord.extension import Extension
from ffrecord.manifest import Manifest, Shard
from ffrecord.sharding.base import Base, names_after
from ffrecord.sharding.ledger import Story
from ffrecord.sharding.objects import MARKER, Objects


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
        raise file_error(errno.EEXIST, f"{objects.label} is not empty, it holds {some}", objects.label)


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
        FormatError: manifest or shards are damaged, or not of one another.
        OSError: one is missing or cannot be read.
    """
    listing, there = check_extendable(objects), objects.listing()
    for shard in listing.shards:
        size = there[shard.name].size if shard.name in there else None
        if size is None:
            raise MissingFileError(2, f"{objects.url(shard.name)} does not exist", objects.url(shard.name))
        if size != shard.size:
            raise FormatError(f"{objects.url(shard.name)}: {size} bytes, expected {shard.size}")
    said = extension_of(objects, listing.shards[0]) if listing.shards else None
    listed = {shard.name for shard in listing.shards}
    names = [name for name in there if name.endswith(format.SUFFIX) and (name in listed or name not in ours)]
    stem, start = names_after([name for name in names if "/" not in name])
    return Base(listing, listing.fingerprint, None if said is None else said.serializer, stem, start)


def extension_of(objects: Objects, shard: Shard) -> Extension | None:
    """What a shard says about itself, without its tables.

    Raises:
        FormatError, ChecksumError: it is another file than is listed, or damaged.
    """
    url = objects.url(shard.name)
    found = format.unpack_prefix(objects.get_range(shard.name, 0, format.PREFIX.size), shard.size)
    if found != (shard.crc, shard.samples):
        raise FormatError(f"{url}: (CRC-32 of tables, samples) {found}, expected {(shard.crc, shard.samples)}")
    start, data_start = format.tables_end(shard.samples), shard.size
    if shard.samples:
        at = format.offsets_start(shard.samples)
        data_start = int.from_bytes(
            objects.get_range(shard.name, at, at + format.OFFSET.itemsize), "little", signed=True
        )
        format.check_first_offset(data_start, shard.samples, shard.size)
    if data_start == start:
        return None
    stop = min(data_start, start + format.BLOCK.size + format.PAYLOAD_MAX)
    block = objects.get_range(shard.name, start, stop)
    header = format.unpack_block_header(block[: format.BLOCK.size], data_start - start, shard.size)
    payload = block[format.BLOCK.size : format.BLOCK.size + header.payload_size]
    return extension.decode(header, payload, url)
