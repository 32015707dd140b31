"""LMDB environments to read, made by the library; and a slow reader of them that goes by the structures of mdb.c."""

import struct
from pathlib import Path
from typing import Any

import pytest

PAGE = 4096  # of this machine
DATABASE = "IHHQQQQQ"  # page size, flags, depth, three numbers of pages, entries, root
META = f"<IIQQ{DATABASE}{DATABASE}QQ"  # magic, version, address, size of the map; last page, transaction
Items = list[tuple[bytes, bytes]]


def library() -> Any:
    """The module `lmdb`, without which a test skips."""
    return pytest.importorskip("lmdb", reason="lmdb is not installed")


def write(path: Path, items: Items, database: bytes | None = None, *, subdir: bool = True, **options: bool) -> str:
    """An environment with these records, in one transaction; its data file."""
    with library().open(str(path), map_size=1 << 28, max_dbs=16, subdir=subdir) as environment:
        handle = environment.open_db(database, **options)
        with environment.begin(write=True, db=handle) as transaction:
            for key, value in items:
                transaction.put(key, value)
    return str(path / "data.mdb") if subdir else str(path)


def contents(file: str, database: bytes | None = None) -> Items:
    """All records, by the library."""
    with library().open(file, subdir=False, readonly=True, lock=False, max_dbs=16) as environment:
        handle = environment.open_db(database) if database else None
        with environment.begin() as transaction:
            return list(transaction.cursor(handle))


class Twin:
    """The main database of a file, page by page; AssertionError or struct.error where it is damaged."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        first = self.meta(0)
        self.page_size = first[4]
        assert self.page_size in [2**i for i in range(9, 17)]
        second = self.meta(self.page_size)
        assert second[4] == self.page_size
        newest = first if first[-1] >= second[-1] else second
        self.flags, self.depth, self.entries, self.root, self.last = (newest[i] for i in (13, 14, 18, 19, 20))
        assert self.flags & ~(2 | 8) == 0
        self.seen: set[int] = set()

    def meta(self, offset: int) -> tuple[int, ...]:
        flags, magic, version = struct.unpack_from("<10xH4xII", self.data, offset)
        assert flags & 8 and (magic, version) == (0xBEEFC0DE, 1)
        return struct.unpack_from(META, self.data, offset + 16)

    def items(self) -> list[tuple[bytes, int, int]]:
        """Key, offset and size of each record."""
        found = [] if self.root == 2**64 - 1 or not self.depth else list(self.walk(self.root, 1))
        assert len(found) == self.entries and self.depth <= 32
        return found

    def walk(self, number: int, level: int):
        assert number <= self.last and number not in self.seen
        self.seen.add(number)
        start, leaf = number * self.page_size, level == self.depth
        page = self.data[start : start + self.page_size]
        assert len(page) == self.page_size
        own, flags, lower, upper = struct.unpack_from("<QxxHHH", page)
        assert own == number and flags == (2 if leaf else 1)
        assert 16 < lower <= upper <= self.page_size and lower % 2 == 0
        end = lower
        for at in sorted(struct.unpack_from(f"<{(lower - 16) // 2}H", page, 16)):
            low, flags, key_size = struct.unpack_from("<IHH", page, at)
            assert at >= end
            end = at + 8 + key_size + ((8 if flags & 1 else low) if leaf else 0)
        for at in struct.unpack_from(f"<{(lower - 16) // 2}H", page, 16):
            assert at % 2 == 0 and at >= lower
            low, flags, key_size = struct.unpack_from("<IHH", page, at)
            key = page[at + 8 : at + 8 + key_size]
            assert len(key) == key_size
            if leaf:
                yield from self.record(page, start, at, low, flags, key)
            else:
                yield from self.walk(low | flags << 32, level + 1)

    def record(self, page: bytes, start: int, at: int, low: int, flags: int, key: bytes):
        inside = at + 8 + len(key)
        assert flags & ~3 == 0
        if flags & 1:
            assert not flags & 2
            (first,) = struct.unpack_from("<Q", page, inside)
            assert first >= 2 and first * self.page_size + 16 + low <= (self.last + 1) * self.page_size
            yield key, first * self.page_size + 16, low
        else:
            assert inside + low <= self.page_size and (not flags & 2 or low == 48)
            if not flags & 2:
                yield key, start + inside, low
            else:
                self.entries -= 1
