"""The original's checked read, represented by serial loops of pread and zlib: in Python and in C."""

import ctypes
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from harness import WrongAnswerError
from read_data import Batch, Files
from read_limit import Loops, opened_table
from read_ways import Open, Results, Way


def pointer(array: Any) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)  # type: ignore[no-any-return]


def in_arrays(loops: Loops) -> Open:
    """Read in C, but into NumPy arrays: the original too returns its records to Python."""

    @contextmanager
    def opened(files: Files) -> Iterator[Results]:
        def read(batch: Batch) -> Any:
            return loops.held.original_arrays(
                ctypes.byref(table), pointer(batch.array), ctypes.c_long(len(batch.array))
            )

        with opened_table(files) as table:
            yield lambda batches: map(read, batches)

    return opened


@contextmanager
def in_python(files: Files) -> Iterator[Results]:
    starts, checksums = files.starts.tolist(), files.checksums.tolist()
    with files.ffr.open("rb") as file:
        fd = file.fileno()

        def read(batch: Batch) -> list[Any]:
            arrays = []
            for index in batch.listed:
                start = starts[index]
                array = np.empty(starts[index + 1] - start, np.uint8)
                if os.preadv(fd, [array.data], start) != len(array) or zlib.crc32(array.data) != checksums[index]:
                    raise WrongAnswerError(f"record {index} is damaged")
                arrays.append(array)
            return arrays

        yield lambda batches: map(read, batches)


def originals(loops: Loops) -> tuple[Way, ...]:
    return (
        Way("original, Python loop", "original", "ffr", in_python, checks=True),
        Way("original, C loop", "original", "ffr", in_arrays(loops), checks=True),
    )
