"""Batch engine: files, batches of their records, tables of spans, and slots that cut records into columns."""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.kernels._memory import Mapping
from ffrecord.system.filesystems import Filesystem

MODES: tuple[str, ...]
ARRAYS: Literal["arrays"]
IN_TURN: Literal["in turn"]
PACKED: Literal["packed"]
CHECKED: Literal["checked"]

_Bytes = npt.NDArray[np.uint8]
_T_co = TypeVar("_T_co", covariant=True)

class _Opened(Protocol):
    path: str
    fd: int
    device: int
    inode: int
    mtime_ns: int
    size: int
    n: int
    data_start: int
    mapping: Mapping | None
    spans: Spans | None
    whole: Mapping | None
    filesystem: Filesystem

class Failure(Exception):
    order: int
    status: str
    detail: int
    offset: int
    size: int
    stored: int
    def __init__(self, order: int, status: str, detail: int, offset: int, size: int, stored: int) -> None: ...

class PendingBatch(Generic[_T_co]):
    def result(self) -> tuple[_T_co, list[Failure]] | None: ...

class Files:
    checks: bool  # compare checksums of records that `read_at_once` reads
    once: bool  # most records are read only once: mapping cached files would take longer than reading them
    def __new__(cls, files: Sequence[_Opened], io: str = "auto", held_most: int = 1024) -> Files: ...
    @property
    def n(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def aio_error(self) -> int: ...
    @property
    def open_files(self) -> int: ...
    def close(self) -> None: ...
    def size_now(self, f: int) -> int | None: ...
    def locate(self, index: int) -> tuple[int, int]: ...
    def read(
        self,
        indices: npt.NDArray[np.int64],
        check: bool,
        go_on: bool,
        form: str | Slots = "arrays",
        out: _Bytes | list[_Bytes] | None = None,
    ) -> tuple[Any, list[Failure]]: ...
    def read_one(self, index: int, check: bool) -> _Bytes | tuple[list[_Bytes], list[Failure]] | None: ...
    def read_at_once(self, index: object) -> _Bytes | None: ...
    def read_ahead(
        self,
        indices: npt.NDArray[np.int64],
        check: bool,
        go_on: bool,
        form: str | Slots = "arrays",
        out: _Bytes | list[_Bytes] | None = None,
        threads: int = 4,
        sequential: bool = False,
    ) -> PendingBatch[Any]: ...
    def sizes(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    def counters(self) -> list[tuple[str, int, str, dict[str, Any]]]: ...

def filesystem_type(fd: int) -> int: ...

class Spans:
    """Table of spans for the engine. It keeps references to the arrays and copies nothing.

    Attributes:
        n: number of records.
        scattered: whether the records lie in another order than that of their numbers.
        jumping: whether reading them by ascending numbers is no sequential read.
    """

    def __new__(
        cls,
        offset_array: npt.NDArray[np.int64],
        size_array: npt.NDArray[np.int64],
        checksums: npt.NDArray[np.uint32] | None,
        kind: str | None,
    ) -> Spans: ...
    @property
    def n(self) -> int: ...
    @property
    def scattered(self) -> bool: ...
    @property
    def jumping(self) -> bool: ...

class Slots:
    """Pieces of records of one size; each piece becomes a column.

    Args:
        record_size: bytes of each record, >= 0.
        slots: (offset, size) in bytes of each piece of a record. They may have any order, overlap, and leave gaps.

    Raises:
        ArgumentError: `record_size` is negative, or a slot is not within the record.
        TypeError, ValueError: a slot is no pair of ints.
    """

    def __new__(cls, record_size: int, slots: Iterable[tuple[int, int]]) -> Slots: ...
    @property
    def record_size(self) -> int: ...
    @property
    def pieces(self) -> tuple[tuple[int, int], ...]: ...  # (offset, size), as given
    def __len__(self) -> int: ...
