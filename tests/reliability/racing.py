"""Everything the engine has threads for, at once: the program that the thread sanitizer watches.

Arguments: two files, of which the second is damaged; or "load", for loaders and writers of datasets.
"""

import contextlib
import gc
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ffrecord import ChecksumError, DatasetWriter, FileReader, FileWriter
from ffrecord.errors import StateError
from ffrecord.kernels import _threads

BATCHES = 6
MANY = 10  # files
LOADED = 60  # samples


def together(*works: Callable[[], None]) -> None:
    """Run all at once; the first that fails ends the process."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(3)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def batches(reader: FileReader, samples: list[bytes], seed: int) -> Callable[[], None]:
    """Read what was asked for, and while it is read ahead."""

    def work() -> None:
        random = np.random.default_rng(seed)
        for _ in range(BATCHES):
            indices = random.integers(0, len(samples), 30)
            wanted = [samples[i] for i in indices]
            assert [sample.tobytes() for sample in reader.read(indices)] == wanted
            data, _ = reader.read_packed(indices)
            assert data.tobytes() == b"".join(wanted)
            for arrays in reader.iter_batches([indices] * 4, 3):
                assert [sample.tobytes() for sample in arrays] == wanted
            next(reader.iter_batches([indices] * 4, 3))  # the rest is dropped while it is read

    return work


def one_by_one(reader: FileReader, samples: list[bytes], seed: int) -> Callable[[], None]:
    """Small reads, which a Python without a GIL makes side by side, and what they are counted by."""

    def work() -> None:
        random = np.random.default_rng(seed)
        for _ in range(BATCHES):
            for i in random.integers(0, len(samples), 30).tolist():
                assert reader.read_one(i).tobytes() == reader[i].tobytes() == samples[i]
            assert reader.stats().records > 0

    return work


def sharing(iterator: Iterator[Any], taken: list[bytes]) -> Callable[[], None]:
    """Take samples, or lists of them, from an iterator that other threads take from, too."""

    def work() -> None:
        for arrays in iterator:
            taken.extend(sample.tobytes() for sample in (arrays if isinstance(arrays, list) else [arrays]))

    return work


def share_iterators(reader: FileReader, samples: list[bytes]) -> None:
    """Threads share one loop over samples, over batches, or over what is damaged."""
    parts = [range(i, min(i + 7, reader.n)) for i in range(0, reader.n, 7)]
    for make in (lambda: iter(reader), lambda: reader.iter_batches(parts, 3), lambda: reader.iter_batches(parts, 0)):
        for _ in range(BATCHES):
            iterator, taken = make(), []
            together(*[sharing(iterator, taken)] * 3)
            assert sorted(taken) == sorted(samples)


def share_bad_samples(reader: FileReader) -> None:
    for _ in range(BATCHES):
        bad: list[int] = []
        together(*[partial(bad.extend, reader.bad_records())] * 3)
        assert len(bad) == 1


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] * 2, "text": sample["text"]}


def write_dataset(path: str) -> Callable[[], None]:
    """Shards of samples with columns, by this process alone."""

    def work() -> None:
        rows = [{"x": np.full(i % 5 + 1, i), "text": "a" * i} for i in range(LOADED)]
        DatasetWriter(path, num_workers=0, num_shards=3).from_indexed_dataset(rows)

    return work


def loading(path: str, seed: int) -> Callable[[], None]:
    """Epochs of a loader with threads and work in Python; every second one is left early."""

    def work() -> None:
        from ffrecord.torch import Loader

        loader = Loader(path, 8, "random", seed=seed, transform=doubled, num_threads=3)
        for epoch in range(BATCHES):
            lengths = []
            for batch in loader:
                lengths += map(len, batch["text"])
                if epoch % 2:
                    break
            assert epoch % 2 or sorted(lengths) == list(range(LOADED))

    return work


def load() -> None:
    """Loaders in threads, while datasets are written."""
    with tempfile.TemporaryDirectory() as directory:
        write_dataset(f"{directory}/read")()
        works = [loading(f"{directory}/read", seed) for seed in range(2)]
        together(*works, *[write_dataset(f"{directory}/{i}") for i in range(2)])


def writing(writer: FileWriter) -> Callable[[], None]:
    """Samples for a writer that others use, too: it refuses who comes while it is at work."""

    def work() -> None:
        for i in range(30 * BATCHES):
            with contextlib.suppress(StateError):
                writer.write_one(bytes((10, 3000, 40_000)[i % 3]))

    return work


def closing(path: str, io: str) -> Callable[[], None]:
    """Readers of its own, closed while they read ahead."""

    def work() -> None:
        for _ in range(BATCHES):
            reader = FileReader(path, io=io)
            begun = reader.iter_batches([range(reader.n)] * 5, 4)
            next(begun)
            reader.close()

    return work


def failing(path: str, io: str) -> Callable[[], None]:
    def work() -> None:
        with FileReader(path, io=io) as reader:
            for _ in range(BATCHES):
                try:
                    list(reader.iter_batches([range(reader.n)] * 3, 2))
                except ChecksumError:
                    continue
                raise AssertionError("damage was not found")

    return work


def forgetting(path: str) -> Callable[[], None]:
    """The page cache forgets the file, so that it has to be read, and read ahead."""

    def work() -> None:
        with open(path, "rb") as file:
            for _ in range(10 * BATCHES):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                time.sleep(0.01)

    return work


def forking(reader: FileReader, samples: list[bytes]) -> Callable[[], None]:
    """Children that read while the threads of their parent do."""

    def work() -> None:
        for _ in range(2):
            child = os.fork()
            if child == 0:
                os._exit(0 if reader.read([1, 2, 3])[2].tobytes() == samples[3] else 4)
            assert os.waitpid(child, 0)[1] == 0

    return work


def open_many(good: str, directory: str) -> FileReader:
    """Return a reader of more files than it may keep open, all like `good`."""
    copies = [shutil.copy(good, f"{directory}/{i}.ffr") for i in range(MANY)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * MANY - 8, hard))
    try:
        return FileReader(copies)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_large(directory: str) -> None:
    """Few of them may be open; a thread maps their blocks while others open and close them."""
    rows = [bytes([i % 251]) * 4096 for i in range(2600)]  # files that are mapped block by block
    with FileWriter(f"{directory}/large.ffr") as writer:
        writer.write_many(rows)
    with open_many(f"{directory}/large.ffr", directory) as reader:
        works = [batches(reader, rows * MANY, seed) for seed in range(3)]
        together(*works, *[one_by_one(reader, rows * MANY, seed) for seed in range(2)])


def collect(path: str) -> None:
    """The collector ends loops midway, in any order."""
    for _ in range(BATCHES):
        reader = FileReader(path)
        begun = reader.iter_batches([range(reader.n)] * 5, 4)
        next(begun)
        begun.kept = reader.kept = [begun, reader]
        del begun, reader
        gc.collect()


def main(good: str, bad: str) -> None:
    with FileReader(good, io="pread") as reader:
        samples = [sample.tobytes() for sample in reader.read(range(reader.n))]
    for io in ("pread", "auto", "direct", "mmap"):
        with FileReader(good, io=io) as reader:
            works = [batches(reader, samples, seed) for seed in range(4)]
            works += [one_by_one(reader, samples, seed) for seed in range(3)]
            together(*works, closing(good, io), failing(bad, io), forgetting(good), forking(reader, samples))
    with tempfile.TemporaryDirectory() as directory, open_many(good, directory) as reader:
        works = [batches(reader, samples * MANY, seed) for seed in range(4)]
        together(*works, *[one_by_one(reader, samples * MANY, seed) for seed in range(3)])
    with tempfile.TemporaryDirectory() as directory, FileWriter(f"{directory}/shared.ffr") as writer:
        together(*[writing(writer)] * 3)
    for io in ("auto", "direct"):
        with FileReader(good, io=io) as reader:
            share_iterators(reader, samples)
        with FileReader(bad, io=io) as reader:
            share_bad_samples(reader)
    with tempfile.TemporaryDirectory() as directory:
        read_large(directory)
        collect(f"{directory}/large.ffr")
    assert _threads.stats()["done"] > 0


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load()
    else:
        main(*sys.argv[1:])
