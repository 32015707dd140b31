"""One file, damaged again and again, and what a reader makes of it in every mode and in every way to read."""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import builders
import ffr_twin
import msgspec
import numpy as np

from ffrecord import FFRecordError, FileReader
from ffrecord.reading.batch_forms import Array

SAMPLES = builders.small()
PLAIN = ffr_twin.build(SAMPLES)
ENDS = [len(PLAIN) - sum(map(len, SAMPLES[i + 1 :])) for i in range(len(SAMPLES))]
PAYLOAD = msgspec.msgpack.encode({"writer": "test", "schema": {"a": 1}})
EXTENDED = ffr_twin.build_extended(SAMPLES, PAYLOAD, reserved=50)

Outcome = list[bytes | Exception] | Exception


def packed(reader: FileReader) -> list[bytes]:
    """All samples of one packed batch."""
    return builders.unpack(reader.read_packed(range(reader.n)))


WAYS: dict[str, Callable[[FileReader], Iterable[Array | bytes]]] = {
    "read_one": lambda reader: map(reader.read_one, range(reader.n)),
    "batch": lambda reader: reader.read(range(reader.n)),
    "packed": packed,
    "iteration": iter,
}


class Mode(NamedTuple):
    """How a file is read."""

    io: str
    way: str
    check: bool

    def __repr__(self) -> str:
        return f"{self.io}-{self.way}-{'checked' if self.check else 'unchecked'}"


MODES = [Mode(io, way, check) for io in builders.IO_MODES for way in WAYS for check in (True, False)]
OPENING_MODES = [mode for mode in MODES if mode.way == "batch"]  # what matters where opening is refused


@contextmanager
def quiet() -> Iterator[None]:
    """Old files warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*old version ffrecord file")
        yield


def read(path: str, mode: Mode) -> Outcome:
    """What becomes of every sample; or the error of opening."""
    errors: dict[int, Exception] = {}

    def note(error: Exception) -> np.ndarray:
        assert isinstance(error, FFRecordError | OSError), error
        index = re.match(r"Sample (\d+): ", str(error))
        assert index, error
        errors[int(index[1])] = error
        return np.empty(0, np.uint8)

    try:
        reader = FileReader(path, mode.check, io=mode.io, on_error=note)
    except FFRecordError as error:
        return error
    with reader:
        results: list[bytes | Exception] = [bytes(sample) for sample in WAYS[mode.way](reader)]
    for i, error in errors.items():
        results[i] = error
    return results


class Damaged:
    """A file of which a part is wrong at a time.

    Attributes:
        path: of the file.
        data: all of it, without damage.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = builders.write(path, data), data
        self._fd = os.open(self.path, os.O_RDWR)

    def __enter__(self) -> "Damaged":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @contextmanager
    def flipped(self, bit: int) -> Iterator[str]:
        """The path, with one bit inverted."""
        at = bit // 8
        os.pwrite(self._fd, bytes([self.data[at] ^ 1 << bit % 8]), at)
        yield self.path
        os.pwrite(self._fd, self.data[at : at + 1], at)

    def cuts(self, sizes: Iterable[int] | None = None) -> Iterator[int]:
        """The file cut to each of these sizes, by default to every one below its own; largest first."""
        for size in sorted(range(len(self.data)) if sizes is None else set(sizes), reverse=True):
            os.ftruncate(self._fd, size)
            yield size
        os.pwrite(self._fd, self.data, 0)
