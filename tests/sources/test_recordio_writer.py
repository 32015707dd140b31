"""RecordIO files written and appended to: read by a twin and by the original, atomic, and safe against being killed."""

import os
import signal
import warnings
from pathlib import Path

import children
import numpy as np
import pytest
import recordio_twin as twin
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import (
    ArgumentError,
    ClosedError,
    FormatError,
    MissingFileError,
    NotAFileError,
    StateError,
    TruncatedError,
)
from ffrecord.sources.recordio.reader import RecordIOReader
from ffrecord.sources.recordio.writer import RecordIOWriter

RECORDS = [bytes([i]) * (i * 53 % 200) for i in range(50)]
kinds = pytest.mark.parametrize(
    "dialect, compressor", [(dialect, compressor) for dialect in "AB" for compressor in twin.COMPRESSORS]
)


def written(path, records, *args, **options) -> bytes:
    with RecordIOWriter(path, *args, **options) as writer:
        writer.write_many(records)
    return Path(path).read_bytes()


def everything(path, **options) -> list[bytes]:
    with RecordIOReader(path, **options) as reader:
        return [record.tobytes() for record in reader]


@given(
    records=st.lists(st.binary(max_size=300), max_size=40),
    dialect=st.sampled_from("AB"),
    compressor=st.sampled_from(twin.COMPRESSORS),
    most=st.sampled_from((1, 100, 1000, 1 << 20)),
    more=st.lists(st.binary(max_size=300), max_size=10),
)
def test_a_twin_reads_what_is_written_and_appended(tmp_path_factory, records, dialect, compressor, most, more):
    path = tmp_path_factory.mktemp("written") / "x.recordio"
    options = {"compressor": compressor, "max_chunk_size": most}
    data = written(path, records, dialect, **options)
    assert twin.parse(data, dialect) == records
    assert [each.records for each in twin.chunks(data, dialect)] == list(map(len, twin.split(records, most)))
    longer = written(path, more, dialect if not data else None, mode="append", **options)
    assert longer[: len(data)] == data
    assert twin.parse(longer, dialect) == records + more
    path.unlink()


@kinds
def test_pyrecordio_reads_dialect_a(tmp_path, dialect, compressor):
    recordio = pytest.importorskip("recordio")
    path = tmp_path / "x.recordio"
    written(path, RECORDS, dialect, compressor=compressor)
    assert everything(path) == RECORDS
    if dialect == "A":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "crc32c.crc32 will be", DeprecationWarning)
            with recordio.File(str(path), "r") as file:
                assert (file.count(), [bytes(each) for each in file]) == (50, RECORDS)
                assert bytes(file.get(33)) == RECORDS[33]


@pytest.mark.parametrize("dialect", "AB")
def test_bytes_of_a_file(tmp_path, dialect):
    records = [b"ab", b"", b"c" * 5]
    assert written(tmp_path / "x", records, dialect) == twin.build(records, dialect, "none", 64 << 10)
    assert written(tmp_path / "y", records, dialect, max_chunk_size=4) == twin.build(records, dialect, "none", 4)


def test_buffers_of_any_kind_are_copied(tmp_path):
    array, buffer = np.arange(6, dtype="<u2").reshape(2, 3)[:, ::2], bytearray(b"one")
    with RecordIOWriter(tmp_path / "x") as writer:
        writer.write(array)
        writer.write(buffer)
        buffer[:] = b"two"
        writer.write(memoryview(buffer))
        with pytest.raises(TypeError):
            writer.write("text")
        assert writer.count == 3
    assert everything(tmp_path / "x") == [array.tobytes(), b"one", b"two"]


def test_large_records_have_chunks_of_their_own(tmp_path):
    records = [b"small", os.urandom(5000), b"", b"small"]
    data = written(tmp_path / "x", records, "B", max_chunk_size=1000)
    assert [each.records for each in twin.chunks(data, "B")] == [1, 1, 2]


def test_too_large_records_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ffrecord.sources.recordio.writer.COMPRESSED_MOST", 100)
    with RecordIOWriter(tmp_path / "x", compressor="gzip") as writer:
        writer.write(bytes(96))
        with pytest.raises(ArgumentError, match="record 1 has 97 bytes, expected at most 96"):
            writer.write(bytes(97))
    assert everything(tmp_path / "x") == [bytes(96)]


def test_many_empty_records_are_cut_too(tmp_path, monkeypatch):
    monkeypatch.setattr("ffrecord.sources.recordio.writer.RECORDS_MOST", 10)
    data = written(tmp_path / "x", [b""] * 25)
    assert [each.records for each in twin.chunks(data, "B")] == [10, 10, 5]


def test_nothing_is_published_before_it_is_closed(tmp_path):
    path = tmp_path / "x.recordio"
    writer = RecordIOWriter(path)
    writer.write(b"1")
    writer.flush()
    assert not path.exists()
    writer.close()
    writer.close()
    assert everything(path) == [b"1"]
    with pytest.raises(ClosedError):
        writer.write(b"2")
    with pytest.raises(KeyError), RecordIOWriter(path) as writer:
        writer.write(b"other")
        writer.flush()
        raise KeyError
    assert everything(path) == [b"1"]
    assert [each.name for each in tmp_path.iterdir()] == ["x.recordio"]


def test_an_empty_file_is_one(tmp_path):
    assert written(tmp_path / "x", []) == b""
    assert everything(tmp_path / "x") == []
    assert twin.parse(written(tmp_path / "x", [b"1"], "A", mode="append"), "A") == [b"1"]


def test_appending_goes_on_in_the_dialect_of_the_file(tmp_path):
    path = tmp_path / "x"
    written(path, RECORDS, "A", compressor="snappy")
    with RecordIOWriter(path, mode="append", compressor="gzip") as writer:
        assert writer.dialect == "A"
        writer.write(b"more")
    assert everything(path) == [*RECORDS, b"more"]
    with pytest.raises(FormatError, match="dialect A, expected dialect B"):
        RecordIOWriter(path, "B", mode="append")
    path.write_bytes(twin.build(RECORDS, "C", "none"))
    with pytest.raises(FormatError, match="dialect C, expected dialect A or B"):
        RecordIOWriter(path, mode="append")
    assert path.read_bytes() == twin.build(RECORDS, "C", "none")


def test_what_cannot_be_appended_to(tmp_path):
    with pytest.raises(MissingFileError):
        RecordIOWriter(tmp_path / "none", mode="append")
    with pytest.raises(NotAFileError):
        RecordIOWriter(tmp_path, mode="append")
    (tmp_path / "x").write_bytes(b"something else entirely")
    with pytest.raises(FormatError, match="not a RecordIO file"):
        RecordIOWriter(tmp_path / "x", mode="append")
    assert (tmp_path / "x").read_bytes() == b"something else entirely"


@pytest.mark.parametrize("damage", ["cut", "header", "zeros", "flip"])
def test_a_torn_tail_is_refused_or_cut_off(tmp_path, damage):
    path, data = tmp_path / "x", twin.build(RECORDS, "B", "gzip", 500)
    start = twin.chunks(data, "B")[-1].start - 20
    last = {"cut": data[start:-3], "header": data[start : start + 9], "zeros": bytes(50)}
    path.write_bytes(data[:start] + last.get(damage, data[start:-1] + bytes([data[-1] ^ 1])))
    torn = path.read_bytes()
    with pytest.raises(TruncatedError, match=rf"at offset {start}: .*torn='cut'"):
        RecordIOWriter(path, mode="append")
    assert path.read_bytes() == torn
    written(path, [b"new"], mode="append", torn="cut")
    assert everything(path) == [*twin.parse(data[:start], "B"), b"new"]


def test_an_exception_takes_back_what_was_not_flushed(tmp_path):
    path = tmp_path / "x"
    before = written(path, RECORDS)
    with pytest.raises(KeyError), RecordIOWriter(path, mode="append", max_chunk_size=10) as writer:
        writer.write_many([b"kept"] * 9)
        writer.flush()
        writer.write_many([b"lost"] * 9)
        raise KeyError
    assert path.read_bytes()[: len(before)] == before
    assert everything(path) == RECORDS + [b"kept"] * 9


@pytest.mark.parametrize("given", [None, 3])
def test_records_that_are_not_iterable(tmp_path, given):
    with RecordIOWriter(tmp_path / "x") as writer:
        with pytest.raises(TypeError, match=r"^records is .*, expected an iterable of buffers$"):
            writer.write_many(given)
        assert writer.count == 0


def test_a_reader_stays_what_it_was_while_records_are_appended(tmp_path):
    path = tmp_path / "x"
    written(path, RECORDS, compressor="snappy")
    with RecordIOReader(path) as reader, RecordIOWriter(path, mode="append") as writer:
        writer.write_many([b"new"] * 1000)
        writer.flush()
        assert [each.tobytes() for each in reader] == RECORDS
        assert everything(path) == RECORDS + [b"new"] * 1000
        writer.close()
        assert [each.tobytes() for each in reader.read(range(50))] == RECORDS


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "x"
    written(path, RECORDS)
    with RecordIOWriter(path, mode="append") as writer:
        with pytest.raises(OSError, match="its writer lives"):
            RecordIOWriter(path, mode="append")
        writer.write(b"1")
    assert everything(path) == [*RECORDS, b"1"]


def test_a_link_is_followed(tmp_path):
    written(tmp_path / "x", RECORDS)
    (tmp_path / "link").symlink_to("x")
    written(tmp_path / "link", [b"1"], mode="append")
    assert (tmp_path / "link").is_symlink()
    assert everything(tmp_path / "x") == [*RECORDS, b"1"]


def test_a_child_cannot_write(tmp_path):
    path = tmp_path / "x"
    written(path, RECORDS)
    with RecordIOWriter(path, mode="append") as writer:
        writer.write(b"1")
        child = os.fork()
        if child == 0:
            try:
                writer.write(b"2")
            except StateError:
                writer.__exit__(KeyError, KeyError(), None)
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert everything(path) == [*RECORDS, b"1"]


def test_a_forgotten_writer_discards_and_says_so(tmp_path):
    path = tmp_path / "x"
    before = written(path, RECORDS)
    writer = RecordIOWriter(path, mode="append", max_chunk_size=1)
    writer.write_many([b"1", b"2"])
    with pytest.warns(ResourceWarning, match=r"nobody called close\(\) on the writer"):
        del writer
    assert path.read_bytes() == before


def test_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "x"
    before = written(path, RECORDS)

    def full(fd: int, data: memoryview, offset: int) -> None:
        os.pwrite(fd, data[:5], offset)
        raise OSError(28, "No space left on device")

    writer = RecordIOWriter(path, mode="append", max_chunk_size=1)
    writer.write(b"1")
    monkeypatch.setattr("ffrecord.sources.recordio.writer.write_all", full)
    with pytest.raises(OSError, match="writing records up to 0 failed: No space"):
        writer.write(b"2")
    with pytest.raises(ClosedError):
        writer.write(b"3")
    assert path.read_bytes() == before


KILLED = """
import os, sys
from ffrecord.sources.recordio import writer as recordio_writer
write_all = recordio_writer.write_all

def die(fd, data, offset):
    if offset > int(sys.argv[2]):
        write_all(fd, data[: len(data) // 2], offset)
        os.kill(os.getpid(), 9)
    write_all(fd, data, offset)

recordio_writer.write_all = die
writer = recordio_writer.RecordIOWriter(sys.argv[1], mode="append", compressor="gzip", max_chunk_size=200)
for i in range(1000):
    writer.write(b"%d" % i * 20)
"""


def test_a_killed_writer_leaves_a_torn_chunk_at_most(tmp_path):
    path = tmp_path / "x"
    size = len(written(path, RECORDS))
    assert children.finished(KILLED, path, size + 500).returncode == -signal.SIGKILL
    with pytest.raises(TruncatedError):
        RecordIOReader(path)
    found = everything(path, on_torn="skip")
    assert found[:50] == RECORDS
    assert found[50:] == [b"%d" % i * 20 for i in range(len(found) - 50)] != []
    written(path, [b"after"], mode="append", torn="cut")
    assert everything(path) == [*found, b"after"]


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "C"},
        {"compressor": "zstd"},
        {"mode": "w"},
        {"torn": "skip"},
        {"max_chunk_size": 0},
        {"max_chunk_size": (1 << 30) + 1},
    ],
)
def test_wrong_options(tmp_path, options):
    with pytest.raises(ArgumentError, match="expected"):
        RecordIOWriter(tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_it_cannot_be_pickled(tmp_path):
    with RecordIOWriter(tmp_path / "x") as writer, pytest.raises(TypeError, match="cannot pickle"):
        writer.__reduce__()
