"""The life of a reader: attributes, closing, pickling, and files that change under it."""

import copy
import os
import pickle
import shutil
from io import BytesIO

import builders
import children
import ffr_twin
import numpy as np
import pytest
from builders import COPYING_MODES, IO_MODES, set_header_crc

from ffrecord import FFRecordError, FileReader
from ffrecord.errors import TruncatedError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


@pytest.mark.parametrize("name", ["n", "fnames", "check_data", "io", "closed", "extension"])
def test_read_only_attributes(small_file, name):
    with FileReader(small_file.path) as reader:
        with pytest.raises(AttributeError):
            setattr(reader, name, 1)
        reader.anything_else = 1
        assert reader.anything_else == 1


def test_fnames_is_a_copy(small_file):
    with FileReader(small_file.path) as reader:
        reader.fnames.clear()
        assert reader.fnames == [small_file.path]


# Closing


@pytest.mark.parametrize("io", IO_MODES)
def test_closed(small_file, io):
    reader = FileReader(small_file.path, io=io)
    reader.read(range(8))
    reader.close()
    reader.close()
    assert reader.closed
    for call in (reader.read, reader.read_packed, reader.read_one, reader.__getitem__):
        for indices in ([0], []) if call != reader.read_one else (0,):
            with pytest.raises(RuntimeError, match="FileReader has been closed") as caught:
                call(indices)
            assert isinstance(caught.value, ValueError)
    with pytest.raises(RuntimeError, match="closed"):
        list(reader)
    assert (reader.n, reader.fnames, len(reader)) == (8, [small_file.path], 8)
    assert reader.get_offsets(0)[-1] == 404
    assert reader.get_checksums(0)[0] == 0
    assert reader.loc([1]) == ([108], [1])
    assert reader.extension is None
    reader.validate()


def test_context_manager(small_file):
    with FileReader(small_file.path) as reader:
        assert not reader.closed
    assert reader.closed
    with pytest.raises(ZeroDivisionError), FileReader(small_file.path) as reader:
        raise ZeroDivisionError
    assert reader.closed


def test_closing_between_chunks_of_an_iteration(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [b"x" * 3000] * 3000)
    reader = FileReader(path)
    samples = iter(reader)
    assert next(samples).tobytes() == b"x" * 3000
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(samples)


def test_descriptor_zero_is_a_descriptor(small_file):
    code = """
import os, sys
from ffrecord import FileReader, FileWriter
os.close(0)
reader = FileReader(sys.argv[1], io=sys.argv[2])
assert os.readlink("/proc/self/fd/0").endswith("small.ffr")
assert len(reader.read(range(8))[7]) == 139
reader.close()
assert not os.path.exists("/proc/self/fd/0")
with FileWriter(sys.argv[1], 1) as writer:
    assert os.readlink("/proc/self/fd/0").endswith(".part")
    writer.write_one(b"x")
assert len(FileReader(sys.argv[1])) == 1
"""
    for mode in IO_MODES:
        shutil.copy(small_file.path, copied := small_file.path.replace("small", f"{mode}small"))
        children.run(code, copied, mode)


# Pickling


class Own(FileReader):
    """As users subclass it: other arguments, further state."""

    def __init__(self, directory: str, limit: int) -> None:
        super().__init__(directory, check_data=False, io="pread")
        self.limit = limit

    def first(self) -> list[np.ndarray]:
        return self.read(range(self.limit))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(small_file, protocol):
    with FileReader(small_file.path, io="direct", on_error="skip") as reader:
        reader.note = {"a": 1}
        again = pickle.loads(pickle.dumps(reader, protocol))
    assert (type(again), again.fnames, again.check_data, again.io) == (FileReader, [small_file.path], True, "direct")
    assert again.note == {"a": 1}
    assert builders.read_all(again) == small_file.samples
    again.close()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_are_readers_of_their_own(small_file, duplicate):
    reader = FileReader(small_file.path)
    again = duplicate(reader)
    reader.close()
    assert builders.read_all(again) == small_file.samples
    again.close()


def test_a_closed_reader_unpickles_open(small_file):
    reader = FileReader(small_file.path)
    reader.close()
    with pickle.loads(pickle.dumps(reader)) as again:
        assert builders.read_all(again) == small_file.samples


def test_a_subclass_comes_back_whole(small_file):
    with Own(small_file.path, 3) as reader:
        again = pickle.loads(pickle.dumps(reader))
    assert (type(again), again.limit, again.check_data, again.io) == (Own, 3, False, "pread")
    assert [sample.tobytes() for sample in again.first()] == small_file.samples[:3]
    again.close()


def test_a_pickle_opens_by_name_in_the_new_working_directory(small_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with FileReader("small.ffr") as reader:
        pickled = pickle.dumps(reader)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"small\.ffr does not exist"):
        pickle.loads(pickled)
    shutil.copy(small_file.path, "small.ffr")
    with pickle.loads(pickled) as again:
        assert again.fnames == ["small.ffr"]


CHANGES = {
    "other samples": [b"other", *builders.small()[1:]],
    "other order": builders.small()[::-1],
    "one more": [*builders.small(), b""],
    "fewer": builders.small()[:-1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_refused(small_file, tmp_path, change):
    with FileReader(small_file.path) as reader:
        pickled = pickle.dumps(reader)
    builders.write_samples(tmp_path / "small.ffr", CHANGES[change])
    with pytest.raises(FFRecordError, match=r"small\.ffr.* differ"):
        pickle.loads(pickled)


def test_an_equal_file_is_accepted(small_file, tmp_path):
    """Inode and time mean nothing on another host."""
    with FileReader(small_file.path) as reader:
        pickled = pickle.dumps(reader)
    os.unlink(small_file.path)
    builders.write_samples(tmp_path / "small.ffr", small_file.samples)
    pickle.loads(pickled).close()


def test_pickles_of_the_original(small_file):
    """`(FileReader, (fnames, check_data))` under the old name, as version 1.4 wrote it."""
    out = BytesIO()
    out.write(b"\x80\x04cffrecord.fileio\nFileReader\n")
    out.write(pickle.dumps(([small_file.path], False), 4)[2:-1])
    out.write(b"R.")
    with pickle.loads(out.getvalue()) as reader:
        assert (type(reader), reader.fnames, reader.check_data) == (FileReader, [small_file.path], False)
        assert builders.read_all(reader) == small_file.samples


# Files that change


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_an_open_reader_keeps_the_old_file(sample_file, tmp_path, io, how):
    path = shutil.copy(sample_file.path, tmp_path / "a.ffr")
    with FileReader(path, io=io) as reader:
        assert reader.read_one(1).tobytes() == sample_file.samples[1]
        if how == "deleted":
            os.unlink(path)
        else:
            os.replace(builders.write_samples(tmp_path / "b.ffr", [b"new"]), path)
        assert builders.read_all(reader) == sample_file.samples
        reader.validate()
        assert len(reader.get_offsets(0)) == reader.n + 1


@pytest.mark.parametrize("io", COPYING_MODES)
def test_data_cut_between_batches(sample_file, tmp_path, io):
    path = shutil.copy(sample_file.path, tmp_path / "a.ffr")
    with FileReader(path, io=io) as reader:
        offsets = reader.get_offsets(0)
        reader.read([0])
        os.truncate(path, int(offsets[100]) + 1)
        assert [s.tobytes() for s in reader.read(range(100))] == sample_file.samples[:100]
        with pytest.raises(TruncatedError, match=r"Sample 100: length \d+ but read 1 bytes") as caught:
            reader.read(range(90, 101))
        assert (path.name in str(caught.value), isinstance(caught.value, OSError)) == (True, True)


@pytest.mark.parametrize("size", [0, 1, 5000, 4096, 12 + 12 * 1000 - 1])
def test_tables_cut_while_open(tmp_path, size):
    """A mapped table that is no longer there would be SIGBUS, so this is a child."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([10] * 1000))
    code = """
import os, sys
from ffrecord import FileReader
reader = FileReader(sys.argv[1], io=sys.argv[3])
os.truncate(sys.argv[1], int(sys.argv[2]))
calls = [lambda: reader.read(range(1000)), lambda: reader.read_packed([999, 1]), lambda: reader.read_one(0),
         lambda: reader.get_offsets(0), lambda: reader.get_checksums(0), reader.validate, lambda: reader.loc([5])]
for call in calls:
    try:
        call()
    except OSError as error:
        assert isinstance(error, RuntimeError) and sys.argv[2] in str(error) and "12012" in str(error), error
    else:
        raise SystemExit("no error")
"""
    children.run(code, path, size, IO_MODES[size % 4])


@pytest.mark.parametrize("io", IO_MODES)
def test_appended_bytes_are_not_seen(small_file, io):
    with FileReader(small_file.path, io=io) as reader:
        with open(small_file.path, "ab") as file:
            file.write(b"more")
        assert builders.read_all(reader) == small_file.samples


@pytest.mark.parametrize("io", IO_MODES)
def test_offsets_changed_under_a_reader(small_file, io):
    """Every span is checked again when used, whatever was checked at open."""
    bad = [-1, 0, 107, 405, 2**63 - 1, -(2**63)]
    with FileReader(small_file.path, io=io) as reader:
        for offset in bad:
            with open(small_file.path, "r+b") as file:
                file.write(builders.set_offset(4, offset)(ffr_twin.build(small_file.samples)))
            for i in (3, 4):
                with pytest.raises(RuntimeError, match=f"Sample {i}: "):
                    reader.read_one(i)
            assert reader.read_one(5).tobytes() == small_file.samples[5]


def test_validate_looks_again(small_file):
    with FileReader(small_file.path, check_data=False) as reader:
        reader.validate()
        with open(small_file.path, "r+b") as file:
            file.write(set_header_crc(1)(b"\0" * 4))
        reader.validate()  # the stored value was read when it was opened
        with open(small_file.path, "r+b") as file:
            file.seek(12)
            file.write(b"\1")
        with pytest.raises(RuntimeError, match="checksum of metadata mismached!"):
            reader.validate()
