"""Writing behind: a thread writes pieces, sends them to the disk, and what is there leaves the page cache."""

import errno
import os

import children
import numpy as np
import pytest
import situations

from ffrecord.engine._engine import filesystem_type
from ffrecord.system import filesystems
from ffrecord.writing._buffers import WINDOW_BYTES, WriteBehind, write_back

PIECE = 4 << 20


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "a", "w+b", buffering=0) as file:
        yield file


def of_file(file, reserves=True):
    behind = WriteBehind()
    behind.open(file.fileno(), reserves)
    return behind


def test_pieces_in_any_order(file):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, 10 * 70_001, np.uint8)
    behind = of_file(file)
    for i in rng.permutation(10).tolist():
        behind.begin(i * 70_001, 0, data[i * 70_001 : (i + 1) * 70_001])
    behind.wait()
    assert behind.done
    assert os.pread(file.fileno(), len(data) + 1, 0) == data.tobytes()


def test_written_at_once(file):
    """Between pieces of the thread, too, and sent on by it."""
    rng = np.random.default_rng(1)
    data = rng.integers(0, 256, 12 * 70_001, np.uint8)
    behind = of_file(file)
    for i in rng.permutation(12).tolist():
        start, part = i * 70_001, data[i * 70_001 : (i + 1) * 70_001]
        if i % 3:
            behind.write(start, part[:30_000])
            behind.write(start + 30_000, part[30_000:])
            assert os.pread(file.fileno(), len(part), start) == part.tobytes()
            behind.begin(start, len(part))
        else:
            behind.begin(start, 0, part)
    behind.wait()
    assert os.pread(file.fileno(), len(data) + 1, 0) == data.tobytes()


def test_what_is_refused_at_once(file):
    with open(file.name, "rb") as reading:
        behind = of_file(reading)
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            behind.write(0, b"x")
        assert caught.value.errno == errno.EBADF
        behind.begin(0, 0, b"x")
        with pytest.raises(OSError, match="Bad file descriptor"):  # of the piece before
            behind.write(0, b"y")
        behind.open(file.fileno(), True)
        behind.write(0, b"z")
    with pytest.raises(TypeError):
        behind.write(0, "text")
    data = bytearray(b"w")
    behind.write(1, data)
    data.clear()  # nothing holds it
    assert os.pread(file.fileno(), 5, 0) == b"zw"


def test_what_is_behind_is_forgotten(tmp_path, file):
    some = tmp_path / "some"
    some.write_bytes(bytes(1 << 20))
    if not situations.can_be_evicted(str(some)):
        pytest.skip("nothing can be evicted from the page cache here")
    data, behind = os.urandom(PIECE), of_file(file)
    for i in range(20):
        behind.begin(i * PIECE, 0, data)
    behind.wait()
    assert situations.cached_share(file.name) <= (WINDOW_BYTES + PIECE) / (20 * PIECE)
    assert os.pread(file.fileno(), 21 * PIECE, 0) == data * 20


def test_many_small_pieces(file):
    """More on their way than there is room to note."""
    behind = of_file(file)
    for i in range(1000):
        behind.begin(i, 0, bytes([i % 256]))
    behind.wait()
    assert os.pread(file.fileno(), 2000, 0) == bytes(i % 256 for i in range(1000))


def test_where_there_is_no_write_back():
    """Then nothing is asked for any more."""
    reading, writing = os.pipe()
    try:
        assert not write_back(writing, 0, 10, False)
        behind = WriteBehind()
        behind.open(writing, False)
        for _ in range(3):
            behind.begin(0, 2 * WINDOW_BYTES)
        behind.wait()
    finally:
        os.close(reading)
        os.close(writing)


def test_nothing_is_written(file):
    """A size of 0 would mean all the rest to the kernel."""
    behind = of_file(file)
    behind.begin(0, 0)
    behind.begin(0, 0, b"")
    behind.wait()
    assert os.fstat(file.fileno()).st_size == 0


def test_room_is_reserved_behind_and_given_back(file):
    kind = filesystems.from_type(filesystem_type(file.fileno()))
    if kind.name not in ("ext4", "xfs"):
        pytest.skip(f"{kind.name} may reserve nothing")
    for reserves, blocks in ((False, range(2 << 20, 3 << 20)), (True, range(4 << 20, 5 << 20))):
        behind = of_file(file, reserves)
        behind.begin(1 << 20, 0, os.urandom(1 << 20))
        behind.wait()
        os.fsync(file.fileno())
        assert os.fstat(file.fileno()).st_size == 2 << 20
        assert 512 * os.fstat(file.fileno()).st_blocks + (1 << 20) in blocks
    os.ftruncate(file.fileno(), 2 << 20)
    assert 512 * os.fstat(file.fileno()).st_blocks < 2 << 20
    behind.write(2 << 20, os.urandom(1 << 20))  # within what was reserved, as far as this knows
    behind.write(6 << 20, b"x")
    os.fsync(file.fileno())
    assert 512 * os.fstat(file.fileno()).st_blocks in range(8 << 20, 9 << 20)
    os.ftruncate(file.fileno(), 2 << 20)
    assert 512 * os.fstat(file.fileno()).st_blocks < 2 << 20


def test_refused(tmp_path, file):
    """Told once, by what comes next; then it goes on."""
    with open(file.name, "rb") as reading:
        for following in ("wait", "begin", "open"):
            behind = of_file(reading)
            behind.begin(0, 0, b"x")
            with pytest.raises(OSError, match="Bad file descriptor") as caught:
                getattr(behind, following)(*{"begin": (0, 0), "open": (file.fileno(), True)}.get(following, ()))
            assert caught.value.errno == errno.EBADF
            behind.open(file.fileno(), True)
            behind.begin(0, 0, following.encode())
            behind.wait()
            assert os.pread(file.fileno(), 5, 0).startswith(following.encode())
        behind.open(reading.fileno(), True)
        behind.begin(0, 0, b"x")
        behind.close()
        behind.close()
        behind.wait()


def test_no_bytes(file):
    behind = of_file(file)
    with pytest.raises(TypeError):
        behind.begin(0, 0, "text")
    with pytest.raises((BufferError, ValueError)):
        behind.begin(0, 0, np.zeros((4, 4), np.uint8)[:, 0])
    assert behind.done
    behind.wait()


def test_memory_is_let_go(file):
    behind, data = of_file(file), bytearray(100)
    behind.begin(0, 0, data)
    with pytest.raises(BufferError):
        data.clear()
    behind.wait()
    data.clear()
    data += b"x"
    behind.begin(0, 0, data)
    del behind
    data.clear()


def test_a_forked_process_does_not_wait(file):
    """What was begun before is the other process's; here it can begin anew."""
    behind = of_file(file)
    behind.begin(0, 0, bytes(8 * PIECE))

    def child():
        assert behind.done
        behind.wait()
        behind.begin(8 * PIECE, 0, b"child")
        behind.wait()
        return True

    assert children.in_child(child) == 0
    behind.wait()
    assert os.pread(file.fileno(), 9 * PIECE, 0) == bytes(8 * PIECE) + b"child"
