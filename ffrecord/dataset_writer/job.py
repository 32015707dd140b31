"""What a write is to do, and with what."""

from collections.abc import Callable
from dataclasses import dataclass

from ffrecord.dataset_writer.encoding import Encoding
from ffrecord.dataset_writer.layout import BEGINNING, ByBytes, ByCount, Start
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.dataset_writer.shards import Files
from ffrecord.fields import Schema
from ffrecord.format.manifest import Shard

BACKLOG = 64  # complete shards, with their tables in memory


@dataclass(frozen=True)
class ShardJob:
    """What to write, and where.

    Attributes:
        source: of the samples.
        encoding: of the samples; None if the first of them are to show it.
        declared: fields of some of their columns, where the first samples are to show the others.
        cut: into shards.
        files: where the shards are made, and what they will be called.
        keep: called with every finished, durable shard, and the start of the next one, from a thread.
        start: after the shards that are there already; the source begins there too.
        max_skipped: how many samples may be left out because they cannot be had or encoded; None if the first such is
            an error.
        backlog: complete shards that wait to be finished and kept, beyond which no work is given out.
    """

    source: Source
    encoding: Encoding | None
    cut: ByCount | ByBytes
    files: Files
    keep: Callable[[Shard, Start], None]
    start: Start = BEGINNING
    max_skipped: int | None = None
    backlog: int = BACKLOG
    declared: Schema | None = None
