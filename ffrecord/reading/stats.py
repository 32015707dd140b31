"""Statistics of a reader, and counters that many threads add to."""

import os
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from ffrecord.system.forks import renew_in_children


class ReadStats(NamedTuple):
    """Sums over all batches that have ended in this process since the reader was opened.

    Attributes:
        batches: batches read, including failed ones.
        records, bytes: records and bytes delivered and, if asked for, checked.
        requests: system calls and requests of Linux AIO.
        cache_hit_share: share of records that were in the page cache when requested; nan before the first. It is
            counted for records read in two passes, and for the few that direct reading probes. Otherwise it is
            estimated by how often the thread waited.
        cached_bytes: bytes that were in the page cache.
        io_seconds: time in system calls that read, summed over threads, and in copying from mappings, which includes
            their checks; with io="mmap", only the time for requesting read-ahead.
        crc_seconds: other time for computing CRC-32; with io="mmap", it includes page faults and copying.
        waits: how often a thread slept in a read.
        skipped: samples left out or replaced by `on_error`.
        open_files: files that are open now.
        engines: file system → current way of reading: "page cache", "page cache, two passes", "threads", "direct" or
            "mmap".
        refetched: samples of URLs that arrived damaged and were fetched again.
        retries: requests to storage and web servers that were repeated after a temporary failure; `requests` counts
            every attempt.
        offline: datasets that were opened from the cache, because their server did not answer.
        held_bytes: bytes of samples of URLs that came with others, and wait for their batches now.
    """

    batches: int
    records: int
    bytes: int
    requests: int
    cache_hit_share: float
    cached_bytes: int
    io_seconds: float
    crc_seconds: float
    waits: int
    skipped: int
    open_files: int
    engines: dict[str, str]
    refetched: int = 0
    retries: int = 0
    offline: int = 0
    held_bytes: int = 0


def collect(
    filesystems: list[tuple[str, int, str, dict[str, Any]]], *, batches: int, skipped: int, open_files: int
) -> ReadStats:
    """Sum up the engine's counters of all file systems.

    Args:
        filesystems: (name, device number, current engine, counters) of each.
        batches: batches read.
        skipped: samples left out or replaced.
        open_files: files that are open now.
    """
    total: Counter[str] = Counter()
    for _, _, _, counters in filesystems:
        total.update(counters)  # missing counters are 0
    return ReadStats(
        batches=batches,
        records=total["records"],
        bytes=total["bytes"],
        requests=total["requests"],
        # No records were probed: no share is known.
        cache_hit_share=1 - total["missed"] / total["probed"] if total["probed"] else float("nan"),
        cached_bytes=total["cached_bytes"],
        io_seconds=total["io_ns"] / 1e9,
        crc_seconds=total["crc_ns"] / 1e9,
        waits=total["waits"],
        skipped=skipped,
        open_files=open_files,
        engines=dict(_name_engines(filesystems)),
        refetched=total["refetched"],
        retries=total["retries"],
        offline=total["offline"],
        held_bytes=total["held_bytes"],
    )


def _name_engines(filesystems: list[tuple[str, int, str, dict[str, Any]]]) -> Iterable[tuple[str, str]]:
    """Yield (name, engine) of each file system; the name includes the device if several have the same name."""
    names = Counter(name for name, *_ in filesystems)
    for name, device, engine, _ in filesystems:
        yield (name if names[name] == 1 else f"{name} {os.major(device)}:{os.minor(device)}"), engine


class Counters:
    """Sums by name, 0 at first. No addition of any thread is lost."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self.renew()
        # In a child a thread of the parent may have held the lock.
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock: in a forked child, nobody would release the old one."""
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add an amount to each sum that is named."""
        # `+=` on a Counter takes several steps, between which another thread may run.
        with self._lock:
            for name, amount in amounts.items():
                self._sums[name] += amount

    def clear(self) -> None:
        """Set all sums to 0."""
        with self._lock:
            self._sums.clear()

    def sums(self) -> Counter[str]:
        """Return a copy of all sums."""
        with self._lock:
            return self._sums.copy()

    def __getitem__(self, name: str) -> int:
        return self._sums[name]  # one lookup, which is whole
