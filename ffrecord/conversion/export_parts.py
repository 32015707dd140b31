"""The files of an export, written by this process or by several."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ffrecord.conversion.export_files import key_of
from ffrecord.conversion.export_samples import Packed, SampleSource, name_sample_in_memory_errors
from ffrecord.conversion.export_targets import TARGETS, TFRecordTarget
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.errors import FormatError, plural
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, map_parts, receive_parts, run_pool
from ffrecord.processes.process import Link

HASH = 16  # bytes of a name's hash


class ExportPart(NamedTuple):
    """A file to write.

    Attributes:
        path: path to write.
        shown: path in messages.
        start, stop: samples in it: start <= index < stop.
    """

    path: str
    shown: str
    start: int
    stop: int


class WrittenPart(msgspec.Struct, array_like=True):
    """The result of a part.

    Attributes:
        number: number of the part.
        samples, size: its samples, and the bytes of its files or records.
        hashes: hashes of all names in it, back to back.
    """

    number: int
    samples: int
    size: int
    hashes: bytes


def write_part(
    samples: SampleSource,
    kind: str,
    part: ExportPart,
    done: Callable[[int, int], None],
    *,
    number: int = 0,
    at: Callable[[int], None] = lambda index: None,
) -> WrittenPart:
    """Write one file.

    Args:
        samples: the source.
        kind: format to write.
        part: the file.
        done: called with the samples and bytes of each batch.
        number: number of the part.
        at: called with the index of each sample before it is written. For records that are copied as they are, with the
            first index of each batch.
    """
    target, hashes, size = TARGETS[kind][0](part.path, part.shown, samples), bytearray(), 0
    try:
        # Records that stay as they are need no Python object each.
        if isinstance(target, TFRecordTarget) and (packed := samples.iter_packed(part.start, part.stop)) is not None:
            size = _copy_packed(target, packed, part.start, done, at)
        else:
            for batch in samples.batches(part.start, part.stop, at):
                before = size
                for sample in batch:
                    at(sample.index)
                    with name_sample_in_memory_errors(sample.index):
                        written = target.write(sample)
                    for name, data in written:
                        size += len(data)
                        if name is not None:
                            hashes += _hash(name)
                done(len(batch), size - before)
        # Only here the file gets its name; `discard` then finds nothing.
        target.publish()
    finally:
        target.discard()
    return WrittenPart(number, part.stop - part.start, size, bytes(hashes))


def _copy_packed(
    target: TFRecordTarget,
    packed: Iterator[Packed],
    start: int,
    done: Callable[[int, int], None],
    at: Callable[[int], None],
) -> int:
    """Write records as they are, without a Python object for each. Return their bytes."""
    size = 0
    at(start)
    for data, offsets in packed:
        target.write_packed((data, offsets))
        size, start = size + len(data), start + len(offsets) - 1
        at(start)  # the first sample of the next batch is being read from now on
        done(len(offsets) - 1, len(data))
    return size


def _hash(name: str) -> bytes:
    # 16 bytes of a hash for each name: the names of a billion files would not fit in memory.
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=HASH).digest()


def check_names(samples: SampleSource, path: str, hashes: Sequence[bytes]) -> None:
    """Refuse names that occur twice.

    Args:
        samples: the source.
        path: output path, for messages.
        hashes: hashes of the names, by part.

    Raises:
        FormatError: some names occur twice.
    """
    # Two words of 8 bytes, which sort faster than bytes of 16.
    every = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
    # Sorted by both words, so that equal hashes lie side by side.
    order = np.lexsort((every[:, 1], every[:, 0]))
    ordered = every[order]
    same = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    if len(same):
        twice = ordered[same[0]].tobytes()
        named = _find_name(samples, twice)
        others = len(same) - 1
        more = f", and so {'does' if others == 1 else 'do'} {plural(others, 'other name')}" if others else ""
        raise FormatError(f"{path}: {named} occurs twice{more}; nothing was written")


def _find_name(samples: SampleSource, wanted: bytes) -> str:
    """Find the name with this hash. The samples are read again, as only hashes of names were kept."""
    for batch in samples.batches(0, samples.n):
        for sample in batch:
            # A name is a file's, or the key of a WebDataset sample; try both.
            for dots in (True, False):
                for file, _ in samples.files(sample, dots):
                    for name in (file, key_of(file)):
                        if _hash(name) == wanted:
                            return f"{name!r} of sample {sample.index}"
    return "a name"  # no longer found: the source has changed


def write_parts(
    samples: SampleSource,
    kind: str,
    parts: Sequence[ExportPart],
    workers: int,
    start_method: str | None,
    progress: bool | None,
    label: str,
) -> list[WrittenPart]:
    """Write several files with `workers` processes, or in this process if there are fewer than 2.

    Raises:
        WorkerError: a worker failed or died.
    """
    arguments = {"samples": samples, "kind": kind, "parts": list(parts)}
    # A single worker would do the same, at the cost of a fork.
    pool = None if workers < 2 else WorkerPool(run_export_worker, arguments, workers, start_method=start_method)

    def collect() -> list[WrittenPart]:
        bar = WriteProgress(samples.n, progress, label)  # after the forks, see `WriteProgress`
        try:
            return _collect(samples, kind, parts, pool, bar)
        finally:
            bar.close()

    return collect() if pool is None else run_pool(pool, collect)


def _collect(
    samples: SampleSource, kind: str, parts: Sequence[ExportPart], pool: WorkerPool | None, bar: WriteProgress
) -> list[WrittenPart]:
    if pool is None:
        return [write_part(samples, kind, part, bar.add, number=i) for i, part in enumerate(parts)]
    written: list[WrittenPart] = []
    for message in map_parts(pool, range(len(parts))):
        written.append(msgspec.msgpack.decode(message, type=WrittenPart))
        bar.add(written[-1].samples, written[-1].size)
    # Parts arrive in any order.
    return sorted(written, key=lambda each: each.number)


def run_export_worker(
    link: Link, heart: Heart, *, samples: SampleSource, kind: str, parts: Sequence[ExportPart]
) -> None:
    """Run a worker: write the files whose numbers the parent sends."""
    for number in receive_parts(link, heart):
        written = write_part(
            samples,
            kind,
            parts[number],
            lambda count, size: None,  # the parent draws the progress
            number=number,
            at=lambda index: heart.mark(heartbeats.SAMPLE, index),
        )
        link.send(msgspec.msgpack.encode(written))
