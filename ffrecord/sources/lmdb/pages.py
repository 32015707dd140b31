"""The pages of an LMDB environment: their layout, the two meta pages, and access to any page by number.

The file is an array of pages of one size. All numbers have the byte order and the width (32 or 64 bits) of the machine
that wrote it. Only little-endian, 64-bit files of data version 1 (LMDB 0.9) are read here.

    page 0, 1   header, then META: written in turn; the one with the higher transaction is valid
    branch      header, uint16 offset of each node; from the end of the page backwards nodes: NODE, key. The number of
                the child page is lo | hi << 16 | flags << 32
    leaf        the same; NODE, key, value of lo | hi << 16 bytes. With BIG, the number of an overflow page instead of
                the value; with SUBDATABASE, the value is a DATABASE
    overflow    header, then a value, which continues in the pages that follow

Sources are the documentation and the structures of the library (lmdb.h, mdb.c of 0.9).
"""

import os
import stat
from dataclasses import dataclass
from errno import EISDIR

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError, NotAFileError, TruncatedError, add_file_to_errors, file_error
from ffrecord.reading.batch_forms import Array
from ffrecord.system.atomic_file import read_into, read_up_to
from ffrecord.system.closing import ClosedByWith

HEADER = np.dtype([("number", "<u8"), ("pad", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")])
NODE = np.dtype([("lo", "<u2"), ("hi", "<u2"), ("flags", "<u2"), ("key_size", "<u2")])
DATABASE = np.dtype(
    [
        *(("pad", "<u4"), ("flags", "<u2"), ("depth", "<u2")),
        *(("branch_pages", "<u8"), ("leaf_pages", "<u8"), ("overflow_pages", "<u8"), ("entries", "<u8")),
        ("root", "<u8"),
    ]
)
META = np.dtype(
    [
        *(("magic", "<u4"), ("version", "<u4"), ("address", "<u8"), ("map_size", "<u8")),
        *(("free", DATABASE), ("main", DATABASE), ("last_page", "<u8"), ("transaction", "<u8")),
    ]
)
MAGIC, VERSION = 0xBEEFC0DE, 1
NARROW_HEADER = 12  # bytes of a page's header on 32-bit machines
ELSEWHERE = "which cannot be read here: copy it with mdb_dump and mdb_load"
METAS = 2
BRANCH, LEAF, META_PAGE = 0x01, 0x02, 0x08  # flags of a page; other flags mean other kinds
BIG, SUBDATABASE, DUPLICATES = 0x01, 0x02, 0x04  # flags of a node of a leaf
REVERSED, SORTED_DUPLICATES, INTEGER_KEYS = 0x02, 0x04, 0x08  # flags of a database
NO_PAGE = 2**64 - 1
DEPTH_MOST = 32  # CURSOR_STACK of the library
PAGE_LEAST, PAGE_MOST = 512, 65536
TRIES = 100

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """One database of an environment, as the root of its B+tree.

    Attributes:
        flags: flags of the database.
        depth: levels of pages; 0 if it is empty.
        entries: number of records.
        root: number of the page at the top.
    """

    flags: int
    depth: int
    entries: int
    root: int


@dataclass(frozen=True)
class Snapshot:
    """The content of the valid meta page.

    Attributes:
        page_size: bytes.
        last_page: number of the last page in use.
        transaction: number of the transaction that wrote it.
        main: the main database.
    """

    page_size: int
    last_page: int
    transaction: int
    main: Tree


def tree(record: np.void) -> Tree:
    """Return the numbers of a DATABASE."""
    return Tree(*(int(record[name]) for name in ("flags", "depth", "entries", "root")))


class Pages(ClosedByWith):
    """The pages of one file, as of the last transaction that was committed when it was opened. A context manager.

    Args:
        path: path of the data file.

    Attributes:
        fd: descriptor, or -1 after `close`.
        path, size: the path as given, and the size of the file in bytes.
        snapshot: content of the valid meta page.
        count: number of pages that can be read.

    Raises:
        OSError: it cannot be opened or read.
        FormatError: it is not an LMDB environment, or of a kind that is not read here.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with add_file_to_errors("opening it", path):
                self.size = _size(self.fd, path)
                self.snapshot = _read_snapshot(self.fd, path)
            # The file may have pages that are not in use, or may have been cut.
            self.count = min(self.size // self.snapshot.page_size, self.snapshot.last_page + 1)
        except BaseException:
            self.close()
            raise

    def read(self, numbers: Numbers) -> Array:
        """Read pages by number.

        Args:
            numbers: [k], each in [0, 2**63); any order, repeats allowed.

        Returns:
            uint8 [k, page size].

        Raises:
            FormatError: the file has no such page.
            OSError: reading failed.
        """
        page_size, order = self.snapshot.page_size, np.argsort(numbers, kind="stable")
        self._check_there(numbers)
        ascending = numbers[order]
        out = np.empty((len(numbers), page_size), np.uint8)
        # -2 is the neighbour of no page.
        first = np.flatnonzero(np.diff(ascending, prepend=-2) != 1)  # the first page of each run of neighbours
        runs = list(zip(first.tolist(), [*first[1:].tolist(), len(numbers)], ascending[first].tolist(), strict=True))
        if len(runs) > 1:
            for start, stop, number in runs:  # announce all of them first: a disk can work on several requests at once
                os.posix_fadvise(self.fd, number * page_size, (stop - start) * page_size, os.POSIX_FADV_WILLNEED)
        for start, stop, number in runs:
            self._fill(out[start:stop], number)
        # Already in order: the pages are not copied once more.
        if np.array_equal(order, np.arange(len(order))):
            return out
        back = np.empty_like(out)
        back[order] = out
        return back

    def _check_there(self, numbers: Numbers) -> None:
        beyond = numbers[numbers > self.snapshot.last_page]
        if len(beyond):
            raise FormatError(f"{self.path}: page number is {beyond[0]}, expected at most {self.snapshot.last_page}")
        cut = numbers[numbers >= self.count]
        if len(cut):
            raise TruncatedError(
                f"{self.path}: page {cut[0]} is missing: the file has {self.size} bytes, "
                f"{self.count} pages of {self.snapshot.page_size} bytes"
            )

    def _fill(self, out: Array, number: int) -> None:
        view, offset = out.reshape(-1).data, number * self.snapshot.page_size
        got = 0
        while got < len(view):
            try:
                count = read_into(self.fd, view[got:], offset + got)
            except OSError as error:
                raise file_error(error.errno or 5, f"{self.path}: reading page {number} failed", self.path) from None
            if count == 0:
                raise TruncatedError(
                    f"{self.path}: the file was cut to {offset + got} bytes, but page {number} ends at "
                    f"{offset + len(view)}"
                )
            got += count

    def check_unchanged(self) -> None:
        """Raise FormatError if a transaction was committed since: LMDB may have used these pages for something else."""
        with add_file_to_errors("checking for changes", self.path):
            now = snapshot(self.fd, self.path).transaction
        if now != self.snapshot.transaction:
            raise changed_error(self.path, self.snapshot.transaction, now)

    def check_same(self, device: int, inode: int) -> None:
        """Raise FormatError unless this file has that device and inode."""
        with add_file_to_errors("checking for changes", self.path):
            status = os.fstat(self.fd)
        if (status.st_dev, status.st_ino) != (device, inode):
            raise FormatError(f"{self.path}: the file changed while its index was made; open it again")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        fd, self.fd = self.fd, -1  # before the call: also a close that fails has closed it
        if fd >= 0:
            with add_file_to_errors("closing it", self.path):
                os.close(fd)


def changed_error(path: str, opened: int, now: int) -> FormatError:
    """Return the error for a file that was written to."""
    return FormatError(
        f"{path}: the file changed after it was opened: its transaction is {now}, was {opened}; open it again"
    )


def _size(fd: int, path: str) -> int:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        raise NotAFileError(EISDIR, f"{path} is not a file", path)
    if not stat.S_ISREG(status.st_mode):
        raise ArgumentError(f"{path} is not a file")
    return status.st_size


def _read_snapshot(fd: int, path: str) -> Snapshot:
    """Return a `snapshot` that stays the same in two reads: one read may see a meta page that is half written."""
    found = snapshot(fd, path)
    for _ in range(TRIES):
        before, found = found, snapshot(fd, path)
        if found == before:
            return found
    raise FormatError(f"{path}: its meta pages changed at every try to read them; open it when no process writes to it")


def snapshot(fd: int, path: str) -> Snapshot:
    """Read the valid one of the two meta pages.

    Raises:
        FormatError: it is not an LMDB environment, or of a kind that is not read here.
    """
    first = _meta(fd, path, 0, 0)
    # LMDB keeps the page size in the pad of the database of free pages.
    page_size = int(first["free"]["pad"])
    if not PAGE_LEAST <= page_size <= PAGE_MOST or page_size & (page_size - 1):
        raise FormatError(f"{path}: page size is {page_size}, expected a power of 2, {PAGE_LEAST} to {PAGE_MOST}")
    second = _meta(fd, path, 1, page_size)
    if int(second["free"]["pad"]) != page_size:
        raise FormatError(f"{path}: page size is {int(second['free']['pad'])} in page 1, but {page_size} in page 0")
    newest = first if first["transaction"] >= second["transaction"] else second
    # Offsets of all pages must fit into int64.
    return Snapshot(
        page_size, min(int(newest["last_page"]), 2**63 // page_size), int(newest["transaction"]), tree(newest["main"])
    )


def _meta(fd: int, path: str, number: int, offset: int) -> np.void:
    data = read_up_to(fd, HEADER.itemsize + META.itemsize, offset)
    if len(data) < HEADER.itemsize + META.itemsize:
        raise FormatError(
            f"{path} is not an LMDB environment: page {number} at offset {offset} has {len(data)} bytes, expected at "
            f"least {HEADER.itemsize + META.itemsize}"
        )
    header, meta = np.frombuffer(data, HEADER, 1)[0], np.frombuffer(data, META, 1, HEADER.itemsize)[0]
    if int(meta["magic"]) != MAGIC:
        raise FormatError(f"{path}: {_describe_unknown(data, number)}")
    if int(meta["version"]) != VERSION:
        raise FormatError(f"{path}: LMDB data version is {int(meta['version'])}, expected {VERSION}")
    if not header["flags"] & META_PAGE:
        raise FormatError(f"{path}: page {number} has flags {int(header['flags']):#06x}, expected those of a meta page")
    return meta  # type: ignore[no-any-return]


def _describe_unknown(data: bytes, number: int) -> str:
    """Describe a page that does not have the magic number."""
    ours = data[HEADER.itemsize :][:4]
    if ours == MAGIC.to_bytes(4, "big"):
        return f"it is an LMDB environment of a big-endian machine, {ELSEWHERE}"
    if data[NARROW_HEADER:][:4] in (MAGIC.to_bytes(4, "little"), MAGIC.to_bytes(4, "big")):
        return f"it is an LMDB environment of a 32-bit machine, {ELSEWHERE}"
    return (
        f"it is not an LMDB environment: page {number} has magic {int.from_bytes(ours, 'little'):#010x}, expected "
        f"{MAGIC:#010x}"
    )
