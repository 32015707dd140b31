"""Pages of LMDB environments, and TorchRecord's databases in them."""

import struct
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fuzz.targets import Run, Scratch, Target, drain

PAGE = 512  # the smallest that LMDB has; its own are of 4096 bytes, of which a fuzzer sees little
NONE = 2**64 - 1
DATABASE = struct.Struct("<IHHQQQQQ")


def _prepare_pages(scratch: Scratch) -> Run:
    from ffrecord.sources.lmdb.pages import Pages
    from ffrecord.sources.lmdb.tree import databases, records

    file = scratch.file("pages.mdb")

    def run(data: memoryview) -> None:
        with Pages(file.put(data)) as pages:
            main = records(pages, pages.snapshot.main)
            for tree in databases(pages, main).values():
                records(pages, tree)

    return run


def _prepare_lmdb(scratch: Scratch) -> Run:
    from ffrecord.sources import LMDBReader

    file = scratch.file("data.mdb")

    def run(data: memoryview) -> None:
        drain(LMDBReader(file.put(data), io="pread"))

    return run


def _prepare_torchrecord(scratch: Scratch) -> Run:
    from ffrecord.sources import TorchRecordReader

    file = scratch.file("db0/data.mdb")

    def run(data: memoryview) -> None:
        drain(TorchRecordReader(file.put(data), io="pread"))

    return run


def page(number: int, flags: int, nodes: Sequence[bytes]) -> bytes:
    """One page, its nodes from the end down, in their order from the start."""
    body, pointers = b"", []
    for node in nodes:
        node += bytes(len(node) % 2)
        body = node + body
        pointers.append(PAGE - len(body))
    head = struct.pack("<QHHHH", number, 0, flags, 16 + 2 * len(nodes), PAGE - len(body))
    head += struct.pack(f"<{len(nodes)}H", *pointers)
    return head + bytes(PAGE - len(head) - len(body)) + body


def leaf(key: bytes, value: bytes, flags: int = 0, size: int | None = None) -> bytes:
    return struct.pack("<IHH", len(value) if size is None else size, flags, len(key)) + key + value


def branch(key: bytes, child: int) -> bytes:
    return struct.pack("<IHH", child & 0xFFFFFFFF, child >> 32, len(key)) + key


def meta(number: int, transaction: int, last: int, depth: int, entries: int, root: int) -> bytes:
    free = DATABASE.pack(PAGE, 8, 0, 0, 0, 0, 0, NONE)
    main = DATABASE.pack(0, 0, depth, 0, 1, 0, entries, root)
    body = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 20) + free + main + struct.pack("<QQ", last, transaction)
    return (struct.pack("<QHHHH", number, 0, 8, 0, 0) + body).ljust(PAGE, b"\0")


def _environments() -> Iterator[bytes]:
    items = [leaf(b"%d" % i, b"value %d" % i) for i in range(6)]
    one = page(2, 2, items)
    yield meta(0, 1, 2, 1, 6, 2) + meta(1, 2, 2, 1, 6, 2) + one
    yield meta(0, 3, 1, 0, 0, NONE) + meta(1, 2, 1, 0, 0, NONE)
    two = page(2, 1, [branch(b"", 3), branch(b"3", 4)]) + page(3, 2, items[:3]) + page(4, 2, items[3:])
    yield meta(0, 1, 4, 2, 6, 2) + meta(1, 2, 4, 2, 6, 2) + two
    # A value on pages of its own, and a database in the main one.
    far = page(2, 2, [leaf(b"1", struct.pack("<Q", 3), 1, 600)])
    large = struct.pack("<QHHI", 3, 0, 4, 2) + bytes(2 * PAGE - 16)
    yield meta(0, 1, 4, 1, 1, 2) + meta(1, 2, 4, 1, 1, 2) + far + large
    nested = [leaf(b"db%d" % i, DATABASE.pack(0, 0, 1, 0, 1, 0, 6, 3 + i), 2) for i in range(2)]
    yield (meta(0, 1, 4, 1, 2, 2) + meta(1, 2, 4, 1, 2, 2) + page(2, 2, nested) + page(3, 2, items) + page(4, 2, items))


def _seeds(folder: Path) -> Iterator[bytes]:
    yield from _environments()


def _library_seeds(folder: Path) -> Iterator[bytes]:
    from sources import lmdb_builders

    yield from _environments()
    # Without the library, those above must do.
    if find_spec("lmdb") is None:
        return
    import lmdb

    file = lmdb_builders.write(folder / "one", [(b"%04d" % i, bytes(i)) for i in range(9)])
    yield Path(file).read_bytes()
    with lmdb.open(str(folder / "two"), map_size=1 << 20, max_dbs=4) as environment:
        for name in (b"db0", b"db1"):
            with environment.begin(write=True, db=environment.open_db(name)) as transaction:
                transaction.put(b"0", b"\x0a\x00")
    yield (folder / "two/data.mdb").read_bytes()


PAGES = ("ffrecord.sources.lmdb.pages", "ffrecord.sources.lmdb.tree")
READING = ("ffrecord.sources.lmdb.index", "ffrecord.sources.lmdb.reader")
ASKED = ("ArgumentError",)  # there is nothing but named databases
TARGETS = [
    Target("lmdb_pages", _prepare_pages, _seeds, PAGES, size_most=1 << 12),
    Target("lmdb", _prepare_lmdb, _library_seeds, PAGES + READING, accepted=ASKED, size_most=10 << 12),
    Target(
        "torchrecord",
        _prepare_torchrecord,
        _library_seeds,
        (*PAGES, *READING, "ffrecord.sources.lmdb.torchrecord"),
        accepted=ASKED,
        size_most=10 << 12,
    ),
]
