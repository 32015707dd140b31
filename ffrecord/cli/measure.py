"""Measurements: how fast a store is read on this machine, and the limit of the machine."""

import itertools
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.cli.terminal.messages import format_error
from ffrecord.cli.terminal.output import format_size
from ffrecord.engine._engine import filesystem_type
from ffrecord.order import Random
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store
from ffrecord.sources.fallback_reader import FallbackReader
from ffrecord.system import filesystems, resources
from ffrecord.system.requirements import import_optional, install_command
from ffrecord.system.threads import map_in_threads
from ffrecord.writing.file_writer import FileWriter

SHARE_MOST = 4  # at most one part in so many of free memory is warmed
WARM_BYTES = 1 << 30  # warmed at most
ROOM_MOST = 256 << 20  # bytes of the buffer for batches
DIRECT_BYTES = 1 << 20  # of one direct read
DIRECT_THREADS = 8
PERCENTILES = (50, 90, 99)
SWEPT = (1000, 4000, 16_000, 64_000, 250_000, 1_000_000, 4_000_000)  # bytes of a sample
SWEPT_TOGETHER = 8 << 20  # bytes of a batch of the sweep, at most
SWEPT_BYTES = 128 << 20  # of a file: more than most CPU caches hold; the largest server CPUs hold more
SWEPT_SHARE = 4  # one size of the sweep gets one part in so many of a measurement's time


class NotMeasurable(Exception):
    """Something cannot be measured here; the message says why."""


@dataclass
class Measurement:
    """The measurement of one way of reading.

    Attributes:
        way: its name.
        limit: bytes per second that the machine gives at most; None if unknown.
        unlimited: reason why the limit is unknown.
        latencies: seconds per batch at "50 %", "90 %" and "99 %".
        quantiles: seconds per batch, from the quickest to the slowest batch, in steps of one percent.
        missing: reason why it was not measured; the numbers are zero then.
    """

    way: str
    samples_per_second: float = 0
    bytes_per_second: float = 0
    bytes_per_batch: float = 0
    limit: float | None = None
    latencies: dict[str, float] = field(default_factory=dict)
    quantiles: list[float] = field(default_factory=list, repr=False)
    missing: str = ""
    unlimited: str = ""


def describe_machine() -> dict[str, Any]:
    """Describe the machine: CPU, number of usable CPUs, kernel."""
    try:
        with open("/proc/cpuinfo") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        name = ""
    return {"cpu": name or platform.machine(), "cpus": resources.usable_cpus(), "kernel": platform.release()}


def measure_cached(store: Store, batch_size: int, seconds: float) -> Measurement:
    """Measure random batches of records that are in the page cache.

    If not all records fit easily into memory, only the first ones that do are read.
    """
    sizes = store.record_sizes(np.arange(min(store.n, 1 << 16)))
    mean = max(float(np.maximum(sizes, 0).mean()), 1.0)
    room = min(WARM_BYTES, resources.available_memory() // SHARE_MOST)
    count = max(1, min(store.n, int(room / mean)))
    with _reopen(store) as fresh:  # closed at the end: its mappings would keep pages that `cold` has to drop
        for start in range(0, count, 4096):
            fresh.read_packed(np.arange(start, min(start + 4096, count)))
        measured = _time_batches("cached", _read_batches(fresh, count, batch_size), seconds)
    measured.limit = _measure_memory(min(seconds, 1.0))
    return measured


def measure_cold(store: Store, batch_size: int, seconds: float) -> Measurement:
    """Measure random batches after the page cache has dropped these files. Other files stay cached.

    Raises:
        NotMeasurable: the page cache does not drop them.
    """
    paths = [path for path in dict.fromkeys(store.fnames) if os.path.isfile(path)]
    drop_from_cache(paths)
    if _is_still_cached(paths):
        raise NotMeasurable("the page cache does not drop these files: they are stored in memory, or in use")
    measured = _time_batches("cold", _read_cold_batches(store, paths, batch_size), seconds)
    try:
        measured.limit = _measure_storage(paths, min(seconds, 1.5))
    except NotMeasurable as error:
        measured.unlimited = str(error)
    return measured


def measure_loader(store: Store, batch_size: int, seconds: float) -> Measurement:
    """Measure batches of `ffrecord.torch.Loader`.

    Raises:
        NotMeasurable: torch is missing, or no tensors can be made of the samples.
    """
    if import_optional("torch") is None:
        raise NotMeasurable(f"torch is not installed: {install_command('torch')}")
    from ffrecord.torch import Loader

    mean = float(np.maximum(store.record_sizes(np.arange(min(store.n, 4096))), 0).mean())
    try:
        with _reopen(store) as fresh:
            made = Loader(fresh, min(batch_size, store.n), rank=0, world_size=1)
            return _time_batches("loader", _loader_batches(made, mean), seconds)
    except (TypeError, ValueError) as error:  # samples that no tensor holds
        raise NotMeasurable(str(error)) from error


def measure_sizes(batch_size: int, seconds: float, limit: float | None) -> list[Measurement]:
    """Measure random batches of cached files with samples of several sizes. The files are made for it.

    Args:
        batch_size: samples per batch.
        seconds: time of a measurement.
        limit: bytes per second of the memory, if it was measured before.

    Raises:
        NotMeasurable: there is no room for such files.
    """
    limit = limit or _measure_memory(min(seconds, 1.0))
    try:
        return _sweep(batch_size, seconds, limit)
    except OSError as error:
        raise NotMeasurable(f"no room for files of {format_size(SWEPT_BYTES)}: {format_error(error)}") from error


def _sweep(batch_size: int, seconds: float, limit: float) -> list[Measurement]:
    found = []
    with tempfile.TemporaryDirectory(prefix="ffrecord-") as directory:
        for size in SWEPT:
            path = os.path.join(directory, f"{size}.ffr")
            count = SWEPT_BYTES // size
            _write_random(path, size, count)
            _warm(path)
            with FileReader(path) as reader:
                batch = max(1, min(batch_size, count, SWEPT_TOGETHER // size))
                measured = _time_batches("sizes", _read_batches(reader, count, batch), seconds / SWEPT_SHARE)
            os.unlink(path)
            found.append(_from_median(measured, batch, size, limit))
    return found


def _from_median(measured: Measurement, batch: int, size: int, limit: float) -> Measurement:
    """Compute the rates from the median batch. Other work of the machine would make steps between sizes in a mean."""
    per_second = batch / measured.latencies["50 %"]
    return replace(measured, samples_per_second=per_second, bytes_per_second=per_second * size, limit=limit)


def _write_random(path: str, size: int, count: int) -> None:
    data = np.random.default_rng(0).bytes(size)
    with FileWriter(path, count) as writer:
        for start in range(0, count, 1024):
            writer.write_many([data] * min(1024, count - start))


def _warm(path: str) -> None:
    """Read a file so that the page cache has it: its writer may have told the kernel to drop it."""
    with open(path, "rb", buffering=0) as file:
        room = bytearray(DIRECT_BYTES)
        while file.readinto(room):
            pass


def drop_from_cache(paths: list[str]) -> None:
    """Tell the page cache to drop these files."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _read_cold_batches(store: Store, paths: list[str], batch_size: int) -> Iterator[tuple[int, int] | None]:
    """Yield (samples, bytes) of each batch, or None for a step that is not timed.

    Each epoch begins with an empty page cache.
    """
    for epoch in itertools.count():
        with _reopen(store) as fresh:  # the kernel keeps pages that a store has mapped
            drop_from_cache(paths)
            yield from _read_batches(fresh, fresh.n, batch_size, range(epoch, epoch + 1))


def _read_batches(
    store: Store, count: int, batch_size: int, epochs: Iterable[int] | None = None
) -> Iterator[tuple[int, int] | None]:
    """Yield (samples, bytes) of each batch, in random order over the first `count` records.

    It yields None at first and between epochs, for steps that must not be timed.

    Args:
        store: the records.
        count: number of records to read from.
        batch_size: samples per batch.
        epochs: their numbers; endless by default.
    """
    order, sizes = Random(), _known_sizes(store, count)
    largest = 1 if sizes is None else int(sizes.max(initial=1))
    # One buffer for all batches, as loaders reuse theirs.
    room = np.empty(min(largest * batch_size, ROOM_MOST), np.uint8)
    yield None
    for epoch in itertools.count() if epochs is None else epochs:
        for start in range(0, count, batch_size):
            positions = np.arange(start, min(start + batch_size, count))
            indices = order.indices(positions, count, 0, epoch)
            fits = sizes is not None and int(sizes[indices].sum()) <= len(room)
            data, _ = store.read_packed(indices, out=room if fits else None)
            yield len(positions), len(data)


def _known_sizes(store: Store, count: int) -> npt.NDArray[np.int64] | None:
    """Return the bytes of each of the first `count` records, or None if records must be read to know."""
    told = type(store).record_sizes
    if told is Store.record_sizes:
        return None
    first = np.arange(count)
    if told is FallbackReader.record_sizes and isinstance(store, FallbackReader) and not store._all_plain(first):
        return None
    return store.record_sizes(first)


def _loader_batches(made: Any, mean: float) -> Iterator[tuple[int, int] | None]:
    """Yield (samples, bytes) of each batch of a loader. The last batch of an epoch may have fewer samples."""
    while True:
        for _ in made:
            count = len(made.batch_indices)
            yield count, round(count * mean)


def _time_batches(way: str, batches: Iterator[tuple[int, int] | None], seconds: float) -> Measurement:
    while next(batches) is None:  # the first batch is not timed: it does work that is done only once
        pass
    samples = size = 0
    times: list[float] = []
    took, last = 0.0, time.perf_counter()
    while took < seconds:
        found = next(batches)
        now = time.perf_counter()
        if found is not None:
            times.append(now - last)
            samples, size, took = samples + found[0], size + found[1], took + now - last
        last = now
    latencies = {f"{at} %": float(np.percentile(times, at)) for at in PERCENTILES}
    quantiles = np.percentile(times, range(101)).tolist()
    return Measurement(way, samples / took, size / took, size / len(times), None, latencies, quantiles)


def _measure_memory(seconds: float) -> float:
    """Measure the bytes per second of computing the CRC-32 of memory that no CPU cache holds."""
    source = np.ones(256 << 20, np.uint8)

    def pieces() -> Iterator[int]:
        while True:
            for start in range(0, len(source), DIRECT_BYTES):
                crc32(source[start : start + DIRECT_BYTES].data)
                yield DIRECT_BYTES

    return _rate(pieces(), seconds)


def _measure_storage(paths: list[str], seconds: float) -> float:
    """Measure the bytes per second of direct reads of 1 MiB, several at a time.

    Raises:
        NotMeasurable: the file system has no direct reads, or no file has 1 MiB.
    """
    pieces = [(path, at) for path in paths for at in range(0, os.path.getsize(path) - DIRECT_BYTES + 1, DIRECT_BYTES)]
    if not pieces:
        raise NotMeasurable("no file has 1 MiB, the size of one direct read")
    np.random.default_rng(0).shuffle(pieces)
    opened: dict[str, int] = {}
    try:
        for path in dict.fromkeys(path for path, _ in pieces[:4096]):
            opened[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        wanted = [(opened[path], at) for path, at in pieces[:4096] if path in opened]
        return _rate_of_direct_reads(wanted, seconds)
    except OSError as error:
        raise NotMeasurable(f"the file system refuses direct reads ({error.strerror})") from error
    finally:
        for fd in opened.values():
            os.close(fd)


def _rate_of_direct_reads(wanted: list[tuple[int, int]], seconds: float) -> float:
    import mmap

    deadline = time.perf_counter() + seconds

    def read(number: int) -> int:
        done, buffer = 0, mmap.mmap(-1, DIRECT_BYTES)  # memory that is page-aligned, as direct reads need it
        with buffer:
            for fd, at in wanted[number::DIRECT_THREADS]:
                if time.perf_counter() > deadline:
                    break
                done += os.preadv(fd, [buffer], at)
        return done

    began = time.perf_counter()
    total = sum(map_in_threads(read, range(DIRECT_THREADS), DIRECT_THREADS))
    return total / (time.perf_counter() - began)


def _rate(steps: Iterator[int], seconds: float) -> float:
    next(steps)
    total, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        total += next(steps)
    return total / (now - began)


def _is_still_cached(paths: list[str]) -> bool:
    """Tell whether the page cache still has files that it was told to drop.

    The middle of the largest file stands for all.
    """
    path = max(paths, key=os.path.getsize, default=None)
    if path is None:
        return True
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if filesystems.from_type(filesystem_type(fd)).memory:
            return True
        os.preadv(fd, [bytearray(1)], os.path.getsize(path) // 2, os.RWF_NOWAIT)
    except OSError:  # BlockingIOError: the page is not cached; other errors: unknown, so assume it is not
        return False
    finally:
        os.close(fd)
    return True


def _reopen(store: Store) -> Store:
    """Open the same store again, with none of the state that reading has built up."""
    make: Callable[..., Store]
    make, arguments = store.__reduce__()[:2]
    return make(*arguments)
