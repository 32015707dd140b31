"""The members of several zip archives in one numbering: their facts, and their content from compressed bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.names import concatenate_names
from ffrecord.sources.zip.codecs import ENCRYPTED, STORED, check_ratio, inflate, refusal
from ffrecord.sources.zip.index import ZipIndex


class ZipMembers:
    """The tables of all archives, one behind the other.

    Args:
        indexes: indexes of the archives, at least one.
        max_ratio: see `ZipReader`.

    Attributes:
        paths: paths of the archives.
        starts: int64 [archives + 1], number of the first member of each archive, and the number of all members.
        names, folders, data, compressed, sizes, crcs, times, modes, methods, flags: see `ZipIndex`.
        special: bool [n], members that are not simply stored, or cannot be read; None if there are none.
    """

    def __init__(self, indexes: Sequence[ZipIndex], max_ratio: float | None) -> None:
        self.paths = [each.path for each in indexes]
        self.starts = np.cumsum([0, *(len(each) for each in indexes)])
        self.names = concatenate_names([each.names for each in indexes])
        self.folders = concatenate_names([each.folders for each in indexes])
        self.data: npt.NDArray[np.int64] = _concatenate([each.data for each in indexes])
        self.compressed: npt.NDArray[np.int64] = _concatenate([each.compressed for each in indexes])
        self.sizes: npt.NDArray[np.int64] = _concatenate([each.sizes for each in indexes])
        self.crcs: npt.NDArray[np.uint32] = _concatenate([each.crcs for each in indexes])
        self.times: npt.NDArray[np.uint32] = _concatenate([each.times for each in indexes])
        self.modes: npt.NDArray[np.uint16] = _concatenate([each.modes for each in indexes])
        self.methods: npt.NDArray[np.uint16] = _concatenate([each.methods for each in indexes])
        self.flags: npt.NDArray[np.uint16] = _concatenate([each.flags for each in indexes])
        self._max_ratio = max_ratio
        special = (self.methods != STORED) | (self.flags & ENCRYPTED != 0)
        special |= (self.data < 0) | (self.sizes != self.compressed)
        self.special = special if special.any() else None

    def archive(self, index: int) -> int:
        """Return the number of the archive with member `index`."""
        return int(np.searchsorted(self.starts, index, "right")) - 1

    def name(self, archive: int, local: int) -> str:
        """Return the name of member `local` of an archive, for messages."""
        return f"member {self.names[int(self.starts[archive]) + local]!r}"

    def problem(self, index: int) -> Exception | None:
        """Return the error that the archive's own facts show for member `index`; None if it can be read."""
        method, size, compressed = int(self.methods[index]), int(self.sizes[index]), int(self.compressed[index])
        reason = refusal(method, int(self.flags[index]))
        if reason is None and self.data[index] < 0:
            reason = "there is no local header with its name at the offset that the directory says"
        if reason is None and method == STORED and size != compressed:
            reason = f"it is stored without compression, but has {size} bytes in {compressed}"
        if reason is None:
            try:
                check_ratio(size, compressed, self._max_ratio)
            except FormatError as error:
                reason = str(error)
        return None if reason is None else self.name_error(index, FormatError(reason))

    def content(self, index: int, data: Array, check_data: bool) -> Array | Exception:
        """Decompress `data` into the content of member `index`; return the error if that fails."""
        try:
            return self._inflate(index, data, check_data)
        except (FormatError, ImportError, MemoryError) as error:
            return self.name_error(index, error)

    def _inflate(self, index: int, data: Array, check_data: bool) -> Array | Exception:
        size, stored = int(self.sizes[index]), int(self.crcs[index])
        content = inflate(int(self.methods[index]), int(self.flags[index]), data.data, size)
        out: Array = pooled(size)
        out[:] = np.frombuffer(content, np.uint8)
        computed = crc32(out.data) if check_data else stored
        if computed == stored:
            return out
        path = self.paths[self.archive(index)]
        return ChecksumError(
            f"Sample {index}: checksum mismatch: {self._where(index)}: CRC-32 {computed:#010x}, stored {stored:#010x} "
            f"({size} bytes of content)",
            path=path,
            index=index,
            stored=stored,
            computed=computed,
        )

    def name_error(self, index: int, error: Exception) -> Exception:
        """Return the error with the archive and the member in its message."""
        made = type(error)(f"Sample {index}: {self._where(index)}: {error}")
        made.__cause__ = error.__cause__
        return made

    def _where(self, index: int) -> str:
        return f"{self.paths[self.archive(index)]}: member {self.names[index]!r}"


def _concatenate(arrays: list[Any]) -> Any:
    """Concatenate arrays. A single array is returned as it is, since it may be a mapping."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
