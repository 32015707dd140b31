"""io="mmap" gives views of the file, checked where they lie."""

import gc
import itertools
import os
import pickle
import weakref

import builders
import ffr_twin
import numpy as np
import pytest
import situations

from ffrecord import ChecksumError, FileReader
from ffrecord.errors import TruncatedError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


@pytest.fixture
def mapped(sample_file) -> FileReader:
    with FileReader(sample_file.path, io="mmap") as reader:
        yield reader


def views(reader: FileReader) -> list[np.ndarray]:
    """Of the same samples, by every call that gives arrays."""
    found = [*reader.read([30, 7]), *reader[[30, 7]], reader.read_one(30), reader[7], *reader.read_range(7, 8)]
    return [*found, *next(reader.iter_batches([[30, 7]])), next(iter(reader[30:31]))]


def test_views_are_read_only(mapped):
    for view in views(mapped):
        assert (view.dtype, view.ndim, view.flags.c_contiguous) == (np.uint8, 1, True)
        assert not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            view[:3].flags.writeable = True
        assert memoryview(view).readonly


def test_nothing_is_copied(mapped):
    first, *others = [view for view in views(mapped) if len(view) == 30_000]
    assert len(others) >= 4
    assert all(np.shares_memory(first, other) and first.ctypes.data == other.ctypes.data for other in others)
    neighbours = mapped.read(range(40, 50))
    for one, next_one in itertools.pairwise(neighbours):
        assert one.ctypes.data + len(one) == next_one.ctypes.data


def test_a_copy_is_writable(mapped, sample_file):
    for copy in (mapped.read_one(7).copy(), np.array(mapped.read_one(7)), mapped.read_one(7) + np.uint8(0)):
        copy[:] = 0
    assert mapped.read_one(7).tobytes() == sample_file.samples[7]


def test_packed_samples_are_writable_copies(mapped, sample_file):
    data, offsets = mapped.read_packed([7, 30, 7])
    assert data.flags.writeable
    data[:] = 0
    assert mapped.read_one(7).tobytes() == sample_file.samples[7]
    assert offsets[-1] == len(data)
    out = np.zeros(len(data), np.uint8)
    again, _ = mapped.read_packed([7, 30, 7], out=out)
    assert np.shares_memory(again, out)
    assert builders.unpack((out, offsets)) == [sample_file.samples[i] for i in (7, 30, 7)]


@pytest.mark.parametrize("how", ["closed", "dropped", "file removed"])
def test_views_outlive_their_reader(tmp_path, how):
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([5000] * 20))
    reader = FileReader(path, io="mmap")
    arrays, part = reader.read(range(20)), reader.read_one(3)[100:200]
    reader.close()
    if how != "closed":
        del reader
        gc.collect()
    if how == "file removed":
        os.unlink(path)
    assert [array.tobytes() for array in arrays] == builders.records([5000] * 20)
    del arrays
    gc.collect()
    assert part.tobytes() == builders.records([5000] * 20)[3][100:200]


def maps(path: str) -> int:
    with open("/proc/self/maps") as lines:
        return sum(path in line for line in lines)


def test_the_mapping_ends_with_the_last_view(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([5000] * 20))
    reader = FileReader(path, io="mmap")
    view = reader.read_one(3)
    assert maps(path) == 2  # the tables, and all
    dead = weakref.ref(reader)
    del reader
    gc.collect()
    assert (dead(), maps(path)) == (None, 1)
    del view
    gc.collect()
    assert maps(path) == 0


def test_pickling_copies(mapped, sample_file):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(mapped.read([7, 30]), protocol))
        assert [array.tobytes() for array in again] == [sample_file.samples[i] for i in (7, 30)]
        assert not np.shares_memory(again[0], mapped.read_one(7))


def test_damage_is_found_where_it_lies(tmp_path):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(builders.small())))
    with FileReader(path, io="mmap") as reader:
        for call in (reader.read, reader.read_packed):
            with pytest.raises(ChecksumError, match="Sample 5: "):
                call(range(8))
    with FileReader(path, False, io="mmap") as reader:
        assert len(reader.read(range(8))) == 8
        assert reader.read_one(5).tobytes() != builders.small()[5]


def test_later_damage_is_found_by_the_next_read(tmp_path):
    """A mapping shows the file as it is now."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    with FileReader(path, io="mmap") as reader:
        (view,) = reader.read([7])
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(bytes([builders.small()[7][-1] ^ 1]))
        assert view.tobytes() != builders.small()[7]
        with pytest.raises(ChecksumError, match="Sample 7: "):
            reader.read([7])
        assert reader.read_one(6).tobytes() == builders.small()[6]


@pytest.mark.parametrize("size", [0, 11, 12 + 12 * 8 - 1, 200, 403])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_that_was_cut(tmp_path, size, on_error):
    """All of it is refused before a page that is gone is touched: also samples that are still there."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    other = builders.write_samples(tmp_path / "b.ffr", [b"other"])
    with FileReader([path, other], io="mmap", on_error=on_error) as reader:
        os.truncate(path, size)
        for i in range(8):
            with pytest.raises(TruncatedError, match=f"Sample {i}: .*the file was cut to {size} bytes; it had 404"):
                reader.read_one(i)
        assert reader.read([8])[0].tobytes() == b"other"
        if on_error == "skip":
            assert builders.read_all(reader) == builders.unpack(reader.read_packed(range(9))) == [b"other"]
        with open(path, "r+b") as file:
            file.write(ffr_twin.build(builders.small()))
        assert builders.read_all(reader) == [*builders.small(), b"other"]


def test_a_file_that_grew(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    with FileReader(path, io="mmap") as reader:
        with open(path, "ab") as file:
            file.write(bytes(10_000))
        assert builders.read_all(reader) == builders.small()


def test_cold_files(tmp_path):
    samples = builders.records([3000, 0, 200_000, 50] * 50)
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    for size in (1, 7, 200):
        situations.evict(path)
        with FileReader(path, io="mmap") as reader:
            random = np.random.default_rng(size)
            for _ in range(20):
                indices = random.integers(0, 200, size)
                assert [view.tobytes() for view in reader.read(indices)] == [samples[i] for i in indices]
            assert reader.stats().engines.popitem()[1] == "mmap"


def test_empty_files_and_samples(tmp_path):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", each) for i, each in enumerate([[], [b"", b"x", b""], []])]
    with FileReader(names, io="mmap") as reader:
        assert [view.tobytes() for view in reader.read([0, 1, 2])] == [b"", b"x", b""]
        assert reader.read([2])[0].shape == (0,)
