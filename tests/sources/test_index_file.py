import logging
import os
import stat

import mutations
import numpy as np
import pytest

from ffrecord.errors import FormatError
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.sources import index_file
from ffrecord.sources.index_file import cached_index, index_path
from ffrecord.sources.names import Names, concatenate_names

ARRAYS = {
    "offsets": np.arange(5, dtype=np.int64) << 40,
    "crcs": np.arange(7, dtype=np.uint32),
    "names": np.frombuffer(b"abc", np.uint8),
    "none": np.empty(0, np.int64),
}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(b"some data")
    return str(file)


class Build:
    """Counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return ARRAYS


def assert_same(found):
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def open_again(path, build, place=True):
    assert_same(cached_index(path, "test-1", build, place))
    return build.calls


def test_nothing_is_kept_unless_asked(path, tmp_path):
    build = Build()
    assert [open_again(path, build, place) for place in (None, False, None)] == [1, 2, 3]
    assert os.listdir(tmp_path) == ["data.bin"]


def test_kept_beside_the_file(path, tmp_path):
    build = Build()
    assert [open_again(path, build) for _ in range(3)] == [1, 1, 1]
    assert sorted(os.listdir(tmp_path)) == ["data.bin", "data.bin.test-1.ffindex"]
    assert not any(array.flags.writeable for array in cached_index(path, "test-1", build, True).values())


def test_kept_in_a_directory_by_the_place_of_the_file(path, tmp_path):
    build, there = Build(), tmp_path / "new/cache"
    assert [open_again(path, build, there) for _ in range(2)] == [1, 1]
    link = tmp_path / "link.bin"
    link.symlink_to(path)
    assert open_again(str(link), build, there) == 1
    (tmp_path / "other.bin").write_bytes(b"some data")
    assert open_again(str(tmp_path / "other.bin"), build, there) == 2


def test_one_of_another_format_or_version_stays_beside_it(path, tmp_path):
    build = Build()
    open_again(path, build)
    cached_index(path, "test-2", build, True)
    assert build.calls == 2 and open_again(path, build) == 2


@pytest.mark.parametrize("change", ["content", "time", "size"])
def test_a_changed_file_is_gone_through_again(path, change):
    build = Build()
    open_again(path, build)
    if change == "time":
        os.utime(path, ns=(1, 1))
    else:
        with open(path, "r+b") as file:
            file.write(b"SOME" if change == "content" else b"longer than before")
        os.utime(path)
    assert [open_again(path, build) for _ in range(2)] == [2, 2]


def test_a_file_that_changes_meanwhile(path, tmp_path):
    def build():
        with open(path, "ab") as file:
            file.write(b"more")
        return ARRAYS

    with pytest.raises(
        FormatError, match=r"data\.bin: the file changed while its index was made: it had 9 bytes, now 13"
    ):
        cached_index(path, "test-1", build, True)
    assert os.listdir(tmp_path) == ["data.bin"]


def test_a_damaged_index_is_made_anew(path):
    build = Build()
    open_again(path, build)
    place = index_path(path, "test-1", True)
    with open(place, "rb") as file:
        whole = file.read()
    for number, damaged in enumerate(mutations.mutants(whole, 300, seed=6)):
        with open(place, "wb") as file:
            file.write(damaged)
        calls = build.calls
        assert open_again(path, build) == calls + (damaged != whole), number


def test_numbers_at_odd_places(path, monkeypatch):
    """They come after a description of any length: at most one of eight is at a good place by chance."""
    builds = [Build() for _ in range(8)]
    for more, build in enumerate(builds):
        with monkeypatch.context() as patch:
            patch.setattr(index_file, "ALIGNMENT", 1)
            cached_index(path, "test" + "-" * more, build, True)
        assert_same(cached_index(path, "test" + "-" * more, build, True))
    assert sum(build.calls == 2 for build in builds) >= 7


def test_every_cut_of_an_index_is_noticed(path):
    build = Build()
    open_again(path, build)
    place = index_path(path, "test-1", True)
    size = os.path.getsize(place)
    for length in range(0, size, 7):
        os.truncate(place, length)
        calls = build.calls
        assert open_again(path, build) == calls + 1


def test_where_it_cannot_be_kept(path, tmp_path, caplog):
    build, blocked = Build(), tmp_path / "a file"
    blocked.write_bytes(b"")
    with caplog.at_level(logging.WARNING, "ffrecord"):
        assert open_again(path, build, blocked / "below") == 1
    assert "data.bin: its index could not be saved as" in caplog.text


def test_others_may_read_it(path):
    cached_index(path, "test-1", Build(), True)
    place = index_path(path, "test-1", True)
    assert stat.S_IMODE(os.stat(place).st_mode) & stat.S_IRUSR


def test_wrong_place(path):
    with pytest.raises(TypeError, match=r"index_cache is int .*, expected a bool or a directory"):
        cached_index(path, "test-1", Build(), 1)


def test_another_file_of_the_same_size_and_time(path, tmp_path):
    build, status = Build(), os.stat(path)
    open_again(path, build)
    other = tmp_path / "other.bin"
    other.write_bytes(b"DATA some")
    os.utime(other, ns=(status.st_mtime_ns, status.st_mtime_ns))
    os.replace(other, path)
    assert os.stat(path).st_mtime_ns == status.st_mtime_ns
    assert [open_again(path, build) for _ in range(2)] == [2, 2]


def test_a_file_that_may_change_within_a_tick_of_the_clock(path, tmp_path, monkeypatch):
    build, now = Build(), os.stat(path).st_ctime_ns
    with monkeypatch.context() as patched:
        patched.setattr(index_file.time, "time_ns", lambda: now)
        assert [open_again(path, build) for _ in range(2)] == [1, 2]
    assert os.listdir(tmp_path) == ["data.bin"]
    assert [open_again(path, build) for _ in range(2)] == [3, 3]


def test_a_pipe_in_its_place_is_neither_waited_for_nor_replaced(path, caplog):
    build, place = Build(), index_path(path, "test-1", True)
    os.mkfifo(place)
    with caplog.at_level(logging.WARNING, "ffrecord"):
        assert [open_again(path, build) for _ in range(2)] == [1, 2]
    assert "exists and is not a regular file, so it is not replaced" in caplog.text
    assert stat.S_ISFIFO(os.stat(place).st_mode)


def test_a_link_in_its_place_is_not_written_through(path, tmp_path, caplog):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    os.symlink(victim, index_path(path, "test-1", True))
    with caplog.at_level(logging.WARNING, "ffrecord"):
        assert open_again(path, Build()) == 1
    assert "symbolic link" in caplog.text and victim.read_bytes() == b"precious"


def owned(user, mode=0o100644):
    return os.stat_result((mode, 1, 1, 1, user, 0, 9, 0, 0, 0))


def test_whose_indexes_are_believed(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    for mine in (owned(0), owned(7), owned(8), owned(8, 0o100664)):
        index_file.check_owner(mine, owned(8))
    index_file.check_owner(owned(8, 0o100666), owned(8, 0o100666))
    with pytest.raises(FormatError, match="it belongs to user 9, but the indexed file to user 8"):
        index_file.check_owner(owned(9), owned(8))
    with pytest.raises(FormatError, match="all users may write to it"):
        index_file.check_owner(owned(8, 0o100646), owned(8))


def test_one_that_everybody_may_write_to_is_made_anew(path):
    build = Build()
    open_again(path, build)
    os.chmod(index_path(path, "test-1", True), 0o666)
    os.chmod(path, 0o644)
    assert [open_again(path, build) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("error", [KeyError, ValueError, IndexError, FormatError, TypeError, OverflowError])
def test_one_that_is_not_of_its_format_is_made_anew(path, error):
    def check(arrays):
        assert_same(arrays)
        raise error("not what was meant")

    build = Build()
    open_again(path, build)
    assert_same(cached_index(path, "test-1", build, True, check))
    assert build.calls == 2
    assert_same(cached_index(path, "test-1", build, True, lambda arrays: None))
    assert build.calls == 2


@pytest.mark.parametrize(
    "look",
    [
        lambda names: names[5999],
        lambda names: list(names),
        lambda names: names.find("m5999"),
        lambda names: names.place("m5999"),
        lambda names: concatenate_names([names, names]),
    ],
)
def test_names_of_an_index_that_is_cut_meanwhile(path, look):
    build = Names.of(f"m{i:04}" for i in range(6000)).arrays
    cached_index(path, "names", build, True)
    names = Names.from_arrays(cached_index(path, "names", build, True))
    os.truncate(index_path(path, "names", True), 0)
    with pytest.raises(OSError, match=r"data\.bin\.names\.ffindex: a part of this index could not be read"):
        look(names)


def test_records_of_an_index_that_is_cut_meanwhile(path):
    def build():
        return {"offsets": np.arange(9), "sizes": np.ones(9, np.int64)}

    cached_index(path, "places", build, True)
    found = cached_index(path, "places", build, True)
    with RecordReader([SpanFile(path, found["offsets"], found["sizes"])]) as reader:
        assert reader.read_one(3).tobytes() == b"e"
        place = index_path(path, "places", True)
        os.truncate(place, 0)
        with pytest.raises(OSError, match=r"Sample 3: .*: a part of the index could not be read") as caught:
            reader.read_one(3)
        assert caught.value.filename == place
