"""Measurements of ways to write: each writes a fresh file, which is checked after the time is taken, and deleted."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import fio
from harness import Contestant, Measurement, measure
from write_data import Source
from write_ways import Way

MIB = 1 << 20
DEPTH = 4  # more and less were slower
FIO = "fio write 1m"


def contestant(way: Way, source: Source, directory: Path) -> Contestant:
    """Return a contestant; its output is compared in every round.

    The first round, which does not count, lets the disk allocate room.
    """
    path = directory / "written.ffr"

    def run() -> float:
        settled()
        start = time.perf_counter()
        way.write(path, source)
        seconds = time.perf_counter() - start
        try:
            way.check(way.name, path, source)
        finally:
            path.unlink()
        return seconds

    def check() -> None:
        run()

    return Contestant(way.name, run, check)


def settled() -> None:
    """Wait until the writes and deletions of others are on the disk."""
    os.sync()


def fio_contestant(size: int, directory: Path) -> Contestant:
    """Return the limit: a fresh, preallocated file, written by O_DIRECT from front to back, and synced."""

    def run() -> float:
        settled()
        with fio_writing(size, directory) as ended:
            return ended()

    return Contestant(FIO, run, lambda: None)


@contextmanager
def fio_writing(size: int, directory: Path) -> Iterator[Callable[[], float]]:
    """Start fio; yield a function that waits until it has written this many bytes, and returns the seconds of
    writing.
    """
    path = directory / "written.fio"
    command = ["fio", "--name=write", f"--filename={fio.escaped(path.resolve())}", "--rw=write", f"--bs={MIB}"]
    command += [f"--iodepth={DEPTH}", "--ioengine=libaio", "--direct=1", "--fallocate=native", "--end_fsync=1"]
    command += [f"--size={size}", "--output-format=json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory)

    def ended() -> float:
        output, error = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, output, error)
        return float(json.loads(output)["jobs"][0]["write"]["runtime"]) / 1000

    try:
        with process:
            yield ended
    finally:
        path.unlink(missing_ok=True)


def measure_writes(
    ways: Sequence[Way], source: Source, directory: Path, rounds: int, with_fio: bool
) -> list[Measurement]:
    contestants = [contestant(way, source, directory) for way in ways]
    whole = max(1, source.size // MIB) * MIB
    if with_fio:
        contestants.append(fio_contestant(whole, directory))
    roles = {way.name: way.role for way in ways}
    found = []
    for name, seconds in measure(contestants, rounds).items():
        limit = name == FIO
        size, count = (whole, whole // MIB) if limit else (source.size, source.n)
        found.append(Measurement(name, source.work, seconds, size, count, "hot", {"role": roles.get(name, "limit")}))
    return found
