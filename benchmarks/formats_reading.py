"""Reading other formats: members of a zip, pictures in it, TFRecord files, records from an empty page cache."""

import importlib
import shutil
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import coldness
import formats_data
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure, timed
from read_data import Records, make_records
from waits import Waits

import ffrecord
from ffrecord.sources import TFRecordReader, ZipReader, stream_tfrecord

JPEG_BATCH = 32
COPIED = 1 << 20  # bytes of one `read` of the limit of streams
OURS, PEER, LIMIT = ({"role": role} for role in ("ours", "peer", "limit"))


@dataclass(frozen=True)
class Way:
    """A contestant.

    Attributes:
        name, details: published name and details.
        run: function that does the work and returns what it read, for the check.
        expected: its answer, if it is not the records.
    """

    name: str
    run: Callable[[], Iterable[Any]]
    details: dict[str, Any]
    expected: Sequence[bytes] | None = None


def measured(
    work: Any, ways: Sequence[Way], expected: Sequence[bytes], rounds: int, size: int, repeat: int = 1
) -> list[Measurement]:
    """Time ways whose answers are `expected`, in this order; each answer need only last until the next.

    If all of it is read several times, each time is a batch whose wait is recorded.
    """

    def check(way: Way) -> None:
        found = list(map(bytes, way.run()))
        if found != list(way.expected or expected):
            raise WrongAnswerError(f"{way.name}: {len(found)} records, not the {len(expected)} that were written")

    def all_of(way: Way) -> None:
        for _ in way.run():
            pass

    def contestant(way: Way) -> Contestant:
        if repeat == 1:
            return Contestant(way.name, timed(partial(all_of, way)), partial(check, way))
        waits = Waits(repeat)
        times = partial(map, all_of)
        return Contestant(way.name, lambda: waits.timed(lambda: times([way] * repeat)), partial(check, way), waits)

    contestants = [contestant(way) for way in ways]
    taken = measure(contestants, rounds)
    return [
        Measurement(
            way.name,
            work,
            taken[way.name],
            repeat * size,
            repeat * len(expected),
            "hot",
            {**way.details, **each.details},
        )
        for way, each in zip(ways, contestants, strict=True)
    ]


# Zip


def zipped(directory: Path, work: workloads.Members, rounds: int) -> list[Measurement]:
    """Read members in random order, ten times as DareBlopy did; the archive is open before."""
    records = make_records(workloads.Reads(work.mean, work.batch, work.files * work.mean))
    path = formats_data.make(directory, "zip", records)
    order = np.random.default_rng(work.seed).permutation(records.n).tolist()
    names, expected = [formats_data.name(index) for index in order], [list(records)[index] for index in order]
    with zipfile.ZipFile(path) as archive, ZipReader(path) as reader, ZipReader(path, io="mmap") as mapped:
        ways = [
            Way("ZipReader.read", lambda: reader.read(names), OURS),
            Way("ZipReader.read, by index", lambda: reader.read(order), OURS),
            Way("ZipReader.read mmap", lambda: mapped.read(names), OURS),
            Way("ZipReader.read_one", lambda: map(reader.read_one, names), OURS),
            Way("zipfile.read", lambda: map(archive.read, names), PEER),
        ]
        return measured(work, ways, expected, rounds, sum(map(len, expected)), repeat=10)


# Pictures


def decoded(directory: Path, pictures: Sequence[bytes], work: workloads.Decoded, rounds: int) -> list[Measurement]:
    """Decode each member to an array, in one thread."""
    simplejpeg = importlib.import_module("simplejpeg")
    path = directory / "pictures.zip"
    names = [f"{index}.jpg" for index in range(len(pictures))]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in zip(names, pictures, strict=True):
            archive.writestr(name, data)
    expected = [simplejpeg.decode_jpeg(data).tobytes() for data in pictures]

    def by_pillow(archive: zipfile.ZipFile) -> Iterable[Any]:
        image = importlib.import_module("PIL.Image")
        return (np.asarray(image.open(archive.open(name)).convert("RGB")) for name in names)

    with zipfile.ZipFile(path) as archive, ZipReader(path) as reader:

        def in_batches(of: Sequence[Any], give: Callable[[Sequence[Any]], list[Any]]) -> Iterable[Any]:
            return chain.from_iterable(give(of[at : at + JPEG_BATCH]) for at in range(0, len(of), JPEG_BATCH))

        def alone(batch: Sequence[bytes]) -> list[Any]:
            return [simplejpeg.decode_jpeg(data) for data in batch]

        ways = [
            Way("ZipReader.read_jpeg", lambda: map(reader.read_jpeg, names), OURS),
            Way(
                "ZipReader.read_jpegs, one thread",
                lambda: in_batches(names, partial(reader.read_jpegs, threads=1)),
                OURS,
            ),
            Way("ZipReader.read_jpegs", lambda: in_batches(names, reader.read_jpegs), OURS),
            Way("simplejpeg alone", lambda: map(simplejpeg.decode_jpeg, pictures), LIMIT),
            Way("simplejpeg alone, in batches", lambda: in_batches(pictures, alone), LIMIT),
            Way("zipfile, simplejpeg", lambda: (simplejpeg.decode_jpeg(archive.read(name)) for name in names), PEER),
        ]
        found = measured(work, ways, expected, rounds, sum(map(len, pictures)))
        seconds = measure(
            [Contestant("zipfile, Pillow", timed(lambda: list(by_pillow(archive))), lambda: None)], rounds
        )
    size = sum(map(len, pictures))
    return [*found, Measurement("zipfile, Pillow", work, seconds["zipfile, Pillow"], size, len(pictures), "hot", PEER)]


# TFRecord


def by_tfrecord(path: Path) -> Iterable[Any]:
    """Read with the usual package without TensorFlow; it compares no checksums, and returns views of the same
    memory.
    """
    return importlib.import_module("tfrecord.reader").tfrecord_iterator(str(path))


def streamed(directory: Path, work: workloads.Stream, rounds: int) -> list[Measurement]:
    """Read from opening on: without a stored index, opening is a pass of its own."""
    records = make_records(workloads.Reads(work.mean, 1, work.total, "sequential"))
    path = formats_data.make(directory, "tfrecord", records)
    coldness.warm(path)
    indexed, kept = TFRecordReader(path), directory / "indexes"
    kept.mkdir()
    TFRecordReader(path, index_cache=kept).close()

    def ours() -> Iterable[Any]:
        with TFRecordReader(path) as reader:
            yield from reader

    def packed(reader: TFRecordReader) -> Iterable[Any]:
        step = max(1, (4 << 20) // work.mean)
        batches = (range(at, min(at + step, reader.n)) for at in range(0, reader.n, step))
        return (
            data[low:high]
            for data, offsets in reader.iter_batches(batches, packed=True)
            for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        )

    def again() -> Iterable[Any]:
        with TFRecordReader(path, index_cache=kept) as reader:
            yield from packed(reader)

    def copied() -> Iterable[Any]:
        buffer = memoryview(bytearray(COPIED))
        with open(path, "rb", buffering=0) as file:
            while got := file.readinto(buffer):
                yield buffer[:got]

    whole = path.read_bytes()
    pieces = [whole[at : at + COPIED] for at in range(0, len(whole), COPIED)]
    ways = [
        Way("stream_tfrecord", lambda: stream_tfrecord(path), OURS),
        Way("stream_tfrecord mmap", lambda: stream_tfrecord(path, io="mmap"), OURS),
        Way("TFRecordReader, opened and iterated", ours, OURS),
        Way("TFRecordReader, iterated", lambda: indexed, OURS),
        Way("TFRecordReader, packed batches", lambda: packed(indexed), OURS),
        Way("TFRecordReader, opened with its index, packed batches", again, OURS),
        Way("tfrecord", lambda: by_tfrecord(path), PEER),
        Way("tfrecord, kept", lambda: map(bytes, by_tfrecord(path)), PEER),
        Way("the kernel's copy", copied, LIMIT, pieces),
    ]
    found = measured(work, ways, list(records), rounds, len(records.payload))
    indexed.close()
    remove(path)
    remove(kept)
    return found


# From an empty page cache

FORMATS = ("ffrecord", "zip", "tar", "tfrecord", "recordio", "lmdb")


def read_cold(path: Path, batches: Sequence[Any], seconds: float, waits: Waits) -> tuple[float, int]:
    """Return seconds and bytes read, from an empty page cache; the store is opened before it is emptied."""
    files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.is_file())
    with ffrecord.open(path) as store:
        coldness.evict(files)
        sizes: list[int] = []
        taken = waits.record(
            map(store.read, batches), lambda records: sizes.append(sum(map(len, records))), limit=seconds
        )
        return taken, sum(sizes)


def check_contained(format: str, path: Path, records: Records) -> None:
    with ffrecord.open(path) as store:
        for number, (found, record) in enumerate(zip(store, records, strict=True)):
            if bytes(found) != record:
                raise WrongAnswerError(f"{format}: record {number} is not what was written")


def contained(directory: Path, work: workloads.Contained, rounds: int, seconds: float) -> list[Measurement]:
    """Measure rounds of whole batches for a limited time, the formats in turns: compare seconds for each record."""
    records = make_records(workloads.Reads(work.mean, work.batch, work.total))
    paths = {format: formats_data.make(directory, format, records) for format in formats_data.usable(FORMATS)}
    batches = [batch.array for batch in records.batches()]

    def contestant(format: str, path: Path) -> Contestant:
        waits = Waits(len(batches))

        def run() -> float:
            spent, size = read_cold(path, batches, seconds, waits)
            return spent / size * work.total  # as for all of it

        return Contestant(format, run, partial(check_contained, format, path, records), waits)

    contestants = [contestant(format, path) for format, path in paths.items()]
    taken = measure(contestants, rounds)
    for path in paths.values():
        remove(path)
    found = []
    for each in contestants:
        details = {**(LIMIT if each.name == "ffrecord" else OURS), **each.details}
        found.append(Measurement(each.name, work, taken[each.name], work.total, records.n, "cold", details))
    return found


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
