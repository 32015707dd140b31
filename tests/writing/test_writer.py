"""`FileWriter`: the bytes it writes, its arguments, and when they appear."""

import gc
import io
import os
import stat
import warnings
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest

from ffrecord import FileReader, FileWriter
from ffrecord.format.extension import Extension
from ffrecord.system import atomic_file

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
COUNTS = [[], [b""], [b"x"], builders.small(), builders.records([3 << 19, 1, 1 << 20, (1 << 20) - 1, 0, 5 << 20])]
NAMED = pytest.mark.parametrize("samples", COUNTS, ids=["none", "one empty", "one", "small", "large"])


def written(path: Path, samples: list[bytes], n: int | None, extension: Extension | None = None) -> bytes:
    with FileWriter(path, n, extension=extension) as writer:
        for sample in samples:
            assert writer.write_one(sample) is None
    assert os.listdir(path.parent) == [path.name]
    return path.read_bytes()


@NAMED
def test_with_n_the_bytes_are_those_of_the_original(tmp_path, samples):
    assert written(tmp_path / "a.ffr", samples, len(samples)) == ffr_twin.build(samples)


@NAMED
@pytest.mark.parametrize("extension", [None, Extension(writer="test", schema={"a": 1})])
def test_without_n(tmp_path, samples, extension):
    """Samples start at a multiple of 4096; between tables and samples is one extension block."""
    data = written(tmp_path / "a.ffr", samples, None, extension)
    assert ffr_twin.parse(data) == samples
    with FileReader(tmp_path / "a.ffr") as reader:
        assert builders.read_all(reader) == samples
        assert reader.get_offsets(0)[0] % 4096 == 0
        assert reader.extension == (extension or Extension())


@NAMED
def test_with_n_and_an_extension(tmp_path, samples):
    extension = Extension(writer="test", serializer="f")
    data = written(tmp_path / "a.ffr", samples, len(samples), extension)
    assert ffr_twin.parse(data) == samples
    payload = b"\x82\xaaserializer\xa1f\xa6writer\xa4test"
    assert data == ffr_twin.build_extended(samples, payload)


@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("n", [336, 337, 338, 678, 1000, 20_000])
def test_room_for_more_tables_than_reserved(tmp_path, monkeypatch, copying, n):
    """337 samples' tables and a block of 40 bytes fit in the first 4096 bytes; more must move the samples back."""
    if copying:
        monkeypatch.setattr(atomic_file, "insert_range", lambda *_: False)
    samples = builders.records([i % 50 for i in range(n)])
    data = written(tmp_path / "a.ffr", samples, None)
    assert ffr_twin.parse(data) == samples
    gap = int.from_bytes(data[12 + 4 * n : 20 + 4 * n], "little") - (12 + 12 * n)
    assert 40 <= gap < 4096 + 40
    assert data[12 + 12 * n :][:gap] == ffr_twin.block(b"", gap - 40, len(data))
    with FileReader(tmp_path / "a.ffr") as reader:
        assert builders.read_all(reader) == samples


def test_many_empty_samples_without_n(tmp_path):
    assert ffr_twin.parse(written(tmp_path / "a.ffr", [b""] * 1000, None)) == [b""] * 1000


@pytest.mark.parametrize("n", [3, np.int8(3), np.uint64(3), np.array(3)], ids=repr)
def test_n_is_integer_like(tmp_path, n):
    with FileWriter(fname=tmp_path / "a.ffr", n=n) as writer:
        assert (writer.n, writer.count, type(writer.n)) == (3, 0, int)
        for i in range(3):
            writer.write_one(b"x")
            assert writer.count == i + 1


@pytest.mark.parametrize(
    ("n", "kind"),
    [(-1, ValueError), (-(2**70), ValueError), (1.0, TypeError), ("1", TypeError), ([1], TypeError)],
    ids=repr,
)
def test_wrong_n(tmp_path, n, kind):
    with pytest.raises(kind):
        FileWriter(tmp_path / "a.ffr", n)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("n", [2**62, 2**63, 2**70])
def test_impossible_n(tmp_path, n):
    """More than a file can hold is refused at once, and leaves nothing."""
    with pytest.raises((OSError, ValueError)):
        FileWriter(tmp_path / "a.ffr", n)
    assert os.listdir(tmp_path) == []


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"a.ffr"


@pytest.mark.parametrize("wrong", [b"a.ffr", 3, None, ["a.ffr"], BytesPath()])
def test_wrong_type_of_name(wrong):
    with pytest.raises(TypeError) as caught:
        FileWriter(wrong, 1)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.FFR", "a.ffr.gz", ".ffr", "a.ffrx", ""])
def test_wrong_suffix(tmp_path, name):
    words = r"does not end with \.ffr" if name else r"fname is str '', expected a path$"
    with pytest.raises(ValueError, match=words) as caught:
        FileWriter(str(tmp_path / name) if name else "", 1)
    assert isinstance(caught.value, AssertionError)
    assert os.listdir(tmp_path) == []


def test_a_null_character():
    with pytest.raises(ValueError, match=r"fname is 'a\\x00b\.ffr', expected a path without null") as caught:
        FileWriter("a\0b.ffr", 1)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("name", ["n", "count"])
def test_read_only_attributes(tmp_path, name):
    with FileWriter(tmp_path / "a.ffr", 0) as writer, pytest.raises(AttributeError):
        setattr(writer, name, 1)


def test_does_not_pickle(tmp_path):
    import copy
    import pickle

    class Own(FileWriter):
        pass

    for kind in (FileWriter, Own):
        with kind(tmp_path / "a.ffr", 0) as writer:
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=f"cannot pickle '{kind.__name__}' object"):
                    attempt(writer)


# Counting


def test_one_too_many(tmp_path):
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"x")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Exceed total number of samples: 1") as caught:
                writer.write_one(b"y")
            assert isinstance(caught.value, ValueError)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x"])


@pytest.mark.parametrize("n", [1, None])
def test_after_close(tmp_path, n):
    writer = FileWriter(tmp_path / "a.ffr", n)
    writer.write_one(b"x")
    writer.close()
    with pytest.raises(RuntimeError, match=r"Exceed total number of samples: 1.* has been closed"):
        writer.write_one(b"y")
    writer.close()
    assert (writer.n, writer.count) == (n, 1)
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"x"]


def test_closing_too_early_then_going_on(tmp_path):
    writer = FileWriter(tmp_path / "a.ffr", 2)
    for count in range(2):
        with pytest.raises(RuntimeError, match=f"Wrote {count} samples but expected 2") as caught:
            writer.close()
        assert isinstance(caught.value, ValueError)
        assert "Number of samples mismatched!" in str(caught.value)
        writer.write_one(b"x")
    writer.close()
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x", b"x"])


# The target


def test_nothing_under_the_name_before_close(tmp_path):
    (tmp_path / "a.ffr").write_bytes(b"old")
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"x" * (3 << 20))
        assert (tmp_path / "a.ffr").read_bytes() == b"old"
        assert [name for name in os.listdir(tmp_path) if name.endswith(".ffr")] == ["a.ffr"]
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x" * (3 << 20)])


def test_modes(tmp_path):
    old = os.umask(0o027)
    try:
        written(tmp_path / "a.ffr", [b"x"], 1)
        assert stat.S_IMODE((tmp_path / "a.ffr").stat().st_mode) == 0o640
        (tmp_path / "a.ffr").chmod(0o604)
        written(tmp_path / "a.ffr", [b"y"], None)
        assert stat.S_IMODE((tmp_path / "a.ffr").stat().st_mode) == 0o604
    finally:
        os.umask(old)


def test_an_open_directory_reader_sees_no_unfinished_file(tmp_path):
    builders.write_samples(tmp_path / "a.ffr", [b"x"])
    with FileWriter(tmp_path / "b.ffr", 1) as writer:
        with FileReader(tmp_path) as reader:
            assert reader.n == 1
        writer.write_one(b"y")
    with FileReader(tmp_path) as reader:
        assert reader.n == 2


# Writers that are dropped


def test_a_complete_writer_dropped_is_published(tmp_path):
    writer = FileWriter(tmp_path / "a.ffr", 1)
    writer.write_one(b"x")
    with pytest.warns(ResourceWarning, match=r"a\.ffr: the writer was complete, but nobody called close"):
        del writer
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x"])


def test_the_collector_ends_a_complete_writer_last(tmp_path):
    """It finds the file of a cycle before the writer here. Were it closed, a thread would write to another file."""

    def drop(samples):
        writer = FileWriter(tmp_path / "a.ffr", len(samples))
        writer.write_many(samples)
        held = [found for found in gc.get_objects() if isinstance(found, io.FileIO)]
        cycle = [writer]
        cycle.append(cycle)
        del writer
        gc.collect()  # what is held stays in its place, the writer goes behind it
        assert held

    samples = [bytes([i]) * (3 << 20) for i in range(4)]
    with pytest.warns(ResourceWarning, match=r"a\.ffr: the writer was complete, .*; it was closed now"):
        drop(samples)
        gc.collect()
    with FileReader(tmp_path / "a.ffr") as reader:
        assert [sample.tobytes() for sample in reader] == samples


@pytest.mark.parametrize("n", [2, None])
def test_an_unfinished_writer_dropped_is_discarded(tmp_path, n):
    (tmp_path / "a.ffr").write_bytes(b"old")
    writer = FileWriter(tmp_path / "a.ffr", n)
    writer.write_one(b"x")
    with pytest.warns(ResourceWarning, match=r"a\.ffr: nobody called close\(\) on .*, which discarded 1 sample"):
        del writer
    assert (tmp_path / "a.ffr").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.ffr"]


def test_a_closed_writer_says_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = FileWriter(tmp_path / "a.ffr", 0)
        writer.close()
        del writer


def test_n_of_another_type(tmp_path):
    with pytest.raises(TypeError, match=r"n is float .*, expected an int"):
        FileWriter(tmp_path / "a.ffr", 1.5)
    assert list(tmp_path.iterdir()) == []
