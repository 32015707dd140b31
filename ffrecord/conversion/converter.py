"""`convert`: a dataset of typed samples from any source."""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, SupportsIndex

from ffrecord.conversion.input import ConversionInput, open_input, paths_of
from ffrecord.conversion.verify import compare_all
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dataset_writer import options as arguments
from ffrecord.errors import ArgumentError
from ffrecord.format.manifest import load
from ffrecord.inputs.stores import StoreSamples
from ffrecord.reader import FileReader
from ffrecord.reading.paths import check_outside
from ffrecord.system import urls
from ffrecord.system.values import check_flag, whole_number


def convert(
    source: Any,
    out: str | os.PathLike[str],
    *,
    num_workers: int = -1,
    fields: Any = None,
    verify: bool = False,
    format: str | None = None,
    resume: bool = True,
    mode: Literal["create", "append"] = "create",
    shard_size: int | str | None = None,
    samples_per_shard: int | None = None,
    num_shards: int | None = None,
    start_method: str | None = None,
    progress: bool | None = None,
    max_skipped: SupportsIndex = 0,
    storage_options: Mapping[str, Any] | None = None,
    staging: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Summary:
    """Write the samples of `source` into a directory of shards, with many processes, completely or not at all.

    Nothing is lost: names become the column "key", and class names are kept in the field of the column "label". Image
    files stay as they are, and so do bytes of unknown meaning. Parts of a source that are not records are not
    converted: the directories, links and devices of an archive, files of a folder that are not pictures, and files that
    a Parquet file only names. If an axis of arrays differs among the samples looked at, their other axes may vary too,
    except for the last of three or more.

    An interrupted conversion goes on only from the same source. Files are told apart by their sizes and checksums; if
    the format has no checksums, by their sizes and times; image folders and lists of paths by names and labels only.

    Args:
        source: anything that `ffrecord.open` takes; an open store, which stays open; Parquet files; a Hugging Face
            dataset; a compressed tar; a table, or a torch dataset of ours; anything with len() and [i]; any other
            iterable of samples.
        out: the directory, as `DatasetWriter` takes it; not inside of a directory that is the source.
        num_workers: processes that read and encode; -1 for one per usable CPU, 0 for this process only.
        fields: column → field, for columns that should be stored in another way than the samples suggest; or a Schema.
            The first 64 names of a compressed tar decide if "key" is text: for a later one that is not UTF-8, give
            {"key": BytesField()}.
        verify: read source and result again afterwards, and compare every sample.
        format: format of `source`, as `ffrecord.open` takes it, or "parquet".
        resume, mode, shard_size, samples_per_shard, num_shards, start_method, progress: as for `DatasetWriter`. Sources
            that give one sample after the other (compressed tar files, iterables) begin anew.
        max_skipped: number of samples that may be left out because they cannot be read or encoded; the first few are
            logged to "ffrecord". The readable samples decide the columns. If a source gives one sample after the other,
            only samples that cannot be encoded are left out. A ValueError together with `verify`.
        storage_options: options for `source` and `out` if they are URLs, as `FileReader` takes them. If the two need
            different options, open the source yourself.
        staging: as for `DatasetWriter`.
        options: options of the format's reader.

    Returns:
        A summary of what was written, with the seconds of the whole call.

    Raises:
        FileNotFoundError, FormatError, ValueError, TypeError, ImportError: as `ffrecord.open` and `DatasetWriter`.
        TypeError, ValueError: samples that no fields hold; names the column.
        WorkerError: a sample cannot be read or encoded, or more than `max_skipped` of them; names it. Also if an open
            store with on_error="skip" leaves samples out.
        MismatchError: with `verify`, samples that differ; .differences names up to 20 of them, with size and CRC-32 of
            both. `out` is left as it is.
    """
    started = time.monotonic()
    asked: dict[str, Any] = {
        "num_workers": num_workers,
        "shard_size": shard_size,
        "samples_per_shard": samples_per_shard,
        "num_shards": num_shards,
        "start_method": start_method,
        "progress": progress,
        "mode": mode,
        "resume": resume,
        "storage_options": storage_options,
        "staging": staging,
        **_skip_options(max_skipped, check_flag("verify", verify)),
    }
    writer = DatasetWriter(out, None, **asked)  # a wrong argument is refused before anything is opened
    if not isinstance(fields, Mapping):
        arguments.schema_of_fields(fields, None)
    # Before anything is opened: a reader opened now would see the output as a part of its source.
    check_outside(paths_of(source), out)
    # Counted before the write, because `verify` compares only the samples that this call adds.
    before = _count_samples(out, storage_options) if mode == "append" else 0
    how: dict[str, Any] = {"skips": "max_skipped" in asked, "infer": writer._infer_columns}
    with open_input(source, format, fields, options, storage_options, **how) as found:
        if verify and found.once:
            raise ArgumentError(
                f"verify=True has to read the samples again, but {type(source).__name__} gives them only once"
            )
        # The fields are known only now, so a second writer is made.
        summary = _write(found, DatasetWriter(out, found.fields, **asked))
        if verify:
            # The writer's own way to read -1.
            asked_of = (before, arguments.check_num_workers(num_workers), start_method, progress)
            with FileReader(out, storage_options=storage_options) as result:
                compare_all(found, result, urls.redact(os.fspath(out)), *asked_of)
    return replace(summary, seconds=time.monotonic() - started)  # with the time of the comparison


def _skip_options(max_skipped: SupportsIndex, verify: bool) -> dict[str, Any]:
    """Return the arguments of `DatasetWriter` for `max_skipped`.

    There, skipping none and not skipping are different.
    """
    most = whole_number("max_skipped", max_skipped)
    if most == 0:
        return {}
    if verify:
        raise ArgumentError("verify=True compares every sample, but max_skipped leaves some out: pass only one of them")
    return {"on_error": "skip", "max_skipped": most}


def _write(found: ConversionInput, writer: DatasetWriter) -> Summary:
    dataset = found.dataset
    if dataset is None:
        return writer.from_iterable(found.samples())
    # The readers of compressed blocks keep nothing for a second pass.
    with dataset.read_once() if isinstance(dataset, StoreSamples) else contextlib.nullcontext():
        return writer.from_indexed_dataset(dataset, fingerprint=getattr(dataset, "fingerprint", None))


def _count_samples(out: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> int:
    """Return the number of samples that are in the dataset before more are added."""
    path = os.fspath(out)
    # A URL has no local manifest, so the reader is asked.
    if urls.is_remote(path):
        with FileReader(path, storage_options=storage_options) as reader:
            return len(reader)
    listed = load(urls.local_path(path))
    # Without a manifest, `mode="append"` fails in the writer itself.
    return 0 if listed is None else sum(shard.samples for shard in listed.shards)
