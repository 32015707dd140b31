"""What a reader has done so far, in numbers."""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple


class ReadStats(NamedTuple):
    """Sums over all batches that have ended, in this process, since the reader was opened.

    Attributes:
        batches: read, those that failed included.
        records, bytes: delivered and, if asked for, checked.
        requests: system calls and requests of Linux AIO.
        cache_hit_share: of the records of which it is known, the part that was in the page cache when asked for; nan
            before the first. It is known of records read in two passes, and of the few that direct reading probes;
            elsewhere it is estimated by how often the thread waited.
        cached_bytes: bytes of those that were.
        io_seconds: in system calls that read, summed over threads, and copying from mappings, which checks on the way;
            with io="mmap", asking for read-ahead only.
        crc_seconds: computing CRC-32 apart from that; with io="mmap", page faults and copying too.
        waits: times that a thread slept in a read.
        skipped: samples left out or replaced by `on_error`.
        open_files: held open now.
        engines: file system → how its files are read now: "page cache", "page cache, two passes", "threads", "direct"
            or "mmap".
        refetched: samples of URLs that came damaged, and were fetched once more.
        retries: requests to storage and web servers that failed for a while, and were made again; `requests` has all.
        offline: datasets that were opened as the cache knew them last, since their server did not answer.
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


def collect(
    filesystems: list[tuple[str, int, str, dict[str, Any]]], *, batches: int, skipped: int, open_files: int
) -> ReadStats:
    """The sums over the engine's counters of each file system.

    Args:
        filesystems: (name, device number, engine in use, counters) of each.
    """
    total: Counter[str] = Counter()
    for _, _, _, counters in filesystems:
        total.update(counters)
    return ReadStats(
        batches=batches,
        records=total["records"],
        bytes=total["bytes"],
        requests=total["requests"],
        cache_hit_share=1 - total["missed"] / total["probed"] if total["probed"] else float("nan"),
        cached_bytes=total["cached_bytes"],
        io_seconds=total["io_ns"] / 1e9,
        crc_seconds=total["crc_ns"] / 1e9,
        waits=total["waits"],
        skipped=skipped,
        open_files=open_files,
        engines=dict(_named(filesystems)),
        refetched=total["refetched"],
        retries=total["retries"],
        offline=total["offline"],
    )


def _named(filesystems: list[tuple[str, int, str, dict[str, Any]]]) -> Iterable[tuple[str, str]]:
    """(name, engine), the device with the name where several have it."""
    names = Counter(name for name, *_ in filesystems)
    for name, device, engine, _ in filesystems:
        yield (name if names[name] == 1 else f"{name} {os.major(device)}:{os.minor(device)}"), engine
