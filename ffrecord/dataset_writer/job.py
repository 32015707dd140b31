"""The job of a write: source, encoding, layout and place of the shards."""

from collections.abc import Callable
from dataclasses import dataclass

from ffrecord.dataset_writer.encoding import Encoding
from ffrecord.dataset_writer.layout import BEGINNING, ByBytes, ByCount, Start
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.fields import Schema
from ffrecord.format.manifest import Shard

BACKLOG = 64  # complete shards, with their tables in memory


@dataclass(frozen=True)
class ShardJob:
    """The samples to write and the place for their shards.

    Attributes:
        source: source of the samples.
        encoding: encoding of the samples; None if the first of them show it.
        declared: fields of some columns, if the first samples show the others.
        cut: division into shards.
        files: directory and names of the shards.
        keep: called from a thread with every finished, durable shard and the start of the next one.
        start: position after the shards that exist already; the source begins there too.
        max_skipped: largest number of samples that may be skipped because reading or encoding them fails; None if the
            first failure is an error.
        backlog: number of complete shards that may wait to be finished; with more, no tasks are handed out.
    """

    source: Source
    encoding: Encoding | None
    cut: ByCount | ByBytes
    files: ShardFiles
    keep: Callable[[Shard, Start], None]
    start: Start = BEGINNING
    max_skipped: int | None = None
    backlog: int = BACKLOG
    declared: Schema | None = None  # they count for the encoding only while it is unknown
