"""Targets of a write: a directory, the interface that a URL implements too, and the shards that they hold already."""

import os
import re
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from errno import ENOENT
from typing import Any, Protocol

from ffrecord.dataset_writer.layout import STEM, Start, shard_name
from ffrecord.dataset_writer.part_directory import PartDirectory, check_vacant
from ffrecord.dataset_writer.shard_tracker import BACKLOG
from ffrecord.dataset_writer.shards import check_listed
from ffrecord.dataset_writer.write_log import differences
from ffrecord.errors import FormatError, MismatchError, MissingFileError
from ffrecord.format import ffr_layout, manifest
from ffrecord.format.extension import Extension
from ffrecord.format.manifest import Manifest, Shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import filesystems


@dataclass(frozen=True)
class Base:
    """An existing dataset that is appended to.

    Attributes:
        listing: its manifest; made from the headers of its shards if it has none.
        fingerprint: fingerprint of its manifest; None if it has none.
        serializer: name of the serializer in its shards; None if they name none.
        stem, start: stem and number of further shard names, which sort after all existing ones.
    """

    listing: Manifest
    fingerprint: str | None
    serializer: str | None
    stem: str
    start: Start

    @property
    def blank(self) -> bool:
        """True if it has no samples and says nothing about their encoding: then the appended samples decide."""
        return not self.listing.samples and self.listing.schema is None and self.serializer is None

    def manifest_with(self, shards: Sequence[Shard], schema: dict[str, Any] | None, *, tell: bool) -> Manifest:
        """Return the manifest of the existing shards followed by new ones.

        Args:
            schema: schema of all samples.
            tell: whether the new shards say how their samples are encoded.
        """
        # All listed shards must have the same extension block, and the empty shards of a blank dataset have none.
        superseded = self.blank and shards and tell
        return manifest.build([*([] if superseded else self.listing.shards), *shards], schema)


def check_extendable(path: str) -> None:
    """Raise FileNotFoundError unless `path` is a directory with a manifest or shards."""
    there = filesystems.list_names(path) if os.path.isdir(path) else []
    if not any(name == manifest.NAME or name.endswith(ffr_layout.SUFFIX) for name in there):
        raise MissingFileError(ENOENT, f"{path} holds no dataset to append to{filesystems.remark(path)}", path)


def load_base(path: str) -> Base:
    """Load the dataset in a directory: the shards in its manifest, else all its `*.ffr` in string order.

    Raises:
        FormatError, ChecksumError: manifest or shards are damaged, or do not belong together.
        OSError: one is missing or cannot be read.
    """
    check_extendable(path)
    listed = manifest.load(path)
    names = [name for name in filesystems.list_names(path) if name.endswith(ffr_layout.SUFFIX)]
    if listed is None:
        shards, said = _read_headers(path, sorted(names))
        listing, there = manifest.build(shards, None if said is None else said.schema), None
    else:
        listing, there, said = listed, listed.fingerprint, None
        # In reverse, so that `said` is that of the first shard in the end.
        for shard in reversed(listed.shards):
            with closing(check_listed(path, shard)) as opened:
                said = opened.extension
    stem, start = next_shard_name(names)
    return Base(listing, there, None if said is None else said.serializer, stem, start)


def _read_headers(path: str, names: Sequence[str]) -> tuple[list[Shard], Extension | None]:
    """Return (shards as their headers describe them, extension block of the first one)."""
    shards: list[Shard] = []
    said: Extension | None = None
    for name in names:
        with closing(OpenedFile(os.path.join(path, name), check=False)) as opened:
            if not shards:
                said = opened.extension
            elif not (said or Extension()).has_same_schema(opened.extension):
                raise FormatError(
                    f"{opened.path}: its columns differ from those of {names[0]}: "
                    "a dataset has one schema, so move that shard to a directory of its own"
                )
            shards.append(Shard(name, opened.n, opened.size, opened.crc))
    return shards, said


def next_shard_name(names: Collection[str]) -> tuple[str, Start]:
    """Return (stem, start) of shard names that sort after all of `names`."""
    if not names:
        return STEM, Start()
    # Readers without a manifest take the files in string order.
    last = max(names)
    bare = last[: -len(ffr_layout.SUFFIX)]
    if counted := re.fullmatch(r"(.+)_([0-9]{5,})", bare):
        # PART_100000 sorts before PART_99999: then a new stem, which begins with the old name, sorts behind both.
        stem, number = counted[1], int(counted[2]) + 1
        if shard_name(number, stem) > last:
            return stem, Start(number)
    return bare, Start()


def check_same_encoding(path: str, base: Base, schema: dict[str, Any] | None, serializer: str | None) -> None:
    """Compare the encoding of new records with that of the existing ones.

    Raises:
        MismatchError: they differ. Shards without a manifest that name no serializer match any.
    """
    before = {"schema": base.listing.schema, "serializer": base.serializer}
    now = {"schema": schema, "serializer": serializer}
    # Shards of ffrecord 1.x do not tell how they were encoded, so they cannot contradict.
    if base.fingerprint is None and schema is None is base.listing.schema and base.serializer is None:
        return
    found = differences(before, now)
    if found:
        raise MismatchError(
            f"{path}: the samples to append differ from those of the dataset: {'; '.join(found)}", found
        )


class Target(Protocol):
    """A place for a dataset.

    Attributes:
        label: name for messages.
        made: path whose part directory holds the shards while they are filled, for messages about the disk.
        backlog: number of complete shards that may wait to be kept; with more, no tasks are handed out.
    """

    @property
    def label(self) -> str: ...
    @property
    def made(self) -> str: ...
    @property
    def backlog(self) -> int: ...

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError if there is nothing to append to, or FileExistsError if something is in the way."""
        ...

    def part(self, *, appends: bool) -> PartDirectory:
        """Return the part directory, which holds the shards until they are published."""
        ...

    def base(self, part: PartDirectory) -> Base:
        """Return the dataset that is appended to, given the part directory."""
        ...


class Directory:
    """A directory of this machine as a target.

    Args:
        path: path of the directory.
    """

    backlog = BACKLOG

    def __init__(self, path: str) -> None:
        self.label = self.made = path

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError if there is nothing to append to, or FileExistsError if something is in the way."""
        if appends:
            check_extendable(self.label)
        else:
            check_vacant(self.label)

    def part(self, *, appends: bool) -> PartDirectory:
        """Return the part directory, which holds the shards until they are published."""
        return PartDirectory(self.label, among_others=appends)

    def base(self, part: PartDirectory) -> Base:
        """Return the dataset that is appended to."""
        return load_base(self.label)
