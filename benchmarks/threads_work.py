"""Python work on samples in threads, in one interpreter: the child of bench_threads.py.

Arguments: a file, the batch size and a part, "reader" or "loader". Each line of its input is a number of threads. It
answers in JSON: after the start with what it runs on, or what is missing; then for each line with the seconds of an
epoch and the sum of its results.
"""

import importlib
import json
import platform
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from ffrecord import FileReader

SEED = 7
Epoch = Callable[[int], int]


def count_words(text: str) -> int:
    """Return a number that depends on each word: the work on one sample, all of it Python's."""
    total = 0
    for place, word in enumerate(text.split()):
        total += (place % 7 + 1) * int(word)
    return total


def read_in_threads(reader: FileReader, batch: int, threads: int) -> int:
    """Read and work on all samples, in random order: each thread takes the next batch of one reader."""
    order = np.random.default_rng(SEED).permutation(reader.n)
    numbers, lock, sums = count(), threading.Lock(), [0] * threads

    def work(place: int) -> None:
        while True:
            with lock:
                start = next(numbers) * batch
            if start >= reader.n:
                return
            sums[place] += sum(count_words(bytes(each).decode()) for each in reader.read(order[start : start + batch]))

    others = [threading.Thread(target=work, args=(place,)) for place in range(1, threads)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    return sum(sums)


def load_in_threads(path: str, batch: int, threads: int) -> int:
    """Load all samples by `Loader`, with the work as transform."""
    from ffrecord.torch import Loader

    loader = Loader(path, batch, "random", seed=SEED, transform=_counted, num_threads=threads)
    return sum(int(each["words"].sum()) for each in loader)


def _counted(sample: dict[str, Any]) -> dict[str, Any]:
    return {"words": count_words(sample["text"])}


def answer(**found: object) -> None:
    """Send one line to the parent."""
    print(json.dumps(found), flush=True)


def main(path: str, batch: int, part: str) -> None:
    """Serve the parent until it closes our input."""
    epoch: Epoch
    if part == "reader":
        epoch = partial(read_in_threads, FileReader(path), batch)
    else:
        try:
            importlib.import_module("torch")
        except ImportError as error:
            answer(missing=str(error))
            return
        epoch = partial(load_in_threads, path, batch)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    answer(python=platform.python_version(), gil=gil)
    for line in sys.stdin:
        start = time.perf_counter()
        found = epoch(int(line))
        answer(seconds=time.perf_counter() - start, sum=found)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
