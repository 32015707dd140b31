"""Damaged and hostile .beton files: refused with an error of ours, or read; never anything else."""

import os
import struct
import threading
from pathlib import Path

import children
import numpy as np
import pytest
from beton_twin import beton
from mutations import mutants

from ffrecord.errors import FFRecordError, FormatError, TruncatedError
from ffrecord.sources.beton.reader import BetonReader

FIELDS = {"label": "int", "blob": "bytes", "photo": "image", "raw": "image", "meta": "json"}
PAGE = 1024
DESCRIBED = 24 + 1041 * len(FIELDS)  # where the metadata begins


def sample(i: int) -> dict:
    raw = np.full((2, 1 + i, 3), i, np.uint8)
    return {"label": i, "blob": bytes([i]) * (3 + i), "photo": (b"\xff\xd8" * (i + 4), 4, 4), "raw": raw, "meta": [i]}


SAMPLES = [sample(i) for i in range(4)]
DATA = beton(FIELDS, SAMPLES, PAGE)
ROW_SIZE = 72
TABLE = struct.unpack_from("<Q", DATA, 16)[0]
# All but the arguments of the fields and the zeros between metadata and pages, which say nothing.
MEANT = [
    *range(24),
    *(24 + 1041 * field + at for field in range(len(FIELDS)) for at in range(17)),
    *range(DESCRIBED, DESCRIBED + 4 * ROW_SIZE),
    *range(TABLE, len(DATA)),
]


def read_all(path: Path) -> list:
    with BetonReader(path) as reader:
        reader.columns(range(len(reader)))
        return reader.samples(range(len(reader)))


def outcome(path, data: bytes) -> list | None:
    """The samples, or None if the file was refused."""
    path.write_bytes(data)
    try:
        return read_all(path)
    except (FFRecordError, TruncatedError) as error:
        assert str(path) in str(error)
        return None


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.beton").write_bytes(DATA)
    return tmp_path / "a.beton"


def test_the_file_has_the_layout_that_these_tests_think(path):
    assert DATA[DESCRIBED : DESCRIBED + 8] == struct.pack("<q", 0)
    assert DATA[DESCRIBED + ROW_SIZE :][:8] == struct.pack("<q", 1)
    assert len(DATA) - TABLE == 4 * 4 * 24
    assert [each["label"] for each in read_all(path)] == [0, 1, 2, 3]


def test_every_flipped_byte_of_what_is_said_about_values_is_noticed(path):
    """But for numbers, which nothing contradicts, names, and the width and height that a JPEG has anyway."""
    free = {at for row in range(4) for at in range(DESCRIBED + row * ROW_SIZE, DESCRIBED + row * ROW_SIZE + 8)}
    free |= {DESCRIBED + row * ROW_SIZE + at for row in range(4) for at in (25, 26, 27, 28, *range(66, 72))}
    free |= {24 + 1041 * field + at for field in range(len(FIELDS)) for at in range(1, 17)}
    free |= {TABLE + 24 * place + at for place in range(16) for at in range(8)}  # which sample: the offset tells
    unnoticed = []
    for at in MEANT:
        changed = bytearray(DATA)
        changed[at] ^= 0xFF
        if outcome(path, bytes(changed)) is not None and at not in free:
            unnoticed.append(at)
    # A type of another field of the same size, or a larger page, may still fit: none of these values does.
    assert unnoticed == []


def test_every_cut_is_noticed(path):
    for size in [*range(0, len(DATA), 97), *range(TABLE, len(DATA))]:
        assert outcome(path, DATA[:size]) is None, size


def row_edit(index: int, at: int, piece: bytes) -> bytes:
    changed = bytearray(DATA)
    start = DESCRIBED + index * ROW_SIZE + at
    changed[start : start + len(piece)] = piece
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            row_edit(2, 8, struct.pack("<Q", 2**64 - 1)),
            "'blob' has 5 bytes at offset 18446744073709551615, but nothing is",
        ),
        (row_edit(2, 16, struct.pack("<Q", 2**63)), "'blob' has 9223372036854775808 bytes at offset"),
        (row_edit(2, 24, b"\7"), "'photo' has mode 7"),
        (row_edit(2, 29, struct.pack("<Q", 24)), "'photo' has mode 0, 48 bytes at offset 24, but nothing is allocated"),
        (row_edit(2, 38, b"\xff\xff\xff\xff"), "'raw' has mode 1, 12884508675 bytes at offset"),
        (row_edit(2, 50, struct.pack("<Q", DESCRIBED)), f"'meta' has 4 bytes at offset {DESCRIBED}, but nothing"),
    ],
)
def test_one_sample_with_bad_metadata_is_named_and_the_others_read(path, data, message):
    path.write_bytes(data)
    with BetonReader(path) as reader:
        with pytest.raises(FormatError) as caught:
            reader.samples([0, 2])
        assert f"Sample 2: {path}: sample 2: " in str(caught.value) and message in str(caught.value)
        assert [each["label"] for each in reader.samples([0, 1, 3])] == [0, 1, 3]
    with BetonReader(path, on_error="skip") as reader:
        assert [each["label"] for each in reader.samples(range(4))] == [0, 1, 3]
        assert reader.columns(range(4))["label"].tolist() == [0, 1, 3]
        assert reader.skipped == 2


def test_values_on_two_pages_are_refused(path):
    """What one sample reads is bounded by a page, whatever its offsets say."""
    two = beton({"a": "bytes", "b": "bytes"}, [{"a": b"x" * 600, "b": b"y"}, {"a": b"z" * 600, "b": b"w"}], PAGE)
    rows = 24 + 2 * 1041
    first, second = (struct.unpack_from("<QQQQ", two, rows + 32 * row) for row in range(2))
    assert second[0] - first[0] == PAGE
    changed = bytearray(two)
    struct.pack_into("<QQ", changed, rows + 16, *second[2:])
    path.write_bytes(changed)
    with BetonReader(path) as reader, pytest.raises(FormatError, match="in allocations of one page"):
        reader.read([0])


def test_allocations_outside_or_overlapping_are_refused(path):
    first, size = struct.unpack_from("<QQ", DATA, TABLE + 8)
    for offset, other, message in [
        (8, 3, "expected within"),
        (2**64 - 1, 1, "expected within"),
        (first, 7, f"{size} bytes at offset {first} reaches into the next one at offset {first}"),
        (first + size - 1, 9, f"{size} bytes at offset {first} reaches into the next one at offset {first + size - 1}"),
    ]:
        changed = bytearray(DATA)
        struct.pack_into("<QQ", changed, TABLE + 24 + 8, offset, other)
        path.write_bytes(changed)
        with pytest.raises(FormatError, match=message):
            BetonReader(path)


def test_json_that_is_none_is_refused(path):
    at = DATA.index(b"[2]\0")
    for text in (b"[2}\0", b"[2],", b"\xff\xff]\0"):
        changed = bytearray(DATA)
        changed[at : at + 4] = text
        path.write_bytes(changed)
        with BetonReader(path) as reader, pytest.raises(FormatError, match=r"Sample 2: .*: field 'meta'"):
            reader.samples([0, 2])


def test_a_jpeg_that_is_none_or_another_is_refused_when_decoded(path):
    message = r"Sample 1: .*: field 'photo': .* a JPEG of 10 bytes"
    with BetonReader(path, decode=True) as reader, pytest.raises(FormatError, match=message):
        reader.samples([1])


def test_a_replacement_of_another_size_is_refused(path):
    path.write_bytes(row_edit(2, 24, b"\7"))
    message = r"Sample 2: .*: it has 2 bytes, its metadata says 0"
    with BetonReader(path, on_error=lambda error: b"zz") as reader, pytest.raises(FormatError, match=message):
        reader.samples([2])


def test_without_checking_sizes_that_only_metadata_says_are_believed(path):
    path.write_bytes(row_edit(1, 16, struct.pack("<Q", 2)))
    with BetonReader(path, check_data=False) as reader:
        assert reader.sample(1)["blob"] == b"\1\1"
    with BetonReader(path) as reader, pytest.raises(FormatError, match=r"2 bytes at offset .*, but 4 bytes are alloc"):
        reader.read([1])


def test_a_file_cut_under_an_open_reader(path):
    with BetonReader(path) as reader:
        os.truncate(path, TABLE - PAGE)
        with pytest.raises((FFRecordError, OSError)):
            reader.samples(range(4))


def fuzz(path, count: int, seed: int) -> None:
    read = sum(outcome(path, data) is not None for data in mutants(DATA, count, seed))
    assert 0 < read < count  # some damage is harmless, some is not


def test_fuzzing(path):
    fuzz(path, 1000, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
def test_fuzzing_for_long(path, seed):
    fuzz(path, 20_000, seed)


def test_threads_share_a_reader(path):
    with BetonReader(path) as reader:
        wrong = []

        def work() -> None:
            for i in range(50):
                if reader.samples([i % 4])[0]["label"] != i % 4:
                    wrong.append(i)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_forked_child_reads(path):
    with BetonReader(path) as reader:
        reader.read([0])
        child = os.fork()
        if child == 0:
            os._exit(0 if [each["label"] for each in reader.samples(range(4))] == [0, 1, 2, 3] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@children.limits_memory
def test_memory_is_bounded_by_what_is_there(tmp_path):
    """A header that promises much is refused before anything is allocated by it."""
    code = """
import resource, sys
from ffrecord.errors import FormatError
from ffrecord.sources.beton.reader import BetonReader
limit = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        with BetonReader(path) as reader:
            reader.samples([0])
    except FormatError as error:
        print("refused")
"""
    paths = []
    array = beton({"a": ("array", "<f8", (2,))}, [{"a": np.zeros(2)}])
    for place, data in enumerate(
        (
            array[:41] + struct.pack("<Q", 1 << 40) + array[49:],
            DATA[:8] + struct.pack("<Q", 1 << 60) + DATA[16:],
            row_edit(0, 38, b"\xff" * 4),
        )
    ):
        paths.append(tmp_path / f"{place}.beton")
        paths[-1].write_bytes(data)
    assert children.run(code, *paths).split() == ["refused"] * 3
