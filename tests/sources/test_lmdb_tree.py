"""Pages and trees of LMDB files, against the library and against a slow twin."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lmdb_builders import PAGE, Twin, contents, write
from mutations import mutants

from ffrecord.errors import ArgumentError, FFRecordError, FormatError, TruncatedError
from ffrecord.sources.lmdb.pages import Pages, snapshot
from ffrecord.sources.lmdb.tree import TreeRecords, databases, records

SIZES = [0, 1, 5, 30, 100, 1000, 2030, 2031, 2032, 2040, 2050, PAGE - 16, PAGE, 3 * PAGE]


def found(file: str, database: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """All records, by ours."""
    data = Path(file).read_bytes()
    with Pages(file) as pages:
        main = records(pages, pages.snapshot.main)
        table = main if database is None else records(pages, databases(pages, main)[database])
        pages.check_unchanged()
    return [(table.key(i), data[table.offsets[i] :][: table.sizes[i]]) for i in range(len(table.offsets))]


def many(count: int, seed: int = 0) -> list[tuple[bytes, bytes]]:
    chance = np.random.default_rng(seed)
    keys = [chance.bytes(int(size)) for size in chance.integers(1, 300, count)]
    return [(key, chance.bytes(int(chance.choice(SIZES)))) for key in keys]


@pytest.mark.parametrize("count", [0, 1, 2, 50, 800])
def test_what_the_library_wrote(tmp_path, count):
    file = write(tmp_path / "env", many(count))
    assert found(file) == contents(file)


def test_after_many_transactions(tmp_path):
    for seed in range(6):
        file = write(tmp_path / "env", many(150, seed))
    assert found(file) == contents(file)
    assert len(found(file)) > 800


def test_named_databases(tmp_path):
    for i in range(12):
        file = write(tmp_path / "env", many(i * 20, i), b"db%d" % i)
    for i in range(12):
        assert found(file, b"db%d" % i) == contents(file, b"db%d" % i)


@pytest.mark.parametrize("option", ["reverse_key", "integerkey"])
def test_other_orders_of_keys(tmp_path, option):
    items = [(struct.pack("<Q", i * 77 % 1000), b"%d" % i) for i in range(1000)]
    file = write(tmp_path / "env", items, b"x", **{option: True})
    assert found(file, b"x") == contents(file, b"x")


def test_several_values_of_a_key_are_refused(tmp_path):
    file = write(tmp_path / "env", [(b"a", b"1"), (b"a", b"2")], b"x", dupsort=True)
    with pytest.raises(FormatError, match=r"data\.mdb: a database has several values for a key"):
        found(file, b"x")


@given(st.dictionaries(st.binary(min_size=1, max_size=300), st.binary(max_size=9000), max_size=40))
def test_any_records(tmp_path_factory, items):
    file = write(tmp_path_factory.mktemp("any") / "env", list(items.items()))
    assert found(file) == sorted(items.items())


# Damage


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bytes:
    """Two levels, values inside and of their own pages, a named database."""
    path = tmp_path_factory.mktemp("small") / "env"
    write(path, [(b"k%02d" % i, bytes([i]) * (700 if i % 5 else 5000)) for i in range(12)])
    return Path(write(path, [(b"inner", b"value")], b"name")).read_bytes()


def walked(path: Path, data: bytes) -> TreeRecords:
    path.write_bytes(data)
    with Pages(str(path)) as pages:
        return records(pages, pages.snapshot.main)


def agree(path: Path, data: bytes) -> bool:
    """Whether a damaged file is refused by both, or read alike."""
    try:
        expected = Twin(data).items()
    except (AssertionError, struct.error):
        expected = None
    try:
        table = walked(path, data).without_nested()
    except (FFRecordError, ArgumentError):
        assert expected is None
        return False
    mine = [(table.key(i), int(table.offsets[i]), int(table.sizes[i])) for i in range(len(table.offsets))]
    assert mine == expected
    return True


def test_the_twin(small, tmp_path):
    assert agree(tmp_path / "file", small)
    assert len(Twin(small).items()) == 12


def test_every_byte_flipped(small, tmp_path):
    """Of those that are not values: where there is anything but the bytes the values were made of."""
    whole = np.frombuffer(small, np.uint8)
    repeated = np.concatenate([[False], whole[1:] == whole[:-1]])
    kept = 0
    for at in np.flatnonzero(~repeated).tolist():
        kept += agree(tmp_path / "file", small[:at] + bytes([small[at] ^ 0xFF]) + small[at + 1 :])
    assert kept < 0.9 * np.count_nonzero(~repeated)


def test_every_cut(small, tmp_path):
    for size in [*range(0, 200, 7), *range(200, len(small), 509), len(small)]:
        agree(tmp_path / "file", small[:size])


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.long)])
def test_mutants(small, tmp_path, count):
    for data in mutants(small, count, seed=6):
        agree(tmp_path / "file", data)


def put(data: bytes, offset: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, offset, *values)
    return bytes(changed)


def both(data: bytes, offset: int, form: str, *values: int) -> bytes:
    """A number of both meta pages."""
    return put(put(data, 16 + offset, form, *values), PAGE + 16 + offset, form, *values)


MAGIC, VERSION, PAGE_SIZE, FLAGS, DEPTH, ENTRIES, ROOT, LAST = 0, 4, 24, 76, 78, 104, 112, 120


@pytest.mark.parametrize(
    "offset, form, value, error",
    [
        (MAGIC, "I", 0, "magic 0x00000000, expected 0xbeefc0de"),
        (MAGIC, "I", 0xDEC0EFBE, "big-endian"),
        (VERSION, "I", 999, "LMDB data version is 999, expected 1"),
        (PAGE_SIZE, "I", 4095, "page size is 4095"),
        (PAGE_SIZE, "I", 1 << 31, "page size is 2147483648"),
        (FLAGS, "H", 4, "several values for a key"),
        (FLAGS, "H", 0x100, "flags are 0x0100, which are unknown"),
        (DEPTH, "H", 40, "40 levels, expected at most 32"),
        (DEPTH, "H", 1, "have flags 2, this one has 1"),
        (ENTRIES, "Q", 2**60, "a database has 13 records, expected 1152921504606846976"),
        (ROOT, "Q", 2**63, "page number is 9223372036854775807, expected at most"),
        (ROOT, "Q", 1, "page 1 at offset 4096: .* have flags 1, this one has 8"),
    ],
)
def test_numbers_of_the_meta_pages(small, tmp_path, offset, form, value, error):
    with pytest.raises(FormatError, match=f"file: .*{error}"):
        walked(tmp_path / "file", both(small, offset, form, value))


def test_pages_of_32_bits(tmp_path):
    with pytest.raises(FormatError, match="32-bit machine"):
        walked(tmp_path / "file", bytes(12) + struct.pack("<I", 0xBEEFC0DE) + bytes(9000))


def test_a_tree_that_leads_back(small, tmp_path):
    """A page with itself below it, and one with the same page many times, are refused before they are gone through."""
    root = Twin(small).root
    nodes = [PAGE * root + at for at in struct.unpack_from("<2H", small, PAGE * root + 16)]
    leaf = struct.unpack_from("<I", small, nodes[0])[0]
    with pytest.raises(FormatError, match=f"page {leaf} has several parents"):
        walked(tmp_path / "file", put(small, nodes[1], "I", leaf))
    with pytest.raises(FormatError, match=f"page {root} .*have flags 2, this one has 1"):
        walked(tmp_path / "file", put(small, nodes[1], "I", root))


def test_nodes_that_share_bytes(small, tmp_path):
    """Or each of the 32,000 nodes that fit a page could have a key as long as the page: gigabytes."""
    root = PAGE * Twin(small).root
    child = root + struct.unpack_from("<H", small, root + 16)[0]
    leaf = PAGE * struct.unpack_from("<I", small, child)[0]
    first, second = struct.unpack_from("<2H", small, leaf + 16)
    for place in (first, second + 2):
        assert not agree(tmp_path / "file", put(small, leaf + 18, "H", place))
    with pytest.raises(
        FormatError, match=f"page {leaf // PAGE} .*a node begins at offset {first}, but the one before it ends"
    ):
        walked(tmp_path / "file", put(small, leaf + 18, "H", first))


def test_missing_pages_are_truncation(small, tmp_path):
    with pytest.raises(TruncatedError, match=r"page \d+ is missing: the file has 8192 bytes"):
        walked(tmp_path / "file", small[: 2 * PAGE])


def test_nothing_is_allocated_by_what_a_file_says(small, tmp_path):
    """A file that says it has 2**50 pages, but is sparse and small on the disk, is not read through."""
    path = tmp_path / "file"
    data = both(small, LAST, "Q", 2**50)
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    with Pages(str(path)) as pages:
        assert len(records(pages, pages.snapshot.main).offsets) == 13


def test_written_meanwhile(tmp_path):
    file = write(tmp_path / "env", many(5))
    with Pages(file) as pages:
        pages.check_unchanged()
        write(tmp_path / "env", [(b"new", b"value")])
        with pytest.raises(FormatError, match="the file changed after it was opened: its transaction is 2, was 1"):
            pages.check_unchanged()


def test_no_environments(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FormatError, match="not an LMDB environment: page 0 at offset 0 has 0 bytes"):
        Pages(str(tmp_path / "empty"))
    with pytest.raises(ArgumentError, match="is not a file"):
        Pages(str(tmp_path / "fifo"))
    with pytest.raises(IsADirectoryError):
        Pages(str(tmp_path))


def test_pages_in_any_order(tmp_path, small):
    (tmp_path / "file").write_bytes(small)
    whole = np.frombuffer(small, np.uint8).reshape(-1, PAGE)
    with Pages(str(tmp_path / "file")) as pages:
        numbers = np.array([5, 1, 1, 2, 7, 6, 0])
        assert np.array_equal(pages.read(numbers), whole[numbers])
        assert snapshot(os.open(pages.path, os.O_RDONLY), "x") == pages.snapshot
