"""The limit: the C loops of read_limit.c, compiled for the run."""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import WrongAnswerError
from read_data import Batch, Files
from read_ways import Batches, Results, Way

ROOT = Path(__file__).resolve().parents[1]
Loop = Callable[..., int]


class Table(ctypes.Structure):
    """The struct `records` of read_limit.c."""

    _fields_ = (
        ("fd", ctypes.c_int),
        ("mapping", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("checksums", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Loops:
    """The C loops, compiled for this run.

    Attributes:
        free: library called without the GIL.
        held: the same library called with the GIL, for loops that make Python objects.
    """

    free: ctypes.CDLL
    held: ctypes.PyDLL


def compile_loops(directory: Path) -> Loops:
    compiler = os.environ.get("CC") or shutil.which("cc") or sys.exit("bench_read needs a C compiler: no cc in PATH")
    target = directory / "read_original.so"
    source = str(Path(__file__).with_name("read_original.c"))
    includes = [f"-I{where}" for where in (ROOT / "ffrecord", sysconfig.get_path("include"), np.get_include())]
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", *includes, source, "-o", str(target), "-ldl"], check=True)
    loops = Loops(ctypes.CDLL(str(target)), ctypes.PyDLL(str(target)))
    for loop in (loops.free.by_pread, loops.free.by_mapping, loops.free.by_range):
        loop.restype = ctypes.c_long
    loops.held.original_arrays.restype = ctypes.py_object
    loops.free.start()
    if loops.held.start_original():
        sys.exit("bench_read needs zlib")
    return loops


def none_bad(bad: int, batch: Batch) -> None:
    if bad:
        raise WrongAnswerError(f"C loop: {bad} of {len(batch.listed)} records are not what their CRC-32 says")


@contextmanager
def opened_table(files: Files) -> Iterator[Table]:
    """Return the file, open and mapped, and its tables."""
    mapped = np.memmap(files.ffr, np.uint8, "r")
    with files.ffr.open("rb") as file:
        yield Table(file.fileno(), mapped.ctypes.data, files.starts.ctypes.data, files.checksums.ctypes.data)


def limit(loops: Loops, name: str, loop: Loop) -> Way:
    def opener(advance: bool) -> Any:
        @contextmanager
        def opened(files: Files) -> Iterator[Results]:
            sizes = np.diff(files.starts)
            whole = advance or loop is loops.free.by_range

            def results(batches: Batches) -> Iterator[Any]:
                need = max(int(sizes[batch.array].sum()) for batch in batches) if whole else files.largest
                buffer = np.ones(need, np.uint8)
                where = buffer.ctypes.data_as(ctypes.c_void_p)
                for batch in batches:
                    indices = batch.array.ctypes.data_as(ctypes.c_void_p)
                    none_bad(loop(ctypes.byref(table), indices, ctypes.c_long(len(batch.array)), where, advance), batch)
                    yield buffer, sizes[batch.array] if advance else None

            with opened_table(files) as table:
                yield results

        return opened

    return Way(name, "limit", "ffr", opener(False), advanced_pieces, opener(True), checks=True)


def advanced_pieces(result: tuple[Any, Any]) -> list[Any]:
    buffer, sizes = result
    ends = np.cumsum(sizes)
    return [buffer[low:high] for low, high in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


def random_limits(loops: Loops) -> tuple[Way, ...]:
    free = loops.free
    return limit(loops, "C loop, pread", free.by_pread), limit(loops, "C loop, mapping", free.by_mapping)


def sequential_limits(loops: Loops) -> tuple[Way, ...]:
    free = loops.free
    return limit(loops, "C loop, pread", free.by_pread), limit(loops, "C loop, ranges", free.by_range)
