"""The original's checked read, once in Python and once in C, and the limit: the C loops of read_limit.c."""

import ctypes
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import WrongAnswerError
from read_data import Batch, Files
from read_ways import Batches, Results, Way

ROOT = Path(__file__).resolve().parents[1]
Loop = Callable[..., int]


class Table(ctypes.Structure):
    """`records` of read_limit.c."""

    _fields_ = (
        ("fd", ctypes.c_int),
        ("mapping", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("checksums", ctypes.c_void_p),
    )


def compile_loops(directory: Path) -> ctypes.CDLL:
    compiler = os.environ.get("CC") or shutil.which("cc") or sys.exit("bench_read needs a C compiler: no cc in PATH")
    target = directory / "read_limit.so"
    source = str(Path(__file__).with_name("read_limit.c"))
    options = ["-O2", "-shared", "-fPIC", f"-I{ROOT / 'ffrecord'}", source, "-o", str(target), "-ldl"]
    subprocess.run([compiler, *options], check=True)
    library = ctypes.CDLL(str(target))
    for loop in (library.by_pread, library.by_mapping, library.by_range, library.as_original):
        loop.restype = ctypes.c_long
    library.start()
    return library


def none_bad(bad: int, batch: Batch) -> None:
    if bad:
        raise WrongAnswerError(f"C loop: {bad} of {len(batch.listed)} records are not what their CRC-32 says")


@contextmanager
def opened_table(files: Files) -> Iterator[Table]:
    """The file, open and mapped, and its tables."""
    mapped = np.memmap(files.ffr, np.uint8, "r")
    with files.ffr.open("rb") as file:
        yield Table(file.fileno(), mapped.ctypes.data, files.starts.ctypes.data, files.checksums.ctypes.data)


def limit(library: ctypes.CDLL, name: str, loop: Loop) -> Way:
    def opener(advance: bool) -> Any:
        @contextmanager
        def opened(files: Files) -> Iterator[Results]:
            sizes = np.diff(files.starts)
            whole = advance or loop is library.by_range

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


def original_in_c(library: ctypes.CDLL) -> Way:
    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        def results(batches: Batches) -> Iterator[Any]:
            kept = np.zeros(max(len(batch.array) for batch in batches), np.uintp)
            where, used = kept.ctypes.data_as(ctypes.c_void_p), 0
            sizes = np.diff(files.starts)
            for batch in batches:
                indices = batch.array.ctypes.data_as(ctypes.c_void_p)
                count = len(batch.array)
                bad = library.as_original(
                    ctypes.byref(table), indices, ctypes.c_long(count), where, ctypes.c_long(used)
                )
                used = count
                none_bad(bad, batch)
                yield kept, sizes, batch

        with opened_table(files) as table:
            yield results

    def pieces(result: tuple[Any, Any, Batch]) -> list[Any]:
        kept, sizes, batch = result
        return [
            ctypes.string_at(at, size) for at, size in zip(kept.tolist(), sizes[batch.array].tolist(), strict=False)
        ]

    return Way("original, C loop", "original", "ffr", opened, pieces, checks=True)


@contextmanager
def original_in_python(files: Files) -> Iterator[Results]:
    starts, checksums = files.starts.tolist(), files.checksums.tolist()
    with files.ffr.open("rb") as file:
        fd = file.fileno()

        def read(batch: Batch) -> list[Any]:
            arrays = []
            for index in batch.listed:
                start = starts[index]
                array = np.empty(starts[index + 1] - start, np.uint8)
                if os.preadv(fd, [array], start) != len(array) or zlib.crc32(array) != checksums[index]:
                    raise WrongAnswerError(f"record {index} is damaged")
                arrays.append(array)
            return arrays

        yield lambda batches: map(read, batches)


@cache
def originals(library: ctypes.CDLL) -> tuple[Way, ...]:
    return (
        Way("original, Python loop", "original", "ffr", original_in_python, checks=True),
        original_in_c(library),
    )


def random_limits(library: ctypes.CDLL) -> tuple[Way, ...]:
    return limit(library, "C loop, pread", library.by_pread), limit(library, "C loop, mapping", library.by_mapping)


def sequential_limits(library: ctypes.CDLL) -> tuple[Way, ...]:
    return limit(library, "C loop, pread", library.by_pread), limit(library, "C loop, ranges", library.by_range)
