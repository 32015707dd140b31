"""The records of an LMDB database in the order of their keys, with the positions of their values.

The B+tree is walked level by level, not path by path. All pages of a level are read together, and parsed together, as
columns. Every number is compared with the page or the file before it is used.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.lmdb.pages import (
    BIG,
    BRANCH,
    DATABASE,
    DEPTH_MOST,
    HEADER,
    INTEGER_KEYS,
    LEAF,
    METAS,
    NO_PAGE,
    NODE,
    REVERSED,
    SORTED_DUPLICATES,
    SUBDATABASE,
    Numbers,
    Pages,
    Tree,
    tree,
)
from ffrecord.sources.recordio._recordio import gather

AT_A_TIME = 4 << 20  # bytes of pages that are parsed together
SIZE_BITS = 17  # bits for the size of a node: pages have at most 2**16 bytes


@dataclass(frozen=True)
class TreeRecords:
    """Records of one or several leaves, in order.

    Attributes:
        offsets, sizes: int64 [n], offset and size of the values in the file, bytes.
        keys: uint8, all keys, one behind the other.
        key_offsets: int64 [n + 1], start of each key in `keys`.
        nested: bool [n], whether the value is a database.
    """

    offsets: Numbers
    sizes: Numbers
    keys: Array
    key_offsets: Numbers
    nested: npt.NDArray[np.bool_]

    def key(self, i: int) -> bytes:
        """Return the key of record i."""
        return self.keys[self.key_offsets[i] : self.key_offsets[i + 1]].tobytes()

    def without_nested(self) -> "TreeRecords":
        """Return the records that are not databases."""
        if not self.nested.any():
            return self
        kept = ~self.nested
        lengths = np.diff(self.key_offsets)
        keys = self.keys[np.repeat(kept, lengths)]
        return TreeRecords(self.offsets[kept], self.sizes[kept], keys, _starts(lengths[kept]), self.nested[kept])


def records(pages: Pages, database: Tree) -> TreeRecords:
    """Return all records of a database.

    Raises:
        FormatError: it is of a kind that is not read here, or its pages contradict each other or the file; also an
            OSError if pages are missing.
        OSError: reading failed.
    """
    _check_kind(pages, database)
    if database.root == NO_PAGE or database.depth == 0:
        return _concatenate(pages, database, [])
    # A damaged number must fit into int64: `Pages.read` refuses it.
    level = np.array([min(database.root, 2**63 - 1)], np.int64)
    for _ in range(database.depth - 1):
        level = np.concatenate([_children(pages, part) for part in _parts(pages, level)])
        _check_tree(pages, level)
    return _concatenate(pages, database, [_leaves(pages, part) for part in _parts(pages, level)])


def databases(pages: Pages, main: TreeRecords) -> dict[bytes, Tree]:
    """Return the databases that are named in the main one."""
    found = {}
    page_size = pages.snapshot.page_size
    for i in np.flatnonzero(main.nested).tolist():
        number, offset = divmod(int(main.offsets[i]), page_size)
        data = pages.read(np.array([number], np.int64))[0, offset : offset + DATABASE.itemsize]
        found[main.key(i)] = tree(np.frombuffer(data.tobytes(), DATABASE)[0])
    return found


def _check_kind(pages: Pages, database: Tree) -> None:
    if database.flags & SORTED_DUPLICATES:
        raise FormatError(
            f"{pages.path}: a database has several values for a key (MDB_DUPSORT, flags {database.flags:#06x}), "
            "which cannot be read here"
        )
    if database.flags & ~(REVERSED | INTEGER_KEYS):
        raise FormatError(f"{pages.path}: database flags are {database.flags:#06x}, which are unknown")
    if database.depth > DEPTH_MOST:
        raise FormatError(f"{pages.path}: a tree has {database.depth} levels, expected at most {DEPTH_MOST}")


def _check_tree(pages: Pages, level: Numbers) -> None:
    """Raise FormatError if a page has several parents. So the file bounds the number of pages that are read."""
    if len(level) > pages.count:
        raise FormatError(f"{pages.path}: a level of its tree has {len(level)} pages, but the file has {pages.count}")
    ascending = np.sort(level)
    twice = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(twice):
        raise FormatError(f"{pages.path}: page {twice[0]} has several parents, expected one")


def _parts(pages: Pages, numbers: Numbers) -> list[Numbers]:
    count = AT_A_TIME // pages.snapshot.page_size
    return [numbers[start : start + count] for start in range(0, len(numbers), count)]


def _concatenate(pages: Pages, database: Tree, parts: list[TreeRecords]) -> TreeRecords:
    none = np.empty(0, np.int64)
    offsets = np.concatenate([none, *(part.offsets for part in parts)])
    if len(offsets) != database.entries:
        raise FormatError(f"{pages.path}: a database has {len(offsets)} records, expected {database.entries}")
    return TreeRecords(
        offsets,
        np.concatenate([none, *(part.sizes for part in parts)]),
        np.concatenate([np.empty(0, np.uint8), *(part.keys for part in parts)]),
        _starts(np.concatenate([none, *(np.diff(part.key_offsets) for part in parts)])),
        np.concatenate([np.empty(0, bool), *(part.nested for part in parts)]),
    )


def _starts(sizes: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


class _Nodes:
    """The nodes of pages of one kind, as columns: int64 [nodes].

    Attributes:
        data: uint8, the pages, one behind the other.
        page: number of the page of each node.
        start: start of its key in `data`.
        room: bytes from there to the end of its page.
        low, flags, key_size: its numbers; low has 32 bits.
    """

    def __init__(self, pages: Pages, numbers: Numbers, kind: int) -> None:
        self._path, self._size = pages.path, pages.snapshot.page_size
        read = pages.read(numbers)
        self.data = read.reshape(-1)
        counts = self._counts(read, numbers, kind)
        row = np.repeat(np.arange(len(numbers)), counts)
        nth = np.arange(len(row)) - np.repeat(_starts(counts)[:-1], counts)
        words = self.data.view("<u2")
        place = words[row * (self._size // 2) + HEADER.itemsize // 2 + nth].astype(np.int64)
        self.page = numbers[row]
        # Offsets of nodes are even, and not within the header or the table of offsets.
        least = HEADER.itemsize + 2 * counts[row]
        self.refuse(
            (place & 1 != 0) | (place < least) | (place > self._size - NODE.itemsize), place, "a node at offset"
        )
        word = (row * self._size + place) // 2
        self.low = words[word].astype(np.int64) | words[word + 1].astype(np.int64) << 16
        self.flags = words[word + 2].astype(np.int64)
        self.key_size = words[word + 3].astype(np.int64)
        self.start = row * self._size + place + NODE.itemsize
        self.room = self._size - place - NODE.itemsize
        self.refuse(self.key_size > self.room, self.key_size, "a key of size")

    def check_apart(self, inside: Numbers | int) -> None:
        """Raise FormatError if nodes overlap, each with `inside` bytes behind its key.

        Otherwise a few pages could contain any amount of keys.
        """
        sizes = NODE.itemsize + self.key_size + inside
        # Sizes in the lower bits: one sort orders both.
        taken = np.sort((self.start - NODE.itemsize) << SIZE_BITS | sizes)
        ends = (taken >> SIZE_BITS) + (taken & ((1 << SIZE_BITS) - 1))
        both = np.flatnonzero(ends[:-1] > taken[1:] >> SIZE_BITS)
        if len(both):
            row, place = divmod(int(taken[both[0] + 1] >> SIZE_BITS), self._size)
            number = int(self.page[np.searchsorted(self.start, row * self._size)])
            raise FormatError(
                f"{self._path}: page {number} at offset {number * self._size}: a node begins at offset {place}, but "
                f"the one before it ends at {int(ends[both[0]]) - row * self._size}"
            )

    def _counts(self, read: Array, numbers: Numbers, kind: int) -> Numbers:
        headers = np.ascontiguousarray(read[:, : HEADER.itemsize]).view(HEADER)[:, 0]
        lower, upper = headers["lower"].astype(np.int64), headers["upper"].astype(np.int64)
        # For the messages of `refuse`, which here concern pages.
        self.page = numbers
        self.refuse(headers["number"] != numbers.astype(np.uint64), headers["number"], "its own number is")
        self.refuse(headers["flags"] != kind, headers["flags"], f"pages of this level have flags {kind}, this one has")
        bad = (lower <= HEADER.itemsize) | (lower & 1 != 0) | (lower > upper) | (upper > self._size)
        self.refuse(bad, lower, "a table of nodes that ends at offset")
        return (lower - HEADER.itemsize) // 2

    def refuse(self, bad: npt.NDArray[np.bool_], values: npt.NDArray[np.integer], what: str) -> None:
        """Raise FormatError if any node is bad, with its page and value."""
        if bad.any():
            i = int(np.argmax(bad))
            raise FormatError(
                f"{self._path}: page {self.page[i]} at offset {int(self.page[i]) * self._size}: {what} "
                f"{values[i]}, which is impossible with pages of {self._size} bytes"
            )

    def keys(self) -> Array:
        """Return all keys, one behind the other."""
        places = _starts(self.key_size)
        keys = np.empty(places[-1], np.uint8)
        gather(self.data, self.start, self.key_size, places[:-1], keys)
        return keys

    def words(self, at: Numbers) -> Numbers:
        """Return the uint64 at each of these places in `data`, at most 2**63 - 1."""
        found = self.data[at[:, None] + np.arange(8)].view("<u8")[:, 0]
        numbers: Numbers = np.minimum(found, np.uint64(2**63 - 1)).astype(np.int64)
        return numbers


def _children(pages: Pages, numbers: Numbers) -> Numbers:
    """Return the pages below the pages of a level, in order."""
    nodes = _Nodes(pages, numbers, BRANCH)
    nodes.check_apart(0)
    # A branch keeps a number of 48 bits in these fields.
    children: Numbers = nodes.low | nodes.flags << 32
    return children


def _leaves(pages: Pages, numbers: Numbers) -> TreeRecords:
    """Return the records of leaves."""
    nodes = _Nodes(pages, numbers, LEAF)
    nodes.refuse(nodes.flags & ~(BIG | SUBDATABASE) != 0, nodes.flags, "a record with flags")
    nested, big = nodes.flags & SUBDATABASE != 0, nodes.flags & BIG != 0
    nodes.refuse(nested & (big | (nodes.low != DATABASE.itemsize)), nodes.low, "a database description of size")
    room = nodes.room - nodes.key_size
    # Of a value on pages of its own, a leaf has only the number of the first one.
    inside = np.where(big, 8, nodes.low)
    nodes.refuse(inside > room, inside, "a value of size")
    nodes.check_apart(inside)
    page_size = pages.snapshot.page_size
    row = nodes.start // page_size
    offsets = numbers[row] * page_size + nodes.start % page_size + nodes.key_size
    far = np.flatnonzero(big)
    if len(far):
        first = nodes.words(nodes.start[far] + nodes.key_size[far])
        _check_overflow(nodes, pages, far, first)
        # A value on pages of its own is in one piece, behind the header of the first one.
        offsets[far] = first * page_size + HEADER.itemsize
    return TreeRecords(offsets, nodes.low, nodes.keys(), _starts(nodes.key_size), nested)


def _check_overflow(nodes: _Nodes, pages: Pages, far: Numbers, first: Numbers) -> None:
    """Raise FormatError unless values on overflow pages lie within the pages in use.

    If the file does not have these pages, reading them will show it.
    """
    last, page_size = pages.snapshot.last_page, pages.snapshot.page_size
    bad = np.zeros(len(nodes.flags), bool)
    needs = -(-(HEADER.itemsize + nodes.low[far]) // page_size)
    bad[far] = (first < METAS) | (first > last) | (needs > last + 1 - first)
    at = np.zeros(len(nodes.flags), np.int64)
    at[far] = first
    nodes.refuse(bad, at, f"a value on its own pages, expected up to page {last}, from page")
