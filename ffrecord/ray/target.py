"""The place of shards, and the step that makes them a dataset at once, on file systems that driver and workers share.

remote_target.py has the same for URLs.

Tasks write into a hidden directory beside the dataset, each under its own names, and report the shards that they have
finished. Only shards in reports that Ray counts get their final names. Tasks that were killed, or ran twice, leave
files that nobody lists, and that are removed with the directory. Until then nothing is visible. The next write of the
same path removes the files of a killed driver. The hidden directory is the part directory of a `DatasetWriter`.
"""

import os
import platform
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Protocol

from ffrecord.dataset_writer import resume, target
from ffrecord.dataset_writer.layout import STEM, Start, shard_name
from ffrecord.dataset_writer.part_directory import PartDirectory, check_vacant
from ffrecord.dataset_writer.shards import check_listed
from ffrecord.dataset_writer.target import Base
from ffrecord.errors import FormatError, MissingFileError
from ffrecord.fields import Schema
from ffrecord.format import manifest
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import signals
from ffrecord.writing.file_writer import FileWriter

SHARED = "the driver and the workers of Ray must share the file system of the dataset"


class ShardPlace(Protocol):
    """The place where a task puts its shards. Pickles."""

    def path(self, name: str) -> str:
        """Return the path to write a shard of this name, which is unique."""
        ...

    def finish(self, name: str) -> Shard:
        """Make a written shard durable at its place, and return its manifest entry."""
        ...

    def close(self) -> None:
        """Remove the leftovers of this process; may be repeated."""
        ...


class RayTarget(ABC):
    """The driver's side of a dataset that tasks of Ray write.

    Args:
        label: name of the dataset, without secrets.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._found: Base | None = None  # the dataset that is added to; set by `begin`

    @abstractmethod
    def begin(self) -> ShardPlace:
        """Lock the target; return the place where tasks are to write."""

    @abstractmethod
    def commit(self, shards: Sequence[Shard], schema: Schema | None) -> None:
        """Make these shards the dataset, or a part of it, at once."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove everything that is not published; may be repeated."""

    def schema(self) -> Schema | None:
        """Return the schema of the existing dataset; None for plain bytes, or if there is none."""
        listed = None if self._found is None else self._found.listing.schema
        return None if listed is None else Schema.from_builtins(listed)

    def check_same(self, schema: Schema | None) -> None:
        """Raise MismatchError if the existing dataset has other columns."""
        if self._found is not None and not self._found.blank:
            target.check_same_encoding(self.label, self._found, None if schema is None else schema.to_builtins(), None)


@dataclass(frozen=True)
class LocalPlace:
    """An existing directory as a place for shards.

    Attributes:
        directory: path of the directory, the same on every node.
        label: name of the dataset, for messages.
    """

    directory: str
    label: str

    def path(self, name: str) -> str:
        """Return the path to write a shard of this name.

        Raises:
            FileNotFoundError: the directory does not exist, or not any more.
        """
        if not os.path.isdir(self.directory):
            raise MissingFileError(
                2,
                f"{self.label}: {self.directory} does not exist on {platform.node()}: {SHARED}; or this write has "
                "already ended",
                self.label,
            )
        return os.path.join(self.directory, name)

    def finish(self, name: str) -> Shard:
        with closing(OpenedFile(os.path.join(self.directory, name), check=False)) as opened:
            return Shard(name, opened.n, opened.size, opened.crc)

    def close(self) -> None:
        """Do nothing: the driver removes the directory."""


class LocalTarget(RayTarget):
    """A directory of a file system.

    Args:
        path: path of the dataset.
        appends: whether to add to it.
        resumes: whether to refuse if an interrupted write of a `DatasetWriter` could be resumed.
    """

    def __init__(self, path: str, *, appends: bool, resumes: bool) -> None:
        super().__init__(path)
        self._path, self._appends, self._resumes = path, appends, resumes
        self.check()
        self._part = PartDirectory(path, among_others=appends)

    def check(self) -> None:
        """Raise FileExistsError if something is in the way, or FileNotFoundError if there is nothing to add to."""
        if self._appends:
            target.check_extendable(self._path)
        else:
            check_vacant(self._path)

    def begin(self) -> ShardPlace:
        part = self._part
        with signals.defer_signals():
            part.acquire()
        published = resume.take_over(part, resume=self._resumes)
        resume.claim(part, added=published and self._appends)
        self.check()
        self._found = target.load_base(self._path) if self._appends else None
        return LocalPlace(part.open, self._path)

    def commit(self, shards: Sequence[Shard], schema: Schema | None) -> None:
        part, found = self._part, self._found
        builtins = None if schema is None else schema.to_builtins()
        place = LocalPlace(part.open, self._path)
        named = self._name(shards or ([] if found else [empty_shard(place)]))
        names = [shard.name for shard in named]
        if found is None:
            listing = manifest.build(named, builtins)
            manifest.save(part.finished, listing, self._path)
            with signals.defer_signals():
                part.publish([manifest.NAME, *names], listing.fingerprint)
            return
        listing = found.manifest_with(named, builtins, tell=builtins is not None)
        with signals.defer_signals():
            part.publish_more(names, found.listing, listing)

    def _name(self, shards: Sequence[Shard]) -> list[Shard]:
        """Give shards their final names, each compared with the report of its task."""
        part, start = self._part, Start() if self._found is None else self._found.start
        stem = STEM if self._found is None else self._found.stem
        named, samples = [], 0
        for number, shard in enumerate(shards, start.shard):
            self._check(shard)
            samples += shard.samples
            renamed = Shard(shard_name(number, stem), shard.samples, shard.size, shard.crc)
            os.rename(Path(part.open) / shard.name, Path(part.open) / renamed.name)
            part.keep(renamed, Start(number + 1, samples))
            named.append(renamed)
        return named

    def _check(self, shard: Shard) -> None:
        try:
            check_listed(self._part.open, shard).close()
        except (FileNotFoundError, FormatError) as error:
            raise MissingFileError(
                ENOENT, f"{self._path}: the shards of a task do not exist: {SHARED} ({error})", self._path
            ) from error

    def abandon(self) -> None:
        with signals.defer_signals():
            if not self._part.is_held:
                return
            # Rename it first, so that a task which Ray has not stopped yet has no path to it any more.
            gone = f"{self._part.open}-gone"
            try:
                os.rename(self._part.open, gone)
            except OSError:
                gone = self._part.open
            shutil.rmtree(gone, ignore_errors=True)
            self._part.leave()


def empty_shard(place: ShardPlace) -> Shard:
    """Return the only shard of a dataset without samples, because readers need a file."""
    with FileWriter(place.path("empty.ffr"), 0):
        pass
    return place.finish("empty.ffr")
