"""The dataset that shards are added to: what it holds, and under which names more of it can go on."""

import os
import re
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ffrecord.dataset_writer.layout import STEM, Start, shard_name
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
    """What is there.

    Attributes:
        listing: of its shards; made from their headers where there is no manifest.
        fingerprint: of the manifest that is there; None for none.
        serializer: as the shards say; None if they do not.
        stem, start: of the names of further shards, which sort after all that are there.
    """

    listing: Manifest
    fingerprint: str | None
    serializer: str | None
    stem: str
    start: Start

    @property
    def blank(self) -> bool:
        """Whether it holds no samples and says nothing of any: then what is appended decides."""
        return not self.listing.samples and self.listing.schema is None and self.serializer is None

    def together(self, shards: Sequence[Shard], schema: dict[str, Any] | None, *, tell: bool) -> Manifest:
        """The manifest of what is there, and these shards behind it.

        Args:
            schema: of all samples.
            tell: whether these shards say how their samples are made.
        """
        # All that are listed must say the same, and the empty shards of a blank dataset say nothing.
        superseded = self.blank and shards and tell
        return manifest.build([*([] if superseded else self.listing.shards), *shards], schema)


def check_extendable(path: str) -> None:
    """Raise FileNotFoundError unless `path` is a directory with a manifest or shards."""
    there = os.listdir(path) if os.path.isdir(path) else []
    if not any(name == manifest.NAME or name.endswith(ffr_layout.SUFFIX) for name in there):
        raise MissingFileError(2, f"{path} holds no dataset to append to{filesystems.remark(path)}", path)


def look(path: str) -> Base:
    """The dataset in a directory: what its manifest lists, else all its `*.ffr` in string order.

    Raises:
        FormatError, ChecksumError: manifest or shards are damaged, or not of one another.
        OSError: one is missing or cannot be read.
    """
    check_extendable(path)
    listed = manifest.load(path)
    names = [name for name in os.listdir(path) if name.endswith(ffr_layout.SUFFIX)]
    if listed is None:
        shards, said = _describe(path, sorted(names))
        listing, there = manifest.build(shards, None if said is None else said.schema), None
    else:
        listing, there, said = listed, listed.fingerprint, None
        for shard in reversed(listed.shards):
            with closing(check_listed(path, shard)) as opened:
                said = opened.extension
    stem, start = names_after(names)
    return Base(listing, there, None if said is None else said.serializer, stem, start)


def _describe(path: str, names: Sequence[str]) -> tuple[list[Shard], Extension | None]:
    """(shards as their headers describe them, what the first one says about itself)."""
    shards: list[Shard] = []
    said: Extension | None = None
    for name in names:
        with closing(OpenedFile(os.path.join(path, name), check=False)) as opened:
            if not shards:
                said = opened.extension
            elif not (said or Extension()).has_same_schema(opened.extension):
                raise FormatError(f"{opened.path}: its columns are not those of {names[0]}")
            shards.append(Shard(name, opened.n, opened.size, opened.crc))
    return shards, said


def names_after(names: Collection[str]) -> tuple[str, Start]:
    """(stem, number) of shard names that sort after all of `names`, which are of shards."""
    if not names:
        return STEM, Start()
    last = max(names)
    bare = last[: -len(ffr_layout.SUFFIX)]
    if counted := re.fullmatch(r"(.+)_([0-9]{5,})", bare):
        stem, number = counted[1], int(counted[2]) + 1
        if shard_name(number, stem) > last:
            return stem, Start(number)
    return bare, Start()


def check_same(path: str, base: Base, schema: dict[str, Any] | None, serializer: str | None) -> None:
    """Compare how records are made with how those that are there were.

    Raises:
        MismatchError: they differ. Shards without a manifest that name no serializer agree with any.
    """
    before = {"schema": base.listing.schema, "serializer": base.serializer}
    now = {"schema": schema, "serializer": serializer}
    if base.fingerprint is None and schema is None is base.listing.schema and base.serializer is None:
        return
    found = differences(before, now)
    if found:
        raise MismatchError(f"{path}: what is appended differs from what is there: {'; '.join(found)}", found)
