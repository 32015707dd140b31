"""The life of a reader: attributes, closing, pickling. Files that change: reliability/test_live_files.py."""

import copy
import os
import pickle
import shutil
from io import BytesIO

import builders
import children
import numpy as np
import pytest
from builders import IO_MODES

from ffrecord import FFRecordError, FileReader

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


# Handlers of signals, which run while a batch of 32 MiB and more is waited for

IN_A_HANDLER = """
import os, signal, sys, time
from ffrecord import FileReader
from ffrecord.errors import ChecksumError

reader, forked = FileReader(sys.argv[1], io="direct"), []

def call():
    return {call}

def handle(*_):
    {handle}

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.005)
"""


@pytest.fixture(scope="module")
def large_record(tmp_path_factory):
    """A file on a disk with a record that takes a while, and a damaged one as large."""
    data = builders.flip_in_sample(1)(builders.ffr_twin.build([b"first and " * (15 << 20)] * 2))
    path = builders.write(tmp_path_factory.mktemp("large") / "a.ffr", data)
    yield path
    os.unlink(path)


@pytest.mark.parametrize("call", ["reader.read([0])[0]", "reader.read_packed([0])[0]", "reader.read_one(0)"])
def test_a_child_forked_while_a_batch_is_waited_for(large_record, call):
    code = f"""{IN_A_HANDLER.format(call=call, handle="forked.append(os.fork())")}
found = call()
assert bytes(found[-20:]) == b"first and first and " and len(found) == 150 << 20
while not forked:
    time.sleep(0.01)
if forked[0]:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]))
"""
    children.run(code, large_record)


@pytest.mark.parametrize("call", ["reader.read([1])", "reader.read_one(1)"])
def test_a_bad_record_is_told_of_although_the_reader_was_closed(large_record, call):
    code = f"""
from ffrecord.errors import ClosedError
{IN_A_HANDLER.format(call=call, handle="reader.close()")}
for milliseconds in range(10, 1000, 10):
    try:
        call()
    except ClosedError:  # the handler ran before the read began, on a busy machine
        reader = FileReader(sys.argv[1], io="direct")
        signal.setitimer(signal.ITIMER_REAL, milliseconds / 1000)
        continue
    except ChecksumError as error:
        assert "Sample 1" in str(error)
        break
    sys.exit("no error")
else:
    sys.exit("closed before every read")
"""
    children.run(code, large_record)


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
