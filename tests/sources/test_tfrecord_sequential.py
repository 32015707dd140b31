"""TFRecord files from front to back: what `TFRecordReader` reads, in one pass, whatever they are like."""

import gc
import gzip
import logging
import os
import time
from itertools import islice
from pathlib import Path

import children
import mutations
import numpy as np
import pytest
import tfrecord_twin as twin
from hypothesis import given
from hypothesis import strategies as st
from strategies import records

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, TruncatedError
from ffrecord.kernels._memory import Mapping
from ffrecord.sources import TFRecordReader, stream_tfrecord
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord import sequential as tfrecord_sequential

RECORDS = [b"first", b"", b"the third one", b"4th", b"fifth and last"]
DATA = twin.encode(RECORDS)
LARGE = [bytes([i]) * size for i, size in enumerate((100, 3 << 20, 0, 1 << 20, 70_000, (1 << 20) - 16, 5))]
kinds = pytest.mark.parametrize("kind", twin.PACK)
WAYS = ("auto", "mmap")
ways = pytest.mark.parametrize("io", WAYS)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def write(folder, data, name="x.tfrecord"):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def had(path, **options):
    """(records until the first error, that error or None)."""
    found = []
    try:
        for record in stream_tfrecord(path, **options):
            found.append(bytes(record))
    except FFRecordError as error:
        assert path in str(error)
        return found, error
    return found, None


def expected(path, **options):
    """The same by way of an index, of which the torn end comes last."""
    with TFRecordReader(path, on_torn="skip", **options) as reader:
        found = []
        for i in range(len(reader)):
            try:
                found.append(bytes(reader.read_one(i)))
            except ChecksumError as error:
                return found, error
        torn = reader.torn.get(path)
        return found, None if torn is None else torn.as_error(
            path, "; pass on_torn='skip' to read everything before it"
        )


def agrees(path, **options):
    """With `TFRecordReader`, about every record, what is wrong behind them, and in which words."""
    try:
        wanted, error = expected(path, **options)
    except FormatError as refused:
        wanted, error = [], refused
    for io in WAYS:
        found, raised = had(path, io=io, **options)
        assert found == wanted
        same(raised, error)


def same(raised, error):
    assert type(raised) is type(error)
    if isinstance(error, ChecksumError):
        assert (raised.path, raised.stored, raised.computed) == (error.path, error.stored, error.computed)
        _, of_record, what = str(error).partition(": checksum mismatch: ")
        assert what in str(raised) if of_record else str(raised) == str(error)
    elif error is not None:
        assert str(raised) == str(error)


@ways
@kinds
def test_all_records(tmp_path, kind, io):
    path = write(tmp_path, twin.PACK[kind](twin.encode(LARGE)))
    assert [bytes(each) for each in stream_tfrecord(path, io=io)] == LARGE
    writeable = kind is not None or io != "mmap"
    for each in stream_tfrecord(path, io=io):
        assert (each.dtype, each.ndim, each.flags.writeable) == (np.uint8, 1, writeable)


def test_views_of_the_file(tmp_path, monkeypatch):
    """They see what is written there, and outlive their reader and the name; they are checked before."""
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA)
    reading = stream_tfrecord(path, io="mmap")
    first = next(reading)
    del reading
    gc.collect()
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(b"F")
    os.unlink(path)
    assert bytes(first) == b"First"
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True


def test_pages_are_had_ahead(tmp_path):
    """By a thread; also in a process that was forked since, and beyond a file's end nothing happens."""
    size = 3 << 20
    path = write(tmp_path, bytes(size))
    with open(path, "rb") as file:
        mapping = Mapping(file.fileno(), size)
    ahead = _tfrecord.Ahead(mapping)

    def comes(start):
        before, end = resident(mapping), time.monotonic() + 10 * children.PATIENCE
        ahead.have(start, 1 << 20)
        while (more := resident(mapping) - before) < 1 << 20 and time.monotonic() < end:
            time.sleep(0.001)
        return more >= 1 << 20

    assert resident(mapping) == 0
    for start, length in ((-1, 4096), (size, 4096), (size + (1 << 20), 1), (0, 0)):
        ahead.have(start, length)
    assert resident(mapping) == 0
    assert comes(0)
    assert children.in_child(lambda: comes(1 << 20)) == 0
    os.truncate(path, 0)
    ahead.have(2 << 20, 1 << 20)
    ahead = None
    assert not mapping.lost


def resident(mapping):
    """Bytes of it that are mapped into this process."""
    address = np.frombuffer(memoryview(mapping), np.uint8).ctypes.data
    inside, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            start, end = (int(each, 16) for each in line.split(" ", 1)[0].split("-"))
            inside = start <= address < end
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@kinds
@given(contents=records(), window=st.integers(17, 300), check=st.booleans(), io=st.sampled_from(WAYS))
def test_any_records(tmp_path_factory, kind, contents, window, check, io):
    """Through small windows, so that records, lengths and checksums lie across their ends."""
    path = write(tmp_path_factory.mktemp("any"), twin.PACK[kind](twin.encode(contents)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_sequential, "WINDOW", window)
        assert [bytes(each) for each in stream_tfrecord(path, check, io=io)] == list(contents)


@ways
def test_records_stay_as_they_are(tmp_path, monkeypatch, io):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA * 20)
    assert [bytes(each) for each in [*stream_tfrecord(path, io=io)]] == RECORDS * 20


def test_several_files_of_all_kinds(tmp_path):
    for number, kind in enumerate(twin.PACK):
        write(tmp_path, twin.PACK[kind](twin.encode([*RECORDS, bytes([number])])), f"{number}.tfrecord")
    wanted = [record for number in range(len(twin.PACK)) for record in (*RECORDS, bytes([number]))]
    assert [bytes(each) for each in stream_tfrecord(tmp_path)] == wanted
    assert [bytes(each) for each in stream_tfrecord(str(tmp_path / "*.tfrecord"))] == wanted


@pytest.mark.parametrize("check", [True, False])
def test_every_cut(tmp_path, check):
    for size in range(len(DATA)):
        agrees(write(tmp_path, DATA[:size]), check_data=check)


def test_every_byte_flipped(tmp_path):
    for at in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[at] ^= 0x41
        agrees(write(tmp_path, bytes(damaged)), compression="none")
        agrees(write(tmp_path, twin.PACK["gzip"](bytes(damaged))))


@pytest.mark.parametrize("kind", ["gzip", "zlib", "members"])
def test_compressed_data_cut_or_damaged(tmp_path, kind):
    data = twin.PACK[kind](DATA)
    compression = "zlib" if kind == "zlib" else "gzip"
    for size in range(len(data)):
        agrees(write(tmp_path, data[:size]), compression=compression)
        damaged = bytearray(data)
        damaged[size] ^= 0x10
        agrees(write(tmp_path, bytes(damaged)), compression=compression)


@pytest.mark.parametrize("window", [40, 1 << 20])
def test_mutants(tmp_path, monkeypatch, window):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", window)
    for data in mutations.mutants(DATA, 200, window):
        for check in (True, False):
            agrees(write(tmp_path, data), compression="none", check_data=check)


def test_left_out(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    damaged = bytearray(DATA[:-3])
    damaged[12] ^= 1
    path = write(tmp_path, bytes(damaged))
    found, error = had(path, on_error="skip")
    assert found == RECORDS[1:-1]
    assert isinstance(error, TruncatedError)
    assert "; pass on_torn='skip' to read everything before it" in str(error)
    skipped = [record.message for record in caplog.records]
    assert len(skipped) == 1
    assert skipped[0].startswith(f"skipped: checksum mismatch: {path}: record 0: CRC-32C 0x")
    caplog.clear()
    assert had(path, on_error="skip", on_torn="skip") == (RECORDS[1:-1], None)
    reason = str(error).partition(";")[0]
    assert [record.message for record in caplog.records] == [*skipped, f"left out, with all records after it: {reason}"]
    found, error = had(path, on_torn="skip")
    assert found == []
    assert "record 0: CRC-32C 0x" in str(error)
    assert "(5 bytes at offset 12)" in str(error)


def test_no_tfrecord(tmp_path):
    path = write(tmp_path, b"something else, of some length")
    for how in ("raise", "skip"):
        for io in WAYS:
            with pytest.raises(FormatError, match=f"{path}: record 0 at offset 0: .*not a TFRecord file"):
                next(stream_tfrecord(path, on_torn=how, io=io))
    for io in WAYS:
        assert list(stream_tfrecord(write(tmp_path, b""), io=io)) == []


@pytest.fixture
def asked(monkeypatch):
    """Sizes of the windows that memory was asked for, at least one of WINDOW."""
    sizes = []

    def pooled(size):
        sizes.append(size)
        return memory(size)

    memory = tfrecord_sequential.pooled
    monkeypatch.setattr(tfrecord_sequential, "pooled", pooled)
    return sizes


@pytest.mark.parametrize("kind", [None, "gzip"])
@pytest.mark.parametrize("length", [1 << 26, 1 << 40, (1 << 63) - 17, (1 << 64) - 1])
def test_a_length_is_not_believed(tmp_path, kind, length, asked):
    """Not even with its checksum: memory follows what there is."""
    path = write(tmp_path, twin.PACK[kind](DATA + twin.header(length) + bytes(3 << 20)))
    found, error = had(path)
    assert found == RECORDS
    assert isinstance(error, TruncatedError)
    assert str(length) in str(error)
    assert max(asked) <= 8 << 20


@kinds
def test_memory_grows_with_a_record(tmp_path, kind, asked):
    """By powers of two, so that what came is copied as often as that, and not for every piece that is read."""
    path = write(tmp_path, twin.PACK[kind](twin.encode([bytes(20 << 20), b"after"])))
    assert [len(each) for each in stream_tfrecord(path)] == [20 << 20, 5]
    assert len(asked) <= 8
    assert sum(asked) <= 4 * (20 << 20)


def test_windows_are_filled(tmp_path, asked):
    """Also from a file of many small members."""
    contents = [bytes([i % 256]) * 1000 for i in range(3000)]
    path = write(tmp_path, b"".join(gzip.compress(twin.encode([each]), 1) for each in contents))
    assert [bytes(each) for each in stream_tfrecord(path)] == contents
    assert len(asked) <= 4


@pytest.mark.parametrize("cut", [0, -7, 13])
def test_a_file_that_becomes_shorter(tmp_path, monkeypatch, cut):
    """Also where a record ends there."""
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA * 20)
    reading, found = stream_tfrecord(path, on_torn="skip"), []
    left = len(DATA) * 10 + cut
    good = 50 if cut >= 0 else 49
    with pytest.raises(
        TruncatedError, match=rf"{path}: record {good}: the file was cut to {left} bytes, it had {len(DATA) * 20} when"
    ):
        for record in reading:
            found.append(bytes(record))
            if len(found) == 10:
                os.truncate(path, left)
    assert found == (RECORDS * 10)[:good]


@ways
def test_what_is_added_meanwhile_is_not_read(tmp_path, monkeypatch, io):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 50)
    path = write(tmp_path, DATA * 20)
    found = []
    for record in stream_tfrecord(path, io=io):
        found.append(bytes(record))
        if len(found) == 10:
            with open(path, "ab") as file:
                file.write(DATA * 3)
    assert found == RECORDS * 20


def test_wrong_arguments(tmp_path):
    path = write(tmp_path, DATA)
    for name in ("on_error", "on_torn"):
        with pytest.raises(ValueError, match=f"{name} is 'no', expected 'raise' or 'skip'"):
            stream_tfrecord(path, **{name: "no"})
    with pytest.raises(ValueError, match="io is 'pread', expected 'auto' or 'mmap'"):
        stream_tfrecord(path, io="pread")
    with pytest.raises(ValueError, match="compression is 'lz4'"):
        stream_tfrecord(path, compression="lz4")
    with pytest.raises(FileNotFoundError):
        stream_tfrecord(tmp_path / "none")


@ways
@kinds
def test_nothing_stays_open(tmp_path, kind, io):
    path = write(tmp_path, twin.PACK[kind](twin.encode(LARGE)))
    gc.collect()  # or descriptors that earlier tests left behind are closed in between
    before = children.open_files(collect=True)
    for count in (1, 3, 100):
        reading = stream_tfrecord(path, io=io)
        assert len(list(islice(reading, count))) == min(count, len(LARGE))
        del reading
        gc.collect()
        assert children.open_files() == before
        assert path not in Path("/proc/self/maps").read_text()
    reading = stream_tfrecord(write(tmp_path, b"wrong"))
    with pytest.raises(FormatError):
        next(reading)
    assert children.open_files() == before


@ways
@kinds
def test_a_fork_in_the_middle(tmp_path, monkeypatch, kind, io):
    """Both go on, each for itself; also within a member, and between two."""
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64 << 10)
    contents = [os.urandom(400) for _ in range(3000)]
    path = write(tmp_path, twin.PACK[kind](twin.encode(contents)))
    reading = stream_tfrecord(path, io=io)
    first = [bytes(each) for each in islice(reading, 1500)]

    def rest():
        return first + [bytes(each) for each in reading] == contents

    assert children.in_child(rest) == 0
    assert rest()


def test_a_fork_between_members(tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 20)
    contents = [b"%d" % i for i in range(10)]
    path = write(tmp_path, b"".join(gzip.compress(twin.encode([each])) for each in contents))
    reading = stream_tfrecord(path)
    first = [bytes(each) for each in islice(reading, 4)]
    assert children.in_child(lambda: first + [bytes(each) for each in reading] == contents) == 0
    assert [bytes(each) for each in reading] == contents[4:]
