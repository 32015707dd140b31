"""A dataset that is written to a URL. Imported only where one is given."""

import os
from collections.abc import Mapping
from typing import Any

from ffrecord.dataset_writer.base import Base
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.remote import remote_base, staging
from ffrecord.dataset_writer.remote.objects import Objects
from ffrecord.dataset_writer.remote.staged_part import StagedPart
from ffrecord.dataset_writer.write_log import peek


class RemoteTarget:
    """See `Target`.

    Args:
        url, storage_options: of the dataset.
        directory: for staging; None for one of this user below the system's temporary directory.
    """

    backlog = 2  # shards: what is on the disk of this machine is to stay little

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None, directory: str | os.PathLike[str] | None
    ) -> None:
        self._objects = Objects(url, storage_options)
        self.label = self._objects.label
        self.made = staging.place(url, storage_options, directory)
        self._own = directory is None

    def __repr__(self) -> str:
        return f"<RemoteTarget {self.label}>"

    def check(self, *, appends: bool) -> None:
        """Raise FileNotFoundError or FileExistsError unless there is something to append to, or nothing in the way."""
        if appends:
            remote_base.check_extendable(self._objects)
        else:
            remote_base.check_vacant(self._objects, peek(PartDirectory(self.made).ledger_path))

    def part(self, *, appends: bool) -> PartDirectory:
        """Where shards are until they are published."""
        staging.make(self.made, own=self._own)
        return StagedPart(self._objects, self.made, appends=appends)

    def base(self, part: PartDirectory) -> Base:
        """The dataset that is appended to."""
        return remote_base.look(self._objects, part.ledger.story.finished)
