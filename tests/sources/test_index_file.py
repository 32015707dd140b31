import logging
import os
import stat

import mutations
import numpy as np
import pytest

from ffrecord.errors import FormatError
from ffrecord.sources.index_file import cached, index_path

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
    assert_same(cached(path, "test-1", build, place))
    return build.calls


def test_nothing_is_kept_unless_asked(path, tmp_path):
    build = Build()
    assert [open_again(path, build, place) for place in (None, False, None)] == [1, 2, 3]
    assert os.listdir(tmp_path) == ["data.bin"]


def test_kept_beside_the_file(path, tmp_path):
    build = Build()
    assert [open_again(path, build) for _ in range(3)] == [1, 1, 1]
    assert sorted(os.listdir(tmp_path)) == ["data.bin", "data.bin.test-1.ffindex"]
    assert not any(array.flags.writeable for array in cached(path, "test-1", build, True).values())


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
    cached(path, "test-2", build, True)
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

    with pytest.raises(FormatError, match=r"data\.bin: changed while its index was made: 9 bytes, now 13"):
        cached(path, "test-1", build, True)
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
    assert "data.bin: its index could not be kept as" in caplog.text


def test_others_may_read_it(path):
    cached(path, "test-1", Build(), True)
    place = index_path(path, "test-1", True)
    assert stat.S_IMODE(os.stat(place).st_mode) & stat.S_IRUSR


def test_wrong_place(path):
    with pytest.raises(TypeError, match="index_cache must be a bool or a directory, not int"):
        cached(path, "test-1", Build(), 1)
