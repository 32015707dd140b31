"""One `.ffr` file that lies elsewhere: what is known of it, and its tables, once they are needed."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ChangedError, ChecksumError, FormatError
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Extension, decode
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.remote.client import FetchedObject
from ffrecord.remote.storage import Storage
from ffrecord.remote.tables import Holder, ShardFacts, Tables, parse

MORE = 4 << 10  # bytes behind the tables that come with them: mostly all that lies before the first sample
START = 64 << 10  # bytes of a file of which nothing is known


class RemoteShard:
    """A `.ffr` file in a `Storage`, as `OpenedFile` is one of this machine.

    Args:
        storage: where it is.
        name: of the object in it; "" if it is all of it.
        facts: as its dataset.json has them, or its own header.
        check: compare the CRC-32 of the tables.

    Attributes:
        path: its URL, without what is secret.
        n, size, crc: samples, bytes, CRC-32 of its tables; 0 in old files that have none.
        etag: of the object of which tables were taken; None if they were not yet.
        copy: of the cache; None without one.
        holder: of the tables of all shards of a reader; None as long as it belongs to none.
    """

    __slots__ = (
        "_check",
        "_first",
        "_gap",
        "_versions",
        "copy",
        "crc",
        "etag",
        "holder",
        "n",
        "name",
        "path",
        "size",
        "storage",
    )

    fd = -1
    spans = None
    whole = None
    checksum = "CRC-32"

    def __init__(self, storage: Storage, name: str, facts: ShardFacts, *, check: bool) -> None:
        self.storage, self.name = storage, name
        self.path = storage.show(name)
        self.n, self.size, self.crc = facts
        self.etag: str | None = None
        self.copy: Any = None
        self.holder: Holder[RemoteShard] | None = None
        self._check = check
        self._gap: bytes | None = None
        self._versions = True  # its etags tell them
        self._first: Tables | None = None  # that came when it was opened

    def __repr__(self) -> str:
        return f"<RemoteShard {self.path}>"

    @property
    def facts(self) -> ShardFacts:
        """What tells it from others."""
        return ShardFacts(self.n, self.size, self.crc)

    def close(self) -> None:
        """Nothing is open."""

    def check_all_there(self) -> None:
        """Tables are in memory."""

    # Tables

    @property
    def tables(self) -> Tables:
        """Fetched, if they are not here.

        Raises:
            ChangedError: it is not the shard of which the facts are.
            ChecksumError, FormatError: they are damaged.
            RemoteError: they cannot be had.
        """
        return self.load() if self.holder is None else self.holder.get(self)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each sample in the file, bytes."""
        return self.tables.bounds[:-1]

    @property
    def checksums(self) -> npt.NDArray[np.uint32]:
        """CRC-32 of each sample."""
        return self.tables.checksums

    @property
    def data_start(self) -> int:
        """Offset of the first sample, bytes."""
        return self.tables.data_start

    def check_header(self) -> None:
        """Fetch the tables once more, and compare them.

        Raises:
            As `tables`.
        """
        self._taken(check=True)

    def load(self) -> Tables:
        """The tables, from the cache or from where the shard is."""
        first, self._first = self._first, None
        if first is not None and (self._check or not self._checks):
            return first
        kept = None if self.copy is None else self.copy.tables()
        if kept is not None:
            return self._parsed(kept, check=self._check)
        tables, data = self._taken(check=self._checks)
        self.keep_tables(tables, data)
        return tables

    @property
    def _checks(self) -> bool:
        """Whether tables are compared: also those that the cache gets, or nobody would know later."""
        return self._check or self.copy is not None

    def keep_tables(self, tables: Tables, data: Any = b"") -> None:
        """Give them to the cache, if that has not got them.

        Args:
            data: bytes of the shard from its start, as many as came with the tables.
        """
        if self.copy is None or not self.copy.needs_tables:
            return
        head = bytes(memoryview(data or self._packed(tables))[: tables.data_start])
        if len(head) < tables.data_start:
            head += bytes(self._range(len(head), tables.data_start).data)
        self.copy.store_tables(head)

    def _packed(self, tables: Tables) -> bytes:
        """The tables as they are in the shard, and what follows them, if that is known."""
        prefix, checksums, offsets = ffr_layout.pack_tables(tables.checksums, tables.bounds[:-1])
        ffr_layout.PREFIX.pack_into(prefix, 0, self.crc, self.n)
        return b"".join([prefix, checksums, offsets, self._gap or b""])

    def _taken(self, *, check: bool) -> tuple[Tables, Any]:
        """Tables as they are now, and what came with them; what does not match is fetched a second time."""
        try:
            return self._fetched(check=check)
        except (ChangedError, ChecksumError, FormatError):
            return self._fetched(check=check)

    def _fetched(self, *, check: bool) -> tuple[Tables, Any]:
        found = self._range(0, min(self.size, ffr_layout.tables_end(self.n) + MORE))
        crc, n = ffr_layout.PREFIX.unpack_from(found.data)
        if (n, crc) != (self.n, self.crc):
            raise self._other(ShardFacts(n, found.size if found.size >= 0 else self.size, crc))
        tables = self._parsed(found.data, check=check)
        self.etag = found.etag if self._versions else None
        return tables, found.data

    def _range(self, start: int, stop: int) -> FetchedObject:
        found = self.storage.get_range(self.name, start, stop)
        if found.size not in (-1, self.size):
            raise self._other(ShardFacts(self.n, found.size, self.crc))
        return found

    def _parsed(self, data: Any, *, check: bool) -> Tables:
        with add_path_to_errors(self.path):
            return parse(data, self.n, self.size, self.path, check=check)

    def _other(self, found: ShardFacts) -> ChangedError:
        return ChangedError(
            f"{self.path}: replaced after it was opened, or after its dataset.json was written: (samples, size, CRC-32 "
            f"of tables) {tuple(found)}, expected {tuple(self.facts)}"
        )

    # Records

    def get_range(self, start: int, stop: int) -> FetchedObject:
        """Bytes [start, stop) of it.

        Raises:
            ChangedError: it is another object by now.
        """
        try:
            found = self.storage.get_range(self.name, start, stop, self.etag)
        except ChangedError:
            # Copies of an object, behind one address, may have different etags, and so may one written once more. They
            # are no longer looked at then: whatever is read has its checksum.
            self.check_header()
            self._versions, self.etag = False, None
            found = self.storage.get_range(self.name, start, stop)
        if found.size not in (-1, self.size):
            raise self._other(ShardFacts(self.n, found.size, self.crc))
        return found

    # What it says about itself

    @property
    def extension(self) -> Extension | None:
        """What the file says about itself, or None.

        Raises:
            As `tables`; ChecksumError, FormatError: it is damaged.
        """
        if self._gap is None:
            kept = None if self.copy is None else self.copy.tables()
            if kept is None:
                tables, data = self._taken(check=self._checks)
                self._keep_gap(tables, data)
                self.keep_tables(tables, data)
            else:
                self._keep_gap(self._parsed(kept, check=False), kept)
        return self._decoded(self._gap or b"")

    def _keep_gap(self, tables: Tables, data: Any) -> None:
        start, stop = ffr_layout.tables_end(self.n), tables.data_start
        if stop - start > ffr_layout.BLOCK_MAX:
            raise FormatError(
                f"{self.path}: {stop - start} bytes before sample 0, expected at most {ffr_layout.BLOCK_MAX}"
            )
        gap = bytes(memoryview(data)[start:stop])
        if start + len(gap) < stop:
            gap += bytes(self._range(start + len(gap), stop).data)
        self._gap = gap

    def _decoded(self, gap: bytes) -> Extension | None:
        if not gap:
            return None
        with add_path_to_errors(self.path):
            header = ffr_layout.unpack_block_header(gap[: ffr_layout.BLOCK.size], len(gap), self.size)
            end = ffr_layout.BLOCK.size + header.payload_size
            if self._check and gap.count(0, end) != len(gap) - end:
                raise FormatError(f"reserved space behind the {end} bytes of the extension block is not zeros")
            return decode(header, gap[ffr_layout.BLOCK.size : end], self.path)


def listed(storage: Storage, shard: Shard, *, check: bool, alone: bool = False) -> RemoteShard:
    """Return a shard that a dataset.json lists, or that is all of `storage`; nothing is asked for."""
    return RemoteShard(
        storage, "" if alone else shard.name, ShardFacts(shard.samples, shard.size, shard.crc), check=check
    )


def opened(storage: Storage, *, check: bool) -> RemoteShard:
    """A shard of which nothing is known, its header and tables fetched, in one request or two.

    Raises:
        MissingFileError, RemoteError: it cannot be had.
        FormatError, ChecksumError: it is no such file, unfinished or damaged.
    """
    try:
        return _opened(storage, check=check)
    except (ChecksumError, FormatError):
        return _opened(storage, check=check)


def _opened(storage: Storage, *, check: bool) -> RemoteShard:
    found = storage.get_start("", START)
    data = found.data
    with add_path_to_errors(storage.shown):
        if found.size < 0:
            raise ArgumentError(f"{storage.shown}: its server does not say how large it is")
        crc, n = ffr_layout.unpack_prefix(bytes(memoryview(data)[: ffr_layout.PREFIX.size]), found.size)
        shard = RemoteShard(storage, "", ShardFacts(n, found.size, crc), check=check)
        stop = min(found.size, ffr_layout.tables_end(n) + MORE)
        if stop > len(data):
            data = bytes(data) + bytes(storage.get_range("", len(data), stop, found.etag).data)
        tables = parse(data, n, found.size, shard.path, check=check)
    shard.etag, shard._first = found.etag, tables
    shard._keep_gap(tables, data)
    shard._decoded(shard._gap or b"")
    return shard
