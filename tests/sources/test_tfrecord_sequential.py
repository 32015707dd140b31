"""TFRecord files from front to back: what `TFRecordReader` reads, in one pass, whatever they are like."""

import gc
import logging
import os
import tracemalloc
from itertools import islice

import children
import mutations
import numpy as np
import pytest
import tfrecord_twin as twin
from hypothesis import given
from hypothesis import strategies as st
from strategies import records

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, TruncatedError
from ffrecord.sources import TFRecordReader, stream_tfrecord, tfrecord_sequential

RECORDS = [b"first", b"", b"the third one", b"4th", b"fifth and last"]
DATA = twin.encode(RECORDS)
LARGE = [bytes([i]) * size for i, size in enumerate((100, 3 << 20, 0, 1 << 20, 70_000, (1 << 20) - 16, 5))]
kinds = pytest.mark.parametrize("kind", twin.PACK)


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
        return found, None if torn is None else torn.as_error(path, "; on_torn='skip' reads everything before it")


def agrees(path, **options):
    """With `TFRecordReader`, about every record, what is wrong behind them, and in which words."""
    try:
        wanted, error = expected(path, **options)
    except FormatError as refused:
        wanted, error = [], refused
    found, raised = had(path, **options)
    assert found == wanted
    assert type(raised) is type(error)
    if isinstance(error, ChecksumError):
        assert (raised.path, raised.stored, raised.computed) == (error.path, error.stored, error.computed)
        assert str(error).partition(": checksum mismatch: ")[2] in str(raised) or str(raised) == str(error)
    elif error is not None:
        assert str(raised) == str(error)


@kinds
def test_all_records(tmp_path, kind):
    path = write(tmp_path, twin.PACK[kind](twin.encode(LARGE)))
    assert [bytes(each) for each in stream_tfrecord(path)] == LARGE
    for each in stream_tfrecord(path):
        assert (each.dtype, each.ndim, each.flags.writeable) == (np.uint8, 1, True)


@kinds
@given(contents=records(), window=st.integers(17, 300), check=st.booleans())
def test_any_records(tmp_path_factory, kind, contents, window, check):
    """Through small windows, so that records, lengths and checksums lie across their ends."""
    path = write(tmp_path_factory.mktemp("any"), twin.PACK[kind](twin.encode(contents)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_sequential, "WINDOW", window)
        assert [bytes(each) for each in stream_tfrecord(path, check)] == list(contents)


def test_records_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA * 20)
    assert [bytes(each) for each in [*stream_tfrecord(path)]] == RECORDS * 20


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
    assert "; on_torn='skip' reads everything before it" in str(error)
    assert not caplog.records
    assert had(path, on_error="skip", on_torn="skip") == (RECORDS[1:-1], None)
    reason = str(error).partition(";")[0]
    assert [record.message for record in caplog.records] == [f"left out, with all behind it: {reason}"]
    found, error = had(path, on_torn="skip")
    assert found == []
    assert "record 0: CRC-32C 0x" in str(error)
    assert "(5 bytes at offset 12)" in str(error)


def test_no_tfrecord(tmp_path):
    path = write(tmp_path, b"something else, of some length")
    for how in ("raise", "skip"):
        with pytest.raises(FormatError, match=f"{path}: record 0 at offset 0: .*this is no TFRecord"):
            next(stream_tfrecord(path, on_torn=how))
    assert list(stream_tfrecord(write(tmp_path, b""))) == []


@pytest.mark.parametrize("kind", [None, "gzip"])
def test_a_length_is_not_believed(tmp_path, kind):
    """Not even with its checksum: memory follows what there is."""
    path = write(tmp_path, twin.PACK[kind](DATA + twin.header(1 << 40) + bytes(100_000)))
    tracemalloc.start()
    try:
        found, error = had(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == RECORDS
    assert isinstance(error, TruncatedError)
    assert str(1 << 40) in str(error)
    assert peak < 8 << 20


def test_a_file_that_becomes_shorter(tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA * 20)
    reading = stream_tfrecord(path)
    first = [bytes(each) for each in islice(reading, 10)]
    os.truncate(path, len(DATA) * 10 - 7)
    with pytest.raises(TruncatedError, match="record 49 at offset"):
        first += [bytes(each) for each in reading]
    assert first == (RECORDS * 2)[:10]


def test_wrong_arguments(tmp_path):
    path = write(tmp_path, DATA)
    for name in ("on_error", "on_torn"):
        with pytest.raises(ValueError, match=f"{name} is 'no', expected 'raise' or 'skip'"):
            stream_tfrecord(path, **{name: "no"})
    with pytest.raises(ValueError, match="compression is 'lz4'"):
        stream_tfrecord(path, compression="lz4")
    with pytest.raises(FileNotFoundError):
        stream_tfrecord(tmp_path / "none")


@kinds
def test_nothing_stays_open(tmp_path, kind):
    path = write(tmp_path, twin.PACK[kind](twin.encode(LARGE)))
    before = os.listdir("/proc/self/fd")
    for count in (1, 3, 100):
        reading = stream_tfrecord(path)
        assert len(list(islice(reading, count))) == min(count, len(LARGE))
        del reading
        gc.collect()
        assert os.listdir("/proc/self/fd") == before
    reading = stream_tfrecord(write(tmp_path, b"wrong"))
    with pytest.raises(FormatError):
        next(reading)
    assert os.listdir("/proc/self/fd") == before


@children.forks
def test_a_fork_in_the_middle(tmp_path, monkeypatch):
    """Both go on, each for itself."""
    monkeypatch.setattr(tfrecord_sequential, "WINDOW", 64)
    path = write(tmp_path, DATA * 50)
    reading = stream_tfrecord(path)
    first = [bytes(each) for each in islice(reading, 7)]

    def rest():
        return first + [bytes(each) for each in reading] == RECORDS * 50

    assert children.in_child(rest) == 0
    assert rest()
