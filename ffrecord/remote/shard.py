"""One remote `.ffr` file: its facts, and its tables, which are read at the first use."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import REPLACED, ArgumentError, ChangedError, ChecksumError, FormatError
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Extension, decode
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.remote.client import FetchedObject
from ffrecord.remote.storage import Storage
from ffrecord.remote.tables import Holder, ShardFacts, Tables, parse

MORE = 4 << 10  # bytes behind the tables that are read with them: mostly the whole gap before the first sample
START = 64 << 10  # bytes of the first read of an unknown file


class RemoteShard:
    """A `.ffr` file in a `Storage`: the counterpart of `OpenedFile` for local files.

    Args:
        storage: its storage.
        name: name of the object in the storage; "" if the file is the whole storage.
        facts: facts from dataset.json, or from its own header.
        check: compare the CRC-32 of the tables.

    Attributes:
        path: its URL, without secrets.
        n, size, crc: samples, bytes, CRC-32 of its tables; `crc` is 0 in old files that have none.
        etag: etag of the object that the tables came from; None before that.
        copy: its copy in the cache; None without a cache.
        holder: holder of the tables of all shards of a reader; None if no reader has this shard.
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
        self._versions = True  # whether etags tell versions of the object apart
        self._first: Tables | None = None  # tables that came when it was opened, until their first use

    def __repr__(self) -> str:
        return f"<RemoteShard {self.path}>"

    @property
    def facts(self) -> ShardFacts:
        """The numbers that identify the shard."""
        return ShardFacts(self.n, self.size, self.crc)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def check_all_there(self) -> None:
        """Do nothing: the tables are in memory."""

    # Tables

    @property
    def tables(self) -> Tables:
        """The tables; they are read at the first use.

        Raises:
            ChangedError: the object is not the shard with these facts.
            ChecksumError, FormatError: the tables are damaged.
            RemoteError: they cannot be read.
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
        """Read the tables again, and check them.

        Raises:
            The exceptions of `tables`.
        """
        self._read_tables(check=True)

    def load(self) -> Tables:
        """Return the tables, from the cache or from the store."""
        # Kept only until here: the holder keeps tables within its bounds.
        first, self._first = self._first, None
        # Unchecked ones must not get into the cache.
        if first is not None and (self._check or not self._checks):
            return first
        kept = None if self.copy is None else self.copy.tables()
        # From the cache: no request at all.
        if kept is not None:
            return self._parse(kept, check=self._check)
        tables, data = self._read_tables(check=self._checks)
        self.keep_tables(tables, data)
        return tables

    @property
    def _checks(self) -> bool:
        """True if tables are compared with their CRC-32.

        The cache gets only compared ones: later, nobody could notice damage.
        """
        return self._check or self.copy is not None

    def keep_tables(self, tables: Tables, data: Any = b"") -> None:
        """Give the tables to the cache if it does not have them.

        Args:
            data: first bytes of the shard, as many as came with the tables.
        """
        # A cache that is full needs nothing.
        if self.copy is None or not self.copy.needs_tables:
            return
        head = bytes(memoryview(data or self._pack_tables(tables))[: tables.data_start])
        # The gap between tables and samples belongs to the copy as well.
        if len(head) < tables.data_start:
            head += bytes(self._range(len(head), tables.data_start).data)
        self.copy.store_tables(head)

    def _pack_tables(self, tables: Tables) -> bytes:
        """Return the tables in the byte layout of the shard, with the gap behind them if it is known."""
        prefix, checksums, offsets = ffr_layout.pack_tables(tables.checksums, tables.bounds[:-1])
        ffr_layout.PREFIX.pack_into(prefix, 0, self.crc, self.n)
        return b"".join([prefix, checksums, offsets, self._gap or b""])

    def _read_tables(self, *, check: bool) -> tuple[Tables, Any]:
        """Return the current tables, and the bytes that came with them.

        If they do not match, read them a second time.
        """
        try:
            return self._fetch_tables(check=check)
        # Damage on the way is gone the second time; a replaced object is not.
        except (ChangedError, ChecksumError, FormatError):
            return self._fetch_tables(check=check)

    def _fetch_tables(self, *, check: bool) -> tuple[Tables, Any]:
        # A little more than the tables: mostly the extension block comes along.
        found = self._range(0, min(self.size, ffr_layout.tables_end(self.n) + MORE))
        crc, n = ffr_layout.PREFIX.unpack_from(found.data)
        # The CRC-32 of the tables identifies the shard, whatever its etag.
        if (n, crc) != (self.n, self.crc):
            raise self._replaced_error(ShardFacts(n, found.size if found.size >= 0 else self.size, crc))
        tables = self._parse(found.data, check=check)
        self.etag = found.etag if self._versions else None
        return tables, found.data

    def _range(self, start: int, stop: int) -> FetchedObject:
        found = self.storage.get_range(self.name, start, stop)
        # -1: the server does not say.
        if found.size not in (-1, self.size):
            raise self._replaced_error(ShardFacts(self.n, found.size, self.crc))
        return found

    def _parse(self, data: Any, *, check: bool) -> Tables:
        with add_path_to_errors(self.path):
            return parse(data, self.n, self.size, self.path, check=check)

    def _replaced_error(self, found: ShardFacts) -> ChangedError:
        return ChangedError(
            f"{self.path}: {REPLACED}, or after its dataset.json was written: (samples, size, CRC-32 of tables) are "
            f"{tuple(found)}, expected {tuple(self.facts)}"
        )

    # Records

    def get_range(self, start: int, stop: int) -> FetchedObject:
        """Read bytes [start, stop) of the shard.

        Raises:
            ChangedError: it was replaced by another object.
        """
        try:
            found = self.storage.get_range(self.name, start, stop, self.etag)
        except ChangedError:
            # The servers behind one address may give different etags for one object. An object that was written again
            # with the same bytes has another etag, too. If the tables are the same, ignore etags from here on: each
            # record has its checksum.
            # Raises if the tables have changed.
            self.check_header()
            self._versions, self.etag = False, None
            found = self.storage.get_range(self.name, start, stop)
        if found.size not in (-1, self.size):
            raise self._replaced_error(ShardFacts(self.n, found.size, self.crc))
        return found

    # What it says about itself

    @property
    def extension(self) -> Extension | None:
        """The extension block of the file, or None.

        Raises:
            The exceptions of `tables`; ChecksumError, FormatError: the block is damaged.
        """
        if self._gap is None:
            # Tables of the cache have the gap with them.
            kept = None if self.copy is None else self.copy.tables()
            if kept is None:
                tables, data = self._read_tables(check=self._checks)
                self._keep_gap(tables, data)
                self.keep_tables(tables, data)
            else:
                self._keep_gap(self._parse(kept, check=False), kept)
        return self._decode_gap(self._gap or b"")

    def _keep_gap(self, tables: Tables, data: Any) -> None:
        start, stop = ffr_layout.tables_end(self.n), tables.data_start
        # Before it is read: the number comes from the file.
        if stop - start > ffr_layout.BLOCK_MAX:
            raise FormatError(
                f"{self.path} has {stop - start} bytes before sample 0, expected at most {ffr_layout.BLOCK_MAX}"
            )
        gap = bytes(memoryview(data)[start:stop])
        if start + len(gap) < stop:
            gap += bytes(self._range(start + len(gap), stop).data)
        self._gap = gap

    def _decode_gap(self, gap: bytes) -> Extension | None:
        if not gap:
            return None
        with add_path_to_errors(self.path):
            header = ffr_layout.unpack_block_header(gap[: ffr_layout.BLOCK.size], len(gap), self.size)
            end = ffr_layout.BLOCK.size + header.payload_size
            if self._check and gap.count(0, end) != len(gap) - end:
                raise FormatError(
                    f"the reserved space after the {end} bytes of the extension block has bytes that are not 0"
                )
            return decode(header, gap[ffr_layout.BLOCK.size : end], self.path)


def shard_of_listing(storage: Storage, shard: Shard, *, check: bool, alone: bool = False) -> RemoteShard:
    """Return a shard that a dataset.json lists, or a shard that is all of `storage`. Make no request."""
    return RemoteShard(
        storage, "" if alone else shard.name, ShardFacts(shard.samples, shard.size, shard.crc), check=check
    )


def open_shard(storage: Storage, *, check: bool) -> RemoteShard:
    """Open an unknown shard: read its header and tables, in one or two requests.

    Raises:
        MissingFileError, RemoteError: it cannot be read.
        FormatError, ChecksumError: it is not a `.ffr` file, or unfinished, or damaged.
    """
    try:
        return _open_shard(storage, check=check)
    # Damaged on the way, perhaps; once more.
    except (ChecksumError, FormatError):
        return _open_shard(storage, check=check)


def _open_shard(storage: Storage, *, check: bool) -> RemoteShard:
    # If the tables end within these bytes, one request is enough.
    found = storage.get_start("", START)
    data = found.data
    with add_path_to_errors(storage.shown):
        # The end of the last sample is the size of the file.
        if found.size < 0:
            raise ArgumentError(f"{storage.shown}: the server does not say how large the file is (Content-Length)")
        crc, n = ffr_layout.unpack_prefix(bytes(memoryview(data)[: ffr_layout.HEAD_SIZE]), found.size)
        shard = RemoteShard(storage, "", ShardFacts(n, found.size, crc), check=check)
        stop = min(found.size, ffr_layout.tables_end(n) + MORE)
        if stop > len(data):
            data = bytes(data) + bytes(storage.get_range("", len(data), stop, found.etag).data)
        tables = parse(data, n, found.size, shard.path, check=check)
    # The tables have come, so they need not be read again at the first use.
    shard.etag, shard._first = found.etag, tables
    shard._keep_gap(tables, data)
    shard._decode_gap(shard._gap or b"")
    return shard
