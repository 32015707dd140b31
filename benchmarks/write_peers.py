"""Other packages that write records. Each ends with the data on the disk, synced by itself or by us."""

import importlib
import importlib.util
from functools import partial
from itertools import chain
from pathlib import Path

from read_data import key
from write_data import Source, check_records, to_disk
from write_ways import Way

# Puts per transaction: its pages stay in memory until the commit, so few if records are large.
PUTS, PUT_BYTES = 1000, 64 << 20
# array_record compresses a group at once: 1 for random reads as in bench_read.py; larger groups are written faster.
GROUP_BYTES = 64 << 10


def room(source: Source) -> int:
    """Return the size of lmdb's map, which the file takes only as needed."""
    return 2 * source.size + 200 * source.n + (64 << 20)


def write_lmdb(writemap: bool, path: Path, source: Source) -> None:
    lmdb = importlib.import_module("lmdb")
    at_once = max(1, min(PUTS, PUT_BYTES // source.work.mean))
    with lmdb.open(
        str(path), map_size=room(source), subdir=False, lock=False, sync=False, writemap=writemap
    ) as environment:
        for first in range(0, source.n, at_once):
            pairs = ((key(first + i), record) for i, record in enumerate(source.records[first : first + at_once]))
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(pairs, append=True)
        environment.sync(True)
    to_disk(path)


def check_lmdb(name: str, path: Path, source: Source) -> None:
    lmdb = importlib.import_module("lmdb")
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_readers=1) as environment,
        environment.begin() as transaction,
        transaction.cursor() as cursor,
    ):
        check_records(name, cursor.iternext(keys=False, values=True), source)


def write_array_record(group: bool, path: Path, source: Source) -> None:
    module = importlib.import_module("array_record.python.array_record_module")
    size = max(1, GROUP_BYTES // source.work.mean) if group else 1
    writer = module.ArrayRecordWriter(str(path), f"group_size:{size},uncompressed")
    for record in source.records:
        writer.write(record)
    writer.close()
    to_disk(path)


def check_array_record(name: str, path: Path, source: Source) -> None:
    module = importlib.import_module("array_record.python.array_record_module")
    reader = module.ArrayRecordReader(str(path))
    at_once = source.work.batch
    try:
        total = reader.num_records()
        ranges = ((first, min(first + at_once, total)) for first in range(0, total, at_once))
        check_records(name, chain.from_iterable(reader.read(*each) for each in ranges), source)
    finally:
        reader.close()


def write_bagz(path: Path, source: Source) -> None:
    bagz = importlib.import_module("bagz")
    with bagz.Writer(str(path), bagz.Writer.Options(compression=bagz.CompressionNone())) as writer:
        write = writer.write
        for record in source.records:
            write(record)
    to_disk(path)


def check_bagz(name: str, path: Path, source: Source) -> None:
    bagz = importlib.import_module("bagz")
    reader = bagz.Reader(str(path), bagz.Reader.Options(compression=bagz.CompressionNone()))
    check_records(name, iter(reader), source)


def peers() -> list[Way]:
    return [
        Way("lmdb", "peer", partial(write_lmdb, False), check_lmdb),
        Way("lmdb, writemap", "peer", partial(write_lmdb, True), check_lmdb),
        Way("array_record", "peer", partial(write_array_record, False), check_array_record),
        Way("array_record, groups", "peer", partial(write_array_record, True), check_array_record),
        Way("bagz", "peer", write_bagz, check_bagz),
    ]


def usable(ways: list[Way]) -> list[Way]:
    """Return the ways whose package is installed."""
    found = []
    for way in ways:
        package = way.name.partition(",")[0]
        if way.role != "peer" or importlib.util.find_spec(package):
            found.append(way)
        else:
            print(f"{way.name}: {package} is not installed, not measured", flush=True)
    return found
