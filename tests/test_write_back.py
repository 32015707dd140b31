"""`sharding.write_back`: what is written goes to the disk meanwhile, and leaves the page cache."""

import os

import pytest
import situations

from ffrecord._writing import write_back
from ffrecord.sharding.write_back import WINDOW, WriteBack

PIECE = 4 << 20


def test_what_is_behind_is_forgotten(tmp_path):
    path = tmp_path / "a"
    data = os.urandom(PIECE)
    path.write_bytes(b"")
    if not situations.can_be_evicted(str(some_file(tmp_path))):
        pytest.skip("nothing can be evicted from the page cache here")
    with open(path, "r+b", buffering=0) as file:
        back = WriteBack(file.fileno())
        for i in range(20):
            assert file.write(data) == PIECE
            back.wrote(i * PIECE, PIECE)
    assert situations.cached_share(str(path)) <= (WINDOW + PIECE) / (20 * PIECE)
    assert path.read_bytes() == data * 20


def some_file(directory):
    """Some file there."""
    path = directory / "some"
    path.write_bytes(bytes(1 << 20))
    return path


def test_where_there_is_no_write_back():
    """Then nothing is asked for any more."""
    reading, writing = os.pipe()
    try:
        assert not write_back(writing, 0, 10, False)
        back = WriteBack(writing)
        for _ in range(3):
            back.wrote(0, 2 * WINDOW)
    finally:
        os.close(reading)
        os.close(writing)


def test_nothing_is_written(tmp_path):
    """A size of 0 would mean all the rest to the kernel."""
    with open(tmp_path / "a", "wb") as file:
        WriteBack(file.fileno()).wrote(0, 0)
