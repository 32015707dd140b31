"""`read`: shards as a dataset of Ray."""

import contextlib
import inspect
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from ffrecord.errors import ArgumentError, ArgumentTypeError, FFRecordError
from ffrecord.fields import Field, schema_of
from ffrecord.ray.blocks import PLAIN, WantedColumns, block, read_blocks
from ffrecord.ray.pieces import Opening, ReadPiece, WholeShard, opened, shards_of, tasks
from ffrecord.ray.to_arrow import OFFSET
from ffrecord.reading import paths

TASK = 128 << 20  # bytes of the blocks of a task: Ray's own measure, unless told
LEAST = 1 << 20  # the same, where that gives no CPU its fair share
TASKS_OF_CPU = 4
SHOWN = 8  # samples that are decoded beforehand where only that tells the size of blocks


def read(
    path: paths.Source,
    columns: Sequence[str] | None = None,
    *,
    fields: Mapping[str, Field] | None = None,
    check_data: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    cache_dir: str | None = None,
    cache_limit: int | str | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> "ray.data.Dataset":
    """The samples of a dataset as a `ray.data.Dataset`, a row for each.

    They come in order if Ray is told to keep one (`DataContext.execution_options.preserve_order`). A task of Ray reads
    consecutive samples of one shard, or of several small ones; how many samples and bytes it has is known before
    anything runs. Every node needs the files under the same path.

    Args:
        path: as `FileReader` takes it: a directory, a file, a pattern, a list of such, or URLs.
        columns: names of those to read; others are not decoded, and of samples of one size not even copied. None for
            all. `Dataset.select_columns` right after it has the same effect.
        fields: other fields to read some columns with, as `Schema.replace` takes them:
            `{"image": JPEGField(as_bytes=True)}`.
        check_data: compare CRC-32 of tables and of every sample.
        storage_options, cache_dir, cache_limit: as `FileReader` takes them, for URLs.
        override_num_blocks: tasks; None for about 128 MiB each, or four for each CPU if that is more.
        concurrency: of these tasks, at most.
        ray_remote_args: what else it takes of how tasks are run, by name: `{"num_cpus": 2}`.

    Returns:
        A dataset whose columns are those of the schema, named by their paths: `label`, `meta.size[1]`. Numbers and text
        are what Arrow has, arrays are tensors of Ray, and all else is what the field gives, as a Python object. Samples
        of plain bytes have one column, "data".

    Raises:
        ValueError: a column that there is not; `fields` for plain bytes, or of another layout.
        as `FileReader`.
    """
    given = {"storage_options": storage_options, "cache_dir": cache_dir, "cache_limit": cache_limit}
    opening = Opening({"check_data": check_data, **{name: value for name, value in given.items() if value is not None}})
    shards = shards_of(path, opening)
    with opening.reader(shards[0].path) as reader:
        wanted = _wanted(reader, columns, fields)
    source = ShardDatasource(shards, wanted, opening)
    found: ray.data.Dataset = ray.data.read_datasource(
        source,
        override_num_blocks=override_num_blocks or _usual_tasks(source),
        concurrency=concurrency,
        **_by_name(ray_remote_args or {}),
    )
    return found


def _usual_tasks(source: "ShardDatasource") -> int:
    """Each takes Ray some 10 ms: of about TASK bytes, but enough that all have something to do until the end."""
    cpus = int(ray.cluster_resources().get("CPU", 1)) if ray.is_initialized() else 1  # type: ignore[no-untyped-call]
    size = source.estimate_inmemory_data_size() or 0
    return max(-(-size // TASK), min(TASKS_OF_CPU * cpus, -(-size // LEAST)), 1)


def _by_name(remote: Mapping[str, Any]) -> dict[str, Any]:
    """Options of tasks as `read_datasource` wants them: releases from 2.60 on want those that they know by name."""
    known = inspect.signature(ray.data.read_datasource).parameters
    rest = {name: value for name, value in remote.items() if name not in known}
    named = {name: value for name, value in remote.items() if name in known}
    return {**named, "ray_remote_args": rest} if rest else named


def _wanted(reader: Any, columns: Sequence[str] | None, fields: Mapping[str, Field] | None) -> WantedColumns:
    stored = schema_of(reader)
    if isinstance(columns, str):
        raise ArgumentTypeError(f"columns must be a list of names, not {columns!r}")
    if stored is None and fields:
        raise ArgumentError(f"{reader.fnames[0]}: its samples are plain bytes, which fields do not read")
    schema = stored if stored is None or not fields else stored.replace(fields)
    there = (PLAIN,) if schema is None else schema.columns
    strange = [name for name in columns or () if name not in there]
    if strange:
        raise ArgumentError(f"columns has {strange[0]!r}, which is no column; there are {', '.join(there)}")
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise ArgumentError(f"columns is {list(columns)}, expected one name or more, each once")
    return WantedColumns(schema, stored, tuple(columns or there))


class ShardDatasource(Datasource):
    """Shards, for Ray.

    Args:
        shards: in order.
        wanted: which columns.
        opening: how files are opened.
    """

    _projection_map: dict[str, str] | None = None

    def __init__(self, shards: Sequence[WholeShard], wanted: WantedColumns, opening: Opening) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shards, self._all, self._opening = list(shards), wanted, opening
        self._whole = list(itertools.chain.from_iterable(tasks(self._shards, 1)))
        # By columns, since Ray makes copies that differ in those.
        self._chosen: dict[tuple[str, ...], WantedColumns] = {}
        self._rates: dict[tuple[str, ...], float] = {}

    def get_name(self) -> str:
        return "FFRecord"

    def supports_projection_pushdown(self) -> bool:
        # Releases before have another way to say which columns; there `columns` does it.
        return hasattr(Datasource, "get_projection_map")

    @property
    def _wanted(self) -> WantedColumns:
        chosen = self._projection_map
        if chosen is None:
            return self._all
        # Ray may ask for no column at all, and a table without any has no rows: the smallest one stands for them.
        names = tuple(name for name in self._all.columns if name in chosen) or (self._smallest(),)
        if names not in self._chosen:
            self._chosen[names] = self._all.only(names)
        return self._chosen[names]

    def _smallest(self) -> str:
        slots = {} if self._all.schema is None else self._all.schema.slots
        return min(self._all.columns, key=lambda name: slots[name].size if name in slots else float("inf"))

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(map(self._size, self._whole))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        context = data_context or ray.data.DataContext.get_current()
        wanted, schema = self._wanted, self._wanted.arrow
        rate = self._rate() or 1.0
        target = context.target_max_block_size
        stored = None if target is None else max(1, int(target / rate))
        limit = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
        # Without samples one task that gives an empty table tells what columns there would be.
        return [
            ReadTask(
                partial(read_blocks, pieces, wanted, self._opening, stored), self._metadata(pieces), schema, **limit
            )
            for pieces in tasks(self._shards, parallelism) or [[]]
        ]

    def _metadata(self, pieces: Sequence[ReadPiece]) -> BlockMetadata:
        return BlockMetadata(
            num_rows=sum(piece.stop - piece.start for piece in pieces),
            size_bytes=sum(map(self._size, pieces)),
            input_files=tuple(piece.shard.shown for piece in pieces),
            exec_stats=None,
        )

    def _size(self, piece: ReadPiece) -> int:
        """Bytes that a piece takes in blocks."""
        wanted, samples = self._wanted, piece.stop - piece.start
        if wanted.schema is None:
            return piece.bytes + OFFSET * samples
        row = wanted.row_size
        return int(self._rate() * piece.bytes) if row is None else row * samples

    def _rate(self) -> float:
        """Bytes in blocks for each byte in a shard: of plain bytes as many, and 8 more for each; of what is decoded, as
        a few samples of the largest shard show it."""
        wanted = self._wanted
        if wanted.columns not in self._rates:
            self._rates[wanted.columns] = self._looked_up(wanted)
        return self._rates[wanted.columns]

    def _looked_up(self, wanted: WantedColumns) -> float:
        whole = self._whole
        stored, samples = sum(piece.bytes for piece in whole), sum(piece.stop for piece in whole)
        if not stored:
            return 1.0
        if wanted.schema is None:
            return 1 + OFFSET * samples / stored
        if wanted.row_size is not None:
            return wanted.row_size * samples / stored
        largest = max(whole, key=lambda piece: piece.bytes)
        # What cannot be decoded is told by the task that reads it.
        with contextlib.suppress(FFRecordError, ImportError), opened(largest, self._opening) as reader:
            few = np.unique(np.linspace(0, largest.stop - 1, SHOWN).astype(np.int64))
            sizes = int(reader.record_sizes(few).sum())
            return float(block(reader, few, wanted).nbytes / max(1, sizes))
        return 1.0
