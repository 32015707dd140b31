"""Objects with files: all are open or none, a `with` block closes them, and a writer that nobody closes says so."""

import gc
import pickle
from pathlib import Path

import pytest

from ffrecord.sources import RecordIOWriter, TFRecordWriter
from ffrecord.system.closing import ClosedByWith, close_unless_done, open_all
from ffrecord.writing.file_writer import FileWriter

WRITERS = {"ffr": FileWriter, "recordio": RecordIOWriter, "tfrecord": TFRecordWriter}


class File(ClosedByWith):
    closed = 0

    def close(self):
        self.closed += 1


def test_all_or_none():
    files = [File(), File()]
    assert open_all(iter(files)) == files and not any(file.closed for file in files)

    def opens():
        yield from files
        raise OSError("no third one")

    with pytest.raises(OSError, match="no third one"):
        open_all(opens())
    assert all(file.closed for file in files)


def test_a_constructor_that_fails_closes_what_was_opened_before():
    files = [File(), File()]
    with pytest.raises(KeyboardInterrupt), close_unless_done(files):
        files.append(File())  # also what is opened meanwhile
        raise KeyboardInterrupt
    assert [file.closed for file in files] == [1, 1, 1]
    with close_unless_done(files):
        pass
    assert [file.closed for file in files] == [1, 1, 1]


def test_a_with_block_closes():
    with File() as file:
        assert file.closed == 0
    assert file.closed == 1
    with pytest.raises(ValueError, match="ours"), file:
        raise ValueError("ours")
    assert file.closed == 2


@pytest.mark.parametrize("suffix", WRITERS)
def test_writers_publish_all_or_nothing(suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All writers of one file end in the same ways."""
    path, writer_of = tmp_path / f"x.{suffix}", WRITERS[suffix]

    def write(writer):
        (writer.write_one if suffix == "ffr" else writer.write)(b"abc")

    with pytest.raises(ValueError, match="ours"), writer_of(path) as writer:
        write(writer)
        raise ValueError("ours")
    assert list(tmp_path.iterdir()) == []

    writer = writer_of(path)
    write(writer)
    with pytest.raises(TypeError, match=f"cannot pickle '{writer_of.__name__}' object"):
        pickle.dumps(writer)
    with pytest.warns(ResourceWarning, match=rf"x\.{suffix}: nobody called close\(\) on the writer, which") as said:
        del writer
        gc.collect()
    (line,) = caplog.messages  # Python hides the warning by default
    assert f"x.{suffix}: nobody called close() on the writer, which discarded" in line and "`with` block" in line
    assert said[0].filename == __file__ and list(tmp_path.iterdir()) == []

    with writer_of(path) as writer:
        write(writer)
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
