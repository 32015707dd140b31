"""What a `DatasetWriter` was made for, and what follows from that for each of its calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsIndex

from ffrecord.dataset_writer import arguments, resume
from ffrecord.dataset_writer.base import Base
from ffrecord.dataset_writer.encoding import Encoding, extension_of
from ffrecord.dataset_writer.job import Means
from ffrecord.dataset_writer.layout import ByBytes, ByCount, split_evenly
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.selection import Chosen
from ffrecord.dataset_writer.target import Target
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import ArgumentError
from ffrecord.fields import Schema

SHARD_SIZE = 256 << 20
PROBES = 8


@dataclass(frozen=True)
class Options:
    """See `DatasetWriter`.

    Attributes:
        target: of the dataset.
        fields, serializer: at most one of them.
        completes: whether `fields` may leave out columns, which samples then show.
        shard_size, samples_per_shard, num_shards: at most one of them; None for all: shards of SHARD_SIZE bytes.
        workers: processes, >= 0.
        start_method, progress, stuck_after: as `Means` takes them.
        max_skipped: how many samples may be left out; None if the first such is an error.
        appends: whether to add to a dataset.
        resumes: whether to go on with an interrupted write.
    """

    target: Target
    fields: Schema | None
    serializer: Callable[[Any], Any] | None
    completes: bool
    shard_size: int | None
    samples_per_shard: int | None
    num_shards: int | None
    workers: int
    start_method: str | None
    progress: bool | None
    stuck_after: float | None
    max_skipped: int | None
    appends: bool
    resumes: bool

    def check_target(self) -> None:
        """Raise FileNotFoundError or FileExistsError unless there is something to append to, or nothing in the way."""
        self.target.check(appends=self.appends)

    @property
    def path(self) -> str:
        """What messages call the target."""
        return self.target.label

    def part(self) -> PartDirectory:
        """Where shards are until they are published."""
        return self.target.part(appends=self.appends)

    def means(self, chunksize: SupportsIndex) -> Means:
        """With what a call writes."""
        size = arguments.positive("chunksize", chunksize)
        return Means(self.workers, size, self.start_method, self.stuck_after, self.progress)

    def cut(self, total: int | None) -> ByCount | ByBytes:
        """How `total` samples, None for an unknown number, are cut into shards."""
        if self.samples_per_shard is not None:
            return ByCount(self.samples_per_shard)
        if self.num_shards is not None:
            if total is None:
                raise ArgumentError(
                    f"num_shards={self.num_shards} needs the number of samples: give a length (from_iterable), or use "
                    "samples_per_shard or shard_size"
                )
            return split_evenly(total, self.num_shards)
        return ByCount(1) if total == 0 else ByBytes(self.shard_size or SHARD_SIZE)

    def probes(self, indices: Chosen, fields: Schema | None) -> list[int]:
        """Indices of the samples to look at beforehand; none if nothing depends on them.

        Args:
            fields: their columns, if these are known.
        """
        known = (fields is not None and not self.declares(fields)) or self.serializer is not None
        exact = self.samples_per_shard is not None or self.num_shards is not None
        if (known and exact) or not len(indices):
            return []
        spread = sorted({k * (len(indices) - 1) // (PROBES - 1) for k in range(PROBES)})
        return [int(indices[position]) for position in spread]

    def declares(self, fields: Schema | None) -> Schema | None:
        """Return these fields if samples have to show whether there are other columns."""
        return fields if self.completes and fields is self.fields else None

    def request(self, encoding: Encoding | None, found: Base | None) -> Request:
        """What a later write has to be asked for too, if it is to go on with this one.

        Args:
            encoding: of the samples; None if the first ones are to show it.
            found: the dataset that is appended to.
        """
        said = encoding.extension if encoding else extension_of()
        declared = self.declares(self.fields)
        shown = "as the first samples show it" if declared is None else declared.to_builtins()
        cut = {"samples_per_shard": self.samples_per_shard, "num_shards": self.num_shards}
        if cut == dict.fromkeys(cut):
            cut = {"shard_size": self.shard_size or SHARD_SIZE}
        return {
            "mode": "append" if self.appends else "create",
            resume.BASE: None if found is None else found.listing.fingerprint,
            **cut,
            "schema": encoding.schema if encoding else shown,
            "serializer": None if said is None else said.serializer,
            "writer": None if said is None else said.writer,
            "samples looked at": {
                str(probe.sample): [probe.size, probe.crc] for probe in (encoding.probes if encoding else ())
            },
        }
