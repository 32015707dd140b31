"""Time until `io="auto"` notices that the page cache has lost the file, or has it now."""

import time
from collections.abc import Iterator, Sequence
from statistics import fmean, median

import cgroup
import coldness
import workloads
from harness import Measurement
from read_data import Batch, Files, Records

from ffrecord import FileReader

BEFORE, AFTER, SETTLED, WINDOW = 24, 120, 60, 8  # batches
NEAR = 1.10  # settled: at most this factor over the better pinned mode
PINNED = ("pread", "direct")


def timed_batches(reader: FileReader, batches: Iterator[Batch], count: int) -> list[float]:
    """Return the seconds of each batch."""
    found = []
    for _, batch in zip(range(count), batches, strict=False):
        start = time.perf_counter()
        _last = reader.read(batch.array)
        found.append(time.perf_counter() - start)
    return found


def settled_after(seconds: Sequence[float], level: float) -> int:
    """Return the number of batches before the first WINDOW whose median is near the level; all of them if there is
    none.
    """
    for first in range(len(seconds) - WINDOW + 1):
        if median(seconds[first : first + WINDOW]) <= NEAR * level:
            return first
    return len(seconds)


class Scene:
    """A file and a group, whose states change together."""

    def __init__(self, group: cgroup.Group, files: Files, records: Records) -> None:
        self.group, self.files, self.memory = group, files, records.work.memory

    def make(self, state: str) -> None:
        if state == "warmed":
            self.group.limit(None)
            coldness.warm(self.files.ffr)
        else:
            coldness.forget(self.files.ffr)
            self.group.limit(self.memory)


def once(scene: Scene, change: str, records: Records) -> tuple[float, float, int]:
    """Return (seconds of a settled batch of auto, seconds of the better pinned mode, batches to settle)."""
    batches = endless(records)
    levels = pinned_levels(scene, change, batches)
    after = timed_after(scene, change, "auto", batches, AFTER)
    # Before and after, because the speed of a shared disk changes for seconds.
    level = min(fmean(each) for each in zip(levels, pinned_levels(scene, change, batches), strict=True))
    return median(after[-SETTLED:]), level, settled_after(after, level)


def pinned_levels(scene: Scene, change: str, batches: Iterator[Batch]) -> list[float]:
    """Return the seconds of a batch by each of PINNED, after the same change."""
    return [median(timed_after(scene, change, io, batches, SETTLED)) for io in PINNED]


def timed_after(scene: Scene, change: str, io: str, batches: Iterator[Batch], count: int) -> list[float]:
    """Return the seconds of batches after a change.

    Auto reads some batches before, for each mode: copying from single pages that it left is slower than from large
    ones.
    """
    path = scene.files.ffr
    scene.make("evicted" if change == "warmed" else "warmed")
    with FileReader(path, io="auto") as auto, FileReader(path, io=io) as pinned:
        timed_batches(auto, batches, BEFORE)
        scene.make(change)
        return timed_batches(auto if io == "auto" else pinned, batches, count)


def endless(records: Records) -> Iterator[Batch]:
    while True:
        yield from records.batches()


def measure(group: cgroup.Group, files: Files, records: Records, rounds: int) -> list[Measurement]:
    found = []
    for change in ("evicted", "warmed"):
        results = [once(Scene(group, files, records), change, records) for _ in range(rounds)]
        auto, level, batches = map(list, zip(*results, strict=True))
        details = {"role": "ours", "batches_to_settle": batches, "level_seconds": level}
        size = round(records.starts[-1] / records.n * records.work.batch)
        work = workloads.Settling(records.work, change)
        cache = "hot" if change == "warmed" else "cold"
        found.append(Measurement("read auto", work, auto, size, records.work.batch, cache, details))
    return found
