"""Where a dataset is written: what may be there before, and where its shards are until then."""

from typing import Protocol

from ffrecord.dataset_writer import append
from ffrecord.dataset_writer.append import Base
from ffrecord.dataset_writer.job import BACKLOG
from ffrecord.dataset_writer.part_directory import PartDirectory, check_vacant


class Target(Protocol):
    """A place for a dataset.

    Attributes:
        label: what messages call it.
        made: the path of which the part directory has the shards that are being filled, for messages of the disk.
        backlog: complete shards that wait to be kept, beyond which no work is given out.
    """

    @property
    def label(self) -> str: ...
    @property
    def made(self) -> str: ...
    @property
    def backlog(self) -> int: ...

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError or FileExistsError unless there is something to append to, or nothing in the way."""
        ...

    def part(self, *, appends: bool) -> PartDirectory:
        """Where shards are until they are published."""
        ...

    def base(self, part: PartDirectory) -> Base:
        """The dataset that is appended to, with this part directory."""
        ...


class Directory:
    """A directory of this machine.

    Args:
        path: of it.
    """

    backlog = BACKLOG

    def __init__(self, path: str) -> None:
        self.label = self.made = path

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError or FileExistsError unless there is something to append to, or nothing in the way."""
        if appends:
            append.check_extendable(self.label)
        else:
            check_vacant(self.label)

    def part(self, *, appends: bool) -> PartDirectory:
        """Where shards are until they are published."""
        return PartDirectory(self.label, among_others=appends)

    def base(self, part: PartDirectory) -> Base:
        """The dataset that is appended to."""
        return append.look(self.label)
