"""Targets of a write: a directory, and the interface that a URL implements too."""

from typing import Protocol

from ffrecord.dataset_writer import append
from ffrecord.dataset_writer.append import Base
from ffrecord.dataset_writer.job import BACKLOG
from ffrecord.dataset_writer.part_directory import PartDirectory, check_vacant


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
            append.check_extendable(self.label)
        else:
            check_vacant(self.label)

    def part(self, *, appends: bool) -> PartDirectory:
        """Return the part directory, which holds the shards until they are published."""
        return PartDirectory(self.label, among_others=appends)

    def base(self, part: PartDirectory) -> Base:
        """Return the dataset that is appended to."""
        return append.load_base(self.label)
