"""Other packages that read records. Each returns its own bytes: nothing that still lies in a mapping.

Only ArrayRecord compares checksums by itself: its chunks have hashes.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from read_data import Batch, Files, key
from read_ways import Batches, Open, Results, Way, grouped

# Options that record_reader's documentation advises for random access; threads pay off when cold.
ONE_BY_ONE = "readahead_buffer_size:0,max_parallelism:0"
IN_THREADS = "readahead_buffer_size:0"


@contextmanager
def lmdb_batches(files: Files) -> Iterator[Results]:
    lmdb = importlib.import_module("lmdb")
    keys = [key(index) for index in range(files.n)]
    path = str(files.path("lmdb"))
    with lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False, max_readers=1) as environment:

        def read(batch: Batch) -> list[bytes]:
            with environment.begin() as transaction:
                get = transaction.get
                return [get(keys[index]) for index in batch.listed]

        yield lambda batches: map(read, batches)


@contextmanager
def lmdb_cursor(files: Files) -> Iterator[Results]:
    lmdb = importlib.import_module("lmdb")
    with (
        lmdb.open(str(files.path("lmdb")), subdir=False, readonly=True, lock=False, max_readers=1) as environment,
        environment.begin() as transaction,
        transaction.cursor() as cursor,
    ):

        def results(batches: Batches) -> Iterator[list[bytes]]:
            cursor.first()
            return grouped(cursor.iternext(keys=False, values=True), batches)

        yield results


@contextmanager
def memmap(files: Files) -> Iterator[Results]:
    starts = files.starts.tolist()
    data = np.asarray(np.memmap(files.ffr, np.uint8, "r"))

    def read(batch: Batch) -> list[Any]:
        return [np.array(data[starts[index] : starts[index + 1]]) for index in batch.listed]

    yield lambda batches: map(read, batches)


def array_record(options: str, sequential: bool = False) -> Open:
    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        module = importlib.import_module("array_record.python.array_record_module")
        reader = module.ArrayRecordReader(str(files.path("array_record")), options)

        def results(batches: Batches) -> Iterator[Any]:
            if sequential:
                return (reader.read(batch.listed[0], batch.listed[-1] + 1) for batch in batches)
            return (reader.read(batch.listed) for batch in batches)

        try:
            yield results
        finally:
            reader.close()

    return opened


def bagz(threads: int | None, sequential: bool = False) -> Open:
    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        module = importlib.import_module("bagz")
        options = module.Reader.Options(compression=module.CompressionNone())
        if threads is not None:
            options.max_parallelism = threads
        reader = module.Reader(str(files.path("bagz")), options)

        def results(batches: Batches) -> Iterator[Any]:
            if sequential:
                return (reader.read_range(batch.listed[0], len(batch.listed)) for batch in batches)
            return (reader.read_indices(batch.listed) for batch in batches)

        yield results

    return opened


def random_peers() -> list[Way]:
    return [
        Way("lmdb", "peer", "lmdb", lmdb_batches),
        Way("numpy.memmap", "peer", "ffr", memmap),
        Way("array_record", "peer", "array_record", array_record(ONE_BY_ONE)),
        Way("array_record, threads", "peer", "array_record", array_record(IN_THREADS)),
        Way("bagz", "peer", "bagz", bagz(0)),
        Way("bagz, threads", "peer", "bagz", bagz(None)),
    ]


def sequential_peers() -> list[Way]:
    return [
        Way("lmdb", "peer", "lmdb", lmdb_cursor),
        Way("numpy.memmap", "peer", "ffr", memmap),
        Way("array_record", "peer", "array_record", array_record("", sequential=True)),
        Way("bagz", "peer", "bagz", bagz(0, sequential=True)),
        Way("bagz, threads", "peer", "bagz", bagz(None, sequential=True)),
    ]
