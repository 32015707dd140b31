"""One run without Ray: `python ray_local.py write|read|digest DATA WORK PATH`, in its own process, because Ray has
threads.

Prints the seconds, or the digest of the samples read. WORK is a workload as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import ray_data
import workloads

from ffrecord import DatasetWriter, FileReader

AT_ONCE = 32 << 20  # bytes of a batch that is read, about


def write(directory: str, work: workloads.Blocks, path: str) -> float:
    found = ray_data.samples(directory, work)
    start = time.perf_counter()
    DatasetWriter(path, found.schema, num_workers=work.workers, progress=False).from_indexed_dataset(found)
    return time.perf_counter() - start


def read(directory: str, work: workloads.Blocks, path: str) -> float:
    """Read and decode the samples."""
    seconds, total = _of_parts(work, path, ray_data.bytes_of)
    if total != ray_data.samples(directory, work).size:
        raise RuntimeError(f"read {total} bytes")
    return seconds


def digest(directory: str, work: workloads.Blocks, path: str) -> int:
    """Return the digest of all samples read."""
    return _of_parts(work, path, ray_data.digest_of)[1]


def _of_parts(work: workloads.Blocks, path: str, what: Callable[[Any], int]) -> tuple[float, int]:
    """Return (seconds, sum of the results of all batches): each process opens the dataset and reads its part of the
    samples.

    The start of the processes does not count, like that of Ray's workers.
    """
    context = get_context("fork")
    ready, begin = context.Barrier(work.workers + 1), context.Barrier(work.workers + 1)
    counts = context.SimpleQueue()
    processes = [
        context.Process(target=_read_part, args=(work, path, i, what, ready, begin, counts))
        for i in range(work.workers)
    ]
    for process in processes:
        process.start()
    ready.wait()
    start = time.perf_counter()
    begin.wait()
    total = sum(counts.get() for _ in processes)
    seconds = time.perf_counter() - start
    for process in processes:
        process.join()
    return seconds, total


def _read_part(
    work: workloads.Blocks, path: str, part: int, what: Callable[[Any], int], ready: Any, begin: Any, counts: Any
) -> None:
    ready.wait()
    begin.wait()
    with FileReader(path) as reader:
        schema = ray_data.IMAGES if work.content == "images" else ray_data.FILES
        first, last = (len(reader) * i // work.workers for i in (part, part + 1))
        size = max(1, AT_ONCE // work.mean)
        batches = [range(start, min(start + size, last)) for start in range(first, last, size)]
        counts.put(sum(what(schema.decode_columns(*packed)) for packed in reader.iter_batches(batches, packed=True)))


if __name__ == "__main__":
    what, directory, work, path = sys.argv[1:]
    ways = {"write": write, "read": read, "digest": digest}
    print(ways[what](directory, workloads.Blocks(**json.loads(work)), path))
