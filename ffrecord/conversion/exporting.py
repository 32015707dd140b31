"""`export`: from samples to the formats that others read: zip, tar, WebDataset, TFRecord, folders."""

import os
import shutil
import time
from contextlib import nullcontext
from typing import Any

from ffrecord.conversion.export_parts import Part, check_names, write_alone, write_by_crew
from ffrecord.conversion.export_samples import SampleSource
from ffrecord.conversion.export_targets import TARGETS
from ffrecord.conversion.export_verify import verify as compare
from ffrecord.dataset_writer import Summary
from ffrecord.durable import fsync_directory, part_name
from ffrecord.errors import ArgumentError, ArgumentTypeError, file_error
from ffrecord.sharding import arguments
from ffrecord.sharding.progress import Progress
from ffrecord.sources.opening import open as open_store
from ffrecord.store import Store

SUFFIXES = {".zip": "zip", ".tar": "tar", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord"}


def export(
    source: Any,
    out: str | os.PathLike[str],
    format: str | None = None,
    *,
    samples_per_shard: int | None = None,
    num_workers: int = -1,
    verify: bool = False,
    source_format: str | None = None,
    start_method: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Summary:
    """Write the samples of `source` as a zip, tar, WebDataset, TFRecord or folder, completely or not at all.

    Where the source has names (zip, tar, LMDB, folders, and datasets that `convert` made of them) they stay; other
    samples are called by their index, with zeros before it. A sample that is only bytes becomes one file of that name;
    of one with columns each becomes a file: JPEG, PNG and GIF bytes `.jpg`, `.png`, `.gif`, PIL images `.png`, other
    bytes `.bin`, ints `.cls`, text `.txt`, numpy arrays and scalars `.npy`, floats, bools, None, dicts and lists
    `.json`. Where two columns would be called the same, the column comes first: `.left.jpg`, `.right.jpg`.

    In a TFRecord, samples that are only bytes stay records as they are, others become `tf.train.Example`s as
    `encode_example` makes them, with the name as "key": these know int64, float32 and bytes, and no shapes.

    Args:
        source: an open store, which stays open; what `ffrecord.open` takes; or samples with len() and [i].
        out: the file, or directory; nothing, or for directories an empty one, may be there.
        format: "zip", "tar", "webdataset" (a tar whose names have dots only before the column), "tfrecord" or "folder";
            by default as the suffix of `out` says.
        samples_per_shard: write several files, `shard-000000.tar` …, into the directory `out`. Not of folders.
        num_workers: processes that write shards; -1 for one per usable CPU, 0 for none but this one. One file is
            written by this one.
        verify: read source and result again afterwards, and compare every byte.
        source_format: of `source`, as the `format` of `ffrecord.open`.
        start_method, progress: as for `DatasetWriter`.
        options: of the reader of the source.

    Returns:
        What was written; its bytes are those of files or records, without what archives add.

    Raises:
        FileExistsError: something is there.
        FormatError: a name that leads elsewhere, or twice the same; or the source is damaged.
        TypeError, ValueError: arguments, or a value that no file holds; names sample and column.
        WorkerError: the same in a worker, or its death.
        MismatchError: with `verify`, what was written differs.
        OSError: reading or writing failed.
    """
    started = time.monotonic()
    path = os.fspath(out)
    kind = _format(path, format)
    per_shard = arguments.positive("samples_per_shard", samples_per_shard)
    if per_shard is not None and kind == "folder":
        raise ArgumentError("samples_per_shard is for files, a folder has one for each sample")
    workers = arguments.workers(num_workers)
    _check_free(path, directory=per_shard is not None or kind == "folder")
    opened = isinstance(source, Store) or not _are_paths(source)
    if options and opened:
        raise ArgumentTypeError(f"options {sorted(options)} are for a source that is opened here, by its path")
    with nullcontext(source) if opened else open_store(source, source_format, **options) as given:
        samples = SampleSource(given)
        files, size = _write(samples, path, kind, per_shard, workers, start_method, progress)
        if verify:
            compare(samples, kind, files)
    return Summary(path, samples.n, size, len(files), time.monotonic() - started)


def _are_paths(source: Any) -> bool:
    """Whether that is what `ffrecord.open` takes, not samples."""
    several = source if isinstance(source, list | tuple) and source else [source]
    return all(isinstance(each, str | os.PathLike) for each in several)


def _format(path: str, format: str | None) -> str:
    found = format or SUFFIXES.get(os.path.splitext(path)[1].lower())
    if found not in TARGETS:
        said = "" if format is None else f", not {format!r}"
        raise ArgumentError(f"{path}: format must be one of {', '.join(TARGETS)}{said}")
    return found


def _check_free(path: str, directory: bool) -> None:
    if not os.path.lexists(path) or (directory and os.path.isdir(path) and not os.listdir(path)):
        return
    raise file_error(17, f"{path}: something is there, nothing was written", path)


def _write(
    samples: SampleSource,
    path: str,
    kind: str,
    per_shard: int | None,
    workers: int,
    start_method: str | None,
    progress: bool | None,
) -> tuple[list[str], int]:
    """Write all; the files written, and their bytes."""
    if per_shard is None:
        bar = Progress(samples.n, progress, path)
        try:
            written = write_alone(samples, kind, Part(path, 0, samples.n), bar.add, check=True)
        finally:
            bar.close()
        return [path], written.size
    target = os.path.realpath(path)
    inside = part_name(target)
    suffix = TARGETS[kind][1]
    starts = range(0, max(samples.n, 1), per_shard)
    names = [f"shard-{number:06}{suffix}" for number in range(len(starts))]
    parts = [
        Part(os.path.join(inside, name), start, min(start + per_shard, samples.n))
        for name, start in zip(names, starts, strict=True)
    ]
    os.mkdir(inside)
    try:
        done = write_by_crew(samples, kind, parts, min(workers, len(parts)), start_method, progress, path)
        check_names(samples, path, [each.hashes for each in done])
        os.rename(inside, target)
    except BaseException:
        shutil.rmtree(inside, ignore_errors=True)
        raise
    fsync_directory(os.path.dirname(target))
    return [os.path.join(path, name) for name in names], sum(each.size for each in done)
