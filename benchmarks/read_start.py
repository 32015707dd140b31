"""The first batches of a cold run: `io="auto"` beside the better pinned mode, and the longest wait for a batch."""

import time
from collections.abc import Sequence

import coldness
import harness
import workloads
from harness import Contestant, Measurement, WrongAnswerError
from read_data import Batch, Files, Records
from read_ways import ours

from ffrecord import FileReader

AT = (10, 60, 240, 1000)  # batches after which the time is taken
MODES = ("auto", "pread", "direct")


def first_batches(files: Files, records: Records, batches: Sequence[Batch], io: str) -> list[float]:
    """Return the seconds of each batch of a file that was dropped from the page cache."""
    found = []
    with FileReader(files.ffr, io=io) as reader:
        reader.get_offsets(0)
        reader.get_checksums(0)
        coldness.evict([files.ffr])
        for batch in batches:
            start = time.perf_counter()
            got = reader.read(batch.array)
            found.append(time.perf_counter() - start)
            # One record only: auto reads ahead in long pauses between batches.
            first = batch.listed[0]
            if got[0].tobytes() != records.payload[records.starts[first] : records.starts[first + 1]]:
                raise WrongAnswerError(f"{io}: record {first} has other bytes")
    return found


def batches_of(records: Records) -> list[Batch]:
    """Return batches of several epochs, as many as the last of AT."""
    found: list[Batch] = []
    while len(found) < AT[-1]:
        found += records.batches()
    return found[: AT[-1]]


def measure(files: Files, records: Records, rounds: int) -> list[Measurement]:
    """Compare all answers of each mode, then measure the modes in turns."""
    batches = batches_of(records)
    taken: dict[str, list[list[float]]] = {io: [] for io in MODES}

    def contestant(io: str) -> Contestant:
        way = ours("read", io, check=True)

        def run() -> float:
            taken[io].append(first_batches(files, records, batches, io))
            return sum(taken[io][-1])

        return Contestant(way.name, run, lambda: way.check_opened(files, records, records.batches()))

    harness.measure([contestant(io) for io in MODES], rounds)
    return [_measurement(records, batches[:count], io, taken[io]) for count in AT for io in MODES]


def _measurement(records: Records, batches: Sequence[Batch], io: str, taken: Sequence[Sequence[float]]) -> Measurement:
    count = len(batches)
    seconds = [sum(each[:count]) for each in taken]
    details = {"role": "ours", "longest_wait": [max(each[:count]) for each in taken]}
    work = workloads.Start(records.work, count)
    return Measurement(f"read {io}", work, seconds, records.size(batches), count * records.work.batch, "cold", details)
