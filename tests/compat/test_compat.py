"""Behaviours of ffrecord 1.4 that programs may rely on, and defects of it that are mended: those of FileReader.

The numbers are those of the list made when the original was examined; FileWriter is in test_compat_writer.py, errors in
test_compat_errors.py, the others with folders, dump and torch.
"""

import gc
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
from builders import (
    COPYING_MODES,
    IO_MODES,
    chain,
    fix_checksum,
    set_checksum,
    set_header_crc,
    set_n,
    set_offset,
    truncate,
)

from ffrecord import ChecksumError, FileReader, FileWriter, FormatError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)
in_copying_modes = pytest.mark.parametrize("io", COPYING_MODES)  # the original has no others


@pytest.fixture
def damage(tmp_path: Path):
    """A file of the small samples after damages."""

    def make(*damages: builders.Damage) -> str:
        return builders.write(tmp_path / "damaged.ffr", chain(*damages)(ffr_twin.build(builders.small())))

    return make


@in_copying_modes
def test_row_01_repeats_are_independent(small_file, io):
    with FileReader(small_file.path, io=io) as reader:
        arrays = reader.read([6, 5, 6, 6])
        arrays[0][:] = 0
        assert [array.tobytes() for array in arrays[1:]] == [small_file.samples[i] for i in (5, 6, 6)]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_row_02_no_indices(small_file):
    reader = FileReader(small_file.path)
    assert reader.read([]) == []
    reader.close()
    with pytest.raises(RuntimeError, match=r"FileReader has been closed\."):
        reader.read([])


@in_every_mode
def test_row_03_negative_indices_count_from_the_end(small_file, io):
    for check_data in (True, False):
        with FileReader(small_file.path, check_data, io=io) as reader:
            assert reader.read_one(-1).tobytes() == reader.read([0, 1, -1])[2].tobytes() == small_file.samples[7]
            for call in (lambda: reader.read_one(-9), lambda: reader.read([-1, 1, -9])):
                with pytest.raises(IndexError):
                    call()


@in_every_mode
def test_row_04_index_past_the_end(damage, io):
    """All indices are checked before anything is read; a loop by the index protocol ends."""
    with FileReader(damage(builders.flip_in_sample(6)), io=io) as reader:
        with pytest.raises(IndexError, match=r"index >= number of samples \(8 >= 8\)") as caught:
            reader.read([6, 8])
        assert isinstance(caught.value, RuntimeError)
        assert len(reader) == 8

    class OnlyGetitem:
        def __init__(self, reader: FileReader) -> None:
            self.reader = reader

        def __getitem__(self, index: int) -> np.ndarray:
            return self.reader[index]

    with FileReader(builders.write_samples(Path(reader.fnames[0]), builders.small()), io=io) as reader:
        assert [sample.tobytes() for sample in OnlyGetitem(reader)] == builders.small()


def test_row_05_closed_readers_still_answer(small_file):
    reader = FileReader(small_file.path)
    reader.close()
    reader.close()
    assert (reader.n, reader.fnames) == (8, [small_file.path])
    reader.validate()
    assert reader.get_offsets(0).tolist()[-2:] == [265, 404]
    assert len(reader.get_checksums(0)) == 8
    with pickle.loads(pickle.dumps(reader)) as again:
        assert builders.read_all(again) == small_file.samples


@in_every_mode
@pytest.mark.parametrize("size", [4096, 4097, 5000, 20_000])
def test_row_06_no_limit_of_a_batch(small_file, io, size):
    with FileReader(small_file.path, io=io) as reader:
        got = reader.read([i % 8 for i in range(size)])
    assert [sample.tobytes() for sample in got] == [small_file.samples[i % 8] for i in range(size)]


@in_every_mode
@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_row_07_empty_samples(damage, io, size):
    with FileReader(damage(), io=io) as reader:
        for array in reader.read([0] * size):
            assert (array.shape, array.dtype) == ((0,), np.uint8)
    with FileReader(damage(set_checksum(0, 1), fix_checksum), io=io) as reader:
        with pytest.raises(ChecksumError, match="Sample 0: checksum mismatch:"):
            reader.read([0] * size)
        assert reader.read_one(1).tobytes() == builders.small()[1]


def test_row_08_no_samples(tmp_path):
    with FileWriter(tmp_path / "a.ffr", 0):
        pass
    with FileReader(tmp_path / "a.ffr") as reader:
        assert (reader.n, reader.read([]), reader.get_offsets(0).tolist()) == (0, [], [12])
        assert (reader.get_checksums(0).tolist(), reader.get_checksums(0).dtype) == ([], np.uint32)
    full = builders.write_samples(tmp_path / "b.ffr", [b"x", b"y"])
    with FileReader([full, str(tmp_path / "a.ffr"), full]) as reader:
        assert builders.read_all(reader) == [b"x", b"y"] * 2


class Subclass(FileReader):
    """As users made them, with state of their own."""

    def __init__(self, fname: str) -> None:
        super().__init__(fname, check_data=False)
        self.state = ["mine"]


def test_row_09_pickles(small_file):
    with Subclass(small_file.path) as reader:
        again = pickle.loads(pickle.dumps(reader))
    assert (type(again), again.state, again.check_data, again.fnames) == (Subclass, ["mine"], False, [small_file.path])
    again.close()
    originals = f"cffrecord.fileio\nFileReader\n((lV{small_file.path}\naI01\ntR."
    with pickle.loads(originals.encode()) as reader:
        assert type(reader) is FileReader
        assert builders.read_all(reader) == small_file.samples


@in_every_mode
def test_row_10_fork_after_a_batch(sample_file, io):
    """More in reliability/test_fork.py."""
    with FileReader(sample_file.path, io=io) as reader:
        reader.read([0, 1, 2, 3])
        child = os.fork()
        if child == 0:
            os._exit(0 if builders.read_all(reader) == sample_file.samples else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert builders.read_all(reader) == sample_file.samples


def test_row_11_many_readers_take_few_slots(sample_file):
    """20 readers in each of two processes; refusals are tested in reliability/test_fork.py."""
    readers = [FileReader(sample_file.path, io="direct") for _ in range(20)]
    child = os.fork()
    good = all(builders.read_all(reader) == sample_file.samples for reader in readers)
    if child == 0:
        os._exit(0 if good else 1)
    for reader in readers:
        reader.close()
    assert good
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("check_data", [True, False])
@pytest.mark.parametrize("size", [0, 1, 11, 13, 72, 5000])
def test_row_13_unfinished_files(tmp_path, size, check_data):
    """What a killed writer of the original leaves: a hole where the header should be, or nothing yet."""
    with pytest.raises(FormatError, match="unfinished"):
        FileReader(builders.write(tmp_path / "a.ffr", bytes(size)), check_data)


@in_every_mode
def test_row_17_a_bad_checksum_names_the_global_index(damage, io):
    path = damage(builders.flip_in_sample(3))
    with (
        FileReader([path, path], io=io) as reader,
        pytest.raises(ChecksumError, match=r"^Sample 11: checksum mismatch:"),
    ):
        reader.read([8, 9, 10, 11])
    with FileReader(path, io=io, on_error="skip") as reader:
        assert len(reader.read(range(8))) == 7


@in_every_mode
def test_row_18_failing_batches_leak_nothing(tmp_path, io):
    """13 MiB after 50 batches of 256 KiB; loops are in reliability/test_leaks.py."""
    data = ffr_twin.build([bytes(64 << 10)] * 4)
    with FileReader(builders.write(tmp_path / "a.ffr", builders.flip_in_sample(3)(data)), io=io) as reader:
        before = None
        for i in range(60):
            with pytest.raises(ChecksumError):
                reader.read(range(4))
            if i == 10:
                gc.collect()
                before = len(gc.get_objects())
        gc.collect()
        assert len(gc.get_objects()) - before < 50


@in_every_mode
def test_row_19_cut_and_grown_files(damage, io):
    samples = builders.small()
    with FileReader(damage(truncate(200)), io=io) as reader:
        with pytest.raises(FormatError, match="Sample 6: length 100 but read 35 bytes"):
            reader.read_one(6)
        with pytest.raises(FormatError, match="Sample 7: "):
            reader.read([1, 2, 7])
        assert reader.read_one(5).tobytes() == samples[5]
    with FileReader(damage(builders.append(b"tail")), io=io) as reader, pytest.raises(ChecksumError, match="Sample 7"):
        reader.read_one(7)
    with FileReader(damage(builders.append(b"tail")), False, io=io) as reader:
        assert reader.read_one(7).tobytes() == samples[7] + b"tail"


@pytest.mark.parametrize("n", [2**50, -1, 2**63 - 1, -(2**63), 33])
def test_row_20_impossible_counts(damage, n):
    """Far more of these are in reliability/test_hostile.py."""
    for damages in ([set_n(n)], [set_n(n), set_header_crc(0)]):
        for check_data in (True, False):
            with pytest.raises(FormatError, match=f"{n} samples do not fit in 404 bytes"):
                FileReader(damage(*damages), check_data)


@in_every_mode
def test_row_20_offsets_out_of_order(damage, io):
    with (
        FileReader(damage(set_offset(4, 110), fix_checksum), io=io) as reader,
        pytest.raises(FormatError, match="Sample 3: "),
    ):
        reader.read_one(3)


@in_every_mode
def test_row_21_old_files(damage, io):
    path = damage(set_header_crc(0))
    with pytest.warns(UserWarning, match="warning: you are using an old version ffrecord file, please update the file"):
        reader = FileReader(path, io=io)
    with reader:
        assert builders.read_all(reader) == builders.small()
    path = damage(set_header_crc(0), builders.flip_in_sample(3))
    with pytest.warns(UserWarning, match="old version"):
        reader = FileReader(path, io=io)
    with reader, pytest.raises(ChecksumError, match="Sample 3"):
        reader.read_one(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FileReader(path, check_data=False, io=io).close()


def test_row_22_tables_outlive_the_reader(small_file):
    reader = FileReader(small_file.path)
    offsets, checksums = reader.get_offsets(0), reader.get_checksums(0)
    reader.close()
    del reader
    gc.collect()
    assert offsets.tolist() == [108, 108, 109, 111, 116, 132, 165, 265, 404]
    assert checksums.tolist() == [ffr_twin.zlib.crc32(sample) for sample in small_file.samples]
    with FileReader(small_file.path) as reader:
        for number in (1, -2, 100):
            with pytest.raises(IndexError):
                reader.get_offsets(number)
            with pytest.raises(IndexError):
                reader.get_checksums(number)


@in_every_mode
def test_row_30_deleted_and_replaced_files_stay_readable(small_file, tmp_path, io):
    with FileReader(small_file.path, io=io) as reader:
        with FileWriter(small_file.path, 1) as writer:
            writer.write_one(b"new")
        assert builders.read_all(reader) == small_file.samples
        os.unlink(small_file.path)
        assert builders.read_all(reader) == small_file.samples


def test_row_30_directories_in_string_order(tmp_path):
    for name in ("9", "10", "b", "A"):
        builders.write_samples(tmp_path / f"{name}.ffr", [name.encode()])
    with FileReader(tmp_path) as reader:
        assert [sample.tobytes() for sample in reader] == [b"10", b"9", b"A", b"b"]


@in_every_mode
def test_row_32_offsets_beyond_4_gib(tmp_path, io):
    """A hole of 5 GiB before the last samples, read with checks off up to there."""
    hole = 5 << 30
    head = bytearray(ffr_twin.build([b"a", b"bb", b"ccc"]))
    tail = bytes(head[48:])
    for i, offset in enumerate((48, 49, hole)):
        head[24 + 8 * i : 32 + 8 * i] = offset.to_bytes(8, "little")
    path = builders.write(tmp_path / "a.ffr", fix_checksum(bytes(head)))
    with open(path, "r+b") as file:
        file.seek(hole)
        file.write(tail[3:])
    with FileReader(path, io=io) as reader:
        assert reader.read([2, 0, 2])[0].tobytes() == b"ccc"
        assert reader.get_offsets(0).tolist() == [48, 49, hole, hole + 3]


@in_copying_modes
def test_row_33_arrays_are_writable_and_independent(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        arrays = reader.read(range(200))
    for array in arrays:
        assert array.flags.writeable
        array[:] = 0
    kept = arrays[7]
    del arrays
    gc.collect()
    assert not kept.any()


def test_row_43_dot_files_count_and_directories_are_errors(tmp_path):
    builders.write_samples(tmp_path / ".a.ffr", [b"dot"])
    builders.write_samples(tmp_path / "b.ffr", [b"b"])
    with FileReader(tmp_path) as reader:
        assert [sample.tobytes() for sample in reader] == [b"dot", b"b"]
    (tmp_path / "c.ffr").mkdir()
    with pytest.raises(IsADirectoryError, match=r"c\.ffr is not a file") as caught:
        FileReader(tmp_path)
    assert isinstance(caught.value, AssertionError)


@in_every_mode
def test_row_44_threads(sample_file, io):
    """More, and closing during reads, in reliability/test_threads.py."""
    with FileReader(sample_file.path, io=io) as reader, ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: builders.read_all(reader), range(8)):
            assert got == sample_file.samples
