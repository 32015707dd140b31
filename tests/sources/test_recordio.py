"""RecordIO files read in place: golden ones, those of the original, and all dialects against a slow twin."""

import hashlib
import json
import os
import pickle
import shutil
import struct
import threading
from pathlib import Path

import children
import numpy as np
import pytest
import recordio_twin as twin
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.engine._engine import ARRAYS
from ffrecord.errors import ArgumentError, ChecksumError, ClosedError, FFRecordError, FormatError, SampleIndexError
from ffrecord.sources import index_file
from ffrecord.sources.recordio import index as recordio_index
from ffrecord.sources.recordio import reader as recordio
from ffrecord.sources.recordio.groups import GroupBatch
from ffrecord.sources.recordio.reader import RecordIOReader

GOLDEN = Path(__file__).parents[1] / "golden"
SEED = GOLDEN / "seeds" / "a_snappy.recordio"
SEED_ABOUT = json.loads((GOLDEN / "seeds" / "manifest.json").read_text())[SEED.name]
GO = json.loads((GOLDEN / "recordio" / "manifest.json").read_text())["files"]
IO_MODES = ("auto", "pread", "direct", "mmap")
RECORDS = [bytes([i]) * (i * 37 % 160) + os.urandom(i * 91 % 120) for i in range(60)]
LARGE = [os.urandom(size) for size in (70_000, 10, 0, 300_000, 65_536, 65_535, 1)] + [b"x" * 700] * 200
kinds = pytest.mark.parametrize(
    "dialect, compressor", [(each, compressor) for each in twin.DIALECTS for compressor in twin.COMPRESSORS]
)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def everything(reader: RecordIOReader) -> list[bytes]:
    return [record.tobytes() for record in reader.read(range(len(reader)))]


def unpacked(packed: tuple[np.ndarray, np.ndarray]) -> list[bytes]:
    data, offsets = packed
    return [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(offsets) - 1)]


def digests(records: list[bytes]) -> list[str]:
    return [hashlib.sha256(record).hexdigest() for record in records]


@pytest.mark.parametrize("io", IO_MODES)
def test_the_golden_file_of_dialect_a(io):
    with RecordIOReader(SEED, io=io) as reader:
        assert (reader.dialects, len(reader), reader.chunks, reader.checksum) == (["A"], 43, 10, "CRC-32C")
        found = everything(reader)
        assert digests(found) == SEED_ABOUT["sha256"] and list(map(len, found)) == SEED_ABOUT["sizes"]
        reader.validate()


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("name", sorted(GO))
def test_files_of_the_go_library(name, io):
    path = GOLDEN / "recordio" / name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == GO[name]["file_sha256"]
    with RecordIOReader(path, io=io) as reader:
        assert (reader.dialects, reader.checksum) == (["B"], "CRC-32")
        assert digests(everything(reader)) == GO[name]["sha256"]
        assert digests(unpacked(reader.read_packed(range(len(reader))))) == GO[name]["sha256"]


# What it imports of its checksums' library still works, with a warning.
@pytest.mark.filterwarnings("ignore:crc32c.crc32 will be:DeprecationWarning")
@pytest.mark.parametrize("compressor", ["no_compression", "snappy", "gzip"])
def test_files_that_pyrecordio_writes(tmp_path, compressor):
    header, writer = pytest.importorskip("recordio.recordio.header"), pytest.importorskip("recordio.recordio.writer")
    with open(tmp_path / "x.recordio", "wb") as file:
        theirs = writer.Writer(file, 300, getattr(header.Compressor, compressor))
        for record in RECORDS:
            theirs.write(record)
        theirs.flush()
    with RecordIOReader(tmp_path) as reader:
        assert reader.dialects == ["A"]
        assert everything(reader) == RECORDS


@given(
    kind=st.tuples(st.sampled_from(twin.DIALECTS), st.sampled_from(twin.COMPRESSORS)),
    sizes=st.lists(st.one_of(st.integers(0, 40), st.sampled_from((199, 200, 201, 1000))), min_size=1, max_size=40),
    most=st.sampled_from((1, 50, 500, 10_000)),
    seed=st.integers(0, 255),
    data=st.data(),
)
def test_what_a_twin_writes(tmp_path_factory, kind, sizes, most, seed, data):
    dialect, compressor = kind
    records = [bytes([seed + i & 255, i & 255]) * (size // 2) + b"!" * (size % 2) for i, size in enumerate(sizes)]
    path = tmp_path_factory.mktemp("twin") / "x.recordio"
    path.write_bytes(twin.build(records, dialect, compressor, most))
    indices = data.draw(st.lists(st.integers(-len(records), len(records) - 1), max_size=60))
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(records))] * 2)))
    with RecordIOReader(path, io=data.draw(st.sampled_from(IO_MODES))) as reader:
        assert reader.dialects == [dialect]
        for _ in range(2):  # the second time, records that are not compressed come alone
            assert [each.tobytes() for each in reader.read(indices)] == [records[i] for i in indices]
            assert unpacked(reader.read_packed(indices)) == [records[i] for i in indices]
            assert [each.tobytes() for each in reader.read_range(low, high)] == records[low:high]
        assert [each.tobytes() for each in reader] == records
    shutil.rmtree(path.parent)


@kinds
@pytest.mark.parametrize("io", ["auto", "mmap"])
def test_large_records_and_chunks(tmp_path, dialect, compressor, io, monkeypatch):
    monkeypatch.setattr("ffrecord.sources.recordio.reader.GROUP", 100_000)  # so that a batch takes several
    data = twin.build(LARGE, dialect, compressor, 400_000)
    with RecordIOReader(write(tmp_path / "x", data), io=io) as reader:
        order = np.random.default_rng(3).permutation(len(LARGE))
        wanted = [LARGE[i] for i in order]
        for _ in range(2):
            arrays = reader.read(order)
            assert [each.tobytes() for each in arrays] == wanted
            assert unpacked(reader.read_packed(order)) == wanted
            out = np.zeros(sum(map(len, LARGE)) + 5, np.uint8)
            assert unpacked(reader.read_packed(order, out)) == wanted
            reader._groups.clear()


def test_arrays_are_the_callers_own(tmp_path):
    with RecordIOReader(write(tmp_path / "x", twin.build(RECORDS, "B", "none"))) as reader:
        for _ in range(3):
            arrays = reader.read([5, 5, *range(60)])
            assert all(array.flags.writeable for array in arrays)
            for array in arrays:
                array[:] = 0
            assert everything(reader) == RECORDS
            reader._groups.clear()


def test_records_of_known_chunks_are_read_alone(tmp_path):
    records = [os.urandom(1000) for _ in range(400)]
    path = tmp_path / "x"
    plain = twin.payload(records, "B", "none")
    path.write_bytes(twin.chunk(plain, 400, "B", "none"))
    with RecordIOReader(path, io="pread") as reader:
        reader.read([7])
        first = reader.stats()
        reader._groups.clear()
        assert reader.read_one(9).tobytes() == records[9]
        assert unpacked(reader.read_packed([399, 0])) == [records[399], records[0]]
        # One record after the other, where the first one needed 400 kB.
        assert reader.stats().cached_bytes - first.cached_bytes <= 3000 < 400_000 <= first.cached_bytes


@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_columns(tmp_path, compressor):
    records = [struct.pack("<IQ", i, 7 * i) for i in range(300)]
    with RecordIOReader(write(tmp_path / "x", twin.build(records, "C", compressor, 1000))) as reader:
        for _ in range(2):
            first, second = reader.read_columns([5, 299, 5], 12, [(0, 4), (4, 8)])
            assert first.view("<u4").ravel().tolist() == [5, 299, 5]
            assert second.view("<u8").ravel().tolist() == [35, 7 * 299, 35]
            reader.read(range(300))
            reader._groups.clear()
        with pytest.raises(FormatError, match="expected 11, the size of every sample"):
            reader.read_columns([0], 11, [(0, 4)])


def test_what_is_damaged_after_its_chunk_was_read_is_seen(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(twin.build(RECORDS, "B", "none", 10_000_000))
    with RecordIOReader(path, io="pread") as reader:
        everything(reader)
        with open(path, "r+b") as file:
            file.seek(20 + sum(4 + len(each) for each in RECORDS[:10]) + 4 + 2)
            file.write(b"\xff\xee")
        reader._groups.clear()
        with pytest.raises(ChecksumError, match=r"Sample 10: .*x: record 10: CRC-32"):
            reader.read(range(60))
        assert reader.read_one(11).tobytes() == RECORDS[11]


@pytest.mark.parametrize("dialect", twin.DIALECTS)
@pytest.mark.parametrize("compressor", ["none", "snappy"])
def test_a_dialect_is_told_though_its_first_chunk_is_damaged(tmp_path, dialect, compressor):
    data = bytearray(twin.build(RECORDS, dialect, compressor, 300))
    data[30] ^= 1
    with RecordIOReader(write(tmp_path / "x", data)) as reader:
        assert reader.dialects == [dialect]
        first = twin.chunks(bytes(data), dialect)[0].records
        with pytest.raises(ChecksumError, match=r"Sample 0: .*x: chunk 0: CRC-32C? 0x"):
            reader.read_one(0)
        assert [each.tobytes() for each in reader.read(range(first, 60))] == RECORDS[first:]


def test_one_damaged_chunk_needs_to_be_told_its_dialect(tmp_path):
    data = bytearray(twin.build(RECORDS[:5], "C", "snappy", 10_000))
    data[40] ^= 1
    path = write(tmp_path / "x", data)
    with pytest.raises(FormatError, match="no chunk matches its checksum in any dialect"):
        RecordIOReader(path)
    for dialect in "AC":
        with RecordIOReader(path, dialect=dialect) as reader, pytest.raises(ChecksumError):
            reader.read_one(0)
    with RecordIOReader(path, False, dialect="C") as reader:
        assert len(reader) == 5


@pytest.mark.parametrize(
    "data", [b"PK\3\4" + bytes(60), b"\x04\x03\x02\x01" + bytes(60), b"x", b"\x0a\x23\xd7\xce" * 9]
)
def test_what_is_no_recordio(tmp_path, data):
    with pytest.raises(FormatError, match=r"x(: | is not a RecordIO file: it begins with)"):
        RecordIOReader(write(tmp_path / "x", data))


def test_nothing_in_it(tmp_path):
    with RecordIOReader(write(tmp_path / "x", b"")) as reader:
        assert (len(reader), list(reader), reader.chunks, reader.read([])) == (0, [], 0, [])
        reader.validate()
        data, offsets = reader.read_packed([])
        assert (len(data), offsets.tolist()) == (0, [0])


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """RECORDS in four files of three dialects and all compressors, one of them without records."""
    for number, (dialect, compressor) in enumerate([("B", "none"), ("A", "snappy"), ("B", ""), ("C", "gzip")]):
        records = RECORDS[number * 20 : (number + 1) * 20] if number < 2 else RECORDS[40:] if number == 3 else []
        write(tmp_path / f"{number}.recordio", twin.build(records, dialect, compressor, 200))
    return tmp_path


def test_several_files_are_one_sequence(several):
    with RecordIOReader(several) as reader:
        assert everything(reader) == RECORDS
        assert everything(reader) == RECORDS
        assert reader.checksum == "CRC-32 or CRC-32C"
        assert reader.locate(20) == (str(several / "1.recordio"), 0)
        assert reader.locate(-1) == (str(several / "3.recordio"), 19)
        with pytest.raises(SampleIndexError):
            reader.read([60])
    with RecordIOReader(str(several / "[01].recordio")) as reader:
        assert everything(reader) == RECORDS[:40]


def test_tasks_are_every_record_once(several):
    with RecordIOReader(several) as reader:
        tasks = reader.tasks(7)
        with pytest.raises(ArgumentError):
            reader.tasks(0)
    assert [task.stop - task.start for task in tasks] == [7, 7, 6] * 3
    found = []
    for path, start, stop in tasks:
        with RecordIOReader(path) as reader:
            found += [each.tobytes() for each in reader.read_range(start, stop)]
    assert found == RECORDS


@pytest.mark.parametrize("most", [1, 7, 25, 60])
def test_a_share_of_one_reader_ends_with_a_chunk(several, most):
    """As far as it has more than one."""
    with RecordIOReader(several) as reader:
        ends, start, shares = set(reader._table.first.tolist()), 0, []
        while start < reader.n:
            wanted = np.arange(start, min(start + most, reader.n))
            count = reader._count_undivided(wanted)
            touched = np.unique(reader._table.of_records(wanted))
            assert 0 < count <= len(wanted)
            assert start + count in ends or (len(touched) == 1 and count == len(wanted))
            shares.append(count)
            start += count
        assert sum(shares) == reader.n
        assert 0 < reader._count_undivided(np.array([59, 0, 30])) <= 3


def test_of_chunks_that_can_be_read_alone_few_are_kept(tmp_path):
    path = write(tmp_path / "x", twin.build(RECORDS, "B", "none", 100))
    with RecordIOReader(path) as reader:
        for at in range(0, 60, 4):
            assert [each.tobytes() for each in reader.read(range(at, at + 4))] == RECORDS[at : at + 4]
        assert len(reader._groups._groups) == 2
        assert (reader._groups._owner >= 0).sum() == sum(len(group.chunks) for group in reader._groups._groups.values())
    path = write(tmp_path / "y", twin.build(RECORDS, "B", "gzip", 100))
    with RecordIOReader(path) as reader:
        for at in range(0, 60, 4):
            assert [each.tobytes() for each in reader.read(range(at, at + 4))] == RECORDS[at : at + 4]
        assert len(reader._groups._groups) > 2


def test_a_range_reads_its_chunks_only(tmp_path):
    path = write(tmp_path / "x", twin.build([b"abcd" * 60] * 100, "A", "gzip", 240))
    with RecordIOReader(path, io="pread") as reader:
        reader.read_range(40, 42)
        size = twin.chunks(Path(path).read_bytes(), "A")[40].size
        assert reader.stats().cached_bytes <= 3 * size


@pytest.mark.parametrize("damaged", [False, True])
def test_an_index_that_is_kept(tmp_path, damaged):
    path = write(tmp_path / "x.recordio", twin.build(RECORDS, "B", "snappy") + bytes(9) * damaged)
    options = {"index_cache": tmp_path / "kept", "on_torn": "skip"}
    with RecordIOReader(path, **options) as first, RecordIOReader(path, **options) as second:
        assert everything(second) == everything(first) == RECORDS
        assert first.torn == second.torn and bool(first.torn) == damaged
        assert first.fingerprint() == second.fingerprint()
    assert len(list((tmp_path / "kept").iterdir())) == 1
    records = [b"other", *RECORDS]
    write(tmp_path / "x.recordio", twin.build(records, "A", "none"))
    with RecordIOReader(path, **options) as reader:
        assert everything(reader) == records


def test_pickles_and_refuses_changed_files(several):
    with RecordIOReader(several, io="pread", on_torn="skip") as reader:
        pickled = pickle.dumps(reader)
        with pickle.loads(pickled) as other:
            assert everything(other) == RECORDS and other.io == "pread"
    write(several / "1.recordio", twin.build([*RECORDS[20:39], b"else"], "A", "snappy", 200))
    with pytest.raises(FFRecordError, match="differ from those"):
        pickle.loads(pickled)


def test_children_and_threads(several):
    with RecordIOReader(several) as reader:
        everything(reader)
        child = os.fork()
        if child == 0:
            os._exit(0 if everything(reader) == RECORDS else 1)
        assert os.waitpid(child, 0)[1] == 0
        wrong = []

        def read(seed: int) -> None:
            order = np.random.default_rng(seed).permutation(60)
            for _ in range(20):
                wrong.extend(
                    i for i, each in zip(order, reader.read(order), strict=True) if each.tobytes() != RECORDS[i]
                )
                reader._groups.clear() if seed == 0 else None

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        batches = [list(range(i, i + 10)) for i in range(0, 60, 10)] * 3
        found = [each.tobytes() for batch in reader.iter_batches(batches, prefetch=3) for each in batch]
        assert found == RECORDS * 3
    with pytest.raises(ClosedError):
        reader.read([0])


def test_a_chunk_is_expanded_once_for_neighbours(tmp_path, monkeypatch):
    path = write(tmp_path / "x", twin.build(RECORDS, "B", "gzip", 10_000_000))
    calls = []
    with RecordIOReader(path) as reader:
        read = reader._table.read
        monkeypatch.setattr(reader._groups, "_load", lambda chunks: calls.append(chunks) or read(chunks))
        for batch in reader.iter_batches([[i] for i in range(60)], prefetch=4):
            assert len(batch) == 1
        assert len(calls) == 1


def test_on_error(tmp_path, caplog):
    data = bytearray(twin.build(RECORDS, "B", "gzip", 500))
    bad = twin.chunks(bytes(data), "B")[2]
    data[bad.start + 5] ^= 4
    path = write(tmp_path / "x", data)
    before = sum(each.records for each in twin.chunks(bytes(data), "B")[:2])
    with RecordIOReader(path, on_error="skip") as reader:
        assert everything(reader) == RECORDS[:before] + RECORDS[before + bad.records :]
        assert reader.skipped == bad.records > 2
        assert len(caplog.messages) == 1 and f"Sample {before}: " in caplog.text
        assert f"; and {bad.records - 1} more samples with the same error" in caplog.text
        with pytest.raises(ChecksumError) as caught:
            reader.read_one(before)
        assert (caught.value.path, caught.value.index, caught.value.stored) == (path, before, bad.checksum)
        assert f"chunk 2: CRC-32 {caught.value.computed:#010x}" in str(caught.value)
        assert f"at offset {bad.start}" in str(caught.value)
    with RecordIOReader(path, on_error=lambda error: b"?") as reader:
        assert unpacked(reader.read_packed([before, 0])) == [b"?", RECORDS[0]]


WRONG = ({"io": "tape"}, {"on_error": "?"}, {"on_torn": "?"}, {"dialect": "D"})


@pytest.mark.parametrize("options", [*WRONG, {"expanded_most": 0}, {"expanded_most": -1}])
def test_wrong_options(options):
    with pytest.raises(ValueError, match="expected"):
        RecordIOReader(SEED, **options)


def test_samples_and_names():
    with RecordIOReader(SEED) as reader:
        assert reader.sample(3)["data"].tobytes() == reader.read_one(3).tobytes()
        assert list(reader.sample(3)) == ["data"]
        with pytest.raises(FFRecordError, match="no names"):
            reader.keys()


class OtherThread:
    """`known` of a table; after the second look another thread has read everything."""

    def __init__(self, known):
        self.known, self.looks = known, 0

    def __getitem__(self, chunks):
        self.looks += 1
        seen = self.known[chunks].copy()
        self.known[:] |= self.looks == 2
        return seen

    def __setitem__(self, chunks, value):
        self.known[chunks] = value


@pytest.mark.parametrize("place", ["_cut", "_load", "_read", "_finish_chunks"])
def test_an_interrupt_leaves_no_chunk_that_others_wait_for(several, place):
    """Wherever it comes: the next read, by any thread, would wait for ever for the one that was interrupted."""
    with RecordIOReader(several) as reader:
        groups = reader._groups
        kept = getattr(groups, place)

        def interrupted(*arguments):
            setattr(groups, place, kept)
            raise KeyboardInterrupt

        setattr(groups, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.read([0, 59])
        assert not groups._being_read
        assert [record.tobytes() for record in reader.read([0, 59])] == [RECORDS[0], RECORDS[59]]


def test_records_come_though_another_thread_reads_their_chunks_meanwhile(tmp_path):
    path = write(tmp_path / "x", twin.build(RECORDS, "B", "none", 100))
    for form in (
        lambda reader: [each.tobytes() for each in reader.read([59, 1, 40])],
        lambda reader: unpacked(reader.read_packed([59, 1, 40])),
    ):
        with RecordIOReader(path) as reader:
            reader._table.known = OtherThread(reader._table.known)
            assert form(reader) == [RECORDS[59], RECORDS[1], RECORDS[40]]


@kinds
def test_records_that_are_read_once(tmp_path, dialect, compressor):
    """As for a conversion: they are parts of what was read for them, and none is known to be read alone."""
    path = write(tmp_path / "x", twin.build(RECORDS, dialect, compressor, 7))
    with RecordIOReader(path) as reader:
        reader._read_once(True)
        assert everything(reader) == RECORDS == everything(reader)
        assert [each.tobytes() for each in reader.read([59, 1, 1, 40])] == [RECORDS[i] for i in (59, 1, 1, 40)]
        assert unpacked(reader.read_packed(range(60))) == RECORDS
        first, second = reader.read([2, 2])
        assert np.shares_memory(first, second) and not reader._table.known.any()
        assert len(reader._groups._groups) <= 2
        reader._read_once(False)
        assert everything(reader) == RECORDS == everything(reader)
        first, second = reader.read([2, 2])
        assert not np.shares_memory(first, second) and first.flags.writeable


def test_a_record_that_nobody_brought_is_not_an_empty_one():
    batch = GroupBatch(ARRAYS, 3)
    batch.fail(1, FormatError("bad"))
    with pytest.raises(FFRecordError, match="2 of 3 records were not read"):
        batch.outcome(None)


ODD_INDEXES = [
    {"sizes": None},
    {"sizes": np.array([5, 1], np.int32)},
    {"sizes": np.array([5], np.int64)},
    {"records": np.array([1 << 40, 1], np.int64)},
    {"records": np.array([-5, 1], np.int64)},
    {"compressors": np.array([7, 0], np.int64)},
    {"offsets": np.array([20, 1 << 50], np.int64)},
    {"about": np.array([77], np.int64)},
    {"about": np.array([66, 1], np.int64)},
    {"about": np.array([-1], np.int64)},
]


@pytest.mark.parametrize("changes", ODD_INDEXES)
def test_an_index_that_no_file_of_this_kind_has_is_made_anew(tmp_path, changes):
    path = write(tmp_path / "x", twin.build([b"one", b"two"], "B", "none", 3))
    arrays = {**recordio_index._arrays(recordio_index.find_chunks(path)), **changes}
    odd = {name: array for name, array in arrays.items() if array is not None}
    index_file.cached_index(path, "recordio-any-1", lambda: odd, True)
    for _ in range(2):
        with RecordIOReader(path, index_cache=True) as reader:
            assert everything(reader) == [b"one", b"two"]


def test_files_are_closed_if_one_cannot_be_opened(several, monkeypatch):
    look = recordio._look

    def touched(path, **options):
        found = look(path, **options)
        os.utime(path) if path.endswith("2.recordio") else None
        return found

    monkeypatch.setattr(recordio, "_look", touched)
    before = len(children.open_files(collect=True))
    with pytest.raises(OSError, match="the file changed while its index was made"):
        RecordIOReader(several, on_torn="skip")
    assert len(children.open_files()) == before


def test_records_of_compressed_and_other_chunks_of_several_files(tmp_path):
    for name, way in enumerate(("gzip", "none", "snappy", "none")):
        write(tmp_path / f"{name}.recordio", twin.build(RECORDS[name * 15 :][:15], "B", way, 300))
    with RecordIOReader(tmp_path) as reader:
        for _ in range(2):
            assert everything(reader) == RECORDS
            assert [each.tobytes() for each in reader.read([59, 16, 3, 16])] == [RECORDS[i] for i in (59, 16, 3, 16)]
            reader._groups.clear()
            assert [reader.read_one(i).tobytes() for i in (59, 16)] == [RECORDS[59], RECORDS[16]]
            reader._groups.clear()
        with open(tmp_path / "3.recordio", "r+b") as file:
            file.truncate(100)
        with pytest.raises(OSError, match=r"Sample 59: .*3\.recordio: record 14 at offset"):
            reader.read([16, 59])


def test_what_pyrecordio_calls_them():
    with RecordIOReader(SEED) as reader:
        records = [array.tobytes() for array in reader]
        assert reader.count() == len(records) == 43
        assert reader.get(0) == records[0] and reader.get(-1) == records[-1]
        assert list(reader.get_reader()) == records and list(reader.get_reader(40)) == records[40:]
        assert list(reader.get_reader(3, 12)) == records[3:12] and list(reader.get_reader(5, 5)) == []
        with pytest.raises(IndexError):
            reader.get(43)
        for start, end in ((4, 3), (43, 44), (50, 90), (0, 2**63 - 1), (40, 44)):
            assert list(reader.get_reader(start, end)) == records[start:end]
        for start, end in ((-1, 3), (0, -1)):
            with pytest.raises(IndexError, match=f"range is {start} .. {end}, expected numbers >= 0"):
                reader.get_reader(start, end)
