"""`FileReader` as a sequence: length, iteration, slices, indexing."""

import os

import builders
import children
import numpy as np
import pytest
import situations
import spans
from builders import chain, put

from ffrecord import FileReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def test_length_and_repr(small_file):
    reader = FileReader(small_file.path)
    assert len(reader) == reader.n == 8
    assert "8 samples in 1 file" in repr(reader)
    assert "closed" not in repr(reader)
    reader.close()
    assert "closed" in repr(reader)


def test_iteration(reader, sample_file):
    assert [sample.tobytes() for sample in reader] == sample_file.samples
    assert [sample.tobytes() for sample in reversed(reader)] == sample_file.samples[::-1]


@pytest.mark.parametrize(
    "cut", [slice(None), slice(3, 6), slice(None, None, -2), slice(-2, None), slice(5, 2), slice(100)], ids=repr
)
def test_slices_are_lazy_sequences(small_file, cut):
    with FileReader(small_file.path) as reader:
        piece, wanted = reader[cut], small_file.samples[cut]
        assert len(piece) == len(wanted)
        assert [sample.tobytes() for sample in piece] == wanted
        assert [piece[i].tobytes() for i in range(-len(wanted), len(wanted))] == wanted * 2
        assert [sample.tobytes() for sample in piece[1::2]] == wanted[1::2]
        for i in (len(wanted), -len(wanted) - 1):
            with pytest.raises(IndexError, match=f"index is {i}, expected .*, the length of the slice"):
                piece[i]
    if wanted:
        with pytest.raises(RuntimeError, match="closed"):
            piece[0]


def test_indexing(small_file):
    with FileReader(small_file.path) as reader:
        assert reader[3].tobytes() == reader[-5].tobytes() == reader[np.int32(3)].tobytes() == small_file.samples[3]
        assert reader[np.array(3)].tobytes() == small_file.samples[3]
        for indices in ([3, 1], (3, 1), np.array([3, 1]), range(3, 0, -2)):
            assert [sample.tobytes() for sample in reader[indices]] == [small_file.samples[3], small_file.samples[1]]
        with pytest.raises(TypeError):
            reader["3"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_one_piece_is_read_in_the_calling_thread(small_file):
    """To wait for another thread takes longer than to read some records."""

    def read() -> bool:
        threads = set(os.listdir("/proc/self/task"))
        with FileReader(small_file.path) as reader:
            for _ in range(3):
                assert [sample.tobytes() for sample in reader.read_range(1, 7)] == small_file.samples[1:7]
                assert [sample.tobytes() for sample in reader[2:5]] == small_file.samples[2:5]
                assert [sample.tobytes() for sample in reader] == small_file.samples
            return set(os.listdir("/proc/self/task")) == threads

    assert children.in_child(read) == 0


def test_iterating_takes_little_memory_beside_the_samples(tmp_path):
    """Nothing in proportion to n for each chunk, or long files take quadratic time."""
    import tracemalloc

    n = 300_000
    tables = bytes(4 * n) + np.full(n, 12 + 12 * n, np.int64).tobytes()
    path = builders.write(tmp_path / "a.ffr", chain(put(4, "<q", n), builders.fix_checksum)(bytes(12) + tables))
    with FileReader(path) as reader:
        tracemalloc.start()
        next(iter(reader))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20  # two pieces of 8,192 empty arrays


@pytest.mark.parametrize("cold", [False, True], ids=["cached", "cold"])
def test_neighbours_are_read_together(tmp_path, cold):
    """Whether they are cached or not: a call for each record would take most of the time."""
    samples = [bytes([i % 251]) * 200 for i in range(60_000)]
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    if cold:
        situations.evict(path)
    with FileReader(path) as reader:
        assert [sample.tobytes() for sample in reader] == samples
        assert reader.stats().requests < 2000
        assert sum(len(batch) for batch in reader.iter_batches([range(30_000), range(30_000, 60_000)])) == 60_000


def test_what_lies_between_far_records_is_not_read(tmp_path):
    """As in an archive of which a few members are wanted."""
    far = 64 << 20
    with open(tmp_path / "a.bin", "wb") as file:
        for i in range(3):
            file.seek(i * far)
            file.write(b"record %d" % i)
    path = str(tmp_path / "a.bin")
    situations.evict(path)
    if situations.cached_share(path) > 0.1:
        pytest.skip("nothing can be evicted from the page cache here")
    table = spans.Table(path, b"", [(i * far, 8) for i in range(3)], None)
    with spans.SpanReader([table]) as reader:
        assert [record.tobytes() for record in reader] == [b"record 0", b"record 1", b"record 2"]
    assert situations.cached_share(path) < 0.3
