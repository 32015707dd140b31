"""`dump`: write a dataset into one `.ffr` file or several, laid out as ffrecord 1.x did."""

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ffrecord.dataset_writer import resume
from ffrecord.dataset_writer.coordinator import write_shards
from ffrecord.dataset_writer.encoding import Encoding, make_extension
from ffrecord.dataset_writer.layout import shard_count, split_evenly
from ffrecord.dataset_writer.part_directory import PartDirectory, check_no_shards
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.dataset_writer.sample_sources import FromDataset, dataset_length
from ffrecord.dataset_writer.shard_tracker import ShardJob
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.errors import ArgumentTypeError
from ffrecord.format import manifest
from ffrecord.inputs.recognise import StoreInput, input_of
from ffrecord.inputs.tables import is_table, values_of
from ffrecord.processes.pool import usable_workers
from ffrecord.reading.paths import local_path
from ffrecord.system import signals
from ffrecord.system.values import as_bytes, check_samples, describe_wrong, whole_number
from ffrecord.writing.file_writer import FileWriter

WORKERS_MAX = 16

Serializer = Callable[[Any], Any]


def dump(
    dataset: Any,
    fname: str | os.PathLike[str],
    nfiles: int,
    verbose: bool | Serializer = False,
    *,
    serializer: Serializer | None = None,
) -> None:
    """Write dataset[i] for every i.

    Args:
        dataset: an object with len() and [i] whose samples are buffers. From a `FileReader`, or a torch dataset of ours
            without your own `process`, the records are copied; the files keep the columns of these records.
        fname: path of the file. For several files, path of a directory, made with its parents. An existing one must
            hold no shards, and gets these when all of them are complete.
        nfiles: number of files of ceil(len(dataset) / nfiles) samples each; a UserWarning says if fewer are enough.
            This process writes one file; up to 16 others write several.
        verbose: show a progress bar. A callable here is the serializer, as in early versions of ffrecord 1.3.0.
        serializer: function sample → buffer, for samples that are not bytes or bytearray.

    Raises:
        FileExistsError (also a RuntimeError): the directory holds shards already.
        BlockingIOError (also a RuntimeError): another writer writes to the directory.
        MismatchError: a `DatasetWriter` of the directory was interrupted and has left finished shards.
        ValueError, TypeError: nfiles < 1, or no int; the dataset is a str or bytes.
        WorkerError: (several files) the dataset failed at a sample, or a worker process died; names the sample.
        OSError (also a RuntimeError): writing failed.

    After an error `fname` is as it was before.
    """
    show = bool(verbose) and not callable(verbose)
    if callable(verbose):  # the early form: dump(dataset, fname, nfiles, serializer)
        serializer = verbose
    files = whole_number("nfiles", nfiles)
    if files < 1:
        raise ValueError(f"nfiles is {files}, expected >= 1")
    check_samples("dataset", dataset)
    dataset = values_of(dataset)
    # A dict of samples by their index was taken by ffrecord 1.x, too.
    if is_table(dataset) and not (isinstance(dataset, Mapping) and 0 in dataset):
        advice = "write its rows with DatasetWriter"
        raise ArgumentTypeError(describe_wrong("dataset", dataset, "samples with len() and [i]", advice))
    dataset, encoding = _with_encoding(dataset, serializer)
    total = dataset_length(dataset)
    if files == 1:
        # The `FileWriter` discards its part file on the exception that a signal becomes.
        signals.exit_on_signals(lambda: _dump_one_file(dataset, total, fname, encoding, show))
    else:
        _dump_parallel(dataset, total, local_path("fname", fname), files, encoding, show)


def _with_encoding(dataset: Any, serializer: Serializer | None) -> tuple[Any, Encoding]:
    """Return the dataset to read from, and the encoding of its samples.

    Records of `.ffr` files are copied, and the new files keep their description.
    """
    known = None if serializer is not None else input_of(dataset)
    if isinstance(known, StoreInput) and known.are_records:
        records = known.dataset(None)
        schema = None if records.columns is None else records.columns.schema
        encode = as_bytes if schema is None else schema.encode
        said = make_extension(schema=schema.to_builtins()) if schema else make_extension(serializer=known.serializer)
        told = schema is not None or known.serializer is not None
        return records, Encoding(encode, {"serializer": encode}, None, said if told else None)
    encode = partial(_record, serializer)
    return dataset, Encoding(encode, {"serializer": encode}, None, None)


def _record(serializer: Serializer | None, sample: Any) -> Any:
    """Return the buffer to write for a sample."""
    return sample if serializer is None or isinstance(sample, bytes | bytearray) else serializer(sample)


def _dump_one_file(dataset: Any, total: int, fname: str | os.PathLike[str], encoding: Encoding, verbose: bool) -> None:
    with FileWriter(fname, total, extension=encoding.extension) as writer:
        progress = WriteProgress(total, verbose, os.fspath(fname))
        try:
            for i in range(total):
                record = encoding.encode(dataset[i])
                writer.write_one(record)
                # Not len(): a record may be an array whose items have several bytes.
                progress.add(1, memoryview(record).nbytes)
        finally:
            progress.close()


def _dump_parallel(dataset: Any, total: int, directory: str, files: int, encoding: Encoding, verbose: bool) -> None:
    # Before work is begun; again below, when nobody else can write there.
    check_no_shards(directory)
    cut = split_evenly(total, files)
    count = shard_count(total, cut)
    if count < files:
        warnings.warn(f"Split into {count} files rather than {files} files", UserWarning, stacklevel=3)
    # The target may hold other files, since only shards are in the way.
    part = PartDirectory(directory, among_others=True)

    def write() -> None:
        # A signal between these steps would leave an earlier write half taken over.
        with signals.defer_signals():
            part.acquire()
            resume.take_over(part, resume=True)
            resume.claim(part)
        check_no_shards(directory)
        places = ShardFiles(part.open, directory)
        job = ShardJob(FromDataset(dataset, range(total)), encoding, cut, places, part.keep)
        workers = min(count, usable_workers(), WORKERS_MAX)
        shards = write_shards(job, WorkerSettings(workers, progress=verbose)).shards
        # A signal must not come between two names: all of them appear or none.
        with signals.defer_signals():
            part.publish_bare([shard.name for shard in shards], manifest.build(shards))

    signals.run_with_cleanup(write, lambda error: part.leave())
