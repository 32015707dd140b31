"""`export`: write samples in formats that others read: zip, tar, WebDataset, TFRecord, folders."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from errno import EEXIST, EIO
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ffrecord._crc import crc32
from ffrecord.conversion.export_parts import ExportPart, WrittenPart, check_names, write_parts
from ffrecord.conversion.export_samples import SampleSource
from ffrecord.conversion.export_targets import TARGETS
from ffrecord.conversion.input import paths_of
from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer import options as arguments
from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, MismatchError, file_error, plural
from ffrecord.inputs.tables import is_table, values_of
from ffrecord.processes.pool import start_method_of
from ffrecord.reading.paths import check_outside, local_path
from ffrecord.reading.store import Store
from ffrecord.sources.opening import check_format_name, open_for
from ffrecord.sources.opening import open as open_store
from ffrecord.system import atomic_directory, filesystems, named_calls, signals
from ffrecord.system.atomic_file import fsync_directory, lock, part_name, remove_tree
from ffrecord.system.values import check_flag, check_samples, describe_wrong, is_word

NAMED = 20  # differences that an error names
AT_ONCE = 64  # files that are compared together

Expected = tuple[str, bytes | memoryview]
Read = Callable[[int, Sequence[str]], list[Any]]


def verify_files(samples: SampleSource, kind: str, files: Sequence[str], shown: str) -> None:
    """Compare every file or record with its sample.

    Args:
        samples: the source.
        kind: format that was written.
        files: files that were written, in order.
        shown: output path, for messages.

    Raises:
        MismatchError: some differ; names up to NAMED of them.
        ChecksumError, FormatError, OSError: a written file cannot be read.
    """
    found: list[str] = []
    count = 0
    # Files are opened again, as any reader would do.
    with ExitStack() as stack:
        read, total = _open_written(kind, files, stack)
        expected = _expected_files(samples, kind)
        while part := list(islice(expected, AT_ONCE)):
            # Strict: a missing record must not end the comparison unnoticed.
            for (name, data), other in zip(part, read(count, [name for name, _ in part]), strict=True):
                # Lengths first, since most faults show there.
                if other is None or len(data) != len(other) or crc32(data) != crc32(other):
                    size = "nothing" if other is None else f"{plural(len(other), 'byte')}"
                    found.append(f"{name} has {size}, its source has {plural(len(data), 'byte')} with another CRC-32")
            count += len(part)
    if total is not None and total != count:  # records that the source does not have
        found.append(f"it has {plural(total, 'record')}, its source has {count}")
    # A tar with all files may still join two samples into one.
    if kind == "webdataset":
        with open_store(list(files), kind) as store:
            if len(store) != samples.n:
                found.append(f"it has {plural(len(store), 'sample')}, its source has {samples.n}")
    if found:
        raise MismatchError(f"{shown}: {len(found)} of {count} differ from their source: {found[0]}", found[:NAMED])


def _expected_files(samples: SampleSource, kind: str) -> Iterator[Expected]:
    """Yield the name and the bytes of each file or record that an export of the samples should have."""
    for batch in samples.batches(0, samples.n):
        for sample in batch:
            if kind == "tfrecord":
                yield f"record {sample.index}", samples.record(sample)
            else:
                yield from ((name, content.data) for name, content in samples.files(sample, TARGETS[kind][0].dots))


def _open_written(kind: str, files: Sequence[str], stack: ExitStack) -> tuple[Read, int | None]:
    """Open the files of an export to read them again.

    Returns:
        A function that reads files or records from a position on, given their names; and their number, None if unknown.
    """
    if kind == "folder":
        return lambda start, names: [_read_file(Path(files[0], name)) for name in names], None
    # As a plain tar: the names and bytes of all files are compared, however they would be joined.
    store = stack.enter_context(open_store(list(files), "tar" if kind == "webdataset" else kind))
    # Names in the order of the archive.
    keys = None if kind == "tfrecord" else store.keys()

    def read(start: int, names: Sequence[str]) -> list[Any]:
        stop = min(start + len(names), len(store))
        records: list[Any] = list(store.read(range(start, stop)))
        if keys is not None:
            # Order matters: readers number samples by the order in the archive.
            records = [record if keys[start + i] == names[i] else None for i, record in enumerate(records)]
        return records + [None] * (len(names) - len(records))  # missing ones at the end

    return read, len(store)


def _read_file(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None  # a directory in the place of a file is none


SUFFIXES = {".zip": "zip", ".tar": "tar", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord"}
CLASSES = "classes.json"
_log = logging.getLogger("ffrecord")


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

    If the source has names (zip, tar, LMDB, folders, and datasets that `convert` made of them), samples keep them.
    Other samples are named by their index, padded with zeros. A sample that is only bytes becomes one file of that
    name. Of a sample with columns, each column becomes a file: bytes of images `.jpg`, `.png`, `.webp` and so on, PIL
    images `.png`, other bytes `.bin`, ints `.cls`, text `.txt`, numpy arrays and scalars `.npy`, floats, bools, None,
    dicts and lists `.json`. The column's name is added where it is needed (`.left.jpg`, `.right.jpg`): if two columns
    of the first sample would have the same suffix, or if a later value is of another kind than the first one.
    Directories of files get the class names as `classes.json`.

    If the first name ends like the file of a column, that end is dropped from all names that have it: `cat.jpg` with a
    label becomes `cat.jpg` and `cat.cls`, a `cat.png` beside it `cat.png` and `cat.png.cls`. In a WebDataset, JPEG
    files with any end become `.jpg`. A WebDataset that is open with decode=True is written as before decoding.

    In a TFRecord, samples that are only bytes and have no name stay records as they are. Others become
    `tf.train.Example`s as `encode_example` makes them, with the name as "key", or as "__key__" beside a column of that
    name. Examples have int64, float32 and bytes, and no shapes.

    Args:
        source: an open store, which stays open; anything that `ffrecord.open` takes; or samples with len() and [i].
        out: the file, or directory. Nothing may be there, or for directories an empty one. Not inside of a directory
            that is the source.
        format: "zip", "tar", "webdataset" (a tar whose names have dots only before the column), "tfrecord" or "folder";
            by default the suffix of `out` decides.
        samples_per_shard: write several files, `shard-000000.tar` …, into the directory `out`. Not for folders.
        num_workers: processes that write shards; -1 for one per usable CPU, 0 for this process only. This process also
            writes a single file.
        verify: read source and result again before the result gets its name, and compare every byte; count the samples
            of a WebDataset.
        source_format: format of `source`, as the `format` of `ffrecord.open`.
        start_method, progress: as for `DatasetWriter`.
        options: options of the source's reader.

    Returns:
        A summary of what was written. Its bytes are those of files or records, without the overhead of archives.

    Raises:
        FileExistsError: something is there.
        FormatError: a name leads out of the directory, is too long, occurs twice, or has bytes that are not UTF-8 (in
            zip); a sample has no columns, or has some although the first one is only bytes; or the source is damaged.
        TypeError, ValueError: wrong arguments, such as `out` inside the source; or a value that no file holds, with the
            names of sample and column.
        WorkerError: the same errors in a worker, or its death.
        MismatchError: with `verify`, the result differs from the source; it is removed.
        OSError: reading or writing failed.
    """
    started = time.monotonic()
    path = local_path("out", out)
    check_format_name("format", format)
    check_format_name("source_format", source_format)
    # Checked before anything is read or written.
    kind = _choose_format(path, format)
    per_shard = arguments.check_positive("samples_per_shard", samples_per_shard)
    if per_shard is not None and kind == "folder":
        raise ArgumentError("samples_per_shard is only for formats with several samples in a file, not for a folder")
    workers = arguments.check_num_workers(num_workers)
    check_flag("verify", verify)
    arguments.check_optional_flag("progress", progress)
    start_method_of(start_method)
    # Checked early; `_publish` finds what appears later.
    _check_free(path, directory=per_shard is not None or kind == "folder")
    check_outside(paths_of(source), path)
    source = values_of(source)
    opened = isinstance(source, Store) or not _are_paths(source)
    if opened and not isinstance(source, Store):
        check_samples("source", source)
    if opened and not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ArgumentTypeError(describe_wrong("source", source, "a path, a store or samples with len() and [i]"))
    if is_table(source):
        advice = "make a dataset of its columns with convert"
        raise ArgumentTypeError(describe_wrong("source", source, "samples", advice))
    given_options = [*options, *([] if source_format is None else ["source_format"])]
    if given_options and opened:
        raise ArgumentTypeError(f"options {sorted(given_options)} are only for a source that is given by its path")
    by_path: Any = source
    # A store of the user stays open.
    with nullcontext(source) if opened else open_for("ffrecord.export", by_path, source_format, options) as given:
        samples = SampleSource(given)
        files, size = _write(samples, path, kind, per_shard, workers, start_method, progress, verify)
    return Summary(path, samples.n, size, files, time.monotonic() - started)


def _are_paths(source: Any) -> bool:
    """Tell whether a source is paths for `ffrecord.open`, not samples."""
    # An empty list has no paths, and `open` says so.
    several = source if isinstance(source, list | tuple) and source else [source]
    return all(isinstance(each, str | os.PathLike) for each in several)


def _choose_format(path: str, format: str | None) -> str:
    if format is None:
        suffix = os.path.splitext(path)[1]
        if suffix.lower() not in SUFFIXES:
            raise ArgumentError(f"{path}: suffix is {suffix!r}, expected one of {', '.join(SUFFIXES)}; or pass format=")
        return SUFFIXES[suffix.lower()]
    if not is_word(format, TARGETS):
        raise ArgumentError(f"{path}: format is {format!r}, expected one of {', '.join(TARGETS)}")
    return format


def _check_free(path: str, directory: bool) -> None:
    # An empty directory may be replaced by a rename.
    if not os.path.lexists(path) or (directory and os.path.isdir(path) and not filesystems.list_names(path)):
        return
    raise file_error(EEXIST, f"{path} already exists; delete it, or name another path", path)


def _write(
    samples: SampleSource,
    path: str,
    kind: str,
    per_shard: int | None,
    workers: int,
    start_method: str | None,
    progress: bool | None,
    verify: bool,
) -> tuple[int, int]:
    """Write all parts into a hidden directory beside the output, and move them there at the end.

    Returns:
        The number of files, and their bytes.
    """
    target = filesystems.real_path(path)
    inside = part_name(target)
    parts = _plan_parts(samples.n, path, inside, kind, per_shard)
    # A list, so that the clean-up sees the descriptor too.
    held: list[int] = []

    def write_all() -> list[WrittenPart]:
        try:
            # Locked for the whole time, so that a cleaner can tell it from the directory of a killed process.
            named_calls.mkdir(inside)
            held.append(_lock_directory(inside))
        except OSError as error:
            raise file_error(error.errno or EIO, f"{path}: a file could not be created there", path) from None
        # More processes than files would idle.
        done = write_parts(samples, kind, parts, min(workers, len(parts)), start_method, progress, path)
        # Only now, because each worker knows the names of its own files only.
        check_names(samples, path, [each.hashes for each in done])
        written = inside if per_shard is not None else parts[0].path
        if samples.classes and os.path.isdir(written):
            _write_classes(samples.classes, written, path)
        elif samples.classes:
            columns = ", ".join(map(repr, samples.classes))
            _log.warning(
                "%s: class names of %s are not kept, because only a directory has a %s", path, columns, CLASSES
            )
        # Before the name appears: a result that differs never has one.
        if verify:
            verify_files(samples, kind, [part.path for part in parts], path)
        _publish(written, target, path)
        return done

    def clean_up(error: BaseException | None) -> None:
        for descriptor in held:
            with contextlib.suppress(OSError):  # no data can be lost: nothing was written to it
                os.close(descriptor)
        # In any case: after success only an empty directory is left.
        remove_tree(inside)

    done = signals.run_with_cleanup(write_all, clean_up)
    return len(parts), sum(each.size for each in done)


def _lock_directory(directory: str) -> int:
    """Lock a new directory, and return the descriptor that holds the lock.

    The lock tells it from a directory that a killed process has left. Some file systems have no locks: no lock is taken
    there, and the two cannot be told apart.

    Raises:
        OSError: it cannot be opened; it is removed.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(directory)
        raise
    # Some file systems have no locks.
    with contextlib.suppress(OSError):
        lock(fd, directory)
    return fd


def _plan_parts(n: int, path: str, inside: str, kind: str, per_shard: int | None) -> list[ExportPart]:
    suffix = TARGETS[kind][1]
    if per_shard is None:
        return [ExportPart(os.path.join(inside, f"all{suffix}"), path, 0, n)]
    starts = range(0, max(n, 1), per_shard)  # an empty source makes one empty file
    names = [f"shard-{number:06}{suffix}" for number in range(len(starts))]
    return [
        ExportPart(os.path.join(inside, name), os.path.join(path, name), start, min(start + per_shard, n))
        for name, start in zip(names, starts, strict=True)
    ]


def _write_classes(classes: Mapping[str, list[str]], directory: str, path: str) -> None:
    try:
        # "x": a sample may have that name.
        with open(os.path.join(directory, CLASSES), "xb") as file:
            file.write(msgspec.json.encode(classes))
            file.flush()
            named_calls.fsync(file.fileno())
    except FileExistsError:
        raise FormatError(
            f"{path}: a sample is called {CLASSES!r}, as the file of the class names: rename the sample"
        ) from None
    fsync_directory(directory)


def _publish(written: str, target: str, path: str) -> None:
    """Give the complete output its name. Something that has appeared there meanwhile stays, and an error is raised."""
    try:
        if os.path.isdir(written):
            fsync_directory(written)  # a removed temporary name could come back after a crash otherwise
            atomic_directory.replace(written, target)
        else:
            # `link` refuses an existing name, as `rename` would not.
            named_calls.give_free_name(written, target)
            with contextlib.suppress(OSError):  # else only a directory that can be listed could be removed
                os.unlink(written)
    except OSError as error:
        raise file_error(error.errno or EIO, f"{path}: nothing was published", path) from None
    # The new name is durable only with its directory.
    try:
        fsync_directory(os.path.dirname(target))
    except OSError as error:
        sentence = f"{path}: it is in place, but fsync of its directory failed and a crash may undo it"
        raise file_error(error.errno or EIO, sentence, path) from None
