"""Operations with workers, and samples at which a worker comes to its end: what T12 is made of."""

import contextlib
import faulthandler
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from ffrecord import DatasetWriter, convert, export
from ffrecord.dataset_writer.dump import dump

N = 240
STREAMS = 4  # of N / STREAMS samples each


def sample_at(i: int) -> bytes:
    return b"%06d" % i * (1 + i % 40)


def pair_at(i: int) -> tuple[int, float]:
    return i, i / 4


def child_processes() -> set[int]:
    """Of this process, those that have not ended; but for the server and the tracker of multiprocessing."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(path.parent.name))
    return found - {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}


# What happens to a worker


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(0)


def fail() -> None:
    raise KeyError("no such picture")


def want_too_much() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    bytes(1 << 30)


def stop() -> None:
    """As a call to a server that never answers."""
    os.kill(os.getpid(), signal.SIGSTOP)


ENDS: dict[str, Callable[[], None]] = {
    "killed": kill,
    "crashed": crash,
    "left": leave,
    "failed": fail,
    "out of memory": want_too_much,
}


class Fatal:
    """Plain samples, of which one is the end of the worker that asks for it.

    Args:
        at: its number; -1 for none.
        act: how it ends.
        once: when that path is there, and not before.
        pause: seconds that each sample takes.

    Attributes:
        when: the time it ended, of time.monotonic; 0 before.
    """

    def __init__(
        self, at: int = -1, act: Callable[[], None] = kill, once: Path | None = None, pause: float = 0
    ) -> None:
        self.at, self.act, self.once, self.pause, self.parent = at, act, once, pause, os.getpid()
        self._when = memoryview(mmap.mmap(-1, 4096)).cast("d")

    @property
    def when(self) -> float:
        return float(self._when[0])

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> bytes:
        if self.pause:
            time.sleep(self.pause)
        if i == self.at and os.getpid() != self.parent and (self.once is None or self.once.exists()):
            self._when[0] = time.monotonic()
            self.act()
        return sample_at(i)

    def of_bytes(self, sample: bytes) -> bytes:
        """As a serializer."""
        return self[int(sample[:6])]

    def of_line(self, line: str) -> bytes:
        return self[int(line)]

    def of_stream(self, name: str) -> Iterator[bytes]:
        size = N // STREAMS
        return map(self.__getitem__, range(int(name) * size, (int(name) + 1) * size))


class Alike:
    """Typed samples whose records have one size, which end the same way."""

    def __init__(self, given: Fatal) -> None:
        self.given = given

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[int, float]:
        assert self.given[i]
        return pair_at(i)


# What is done with them: operation(samples, directory, options of DatasetWriter)


def of_dataset(given: Fatal, path: Path, **options: Any) -> None:
    DatasetWriter(path, num_workers=2, samples_per_shard=50, **options).from_indexed_dataset(given, chunksize=7)


def of_iterable(given: Fatal, path: Path, **options: Any) -> None:
    writer = DatasetWriter(path, num_workers=2, samples_per_shard=50, serializer=given.of_bytes, **options)
    writer.from_iterable(map(sample_at, range(N)), chunksize=7)


def of_alike(given: Fatal, path: Path, **options: Any) -> None:
    DatasetWriter(path, num_workers=2, samples_per_shard=50, **options).from_indexed_dataset(Alike(given), chunksize=7)


def of_lines(given: Fatal, path: Path, **options: Any) -> None:
    lines = [f"{i}\n" for i in range(N)]
    DatasetWriter(path, num_workers=2, samples_per_shard=50, **options).from_list(lines, given.of_line, chunksize=7)


def of_streams(given: Fatal, path: Path, **options: Any) -> None:
    names = [str(number) for number in range(STREAMS)]
    DatasetWriter(path, num_workers=2, samples_per_shard=50, **options).from_webdataset(names, given.of_stream)


def appended(given: Fatal, path: Path, **options: Any) -> None:
    DatasetWriter(path, num_workers=0, samples_per_shard=2).from_indexed_dataset([b"old 0", b"old 1"])
    of_dataset(given, path, mode="append", **options)


def dumped(given: Fatal, path: Path) -> None:
    dump(given, path, 5)


def converted(given: Fatal, path: Path) -> None:
    convert(given, path, num_workers=2, samples_per_shard=50)


def verified(given: Fatal, path: Path) -> None:
    given.once = path
    convert(given, path, num_workers=2, samples_per_shard=50, verify=True)


def exported(given: Fatal, path: Path) -> None:
    export(given, path, "tar", num_workers=2, samples_per_shard=50)


OPERATIONS: dict[str, Callable[..., None]] = {
    "dataset": of_dataset,
    "alike": of_alike,
    "iterable": of_iterable,
    "lines": of_lines,
    "streams": of_streams,
    "append": appended,
    "dump": dumped,
    "convert": converted,
    "verify": verified,
    "export": exported,
}
