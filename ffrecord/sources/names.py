"""Names of records in arrays, without a Python object for each."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, plural
from ffrecord.kernels import _names
from ffrecord.sources.index_file import check_columns, check_there, kept_file
from ffrecord.sources.recordio._recordio import gather

Blob = npt.NDArray[np.uint8]
Table = npt.NDArray[np.int64]
DECODED_AT_ONCE = 4096  # names
LOOKED_AT_ONCE = 1 << 16


def name_as_text(name: bytes) -> str:
    """Return a name as `str`, in a form that keeps any bytes."""
    return name.decode(errors="surrogateescape")


class Names(Sequence[str]):
    """A sequence of `str` in one array of bytes.

    Names are UTF-8. Other bytes come as lone surrogates (PEP 383), so that every name survives the way there and back.

    If the names are in an index file that was cut since, access to them raises OSError.

    Args:
        blob: uint8, the names back to back. Kept, not copied.
        offsets: int64 [n + 1], start of each name in `blob`; ascending, from 0 to its size. Kept, not copied.

    Raises:
        ValueError: the offsets are invalid.
    """

    def __init__(self, blob: Blob, offsets: Table) -> None:
        # Offsets may come from an index file, and compiled code relies on them.
        _names.check(blob, offsets)
        self.blob, self.offsets = blob, offsets
        self._file = kept_file(offsets)
        self._order: Table | None = None
        self._finder: _names.NameOrder | None = None
        self._lock, self._owner = threading.Lock(), os.getpid()

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        """Return the names of strings."""
        encoded = [name.encode(errors="surrogateescape") for name in names]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(each) for each in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self._decode(self.offsets[i], self.offsets[i + 1])

    def __iter__(self) -> Iterator[str]:
        # Many names at once: one `tolist` and one `tobytes` serve them all.
        for start in range(0, len(self), DECODED_AT_ONCE):
            bounds = self.offsets[start : start + DECODED_AT_ONCE + 1].tolist()
            piece = self.blob[bounds[0] : bounds[-1]].tobytes()
            # Before any name is used: lost pages of the file were read as zeros.
            check_there(self._file)
            for i in range(len(bounds) - 1):
                name = piece[bounds[i] - bounds[0] : bounds[i + 1] - bounds[0]]
                yield name_as_text(name)

    def _decode(self, start: Any, stop: Any) -> str:
        name = self.blob[start:stop].tobytes()
        check_there(self._file)
        return name_as_text(name)

    @property
    def order(self) -> Table:
        """The indices in ascending order of the names' bytes, equal ones ascending: int64 [n]. Computed once."""
        if self._order is None:
            if self._owner != os.getpid():
                # A fork copied this lock: a thread of the parent may hold it, and it does not exist here.
                self._lock, self._owner = threading.Lock(), os.getpid()
            with self._lock:
                # Another thread may have made it meanwhile.
                if self._order is None:
                    order = _names.sort(self.blob, self.offsets)
                    # An order of lost names must not be kept.
                    check_there(self._file)
                    self._order = order
        return self._order

    def _make_finder(self) -> _names.NameOrder:
        if self._finder is None:
            self._finder = _names.NameOrder(self.blob, self.offsets, self.order)
        return self._finder

    def find(self, name: str) -> int:
        """Return the index of `name`, the last one if several are equal; -1 if there is none. Takes O(log n)."""
        encoded = _encode(name)
        found = -1 if encoded is None else (self._finder or self._make_finder()).find(encoded)
        if self._file is not None:
            check_there(self._file)
        return found

    def find_each(self, names: Sequence[str]) -> Table:
        """Return the index of each of k names, as `find` does: int64 [k]."""
        found = self._make_finder().find_each([_encode(name) for name in names])
        check_there(self._file)
        return found

    def place(self, name: str) -> int:
        """Return how many names are below `name`, compared by bytes.

        There, in `order`, begin the names with that prefix.
        """
        encoded = _encode(name)
        if encoded is None:
            raise ValueError(f"name is {name!r}, expected text that can be encoded")
        found = self._make_finder().place(encoded)
        check_there(self._file)
        return found

    def end_in(self, suffixes: Sequence[str]) -> bool:
        """Tell whether every name ends in one of `suffixes`, which are in lower case.

        The ASCII case of the names does not matter.
        """
        # In pieces, so that temporary arrays stay small.
        pieces = range(0, len(self), LOOKED_AT_ONCE)
        return all(self._end_in(suffixes, slice(start, start + LOOKED_AT_ONCE)) for start in pieces)

    def _end_in(self, suffixes: Sequence[str], piece: slice) -> bool:
        starts, ends = self.offsets[:-1][piece], self.offsets[1:][piece]
        for suffix in suffixes:
            wanted = np.frombuffer(suffix.encode(), np.uint8)
            # In a shorter name, the bytes compared would be those of the name before.
            long = ends - starts >= len(wanted)
            found = np.zeros(len(ends), bool)
            tails = self.blob[ends[long, None] - np.arange(len(wanted), 0, -1)]
            found[long] = (np.where((tails >= ord("A")) & (tails <= ord("Z")), tails | 0x20, tails) == wanted).all(1)
            # Only names without a match go on to the next suffix.
            starts, ends = starts[~found], ends[~found]
        check_there(self._file)
        return not len(ends)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) >= 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.blob, other.blob)
        if isinstance(other, list | tuple):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    # It equals lists, which have no hash either.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3])) + (", …" if len(self) > 3 else "")
        return f"<Names of {plural(len(self), 'record')}: {shown}>"

    def pick(self, chosen: Table, sizes: Table | None = None) -> "Names":
        """Return the names at `chosen`, int64 [k], in that order; with `sizes`, only so many first bytes of each."""
        sizes = np.diff(self.offsets)[chosen] if sizes is None else sizes
        offsets = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        blob = np.empty(int(offsets[-1]), np.uint8)
        gather(self.blob, self.offsets[chosen], sizes, offsets[:-1], blob)
        check_there(self._file)
        return Names(blob, offsets)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays for `from_arrays`, for an index that is kept."""
        return {"names": self.blob, "name_offsets": self.offsets}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> "Names":
        """Return the names of arrays from `arrays`.

        Raises:
            ValueError: the offsets are invalid.
        """
        return cls(arrays["names"], arrays["name_offsets"])

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by content: the other process may not have the index file.
        return Names, (self.blob, self.offsets)


def concatenate_names(parts: Sequence[Names]) -> Names:
    """Concatenate names. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(len(part.blob) for part in parts)])
    offsets = [part.offsets[1:] + start for part, start in zip(parts, ends, strict=False)]
    blobs = [part.blob for part in parts]
    # The empty arrays serve when there are no parts.
    blob, bounds = np.concatenate([np.zeros(0, np.uint8), *blobs]), np.concatenate([np.zeros(1, np.int64), *offsets])
    # After the copies, since lost pages were copied as zeros.
    for part in parts:
        check_there(part._file)
    return Names(blob, bounds)


def check_members(arrays: dict[str, npt.NDArray[Any]], /, **dtypes: type[np.generic]) -> None:
    """Raise unless `arrays` are columns of members, their names, and those of folders.

    It serves as `check` of `cached_index`. The positions of members are compared with the file when they are read.
    """
    n, named = check_columns(arrays, **dtypes), len(Names.from_arrays(arrays))
    folders = Names(arrays["folders"], arrays["folder_offsets"])
    if named != n or not all(name.endswith("/") for name in folders):
        raise FormatError(f"it has {n} members with {plural(named, 'name')}, and folders {folders[:3]!r}")


def _encode(name: str) -> bytes | None:
    """Return the bytes of a name; None for a string with surrogates that stand for no byte."""
    try:
        return name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return None
