"""The original's writing, represented by one pwrite and zlib for each record: in Python and in C."""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from write_data import Source, check_ffr, to_disk
from write_ways import Way


def compile_loop(directory: Path) -> ctypes.PyDLL:
    compiler = os.environ.get("CC") or shutil.which("cc") or sys.exit("bench_write needs a C compiler: no cc in PATH")
    source, target = Path(__file__).with_suffix(".c"), directory / "write_original.so"
    command = [compiler, "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source)]
    subprocess.run([*command, "-o", str(target), "-l:libz.so.1"], check=True)
    return ctypes.PyDLL(str(target))


@contextmanager
def created(path: Path, checksums: Any, offsets: Any) -> Iterator[int]:
    """Create a file with room for its tables, which are written in the end; then sync everything to disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        yield fd
        tables = np.int64(len(checksums)).tobytes() + np.asarray(checksums, np.uint32).tobytes()
        tables += np.asarray(offsets, np.int64).tobytes()
        os.pwrite(fd, zlib.crc32(tables).to_bytes(4, "little") + tables, 0)
    finally:
        os.close(fd)
    to_disk(path)


def in_python(path: Path, source: Source) -> None:
    checksums: list[int] = []
    offsets: list[int] = []
    offset = 12 + 12 * source.n
    with created(path, checksums, offsets) as fd:
        for record in source.records:
            checksums.append(zlib.crc32(record))
            offsets.append(offset)
            offset += os.pwrite(fd, record, offset)


def in_c(loop: ctypes.PyDLL, path: Path, source: Source) -> None:
    checksums, offsets = np.empty(source.n, np.uint32), np.empty(source.n, np.int64)
    tables = [array.ctypes.data_as(ctypes.c_void_p) for array in (checksums, offsets)]
    start = ctypes.c_int64(12 + 12 * source.n)
    with created(path, checksums, offsets) as fd:
        if loop.original_write(ctypes.py_object(source.records), fd, start, *tables):
            raise OSError(f"{path.name}: a write failed")


def originals(loop: ctypes.PyDLL) -> list[Way]:
    return [
        Way("original, Python loop", "original", in_python, check_ffr),
        Way("original, C loop", "original", lambda path, source: in_c(loop, path, source), check_ffr),
    ]
