"""Speed of `ffrecord verify`: beside the CRC-32 of memory if the file is cached, else beside the disk."""

import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import coldness
import fio
import numpy as np
import workloads
from command_runs import expect, pinned, run
from harness import Contestant, Measurement, WrongAnswerError, measure
from read_data import Records, make_records, write_ffr

from ffrecord._crc import crc32

PIECE = 1 << 20  # bytes of a direct or plain read
IN_FLIGHT = 8
FIO_SECONDS = 1.0
MEMORY = 256 << 20  # bytes for the CRC-32 limit: more than any CPU cache


@contextmanager
def made(directory: Path, work: workloads.Verified) -> Iterator[tuple[Path, Records]]:
    records = make_records(workloads.Reads(work.mean, 1, work.total, seed=work.seed))
    path = directory / "verified.ffr"
    write_ffr(path, records)
    try:
        yield path, records
    finally:
        path.unlink()


def verify(path: Path, records: Records, *options: object, cpu: int | None = None, whole: bool = False) -> float:
    """Return the seconds: those that the command reports, or those of the whole process if `whole`."""
    ran = run("verify", path, *options, cpu=cpu)
    expect(ran.facts, records=records.n, bytes=len(records.payload), bad=[], checksum="CRC-32")
    return ran.seconds if whole else float(ran.facts["seconds"])


def notices(path: Path, records: Records) -> None:
    """Check that one wrong bit is found.

    Raises:
        WrongAnswerError: it is not.
    """
    index = records.n // 2
    place = int(records.starts[index]) + 12 + 12 * records.n
    with path.open("r+b") as file:
        for _ in range(2):  # there, and back
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
            file.flush()
            os.fsync(file.fileno())
            found = [each["index"] for each in run("verify", path).facts["bad"]]
            if found not in ([index], []) or (byte == records.payload[int(records.starts[index])]) != bool(found):
                raise WrongAnswerError(f"record {index} was changed, found bad: {found}")


def cached(directory: Path, work: workloads.Verified, rounds: int) -> list[Measurement]:
    """Measure cached files, on one CPU."""
    cpu = max(os.sched_getaffinity(0))
    with made(directory, work) as (path, records):
        sources = {"CRC-32 of memory": np.frombuffer(records.payload, np.uint8, min(MEMORY, len(records.payload)))}
        notices(path, records)

        def ours() -> float:
            coldness.warm(path)
            return verify(path, records, "--jobs", 1, cpu=cpu)

        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            sources["CRC-32 of a mapping"] = np.frombuffer(mapped, np.uint8)
            contestants = [Contestant("verify, 1 CPU", ours, lambda: None)]
            contestants += [limit(name, array, work.mean, cpu) for name, array in sources.items()]
            taken = measure(contestants, rounds)
            del contestants, sources["CRC-32 of a mapping"]
    sizes = {name: len(array) for name, array in sources.items()}
    size = len(records.payload)
    return [
        Measurement(name, work, seconds, sizes.get(name, size), 1, "hot", {"role": role(name)})
        for name, seconds in taken.items()
    ]


def limit(name: str, array: "np.ndarray[tuple[int], np.dtype[np.uint8]]", piece: int, cpu: int) -> Contestant:
    """Return the limit: the same kernel over pieces of the mean size, on the same CPU, and nothing else."""
    pieces = [array[start : start + piece].data for start in range(0, len(array), piece)]

    def run() -> float:
        with pinned(cpu):
            start = time.perf_counter()
            for each in pieces:
                crc32(each)
            return time.perf_counter() - start

    return Contestant(name, run, lambda: None)


def cold(directory: Path, work: workloads.Verified, rounds: int) -> list[Measurement]:
    """Measure from an empty page cache, with all CPUs, beside direct and plain reads of the same file from front to
    back.
    """
    with made(directory, work) as (path, records):
        size = path.stat().st_size

        def evicted(take: Callable[[], float]) -> Callable[[], float]:
            def run() -> float:
                if coldness.on_disk(directory):
                    coldness.evict([path])
                return take()

            return run

        ways: dict[str, Callable[[], float]] = {
            "verify": lambda: verify(path, records),
            "verify, the whole process": lambda: verify(path, records, whole=True),
            "direct reads": lambda: direct(path, size),
            "plain reads": lambda: plain(path),
        }
        if fio.installed() and coldness.on_disk(directory):
            each = fio.SEQUENTIAL
            ways[each.name] = lambda: each.run(path, FIO_SECONDS) * size / each.size
        taken = measure([Contestant(name, evicted(way), lambda: None) for name, way in ways.items()], rounds)
    return [
        Measurement(name, work, seconds, size, 1, "cold", {"role": role(name)})
        for name, seconds in taken.items()
    ]  # fmt: skip


def role(name: str) -> str:
    return "ours" if name.startswith("verify") else "plain" if name == "plain reads" else "limit"


def direct(path: Path, size: int) -> float:
    """Return the seconds to read a file around the page cache, with some reads in flight."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # of tmpfs before Linux 6.6: with --smoke
        fd = os.open(path, os.O_RDONLY)

    def read(number: int) -> None:
        with mmap.mmap(-1, PIECE) as buffer:
            for at in range(number * PIECE, size, IN_FLIGHT * PIECE):
                os.preadv(fd, [buffer], at)

    try:
        start = time.perf_counter()
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(read, range(IN_FLIGHT)))
        return time.perf_counter() - start
    finally:
        os.close(fd)


def plain(path: Path) -> float:
    """Return the seconds to read it into one buffer, as cat does."""
    buffer = bytearray(PIECE)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start
