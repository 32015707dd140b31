"""LMDB databases of keys → bytes, read in place.

The library is not used. A value lies in one piece in the data file, so an index of all values makes a database a file
of records like any other. It is read in batches, in any order, by threads, and after a fork; and a damaged page cannot
crash the process. There is no lock: after each batch, the reader checks whether somebody wrote to the file.
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
from ffrecord.sources.files import add_hint_to_errors
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.lmdb.index import LMDBIndex, data_files, index, names_of_databases
from ffrecord.sources.lmdb.pages import Pages, changed_error, snapshot
from ffrecord.sources.names import Names, concatenate_names, name_as_text
from ffrecord.system.closing import close_unless_done
from ffrecord.system.values import describe_wrong

Choose = Callable[[Pages, IndexCache], LMDBIndex]


class EnvironmentReader(RecordReader):
    """Records of LMDB environments, chosen by a subclass.

    Args:
        source: see `lmdb.index.data_files`.
        choose: returns the records of an environment.
        check_data, io, on_error, index_cache: see `LMDBReader`.

    Attributes:
        transactions: number of the transaction that is read, for each environment.
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
        **settings: object,
    ) -> None:
        self._names: list[Names] = []
        self.transactions: list[int] = []
        files: list[SpanFile] = []
        with close_unless_done(files):
            for file in data_files(source):
                with add_hint_to_errors(file), Pages(file) as pages:
                    found = choose(pages, index_cache)
                    files.append(SpanFile(file, found.offsets, found.sizes, whole=io == "mmap"))
                    # The file's time may change meanwhile, but not its inode: before its commit, a writer does not
                    # touch our pages.
                    pages.check_same(files[-1].device, files[-1].inode)
                    self._names.append(found.names)
                    self.transactions.append(pages.snapshot.transaction)
            settings["index_cache"] = index_cache
            super().__init__(files, check_data, io=io, on_error=on_error, settings=settings)

    def keys(self) -> Sequence[str]:
        """Return the key of each record, in order."""
        if len(self._names) > 1:
            # In place of its parts, so that their memory is freed.
            self._names = [concatenate_names(self._names)]
        return self._names[0]

    def _record_name(self, file: int, local: int) -> str:
        before = sum(each.n for each in self._files[:file])
        return f"key {self.keys()[before + local]!r}"

    def _identity_text(self) -> str:
        return f"{super()._identity_text()} {self.transactions}"

    def check_unchanged(self) -> None:
        """Raise FormatError if a transaction was committed since this reader was made."""
        for file, transaction in zip(self._files, self.transactions, strict=True):
            _check_unchanged(file, transaction)

    def _read_single(self, index: int) -> Array | Read | None:
        found = super()._read_single(index)
        if found is not None:
            # After the read: a writer that commits meanwhile may reuse pages.
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

    Keys are bytes in LMDB, and `str` here: UTF-8, with surrogates for other bytes (PEP 383), so that
    `key.encode(errors="surrogateescape")` gives the bytes.

    The reader gives the data of the last transaction that was committed when it was made. After another commit, LMDB
    may reuse its pages. So a batch is returned only if there was no commit until then; otherwise it raises FormatError,
    and you have to open the database again.

    Args:
        source: the directory of an environment, its data file, a glob pattern of such files, or a list or tuple of
            these, in the given order. They must be from LMDB 0.9 on a little-endian machine of 64 bits.
        check_data: without effect: LMDB has no checksums.
        io: see `FileReader`. With "mmap", returned arrays change if somebody writes to the file later.
        on_error: what to do about a record that cannot be read, see `FileReader`.
        index_cache: place to keep the index; see `ffrecord.open`.
        database: name of a database in the environment; None for the main one, which has no name.

    Raises:
        FileNotFoundError, ValueError, TypeError: there is nothing at `source`; or there is no such database.
        FormatError: not an LMDB environment; of a kind that is not read here (several values of one key, 32 bits,
            big-endian); or damaged in the pages with its keys.
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
        super().__init__(source, self._choose, check_data, **options, database=self._database)

    def _choose(self, pages: Pages, index_cache: IndexCache) -> LMDBIndex:
        return index(pages, self._database, index_cache)

    @property
    def databases(self) -> list[str]:
        """The names of the databases in the first environment, for `database`; read from the file."""
        with Pages(self._fnames[0]) as pages:
            return [name_as_text(name) for name in names_of_databases(pages)]


def _as_bytes(database: str | bytes | None) -> bytes | None:
    if database is None or isinstance(database, bytes):
        return database
    if not isinstance(database, str):
        raise ArgumentTypeError(describe_wrong("database", database, "str, bytes or None"))
    return database.encode(errors="surrogateescape")


def _check_unchanged(file: SpanFile, transaction: int) -> None:
    """Raise FormatError if there was another transaction. A file that was replaced is not compared."""
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with add_file_to_errors("checking for changes", file.path):
        try:
            status = os.fstat(fd)
            # A new file at this path does not touch the pages of ours.
            if (status.st_dev, status.st_ino) == (file.device, file.inode):
                now = snapshot(fd, file.path).transaction
                if now != transaction:
                    raise changed_error(file.path, transaction, now)
        finally:
            os.close(fd)
