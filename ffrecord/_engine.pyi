from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ffrecord._memory import Mapping

MODES: dict[str, int]

class Failure(Exception):
    order: int
    status: str
    detail: int
    offset: int
    size: int
    stored: int
    def __init__(self, order: int, status: str, detail: int, offset: int, size: int, stored: int) -> None: ...

class Files:
    def __new__(cls, files: Sequence[tuple[int, int, int, int, Mapping]]) -> Files: ...
    @property
    def n(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def aio_error(self) -> int: ...
    def close(self) -> None: ...
    def size_now(self, f: int) -> int | None: ...
    def locate(self, index: int) -> tuple[int, int]: ...
    def read(
        self, indices: npt.NDArray[np.int64], mode: int, check: bool, go_on: bool
    ) -> tuple[list[npt.NDArray[np.uint8]], list[Failure]]: ...
    def read_packed(
        self, indices: npt.NDArray[np.int64], mode: int, check: bool, go_on: bool
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[Failure]]: ...
