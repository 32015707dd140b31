"""`write`: a dataset of Ray as shards, with names that no other task has, nor another try of the same task."""

import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import numpy as np
from ray.data.datasource import Datasink

from ffrecord.dataset_writer import Summary, options
from ffrecord.dataset_writer.encoding import make_extension
from ffrecord.dataset_writer.layout import ByBytes, ByCount
from ffrecord.dataset_writer.options import SHARD_SIZE
from ffrecord.errors import ArgumentError, FFRecordError
from ffrecord.fields import Schema
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Extension
from ffrecord.format.manifest import Shard
from ffrecord.ray.columns import schema_of_types
from ffrecord.ray.records import ArrowRecords
from ffrecord.ray.target import LocalTarget, RayTarget, ShardPlace
from ffrecord.reading.batch_forms import Packed
from ffrecord.system import urls
from ffrecord.system.values import check_flag
from ffrecord.writing.file_writer import FileWriter


@dataclass(frozen=True)
class WrittenShard:
    """The complete and durable shards of one try of a task.

    Attributes:
        task: number of the task.
        shards: shards in order.
        bytes: size of all samples in them.
    """

    task: int
    shards: list[Shard]
    bytes: int


class ShardWriter:
    """A writer that cuts records into shards.

    Args:
        place: place of the shards.
        task: number of the task.
        cut: largest number of samples or bytes of a shard; a larger sample has a shard to itself.
        extension: extension block of each shard.
    """

    def __init__(self, place: ShardPlace, task: int, cut: ByBytes | ByCount, extension: Extension | None) -> None:
        self._place, self._task, self._cut, self._extension = place, task, cut, extension
        self._try = secrets.token_hex(8)
        self._file: FileWriter | None = None
        self._done: list[Shard] = []
        self._samples = self._bytes = 0  # in the open shard
        self._total = 0  # bytes in the shards before it

    def add(self, records: Packed) -> None:
        """Write records.

        Raises:
            OSError (also a RuntimeError): it failed.
        """
        data, offsets = records
        ends = offsets[1:] - offsets[0]
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            count = self._fitting(ends[first:] - before)
            if count:
                self._open().write_packed(data, offsets[first : first + count + 1])
                self._samples += count
                self._bytes += int(ends[first + count - 1]) - before
                first += count
            else:
                self._close()

    def _fitting(self, ends: Any) -> int:
        """Return how many of the records that end at `ends`, in bytes from here, still fit the open shard."""
        if isinstance(self._cut, ByCount):
            return min(self._cut.samples - self._samples, len(ends))
        count = int(np.searchsorted(ends, self._cut.size - self._bytes, side="right"))
        return count if self._samples else max(count, 1)

    def _open(self) -> FileWriter:
        if self._file is None:
            name = f"{self._task:08d}-{self._try}-{len(self._done):05d}{ffr_layout.SUFFIX}"
            self._file = FileWriter(self._place.path(name), extension=self._extension)
            self._name = name
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            self._done.append(self._place.finish(self._name))
            self._total += self._bytes
            self._samples = self._bytes = 0

    def end(self) -> WrittenShard:
        """Complete the last shard; return the shards of the task."""
        self._close()
        return WrittenShard(self._task, self._done, self._total)

    def discard(self) -> None:
        """Remove the unfinished shard. Finished ones may stay: no manifest will list them."""
        if self._file is not None:
            self._file._discard()
        self._place.close()


def ordered_shards(written: list[WrittenShard]) -> Iterator[Shard]:
    """Yield the shards of all tasks, in the order of their numbers."""
    for each in sorted(written, key=lambda each: each.task):
        yield from each.shards


_log = logging.getLogger("ffrecord")


def write(
    ds: Any,
    path: str | os.PathLike[str],
    *,
    schema: Any = None,
    samples_per_shard: SupportsIndex | None = None,
    shard_size: SupportsIndex | str | None = None,
    mode: Literal["create", "append"] = "create",
    resume: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> Summary:
    """Write a `ray.data.Dataset` as a directory of shards with a manifest, which is there complete or not at all.

    Each task of Ray writes its own shards; its last one may be smaller. Samples are in the order of the tasks. That is
    the order of the dataset if Ray keeps it (`DataContext.execution_options.preserve_order`), or if only reading and
    maps come before. However often Ray runs a task, every sample is there once, if the tasks before it return the same
    again.

    Args:
        ds: the dataset.
        path: path of the directory, missing or empty, on a file system that all nodes share: a node that does not see
            it is a FileNotFoundError that names the node. Or a URL: then each task makes one shard at a time in the
            temporary directory of its node.
        schema: fields of the columns, as `fields.Schema.of` takes them, or a Schema; the dataset must have the same
            names. None: by their Arrow types, for which Ray may have to compute the first rows; a single column "data"
            of bytes becomes records unchanged.
        samples_per_shard: largest number of samples of a shard; a task then gets as many or more, if there are.
        shard_size: largest size of the samples of a shard, in bytes or as text such as "500M"; 256 MiB by default.
        mode: "create" makes a directory. "append" adds shards to one with the same columns.
        resume: False discards the finished shards of an interrupted write of a `DatasetWriter` to the same path; True
            raises MismatchError if there are any. For a URL only True: leftovers there cannot be told from a write at
            work, so they are refused, and the error says what to remove.
        storage_options: options for URLs.
        concurrency, ray_remote_args: as `Dataset.write_datasink` takes them.

    Returns:
        The summary of the write.

    Raises:
        FileExistsError (also a RuntimeError), FileNotFoundError: as from `DatasetWriter`.
        TypeError, ValueError: an argument; a column whose type has no field, or that is not in the schema.
        MismatchError: the dataset to append to has other columns.
        BlockingIOError (also a RuntimeError): another writer writes to the path.
        ray.exceptions.RayTaskError: an error in a task; it is an instance of that error's class, too.
        After any error the path is as it was before.
    """
    cuts = options.check_cuts(samples_per_shard=samples_per_shard, shard_size=shard_size)
    appends = options.check_mode(mode)
    name = options.check_path(path)
    given = schema if schema is None or isinstance(schema, Schema) else Schema.of(schema)
    started = time.perf_counter()
    target = target_of(name, storage_options, appends=appends, resumes=check_flag("resume", resume))
    try:
        place = target.begin()
        columns = given or target.schema() or _schema_of_dataset(ds)
        target.check_same(columns)
        per_shard = cuts["samples_per_shard"]
        cut = ByCount(per_shard) if per_shard is not None else ByBytes(cuts["shard_size"] or SHARD_SIZE)
        sink = ShardDatasink(target, place, columns, cut)
        ds.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)
        return Summary(target.label, sink.samples, sink.bytes, sink.shards, time.perf_counter() - started)
    finally:
        target.abandon()


def _schema_of_dataset(ds: Any) -> Schema | None:
    """Return the schema by the types of the columns."""
    found = ds.schema()
    types = {} if found is None else dict(zip(found.names, found.types, strict=True))
    return schema_of_types(types)


def target_of(path: str, storage_options: Mapping[str, Any] | None, *, appends: bool, resumes: bool) -> RayTarget:
    """Return the target for a path or a URL."""
    if urls.is_remote(path):
        if not resumes:
            sentence = (
                "resume=False is only for directories: pass resume=True, and remove unwanted objects at the URL first"
            )
            raise ArgumentError(f"{urls.redact(path)}: {sentence}")
        from ffrecord.ray.remote_target import RayRemoteTarget  # imported late: few programs need it

        return RayRemoteTarget(path, storage_options, appends=appends)
    return LocalTarget(urls.local_path(path), appends=appends, resumes=resumes)


class ShardDatasink(Datasink[WrittenShard]):
    """The sink of shards for Ray. The driver has the target, tasks have the place.

    Args:
        target: target that is locked.
        place: place where tasks write.
        schema: schema of the samples; None for plain bytes.
        cut: division into shards.

    Attributes:
        samples, bytes, shards: published numbers of samples, bytes and shards.
    """

    def __init__(self, target: RayTarget, place: ShardPlace, schema: Schema | None, cut: ByBytes | ByCount) -> None:
        self._target: RayTarget | None = target
        self._place, self._schema, self._cut = place, schema, cut
        self.samples = self.bytes = self.shards = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None}

    def get_name(self) -> str:
        return "FFRecord"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._cut.samples if isinstance(self._cut, ByCount) else None

    def _extension(self) -> Extension | None:
        return None if self._schema is None else make_extension(schema=self._schema.to_builtins())

    def write(self, blocks: Iterable[Any], ctx: Any) -> WrittenShard:
        """Write the blocks of a task as shards that are complete when this returns."""
        records = ArrowRecords(self._schema)
        shards = ShardWriter(self._place, ctx.task_idx, self._cut, self._extension())
        try:
            for block in blocks:
                for part in records.records(block):
                    shards.add(part)
            return shards.end()
        finally:
            shards.discard()

    def on_write_complete(self, write_result: Any) -> None:
        """Publish, in the driver, exactly the shards in the reports that Ray counts."""
        written: list[WrittenShard] = [each for each in write_result.write_returns if each is not None]
        shards = list(ordered_shards(written))
        samples = sum(shard.samples for shard in shards)
        tasks = {each.task for each in written}
        if len(tasks) != len(written) or samples != write_result.num_rows:
            raise FFRecordError(
                f"{len(written)} results of {len(tasks)} tasks have {samples} samples, but Ray counts "
                f"{write_result.num_rows} rows; nothing was published"
            )
        if self._target is None:
            raise FFRecordError("Ray ended a write that it had not begun")
        self._target.commit(shards, self._schema)
        self.samples, self.shards, self.bytes = samples, len(shards), sum(each.bytes for each in written)

    def on_write_failed(self, error: Exception) -> None:
        """Remove everything, in the driver."""
        _log.debug("writing failed: %s", error)
        if self._target is not None:
            self._target.abandon()
