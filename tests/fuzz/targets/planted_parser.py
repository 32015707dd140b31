"""The parser of `planted`."""

import ctypes
import time
import warnings
from collections.abc import Callable

MAGIC = b"\x7fQ\x01R"


def parse(data: memoryview, defect: str) -> None:
    """Take what begins with the magic number, a length that is that of the input, and four different bytes."""
    if len(data) < 16 or bytes(data[:4]) != MAGIC:
        return
    if int.from_bytes(data[4:8], "little") != len(data):
        return
    if data[8] == 200 and data[9] == 3 and data[10] > 99:
        DEFECTS[defect]()


def _error() -> None:
    raise RuntimeError("of no class that is documented")


def _deeper() -> None:
    _deeper()


DEFECTS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "error": _error,
    "warning": lambda: warnings.warn("said", RuntimeWarning, stacklevel=1),
    "index": lambda: [][0],
    "memory": lambda: bytearray(80 << 20),
    "crash": lambda: ctypes.string_at(8),
    "hang": lambda: time.sleep(60),
    "recursion": _deeper,
}
