"""Stores whose records are whole files."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from errno import EISDIR
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, NotAFileError, TruncatedError, add_file_to_errors, file_error
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.record_reader import check_io
from ffrecord.reading.store import Indices, OnError, Store
from ffrecord.sources._files import read_files
from ffrecord.sources.names import Names


class FileStore(Store):
    """Files of a directory as records, read several at once; none stays open.

    Args:
        fnames: paths by which the files were found.
        root: directory that `names` are relative to.
        names: names of the files.
        labels: label of each file: int64 [n], or [n] strings; None for none.

    Attributes:
        root, labels: the arguments.
    """

    __slots__ = ("_names", "labels", "root")

    labels: npt.NDArray[np.int64] | Sequence[str] | None

    def __init__(
        self,
        fnames: Sequence[str],
        root: str,
        names: Names,
        labels: npt.NDArray[np.int64] | Sequence[str] | None,
        check_data: object,
        *,
        io: str,
        on_error: OnError,
        settings: Mapping[str, Any],
    ) -> None:
        check_io(io)
        self._names, self.root, self.labels = names, root, labels
        super().__init__(fnames, len(names), check_data, on_error=on_error, settings={"io": io, **settings})

    def keys(self) -> Names:
        """Return the path of each file, relative to `root`."""
        return self._names

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Return (path of its file, 0) for record `index`.

        Raises:
            IndexError: out of range.
        """
        return os.path.join(self.root, self._names[self._normalize_index(index)]), 0

    def _describe_place(self, index: int) -> str:
        # A number would always be 0, beside the sample's own.
        return self.locate(index)[0]

    def fingerprint(self) -> str:
        """Return a hash that identifies these files, wherever they are.

        It has 64 hexadecimal digits, and is SHA-256 of names and labels. It does not cover the content of the files:
        all of them would have to be read for that.
        """
        digest = hashlib.sha256(self.format.encode())
        digest.update(self._names.offsets.tobytes())
        digest.update(self._names.blob.tobytes())
        if isinstance(self.labels, np.ndarray):
            # The same bytes on each machine.
            digest.update(self.labels.astype("<i8").tobytes())
        elif self.labels is not None:
            digest.update("\0".join(self.labels).encode(errors="surrogateescape"))
        return digest.hexdigest()

    def _load(self, positions: Indices) -> list[Array | Exception]:
        with add_file_to_errors("reading files in it", self.root):
            # Files are opened relative to it, so all are of one directory, even if that is renamed meanwhile.
            root = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                arrays, failures = read_files(root, self._names.blob, self._names.offsets, positions)
            finally:
                os.close(root)
        records: list[Any] = list(arrays)
        for place, what, errno, size, found in failures:
            records[place] = self._error(int(positions[place]), what, errno, size, found)
        return records

    def _error(self, index: int, what: str, errno: int, size: int, found: int) -> Exception:
        path = os.path.join(self.root, self._names[index])
        if what == "failed":
            return file_error(errno, f"Sample {index}: {path}: reading it failed", path)
        if what == "directory":
            return NotAFileError(EISDIR, f"Sample {index}: {path} is a directory, expected a file", path)
        if what == "no file":
            return FormatError(f"Sample {index}: {path} is not a regular file")
        if what == "cut":
            return TruncatedError(f"Sample {index}: {path} has {found} bytes, but had {size} when it was opened")
        return FormatError(
            f"Sample {index}: {path} was written to while it was read: it had {size} bytes, then {found}"
        )

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        """Return dicts with "image", the bytes as they are, and with "label", an int or str, if there are labels."""
        labels = self._labels_at(positions)
        if labels is None:
            return [{"image": record} for record in records]
        return [{"image": record, "label": label} for record, label in zip(records, labels, strict=True)]

    def _columns(self, positions: Indices, records: list[Any]) -> dict[str, list[Any]]:
        labels = self._labels_at(positions)
        return {"image": records} if labels is None else {"image": records, "label": labels}

    def _labels_at(self, positions: Indices) -> list[Any] | None:
        if self.labels is None:
            return None
        if isinstance(self.labels, np.ndarray):
            found: list[Any] = self.labels[positions].tolist()
            return found
        return [self.labels[position] for position in positions.tolist()]

    def _varies(self, column: str) -> bool:
        return column == "image"
