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
from ffrecord.ray.blocks import PLAIN, WantedColumns, make_block, read_blocks
from ffrecord.ray.pieces import Opening, ReadPiece, WholeShard, open_piece, plan_tasks, shards_of
from ffrecord.ray.to_arrow import OFFSET
from ffrecord.reading import paths
from ffrecord.reading.indices import spread_indices
from ffrecord.system.values import describe_wrong

TASK = 128 << 20  # default bytes of the blocks of a task, as in Ray
LEAST = 1 << 20  # smallest such size, if there are too few tasks for all CPUs
TASKS_OF_CPU = 4
PROBE_SAMPLES = 8  # samples decoded beforehand to estimate the size of blocks


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
    """Return the samples of a dataset as a `ray.data.Dataset`, with a row for each.

    They come in order if Ray is told to keep it (`DataContext.execution_options.preserve_order`). A task of Ray reads
    consecutive samples of one shard, or of several small ones. Its number of samples is known before anything runs, and
    so are its bytes: exactly if all wanted columns have a fixed size, else estimated from eight samples. Every node
    needs the files under the same path.

    Args:
        path: path as `FileReader` takes it: a directory, a file, a pattern, a list of such, or URLs.
        columns: names of the columns to read. Others are not decoded, and with samples of one size not even copied.
            None for all. `Dataset.select_columns` right after it has the same effect.
        fields: other fields to read some columns with, as `Schema.replace` takes them: `{"image":
            JPEGField(as_bytes=True)}`.
        check_data: whether to compare the CRC-32 of tables and of every sample.
        storage_options, cache_dir, cache_limit: options for URLs, as `FileReader` takes them.
        override_num_blocks: number of tasks; None for about 128 MiB each, or four for each CPU if that is more.
        concurrency: largest number of these tasks at a time.
        ray_remote_args: further options of the tasks for Ray, by name: `{"num_cpus": 2}`.

    Returns:
        A dataset whose columns are those of the schema, named by their paths: `label`, `meta.size[1]`. Numbers and text
            have types of Arrow, arrays are tensors of Ray. All other values are Python objects, as the field returns
            them. Samples of plain bytes have one column, "data".

    Raises:
        ValueError: a column that does not exist; `fields` for plain bytes, or of another layout.
        as `FileReader`.
    """
    given = {"storage_options": storage_options, "cache_dir": cache_dir, "cache_limit": cache_limit}
    opening = Opening({"check_data": check_data, **{name: value for name, value in given.items() if value is not None}})
    shards = shards_of(path, opening)
    with opening.reader(shards[0].path) as reader:
        wanted = _select_columns(reader, columns, fields)
    source = ShardDatasource(shards, wanted, opening)
    found: ray.data.Dataset = ray.data.read_datasource(
        source,
        override_num_blocks=override_num_blocks or _default_task_count(source),
        concurrency=concurrency,
        **_split_options(ray_remote_args or {}),
    )
    return found


def _default_task_count(source: "ShardDatasource") -> int:
    """Return the number of tasks: about TASK bytes each, but enough that all CPUs are busy until the end.

    Each task costs Ray about 10 ms.
    """
    cpus = int(ray.cluster_resources().get("CPU", 1)) if ray.is_initialized() else 1  # type: ignore[no-untyped-call]
    size = source.estimate_inmemory_data_size() or 0
    return max(-(-size // TASK), min(TASKS_OF_CPU * cpus, -(-size // LEAST)), 1)


def _split_options(remote: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of tasks as `read_datasource` takes them: releases from 2.60 on have their own parameters for
    some.
    """
    known = inspect.signature(ray.data.read_datasource).parameters
    rest = {name: value for name, value in remote.items() if name not in known}
    named = {name: value for name, value in remote.items() if name in known}
    return {**named, "ray_remote_args": rest} if rest else named


def _select_columns(reader: Any, columns: Sequence[str] | None, fields: Mapping[str, Field] | None) -> WantedColumns:
    stored = schema_of(reader)
    if isinstance(columns, str):
        raise ArgumentTypeError(describe_wrong("columns", columns, "a list of names"))
    if stored is None and fields:
        raise ArgumentError(f"{reader.fnames[0]}: its samples are plain bytes, so fields= cannot be used")
    schema = stored if stored is None or not fields else stored.replace(fields)
    there = (PLAIN,) if schema is None else schema.columns
    strange = [name for name in columns or () if name not in there]
    if strange:
        raise ArgumentError(f"columns has {strange[0]!r}, expected some of the columns {', '.join(there)}")
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise ArgumentError(f"columns is {list(columns)}, expected at least one name, each once")
    return WantedColumns(schema, stored, tuple(columns or there))


class ShardDatasource(Datasource):
    """The shards of a dataset as a data source of Ray.

    Args:
        shards: shards in order.
        wanted: columns to read.
        opening: options to open files with.
    """

    _projection_map: dict[str, str] | None = None

    def __init__(self, shards: Sequence[WholeShard], wanted: WantedColumns, opening: Opening) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shards, self._all, self._opening = list(shards), wanted, opening
        self._whole = list(itertools.chain.from_iterable(plan_tasks(self._shards, 1)))
        # By columns, since Ray makes copies with other columns.
        self._chosen: dict[tuple[str, ...], WantedColumns] = {}
        self._rates: dict[tuple[str, ...], float] = {}

    def get_name(self) -> str:
        return "FFRecord"

    def supports_projection_pushdown(self) -> bool:
        # Earlier releases select columns in another way; there use `columns`.
        return hasattr(Datasource, "get_projection_map")

    @property
    def _wanted(self) -> WantedColumns:
        chosen = self._projection_map
        if chosen is None:
            return self._all
        # Ray may ask for no column at all, but a table without columns has no rows: read the smallest column.
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
        # Without samples one task returns an empty table, which has the columns.
        return [
            ReadTask(
                partial(read_blocks, pieces, wanted, self._opening, stored), self._metadata(pieces), schema, **limit
            )
            for pieces in plan_tasks(self._shards, parallelism) or [[]]
        ]

    def _metadata(self, pieces: Sequence[ReadPiece]) -> BlockMetadata:
        return BlockMetadata(
            num_rows=sum(piece.stop - piece.start for piece in pieces),
            size_bytes=sum(map(self._size, pieces)),
            input_files=tuple(piece.shard.label for piece in pieces),
            exec_stats=None,
        )

    def _size(self, piece: ReadPiece) -> int:
        """Return the bytes that a piece takes in blocks."""
        wanted, samples = self._wanted, piece.stop - piece.start
        if wanted.schema is None:
            return piece.bytes + OFFSET * samples
        row = wanted.row_size
        return int(self._rate() * piece.bytes) if row is None else row * samples

    def _rate(self) -> float:
        """Return the bytes in blocks for each byte in a shard.

        Plain bytes take the same and 8 more for each sample. For decoded samples, a few of the largest shard show the
        rate.
        """
        wanted = self._wanted
        if wanted.columns not in self._rates:
            self._rates[wanted.columns] = self._find_rate(wanted)
        return self._rates[wanted.columns]

    def _find_rate(self, wanted: WantedColumns) -> float:
        whole = self._whole
        stored, samples = sum(piece.bytes for piece in whole), sum(piece.stop for piece in whole)
        if not stored:
            return 1.0
        if wanted.schema is None:
            return 1 + OFFSET * samples / stored
        if wanted.row_size is not None:
            return wanted.row_size * samples / stored
        largest = max(whole, key=lambda piece: piece.bytes)
        # The task that reads a damaged sample reports it.
        with contextlib.suppress(FFRecordError, ImportError), open_piece(largest, self._opening) as reader:
            few = np.array(spread_indices(largest.stop, PROBE_SAMPLES), np.int64)
            sizes = int(reader.record_sizes(few).sum())
            return float(make_block(reader, few, wanted).nbytes / max(1, sizes))
        return 1.0
