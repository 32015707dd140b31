"""TFRecord files written: byte for byte as the format says, whole or not at all."""

import gc
import os
import pickle
import resource
import signal
import zlib

import children
import numpy as np
import pytest
import tfrecord_twin as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import records

from ffrecord.sources.tfrecord import writer as tfrecord_writer
from ffrecord.sources.tfrecord.reader import TFRecordReader
from ffrecord.sources.tfrecord.writer import TFRecordWriter

RECORDS = [b"", b"one", b"x" * 3_000_000, b"y" * 700_000, b"z" * 700_000, b"last"]
compressions = pytest.mark.parametrize("compression", [None, "gzip", "zlib"])


def write(path, contents, *arguments, **options):
    with TFRecordWriter(path, *arguments, **options) as writer:
        for number, record in enumerate(contents):
            assert writer.n == number
            writer.write(record)
    return path.read_bytes()


def unpacked(data, compression):
    return zlib.decompress(data, {"gzip": 31, "zlib": 15}[compression]) if compression else data


@compressions
def test_bytes(tmp_path, compression):
    assert unpacked(write(tmp_path / "x", RECORDS, compression), compression) == twin.encode(RECORDS)
    assert os.listdir(tmp_path) == ["x"]
    with TFRecordReader(tmp_path / "x") as reader:
        assert [bytes(each) for each in reader] == RECORDS


@settings(max_examples=30)
@given(
    contents=records(40), compression=st.sampled_from([None, "gzip", "zlib"]), flush=st.sampled_from([1, 1000, 1 << 20])
)
def test_any_records(tmp_path_factory, contents, compression, flush):
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_writer, "FLUSH_SIZE", flush)
        data = write(folder / "x", contents, compression)
    assert unpacked(data, compression) == twin.encode(contents)


@compressions
def test_packed(tmp_path, compression):
    data, offsets = np.frombuffer(b"".join(RECORDS), np.uint8), np.cumsum([0, *map(len, RECORDS)])
    with TFRecordWriter(tmp_path / "x", compression) as writer:
        writer.write_packed(data, offsets)
        writer.write_packed(data, offsets[2:4])
        writer.write_packed(b"abc", [0])
        writer.write_packed(b"abc", [1, 1, 3])
        assert writer.n == len(RECORDS) + 3
        for bad in ([0, 4], [-1, 2], [2, 1], np.empty(0, np.int64)):
            with pytest.raises(ValueError, match=r"must ascend within 0 .. 3"):
                writer.write_packed(b"abc", bad)
        for bad in ([0, 1.5, 3], [[0, 1]], [[0], [1, 2]], [], None):
            with pytest.raises(TypeError, match=r"^offsets is .*, expected ints \[k \+ 1\]$"):
                writer.write_packed(b"abc", bad)
        assert writer.n == len(RECORDS) + 3
    written = unpacked((tmp_path / "x").read_bytes(), compression)
    assert written == twin.encode([*RECORDS, RECORDS[2], b"", b"bc"])


def test_levels(tmp_path):
    sizes = [len(write(tmp_path / "x", [b"ab" * 5000], "zlib", level=level)) for level in (0, 1, 9)]
    assert sizes[0] > 10_000 > 500 > sizes[1] >= sizes[2]
    assert write(tmp_path / "x", [], "gzip", level=9)[8] == 2  # as RFC 1952 says of the best level


@pytest.mark.parametrize(
    "record",
    [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], np.frombuffer(b"abc", np.uint8), np.array([b"abc"])],
)
def test_kinds_of_buffers(tmp_path, record):
    assert write(tmp_path / "x", [record]) == twin.encode([b"abc"])


def test_a_buffer_may_be_used_again(tmp_path):
    buffer = bytearray(2 << 20)
    with TFRecordWriter(tmp_path / "x") as writer:
        for value in (1, 2):
            buffer[:] = bytes([value]) * len(buffer)
            writer.write(buffer)
    assert (tmp_path / "x").read_bytes() == twin.encode([bytes([value]) * len(buffer) for value in (1, 2)])


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="compression is 'lz4', expected None, 'gzip' or 'zlib'"):
        TFRecordWriter(tmp_path / "x", "lz4")
    with pytest.raises(ValueError, match="level is 10, expected 0 to 9"):
        TFRecordWriter(tmp_path / "x", "gzip", level=10)
    with pytest.raises(OSError, match="missing"):
        TFRecordWriter(tmp_path / "missing" / "x")
    with TFRecordWriter(tmp_path / "x") as writer:
        for bad in ("text", None, 5, np.array([object()])):
            with pytest.raises(TypeError):
                writer.write(bad)
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(writer)
    assert (tmp_path / "x").read_bytes() == b""


# Whole or not at all


@compressions
def test_an_exception_leaves_what_was_there(tmp_path, compression):
    path = tmp_path / "x"
    path.write_bytes(b"before")
    with pytest.raises(KeyError), TFRecordWriter(path, compression) as writer:
        writer.write(b"x" * 2_000_000)
        assert path.read_bytes() == b"before"
        raise KeyError
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["x"]


def test_closed(tmp_path):
    writer = TFRecordWriter(tmp_path / "x")
    writer.write(b"one")
    writer.close()
    writer.close()
    assert (tmp_path / "x").read_bytes() == twin.encode([b"one"])
    with pytest.raises(RuntimeError, match="has been closed"):
        writer.write(b"two")


def test_dropped(tmp_path):
    writer = TFRecordWriter(tmp_path / "x")
    writer.write(b"one")
    with pytest.warns(ResourceWarning, match=r"nobody called close\(\) on the writer, which discarded 1 record"):
        del writer
        gc.collect()
    assert os.listdir(tmp_path) == []


def test_a_full_disk(tmp_path):
    path = tmp_path / "x"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = TFRecordWriter(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    try:
        with pytest.raises(OSError, match=r"writing .* bytes at offset .*, after 1 record") as caught:
            for _ in range(5):
                writer.write(b"x" * 1_200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.filename == str(path) and os.listdir(tmp_path) == []
    for later in (lambda: writer.write(b""), writer.close):
        with pytest.raises(OSError, match="after 1 record"):
            later()


FORKED = """
import os, sys, warnings
from ffrecord.sources.tfrecord.writer import TFRecordWriter

writer = TFRecordWriter(sys.argv[1])
writer.write(b"one")
pid = os.fork()
if pid == 0:
    try:
        writer.write(b"two")
    except RuntimeError as error:
        print(error, flush=True)
    del writer
    os._exit(0)
os.waitpid(pid, 0)
writer.close()
"""


def test_a_fork_writes_nothing(tmp_path):
    said = children.run(FORKED, tmp_path / "x")
    assert "fork" in said or "closed" in said
    assert (tmp_path / "x").read_bytes() == twin.encode([b"one"])


KILLED = """
import os, signal, sys
from ffrecord.sources.tfrecord.writer import TFRecordWriter

with TFRecordWriter(sys.argv[1]) as writer:
    writer.write(b"x" * 2_000_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed(tmp_path):
    assert children.finished(KILLED, tmp_path / "x").returncode == -signal.SIGKILL
    assert not (tmp_path / "x").exists()
