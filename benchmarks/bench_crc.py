"""CRC-32: every kernel of ours, and zlib, libdeflate and ISA-L where they are installed, with memcpy for scale."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import environment
import numpy as np
import workloads
from harness import Contestant, Measurement, Report, WrongAnswerError, arguments, measure, table
from human import three

ROOT = Path(__file__).resolve().parents[1]
SCALE = "memcpy"
Work = workloads.Checksum | workloads.MixedChecksums
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Words = np.ndarray[Any, np.dtype[np.uint32]]


class Driver:
    """The C loops, compiled for this run."""

    def __init__(self, directory: str, largest: int) -> None:
        library = compile_driver(Path(directory))
        library.name_of.restype = ctypes.c_char_p
        library.answer.restype, library.answers.restype = ctypes.c_uint32, None
        for loop in (library.independent, library.dependent, library.mixed):
            loop.restype = ctypes.c_double
        self.library = library
        self._copy = np.zeros(largest, np.uint8)  # written here, so that page faults are not timed
        everyone = range(library.start(address(self._copy)))
        self.names = {library.name_of(i).decode(): i for i in everyone if library.installed(i)}
        self.missing = [library.name_of(i).decode() for i in everyone if not library.installed(i)]


def compile_driver(directory: Path) -> ctypes.CDLL:
    compiler = os.environ.get("CC") or shutil.which("cc") or sys.exit("bench_crc needs a C compiler: no cc in PATH")
    target = directory / "crc_rivals.so"
    source = str(Path(__file__).with_name("crc_rivals.c"))
    options = ["-O2", "-shared", "-fPIC", f"-I{ROOT / 'ffrecord'}", source, "-o", str(target), "-ldl"]
    subprocess.run([compiler, *options], check=True)
    return ctypes.CDLL(str(target))


def address(array: Bytes | Words) -> ctypes.c_void_p:
    """Return a pointer that keeps the array alive."""
    return array.ctypes.data_as(ctypes.c_void_p)


def right_answer(name: str, piece: Bytes, value: int = 0) -> int:
    """Return the right result: for memcpy the last byte, for all others the result of zlib."""
    return value ^ int(piece[-1]) if name == SCALE else zlib.crc32(piece.data, value)


def expect(name: str, computed: int, right: int, size: int) -> None:
    if computed != right:
        raise WrongAnswerError(f"{name}: {computed:#010x} for {size} bytes, expected {right:#010x}")


def enough_calls(loop: Callable[[int], float], seconds: float) -> int:
    """Return how many calls take about this time."""
    calls = 1
    while (taken := loop(calls)) < seconds / 20:
        calls *= 4
    return max(1, round(calls * seconds / taken))


def contestant(name: str, loop: Callable[[int], float], check: Callable[[], None], seconds: float) -> Contestant:
    """Return a contestant that times `loop(calls)` for about `seconds`; its result is the time of one call."""
    calls = 0

    def run() -> float:
        nonlocal calls
        calls = calls or enough_calls(loop, seconds)
        return loop(calls) / calls

    return Contestant(name, run, check)


def of_checksum(driver: Driver, work: workloads.Checksum, seconds: float) -> list[Contestant]:
    data = np.random.default_rng(work.seed).integers(0, 256, work.size, np.uint8)

    def check(name: str, i: int) -> None:
        computed = driver.library.answer(i, 99, address(data), ctypes.c_size_t(work.size))
        expect(name, computed, right_answer(name, data, 99), work.size)

    def loop(i: int, calls: int) -> float:
        run = getattr(driver.library, work.calls)
        return float(run(i, address(data), ctypes.c_size_t(work.size), ctypes.c_long(calls)))

    return [contestant(name, partial(loop, i), partial(check, name, i), seconds) for name, i in driver.names.items()]


def records(work: workloads.MixedChecksums) -> tuple[Bytes, Words, Words]:
    """Return uint8 data, and the uint32 offsets and sizes of the records in it."""
    random = np.random.default_rng(work.seed)
    data = random.integers(0, 256, 64 * workloads.KIB, np.uint8)
    sizes = random.integers(work.smallest, work.largest + 1, work.count, np.uint32)
    return data, random.integers(0, data.size - sizes, dtype=np.uint32), sizes


def of_mixed(driver: Driver, work: workloads.MixedChecksums, seconds: float) -> list[Contestant]:
    data, offsets, sizes = records(work)
    places = (address(data), address(offsets), address(sizes), ctypes.c_long(work.count))
    pieces = [data[offset : offset + size] for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)]

    def check(name: str, i: int) -> None:
        found = np.zeros(work.count, np.uint32)
        driver.library.answers(i, *places, address(found))
        for piece, computed in zip(pieces, found.tolist(), strict=True):
            expect(name, computed, right_answer(name, piece), len(piece))

    def loop(i: int, calls: int) -> float:
        return float(driver.library.mixed(i, *places, ctypes.c_long(calls)))

    return [contestant(name, partial(loop, i), partial(check, name, i), seconds) for name, i in driver.names.items()]


def measure_all(driver: Driver, report: Report, smoke: bool, rounds: int) -> None:
    seconds = 0.0002 if smoke else 0.02
    for work in workloads.SMOKE_CHECKSUMS if smoke else workloads.CHECKSUMS:
        for name, taken in measure(of_checksum(driver, work, seconds), rounds).items():
            report.add(Measurement(name, work, taken, work.size))
    for mixed in workloads.SMOKE_MIXED if smoke else workloads.MIXED_CHECKSUMS:
        size = int(records(mixed)[2].sum())
        for name, taken in measure(of_mixed(driver, mixed, seconds), rounds).items():
            report.add(Measurement(name, mixed, taken, size, mixed.count))


def describe(work: Work) -> str:
    if isinstance(work, workloads.MixedChecksums):
        return f"{work.smallest} to {work.largest} B mixed"
    unit, name = next(
        (u, n) for u, n in ((workloads.MIB, "MiB"), (workloads.KIB, "KiB"), (1, "B")) if work.size % u == 0
    )
    return f"{work.size // unit} {name} {work.calls}"


def cell(measurement: Measurement) -> str:
    """Return median and spread, in GB/s."""
    low, high = (measurement.size / seconds / 1e9 for seconds in (max(measurement.seconds), min(measurement.seconds)))
    return f"{three(measurement.gigabytes_per_second)} ({three(low)}..{three(high)})"


def grid(measurements: Sequence[Measurement], names: Sequence[str]) -> str:
    """Return a row for each workload, with a column for each contestant."""
    by_work: dict[Work, dict[str, Measurement]] = {}
    for measurement in measurements:
        by_work.setdefault(measurement.workload, {})[measurement.contestant] = measurement
    rows = [[describe(work), *(cell(row[name]) for name in names)] for work, row in by_work.items()]
    return table(["GB/s, median (min..max)", *names], rows)


def ratio(report: Report, size: int, ours: str, theirs: str) -> str | None:
    """Return how many times as fast ours is, by independent calls: the median over the rounds in which both ran.

    Return None if not both were measured.
    """
    work = workloads.Checksum(size, "independent")
    found = {m.contestant: m for m in report.measurements if m.workload == work}
    if ours not in found or theirs not in found:
        return None
    times = median(rival / own for rival, own in zip(found[theirs].seconds, found[ours].seconds, strict=True))
    return f"{ours} / {theirs} at {describe(work)}: {times:.2f}"


def figures_of_merit(report: Report, best: str) -> list[str]:
    large = [ratio(report, size, best, "isa-l") for size in workloads.CHECKSUM_SIZES if size >= 16 * workloads.KIB]
    return [line for line in [*large, ratio(report, 64, best, "libdeflate")] if line]


def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        driver = Driver(directory, max(workloads.CHECKSUM_SIZES))
        names = list(driver.names)
        used = {**environment.versions(), **environment.libraries("libz", "libdeflate", "libisal")}
        report = Report("crc", {"versions": used, "crc_kernel": names[0], "fs": None}, options.out)
        measure_all(driver, report, options.smoke, options.rounds)
    print(report.heading(), grid(report.measurements, names), *figures_of_merit(report, names[0]), sep="\n")
    for name in driver.missing:
        print(f"{name}: not installed, not measured")


if __name__ == "__main__":
    main()
