"""Tables of spans: what a table may be, and which file it is of."""

import os
from errno import ESTALE

import numpy as np
import pytest
import spans

from ffrecord.engine._engine import Spans
from ffrecord.errors import ArgumentError
from ffrecord.kernels._memory import Mapping
from ffrecord.reading.span_file import SpanFile
from ffrecord.system import resources

ONE = np.array([1], np.int64)
TWO = np.array([1, 2], np.int64)
CRC = np.array([7], np.uint32)


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    return str(tmp_path / "a.bin")


@pytest.mark.parametrize(("kind", "checksum"), [("crc32", "CRC-32"), ("crc32c", "CRC-32C"), (None, None)])
def test_attributes(path, kind, checksum):
    file = SpanFile(path, ONE, ONE, CRC, kind)
    status = os.stat(path)
    assert (file.path, file.n, file.checksum, file.whole) == (path, 1, checksum, None)
    assert (file.size, file.device, file.inode, file.mtime_ns) == (
        10,
        status.st_dev,
        status.st_ino,
        status.st_mtime_ns,
    )
    assert os.fstat(file.fd).st_ino == status.st_ino
    file.close()
    file.close()
    assert file.fd == -1


def test_arrays_are_kept_not_copied(path):
    file = SpanFile(path, ONE, ONE, CRC, "crc32")
    assert file.offsets is ONE
    assert file.checksums is CRC
    file.close()


@pytest.mark.parametrize(
    "arguments",
    [
        (ONE, TWO),
        (TWO, TWO, CRC, "crc32"),
        (ONE.astype(np.int32), ONE),
        (ONE, ONE, ONE, "crc32"),
        (np.array([[1]]), ONE),
        (ONE.astype(">i8"), ONE),
        (ONE, ONE, CRC, "md5"),
        (ONE, ONE, None, "crc32"),
    ],
    ids=["sizes", "checksums", "int32", "int64 checksums", "2-D", "big-endian", "kind", "no checksums"],
)
def test_wrong_tables(path, arguments):
    with pytest.raises(ArgumentError):
        SpanFile(path, *arguments)


@pytest.mark.parametrize("arguments", [(None, ONE, None, None), (ONE, None, None, None), (ONE, TWO, None, None)])
def test_wrong_spans(arguments):
    with pytest.raises(ArgumentError):
        Spans(*arguments)


@pytest.mark.parametrize(
    ("offsets", "scattered"),
    [([], False), ([5], False), ([0, 0, 3], False), ([3, 2], True), ([0, 5, 4, 9], True), ([-1, 0], False)],
)
def test_scattered(offsets, scattered):
    array = np.array(offsets, np.int64)
    assert (Spans(array, array, None, None).n, Spans(array, array, None, None).scattered) == (len(offsets), scattered)


def test_jumping():
    """A few records out of place, as in a zip that was added to, leave it a sequence."""
    random, sequence = np.random.default_rng(0).permutation(1000), np.arange(1000)
    swapped = sequence.copy()
    swapped[[3, 700]] = swapped[[700, 3]]
    assert [Spans(each, each, None, None).jumping for each in (random, sequence, swapped)] == [True, False, False]


def test_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        SpanFile(str(tmp_path), ONE, ONE)
    with pytest.raises(FileNotFoundError):
        SpanFile(str(tmp_path / "nothing"), ONE, ONE)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ArgumentError, match="is not a file"):
        SpanFile(str(tmp_path / "fifo"), ONE, ONE)


def test_of_another_file_than_the_table_was_made_from(path):
    status = os.stat(path)
    SpanFile(path, ONE, ONE, status=status).close()
    with open(path, "ab") as file:
        file.write(b"x")
    with pytest.raises(OSError, match="changed while its index was made") as caught:
        SpanFile(path, ONE, ONE, status=status)
    assert caught.value.errno == ESTALE


def test_too_many_are_opened_later(path, monkeypatch):
    monkeypatch.setattr(resources, "descriptors", lambda: 3)
    assert SpanFile(path, ONE, ONE).fd == -1


def test_a_mapped_table_that_loses_its_pages(tmp_path, path):
    """An index that somebody cuts is an error of the records, not the end of the process."""
    index = tmp_path / "index"
    index.write_bytes(np.arange(4096, dtype=np.int64).tobytes())
    fd = os.open(index, os.O_RDONLY)
    mapping = Mapping(fd, 4096 * 8)
    os.close(fd)
    offsets = np.frombuffer(memoryview(mapping), np.int64)
    table = spans.Table(path, b"0123456789", [])
    with spans.RecordReader([SpanFile(path, offsets, np.ones(4096, np.int64))]) as reader:
        reader.format = "test"
        assert reader.read_one(3).tobytes() == table.data[3:4]
        os.truncate(index, 0)
        with pytest.raises(OSError, match=r"Sample 4090: .*a\.bin: sample 4090"):
            reader.read_one(4090)
