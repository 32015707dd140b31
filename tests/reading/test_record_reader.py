"""`record_reader`: any table of spans gives what slicing gives, in every way to read, or an error that names it."""

import concurrent.futures
import multiprocessing
import os
import pickle

import builders
import numpy as np
import pytest
import strategies
from builders import COPYING_MODES, IO_MODES
from hypothesis import given
from hypothesis import strategies as st
from spans import NAMES, SpanReader, Table, table

from ffrecord import ChecksumError, FFRecordError, FormatError
from ffrecord.engine._engine import Slots
from ffrecord.errors import ArgumentError, TruncatedError
from ffrecord.reading.record_reader import RecordReader
from ffrecord.system import resources

in_every_mode = pytest.mark.parametrize("io", IO_MODES)
of_every_kind = pytest.mark.parametrize("kind", ["crc32", "crc32c", None])
SIZE = 100_000
spans_of_a_file = st.lists(
    st.tuples(st.integers(0, SIZE), st.integers(0, 70_000)).map(lambda span: (span[0], min(span[1], SIZE - span[0]))),
    min_size=1,
    max_size=100,
)


def scattered(n: int, seed: int = 0) -> list[tuple[int, int]]:
    """Overlapping spans in no order, empty ones among them."""
    random = np.random.default_rng(seed)
    sizes = random.choice([0, 1, 100, 5000, 40_000], n)
    return [(int(random.integers(0, SIZE - size + 1)), int(size)) for size in sizes]


def spaced(n: int, gap: int, size: int = 100) -> list[tuple[int, int]]:
    """Records in order, with bytes between them that are of none."""
    return [(gap + i * (size + gap), size) for i in range(n)]


@pytest.fixture(scope="module", params=["crc32", "crc32c", None])
def mixed(request, tmp_path_factory) -> list[Table]:
    """Three files: in no order, with gaps, in order."""
    directory = tmp_path_factory.mktemp("mixed")
    kinds = [scattered(300), spaced(200, 16), [(i * 300, 300) for i in range(300)]]
    return [table(directory / f"{i}.bin", spans, request.param) for i, spans in enumerate(kinds)]


# Twins


@given(spans_of_a_file, st.data(), strategies.io_modes, st.sampled_from(["crc32", "crc32c", None]))
def test_any_table(tmp_path, spans, data, io, kind):
    one = table(tmp_path / "a.bin", spans, kind)
    indices = data.draw(strategies.index_batches(len(spans)))
    wanted = [one.records[i] for i in indices]
    with SpanReader([one], io=io) as reader:
        assert [record.tobytes() for record in reader.read(indices)] == wanted
        assert builders.unpack(reader.read_packed(indices)) == wanted
        assert [record.tobytes() for record in reader] == one.records


@in_every_mode
def test_files_of_several_kinds_in_one_batch(mixed, io):
    wanted = [record for each in mixed for record in each.records]
    random = np.random.default_rng(0)
    with SpanReader(mixed, io=io) as reader:
        for _ in range(3):
            indices = random.integers(-reader.n, reader.n, 400)
            assert builders.unpack(reader.read_packed(indices)) == [wanted[i] for i in indices]
        assert [record.tobytes() for record in reader] == wanted
        assert [record.tobytes() for record in reader.read_range(250, 600)] == wanted[250:600]
        assert reader.locate(-1) == (mixed[2].path, 299)
        assert reader.stats().skipped == 0


@in_every_mode
@pytest.mark.parametrize("gap", [1, 16, 60, 1023, 2048, 2049, 5000])
@pytest.mark.parametrize("size", [0, 1, 700, 5000, 30_000])
def test_gaps(tmp_path, io, gap, size):
    """Whether neighbours are read by one call or by several, and whatever is between them."""
    count = min(200, (SIZE - gap) // (size + gap))
    one = table(tmp_path / "a.bin", spaced(count, gap, size), "crc32c")
    with SpanReader([one], io=io) as reader:
        assert builders.read_all(reader) == one.records
        assert builders.unpack(reader.read_packed(range(count))) == one.records
        assert [record.tobytes() for record in reader] == one.records


def test_gaps_save_calls(tmp_path):
    one = table(tmp_path / "a.bin", spaced(640, 16), None)
    with SpanReader([one], io="pread") as reader:
        reader.read(range(640))
        assert reader.stats().requests <= 20
    one = table(tmp_path / "b.bin", spaced(20, 4096), None)
    with SpanReader([one], io="pread") as reader:
        reader.read(range(20))
        assert reader.stats().requests == 20


def test_a_sequence_in_no_order_is_read_as_single_records(tmp_path):
    """Read-ahead of the kernel, which a sequence is left to, would be of no use."""
    offsets = np.random.default_rng(0).permutation(SIZE // 50) * 50
    one = table(tmp_path / "a.bin", [(int(offset), 50) for offset in offsets])
    with SpanReader([one]) as reader:
        for _ in range(20):  # until it knows that all is cached
            reader.read(range(200))
        before = reader.stats().requests
        assert [record.tobytes() for record in reader] == one.records
        assert reader.stats().requests - before < 100  # copied from a mapping


@in_every_mode
@of_every_kind
@pytest.mark.parametrize("size", [40, 3000])
def test_columns(tmp_path, io, kind, size):
    """Pieces of each record, checked as a whole, in one chain and in several."""
    random = np.random.default_rng(0)
    one = table(tmp_path / "a.bin", [(int(at), size) for at in random.integers(0, SIZE - size, 50)], kind)
    slots = [(8, 16), (0, 4), (24, size - 24)]
    indices = random.integers(0, 50, 90)
    with SpanReader([one], io=io) as reader:
        for _ in range(2):
            columns = reader.read_columns(indices, size, slots)
            for column, (offset, length) in zip(columns, slots, strict=True):
                assert [row.tobytes() for row in column] == [one.records[i][offset : offset + length] for i in indices]


# Damage


@in_every_mode
@pytest.mark.parametrize("kind", ["crc32", "crc32c"])
@pytest.mark.parametrize("size", [50, 5000])
def test_a_wrong_checksum_is_named(tmp_path, io, kind, size):
    one = table(tmp_path / "a.bin", spaced(12, 16, size)[:12], kind)
    wrong = one.checksums()
    wrong[7] ^= 1
    reader = RecordReader.__new__(SpanReader)
    RecordReader.__init__(reader, [one.file(io, wrong)], io=io)
    with reader:
        message = (
            rf"Sample 7: checksum mismatch: .*a\.bin: record 7 of file 0: {NAMES[kind]} 0x.*, stored 0x{wrong[7]:08x}"
        )
        for read in (reader.read, reader.read_packed, lambda i: reader.read_columns(i, size, [(0, 10)])):
            with pytest.raises(ChecksumError, match=message) as caught:
                read(range(12))
            assert (caught.value.index, caught.value.stored, caught.value.computed) == (7, wrong[7], wrong[7] ^ 1)
        outcome = reader._begin_packed(range(12))()
        assert [place for place, _ in outcome.failures] == [7]
        outcome = reader._begin_columns(range(12), Slots(size, [(0, 10)]))()
        assert [place for place, _ in outcome.failures] == [7]
    unchecked = RecordReader.__new__(SpanReader)
    RecordReader.__init__(unchecked, [one.file(io, wrong)], False, io=io)
    with unchecked:
        assert builders.read_all(unchecked) == one.records


OUTSIDE = {
    "begins before": ((-1, 10), FormatError, "10 bytes at offset -1, expected a span within the file's 100000 bytes"),
    "negative size": ((10, -1), FormatError, "-1 bytes at offset 10"),
    "ends behind": ((SIZE - 5, 10), TruncatedError, "length 10 but read 5 bytes"),
    "begins behind": ((SIZE + 5, 10), TruncatedError, "length 10 but read 0 bytes"),
    "sum overflows": ((2**63 - 1, 2**63 - 1), TruncatedError, "but read 0 bytes"),
    "size alone overflows": ((1, 2**63 - 1), TruncatedError, "but read 99999 bytes"),
    "both negative": ((-(2**63), -(2**63)), FormatError, "expected a span"),
}


@in_every_mode
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_span_outside_of_the_file(tmp_path, io, name):
    """An error of that record alone, and nothing is allocated by its size."""
    span, error, message = OUTSIDE[name]
    one = table(tmp_path / "a.bin", [(5, 20), span, (0, 0), (SIZE, 0), (3, 99)], None)
    good = [one.records[i] for i in (0, 2, 3, 4)]
    with SpanReader([one], io=io) as reader, pytest.raises(error, match=message) as caught:
        reader.read(range(5))
    assert "Sample 1: " in str(caught.value)
    assert "a.bin: record 1 of file 0" in str(caught.value)
    with SpanReader([one], io=io, on_error="skip") as reader:
        assert builders.read_all(reader) == good
        assert builders.unpack(reader.read_packed(range(5))) == good


@pytest.mark.parametrize("io", COPYING_MODES)
@of_every_kind
def test_a_file_cut_under_the_reader(tmp_path, io, kind):
    one = table(tmp_path / "a.bin", [(i * 1000, 1000) for i in range(100)], kind)
    with SpanReader([one], io=io, on_error="skip") as reader:
        for _ in range(3):  # so that "auto" copies from a mapping, too
            assert builders.read_all(reader) == one.records
        os.truncate(one.path, 42_500)
        assert builders.read_all(reader) == one.records[:42]
        assert reader.skipped == 58


# Files that are closed and opened again


@pytest.mark.parametrize("io", COPYING_MODES)
def test_more_files_than_may_be_open(tmp_path, io, monkeypatch):
    monkeypatch.setattr(resources, "descriptors", lambda: 2)
    tables = [table(tmp_path / f"{i}.bin", spaced(3, 16)) for i in range(12)]
    with SpanReader(tables, io=io) as reader:
        assert builders.read_all(reader) == [record for each in tables for record in each.records]
        assert reader.stats().open_files <= 2


def rewritten(path: str) -> None:
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"x" * 500)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def replaced(path: str) -> None:
    with open(path, "rb") as file, open(f"{path}.new", "wb") as new:
        new.write(file.read())
    os.replace(f"{path}.new", path)


def grown(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


@pytest.mark.parametrize("io", COPYING_MODES)
@pytest.mark.parametrize("change", [rewritten, replaced, grown, os.remove])
def test_a_closed_file_that_changed(tmp_path, io, change, monkeypatch):
    """Its table says nothing of what is in it now, whether it has checksums or not."""
    monkeypatch.setattr(resources, "descriptors", lambda: 1)
    tables = [table(tmp_path / f"{i}.bin", spaced(3, 16), None) for i in range(3)]
    with SpanReader(tables, io=io) as reader:
        builders.read_all(reader)
        change(tables[0].path)
        with pytest.raises(OSError, match="replaced or removed after it was opened"):
            reader.read([0])
        assert reader.read_one(8).tobytes() == tables[2].records[2]


# Life


def test_pickle(mixed):
    with SpanReader(mixed, io="pread", on_error="skip") as reader:
        again = pickle.loads(pickle.dumps(reader))
        assert (again.io, again.n, again.fingerprint()) == ("pread", reader.n, reader.fingerprint())
        assert builders.read_all(again) == builders.read_all(reader)
        again.close()


@pytest.mark.parametrize("change", [rewritten, grown])
def test_a_pickle_of_files_that_changed(tmp_path, change):
    one = table(tmp_path / "a.bin", spaced(3, 16), None)
    with SpanReader([one]) as reader:
        pickled = pickle.dumps(reader)
    change(one.path)
    with pytest.raises(FFRecordError, match=r"a\.bin: the files differ"):
        pickle.loads(pickled)


def test_fingerprint(tmp_path):
    """Of tables, sizes and format; not of names."""
    fingerprints = set()
    for spans in ([(0, 5)], [(1, 5)], [(0, 6)], [(0, 5), (1, 5)]):
        for kind in ("crc32", None):
            with SpanReader([table(tmp_path / "a.bin", spans, kind)]) as reader:
                fingerprints.add(reader.fingerprint())
    assert len(fingerprints) == 8
    with SpanReader([table(tmp_path / "b.bin", [(0, 5)], None)]) as reader:
        assert reader.fingerprint() in fingerprints
        assert len(reader.fingerprint()) == 64


def test_threads(mixed):
    wanted = [record for each in mixed for record in each.records]

    def work(seed: int) -> bool:
        indices = np.random.default_rng(seed).integers(0, len(wanted), 300)
        return builders.unpack(reader.read_packed(indices)) == [wanted[i] for i in indices]

    with SpanReader(mixed) as reader, concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def in_child(reader: SpanReader, wanted: list[bytes]) -> None:
    assert builders.read_all(reader) == wanted
    assert [record.tobytes() for record in reader] == wanted


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(tmp_path, method):
    one = table(tmp_path / "a.bin", scattered(50), "crc32c")
    context = multiprocessing.get_context(method)
    with SpanReader([one]) as reader:
        in_child(reader, one.records)
        process = context.Process(target=in_child, args=(reader, one.records))
        process.start()
        process.join()
        assert process.exitcode == 0
        in_child(reader, one.records)


def test_arguments(tmp_path):
    one = table(tmp_path / "a.bin", [(0, 5)])
    for wrong in ({"io": "fast"}, {"on_error": "ignore"}):
        file = one.file()
        with pytest.raises(ValueError, match="expected"):
            RecordReader([file], **wrong)
        assert file.fd == -1
    with pytest.raises(ArgumentError, match="without whole=True"):
        RecordReader([one.file()], io="mmap")
    with pytest.raises(ArgumentError, match="nothing to open"):
        RecordReader([])


@in_every_mode
def test_empty_files(tmp_path, io):
    """Which formats have: a TFRecord file of nothing is one."""
    empty = table(tmp_path / "empty.bin", [], size=0)
    nothing = table(tmp_path / "nothing.bin", [(0, 0), (0, 0)], size=0)
    with SpanReader([empty, nothing, empty], io=io) as reader:
        assert builders.read_all(reader) == [b"", b""]
        assert list(reader.read_range(2, 2)) == []
