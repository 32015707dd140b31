"""Indexes of LMDB databases: the positions of records, in a form that can be kept."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOENT
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError, MissingFileError
from ffrecord.reading.paths import Source, check_type
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache, cached_index, check_columns
from ffrecord.sources.lmdb.pages import Pages
from ffrecord.sources.lmdb.tree import TreeRecords, databases, records
from ffrecord.sources.names import Names, concatenate_names, name_as_text

DATA = "data.mdb"
SHOWN = 8  # most names of databases in a message

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LMDBIndex:
    """The records of one database, in the order of their keys.

    Attributes:
        offsets, sizes: int64 [n], offset and size of the values in the file, bytes.
        names: the keys.
    """

    offsets: Table
    sizes: Table
    names: Names

    def reorder(self, order: Table) -> "LMDBIndex":
        """Return the records in another order, int64 [n]."""
        return LMDBIndex(self.offsets[order], self.sizes[order], self.names.pick(order))

    def add_prefix(self, prefix: bytes) -> "LMDBIndex":
        """Return the records with `prefix` before each name."""
        offsets = self.names.offsets + len(prefix) * np.arange(len(self.names.offsets))
        blob = np.empty(int(offsets[-1]), np.uint8)
        # The places of all prefixes, without a Python object for each key.
        before = (offsets[:-1, None] + np.arange(len(prefix))).reshape(-1)
        rest = np.ones(len(blob), bool)
        rest[before] = False
        blob[before] = np.tile(np.frombuffer(prefix, np.uint8), len(self.names))
        blob[rest] = self.names.blob
        return LMDBIndex(self.offsets, self.sizes, Names(blob, offsets))


def concatenate(indexes: Sequence[LMDBIndex]) -> LMDBIndex:
    """Concatenate the records of one or more indexes."""
    return LMDBIndex(
        np.concatenate([index.offsets for index in indexes]),
        np.concatenate([index.sizes for index in indexes]),
        concatenate_names([index.names for index in indexes]),
    )


def data_files(source: Source) -> list[str]:
    """Return the data files of the environments that `source` stands for.

    Args:
        source: the directory of an environment, its data file, a glob pattern, or a list or tuple of these.

    Raises:
        TypeError: `source` has another type.
        FileNotFoundError, ValueError: there is none.
    """
    given = list(source) if isinstance(source, list | tuple) else [source]
    return [file for each in given for file in _data_files(check_type(each))]


def _data_files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return expand(path, (DATA,))
    inside = os.path.join(path, DATA)
    if not os.path.exists(inside):
        raise MissingFileError(ENOENT, f"{path}: there is no {DATA} in this directory", path)
    return expand(inside, (DATA,))


def index(pages: Pages, database: bytes | None, index_cache: IndexCache) -> LMDBIndex:
    """Return the records of a database; with None those of the main one, without the databases named in it.

    Raises:
        ValueError: there is no such database, or there are only named ones.
        FormatError, OSError: see `tree.records`; or the file was written to meanwhile.
    """
    arrays = _load_kept(pages, database, index_cache) if index_cache else _arrays(pages, database)
    return LMDBIndex(arrays["offsets"], arrays["sizes"], Names.from_arrays(arrays))


def _load_kept(pages: Pages, database: bytes | None, index_cache: IndexCache) -> dict[str, npt.NDArray[Any]]:
    # A hash, since names of databases may be long, and have any bytes.
    kind = "lmdb-1" if database is None else f"lmdb-1-{hashlib.sha256(database).hexdigest()[:16]}"
    found = cached_index(pages.path, kind, lambda: _arrays(pages, database), index_cache, _check_kept)
    if int(found["transaction"][0]) == pages.snapshot.transaction:
        return dict(found)
    # The transaction is compared, too: pages written through a mapping do not change a file's time at once.
    return _arrays(pages, database)


def _check_kept(arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Raise unless these are arrays of `_arrays`.

    The positions of values are compared with the file when they are read.
    """
    n, nested_names = check_columns(arrays, offsets=np.int64, sizes=np.int64), len(Names.from_arrays(arrays))
    if (nested_names, check_columns(arrays, transaction=np.uint64)) != (n, 1):
        raise FormatError(f"it has {n} records, but {nested_names} keys")


def _arrays(pages: Pages, database: bytes | None) -> dict[str, npt.NDArray[Any]]:
    found = _records(pages, database)
    # A writer may have reused pages during the walk.
    pages.check_unchanged()
    names = Names(found.keys, found.key_offsets)
    transaction = np.array([pages.snapshot.transaction], np.uint64)
    return {"offsets": found.offsets, "sizes": found.sizes, "transaction": transaction, **names.arrays()}


def _records(pages: Pages, database: bytes | None) -> TreeRecords:
    main = records(pages, pages.snapshot.main)
    if database is not None:
        trees = databases(pages, main)
        if database not in trees:
            raise ArgumentError(
                f"{pages.path}: database is {name_as_text(database)!r}, expected one of {_list_names(list(trees))}"
            )
        return records(pages, trees[database])
    if main.nested.all() and len(main.nested):
        raise ArgumentError(
            f"{pages.path}: all records are in named databases; pass one as database=: "
            f"{_list_names(nested_names(main))}"
        )
    return main.without_nested()


def names_of_databases(pages: Pages) -> list[bytes]:
    """Return the names of the databases in the main one, in order."""
    return nested_names(records(pages, pages.snapshot.main))


def nested_names(main: TreeRecords) -> list[bytes]:
    """Return the names of the databases among the records of the main one."""
    return [main.key(i) for i in np.flatnonzero(main.nested).tolist()]


def _list_names(names: list[bytes]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > SHOWN else ""
    return ", ".join(repr(name_as_text(name)) for name in names[:SHOWN]) + more if names else "none"
