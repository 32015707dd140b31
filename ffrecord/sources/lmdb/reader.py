"""LMDB databases: any of keys → bytes, read in place.

The library is not used. A value lies in one piece in the data file, so an index of where each is makes a database a
file of records like any other: read in batches, in any order, by threads, after a fork; and no page of a damaged file
can crash the process. There is no lock, either; instead each batch is followed by a look at whether somebody wrote.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from ffrecord.errors import ArgumentTypeError, add_file_to_errors
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import Read, RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import OnError
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.lmdb.index import LMDBIndex, data_files, index, names_of_databases, shown
from ffrecord.sources.lmdb.pages import Pages, changed, snapshot
from ffrecord.sources.names import Names, joined

Choose = Callable[[Pages, IndexCache], LMDBIndex]


class EnvironmentReader(RecordReader):
    """Records of LMDB environments, chosen by a subclass.

    Args:
        source: as `lmdb_index.data_files` takes it.
        choose: the records of an environment.
        check_data, io, on_error, index_cache: as for `LMDBReader`.

    Attributes:
        transactions: of each environment, that which is read.
    """

    def __init__(
        self,
        source: Source,
        choose: Choose,
        check_data: object,
        *,
        io: str,
        on_error: OnError,
        index_cache: IndexCache,
    ) -> None:
        self._index_cache = index_cache
        self._names: list[Names] = []
        self.transactions: list[int] = []
        files: list[SpanFile] = []
        try:
            for file in data_files(source):
                with Pages(file) as pages:
                    found = choose(pages, index_cache)
                    files.append(SpanFile(file, found.offsets, found.sizes, whole=io == "mmap"))
                    # Its time may change all along: a writer that has not committed yet leaves our pages alone.
                    pages.check_same(files[-1].device, files[-1].inode)
                    self._names.append(found.names)
                    self.transactions.append(pages.snapshot.transaction)
            super().__init__(files, check_data, io=io, on_error=on_error)
        except BaseException:
            for opened in files:
                opened.close()
            raise

    def keys(self) -> Sequence[str]:
        """The key of each record, in order."""
        if len(self._names) > 1:
            self._names = [joined(self._names)]
        return self._names[0]

    def _record_name(self, file: int, local: int) -> str:
        before = sum(each.n for each in self._files[:file])
        return f"key {self.keys()[before + local]!r}"

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "index_cache": self._index_cache}

    def _identity_text(self) -> str:
        return f"{super()._identity_text()} {self.transactions}"

    def check_unchanged(self) -> None:
        """Raise FormatError if a transaction was committed since this reader was made."""
        for file, transaction in zip(self._files, self.transactions, strict=True):
            _check_unchanged(file, transaction)

    def _read_single(self, index: int) -> Array | Read | None:
        found = super()._read_single(index)
        if found is not None:
            self.check_unchanged()
        return found

    def _read_sync(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False
    ) -> BatchOutcome:
        outcome = super()._read_sync(form, indices, out, go_on)
        self.check_unchanged()
        return outcome

    def _begin(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, **options: Any
    ) -> Callable[[], BatchOutcome]:
        wait = super()._begin(form, indices, out, **options)

        def checked() -> BatchOutcome:
            outcome = wait()
            self.check_unchanged()
            return outcome

        return checked


class LMDBReader(EnvironmentReader):
    """The values of LMDB databases, in the order of their keys.

    Args:
        source: the directory of an environment, its data file, a glob pattern of such files, or a list or tuple of any
            of these, one after the other. As LMDB 0.9 writes them on a little-endian machine of 64 bits.
        check_data: nothing is compared: LMDB has no checksums.
        io: how to read, as for `FileReader`. With "mmap" what is returned changes if somebody writes to the file later.
        on_error: what a record that cannot be read does, as for `FileReader`.
        index_cache: where the index is kept, as `sources.index_file.cached` takes it.
        database: name of a database in the environment; None for the main one, which has no name.

    Raises:
        FileNotFoundError, ValueError, TypeError: there is nothing at `source`; no such database.
        FormatError: no LMDB environment, of a kind that is not read here (several values of one key, 32 bits,
            big-endian), or damaged in the pages with its keys.

    Keys are bytes in LMDB, and come as `str`: UTF-8, with surrogates for what is not (PEP 383), so that
    `key.encode(errors="surrogateescape")` are the bytes.

    What is read is the last transaction that was committed when the reader was made. LMDB may use its pages again after
    another one was committed. So a batch is returned only if there was none by then; otherwise it raises FormatError,
    and the database is to be opened again.
    """

    format = "lmdb"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        database: str | bytes | None = None,
    ) -> None:
        self._database = _as_bytes(database)
        options: dict[str, Any] = {"io": io, "on_error": on_error, "index_cache": index_cache}
        super().__init__(source, self._choose, check_data, **options)

    def _choose(self, pages: Pages, index_cache: IndexCache) -> LMDBIndex:
        return index(pages, self._database, index_cache)

    @property
    def databases(self) -> list[str]:
        """The names of the databases in the first environment, as `database` takes them; looked up in the file."""
        with Pages(self._fnames[0]) as pages:
            return [shown(name) for name in names_of_databases(pages)]

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "database": self._database}


def _as_bytes(database: str | bytes | None) -> bytes | None:
    if database is None or isinstance(database, bytes):
        return database
    if not isinstance(database, str):
        raise ArgumentTypeError(f"database must be str, bytes or None, not {type(database).__name__}")
    return database.encode(errors="surrogateescape")


def _check_unchanged(file: SpanFile, transaction: int) -> None:
    """Raise FormatError if there was another transaction. A file of that name which is another one says nothing."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with add_file_to_errors("looking whether it was written to", file.path):
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) == (file.device, file.inode):
                now = snapshot(fd, file.path).transaction
                if now != transaction:
                    raise changed(file.path, transaction, now)
        finally:
            os.close(fd)
