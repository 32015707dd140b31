"""Without Ray, once: `python ray_local.py write|read DATA WORK PATH`, in a process of its own, as Ray has threads.

Prints the seconds that it took. WORK is a workload as JSON.
"""

import json
import sys
import time
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
    """Every process reads its part of the samples, decoded; none is waited for to begin."""
    context = get_context("fork")
    ready, begin = context.Barrier(work.workers + 1), context.Barrier(work.workers + 1)
    counts = context.SimpleQueue()
    processes = [
        context.Process(target=_read_part, args=(work, path, i, ready, begin, counts)) for i in range(work.workers)
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
    if total != ray_data.samples(directory, work).size:
        raise RuntimeError(f"read {total} bytes")
    return seconds


def _read_part(work: workloads.Blocks, path: str, part: int, ready: Any, begin: Any, counts: Any) -> None:
    with FileReader(path) as reader:
        schema = ray_data.IMAGES if work.content == "images" else ray_data.FILES
        first, last = (len(reader) * i // work.workers for i in (part, part + 1))
        size = max(1, AT_ONCE // work.mean)
        batches = [range(start, min(start + size, last)) for start in range(first, last, size)]
        ready.wait()
        begin.wait()
        counts.put(sum(_bytes_of(schema, packed) for packed in reader.iter_batches(batches, packed=True)))


def _bytes_of(schema: Any, packed: Any) -> int:
    columns = schema.decode_columns(*packed)
    first = next(iter(columns.values()))
    return int(columns["label"].nbytes) + (sum(map(len, first)) if isinstance(first, list) else int(first.nbytes))


if __name__ == "__main__":
    what, directory, work, path = sys.argv[1:]
    ways = {"write": write, "read": read}
    print(ways[what](directory, workloads.Blocks(**json.loads(work)), path))
