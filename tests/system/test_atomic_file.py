"""Publishing: nothing, or the old file, or the whole new one; and space inserted in front of data."""

import errno
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import children
import pytest

from ffrecord.system import _calls, atomic_file, named_calls
from ffrecord.system.atomic_file import PartFile, insert_space, part_name, write_all

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_part_name_is_beside_the_target_and_no_record_file():
    made = {part_name("/data/train.ffr") for _ in range(100)}
    assert len(made) == 100
    for name in made:
        assert os.path.dirname(name) == "/data"
        assert os.path.basename(name).startswith(".train.ffr.")
        assert name.endswith(".part")


@pytest.mark.parametrize("name", ["a" * 251 + ".ffr", "ü" * 125 + ".ffr", "\U0001f600" * 62 + ".ffr"])
def test_part_name_of_a_long_name_can_be_made(tmp_path, name):
    target = tmp_path / name
    part = PartFile(str(target))
    part.publish()
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("step", [1, 2, 511, 10**6])
def test_write_all_goes_on_after_short_writes(tmp_path, monkeypatch, step):
    real, data = os.pwrite, os.urandom(3000)
    monkeypatch.setattr(os, "pwrite", lambda fd, view, offset: real(fd, view[:step], offset))
    with open(tmp_path / "f", "wb") as file:
        write_all(file.fileno(), memoryview(data), 10)
    assert (tmp_path / "f").read_bytes() == bytes(10) + data


def test_write_all_does_not_spin(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with open(tmp_path / "f", "wb") as file, pytest.raises(OSError, match="No space") as caught:
        write_all(file.fileno(), memoryview(b"x"), 0)
    assert caught.value.errno == errno.ENOSPC


# Publishing


def test_nothing_until_published(tmp_path):
    target = tmp_path / "a.ffr"
    part = PartFile(str(target))
    write_all(part.fd, memoryview(b"new"), 0)
    assert not target.exists()
    part.publish()
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["a.ffr"]


def test_the_old_file_stays_until_published(tmp_path):
    target = tmp_path / "a.ffr"
    target.write_bytes(b"old")
    part = PartFile(str(target))
    write_all(part.fd, memoryview(b"new"), 0)
    assert target.read_bytes() == b"old"
    with target.open("rb") as still_open:
        part.publish()
        assert (still_open.read(), target.read_bytes()) == (b"old", b"new")


def test_discard_may_be_repeated(tmp_path):
    part = PartFile(str(tmp_path / "a.ffr"))
    part.discard()
    part.discard()
    assert names(tmp_path) == []


def test_discard_after_publishing_keeps_the_file(tmp_path):
    part = PartFile(str(tmp_path / "a.ffr"))
    part.publish()
    part.discard()
    assert names(tmp_path) == ["a.ffr"]


def test_relative_target_and_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    part = PartFile("a.ffr")
    monkeypatch.chdir(tmp_path / "sub")
    part.publish()
    assert names(tmp_path) == ["a.ffr", "sub"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symlink_is_followed(tmp_path, exists):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "b.ffr"
    if exists:
        target.write_bytes(b"old")
    link = tmp_path / "a.ffr"
    link.symlink_to(target)
    part = PartFile(str(link))
    write_all(part.fd, memoryview(b"new"), 0)
    part.publish()
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names(tmp_path / "real") == ["b.ffr"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_new_files_follow_the_umask(tmp_path, umask):
    old = os.umask(umask)
    try:
        PartFile(str(tmp_path / "a.ffr")).publish()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.ffr").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path, mode):
    target = tmp_path / "a.ffr"
    target.touch()
    target.chmod(mode)
    PartFile(str(target)).publish()
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_target_is_a_directory(tmp_path):
    target = tmp_path / "a.ffr"
    target.mkdir()
    with pytest.raises(IsADirectoryError, match="Failed to open file") as caught:
        PartFile(str(target))
    assert isinstance(caught.value, RuntimeError)
    assert names(tmp_path) == ["a.ffr"]


def test_target_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "a.ffr")
    with pytest.raises(FileExistsError, match=r"a\.ffr exists and is not a regular file") as caught:
        PartFile(str(tmp_path / "a.ffr"))
    assert isinstance(caught.value, RuntimeError)
    assert names(tmp_path) == ["a.ffr"]
    assert stat.S_ISFIFO((tmp_path / "a.ffr").stat().st_mode)


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(OSError, match=r"Failed to open file .*xxx") as caught:
        PartFile(str(tmp_path / ("x" * 256)))
    assert (caught.value.errno, names(tmp_path)) == (errno.ENAMETOOLONG, [])


@pytest.mark.parametrize(("parent", "number"), [("missing", errno.ENOENT), ("file", errno.ENOTDIR)])
def test_cannot_create(tmp_path, parent, number):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"Failed to open file .*{parent}") as caught:
        PartFile(str(tmp_path / parent / "a.ffr"))
    assert (caught.value.errno, isinstance(caught.value, RuntimeError)) == (number, True)
    assert isinstance(caught.value, type(OSError(number, "")))


# Failing steps: seen from outside, with the errno that a real machine gives


ERRNOS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES]


def fail(number: int) -> Callable[..., None]:
    def failing(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    return failing


class FailingClose(io.FileIO):
    """close(2) closes, and says that what was written before is lost: network file systems do so."""

    number = 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("call", ["fsync", "close", "rename"])
@pytest.mark.parametrize("number", ERRNOS)
def test_a_failing_step_leaves_the_old_file(tmp_path, monkeypatch, call, number):
    target = tmp_path / "a.ffr"
    target.write_bytes(b"old")
    if call == "close":
        monkeypatch.setattr(atomic_file.io, "FileIO", FailingClose)
        monkeypatch.setattr(FailingClose, "number", number)
    part = PartFile(str(target))
    write_all(part.fd, memoryview(b"new"), 0)
    with monkeypatch.context() as patch:
        if call != "close":
            patch.setattr(atomic_file.os, call, fail(number))
        with pytest.raises(OSError, match=f"{call} failed, nothing was published") as caught:
            part.publish()
    assert (caught.value.errno, isinstance(caught.value, RuntimeError)) == (number, True)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.ffr"]


@pytest.mark.parametrize("number", ERRNOS)
def test_a_mode_that_cannot_be_set(tmp_path, monkeypatch, number):
    target = tmp_path / "a.ffr"
    target.write_bytes(b"old")
    target.chmod(0o751)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file.os, "fchmod", fail(number))
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            PartFile(str(target))
    assert isinstance(caught.value, RuntimeError)
    assert str(target) in str(caught.value)
    assert names(tmp_path) == ["a.ffr"]


def test_a_failing_fsync_of_the_directory_says_so(tmp_path, monkeypatch):
    def failing(directory):
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(atomic_file, "fsync_directory", failing)
    part = PartFile(str(tmp_path / "a.ffr"))
    with pytest.raises(OSError, match="in place, but fsync of its directory failed") as caught:
        part.publish()
    assert isinstance(caught.value, RuntimeError)
    assert names(tmp_path) == ["a.ffr"]


def test_order_of_steps(tmp_path, monkeypatch):
    """fsync of the data, then the name, then fsync of the directory: a crash between them loses no old file."""
    log = []
    for call in ("fsync", "rename"):
        real = getattr(os, call)
        monkeypatch.setattr(os, call, lambda *args, real=real, call=call: (log.append(call), real(*args))[1])
    PartFile(str(tmp_path / "a.ffr")).publish()
    assert log == ["fsync", "rename", "fsync"]


def test_interrupted_publishing_leaves_no_part(tmp_path, monkeypatch):
    """Ctrl-C is likeliest in fsync, which takes seconds."""

    def interrupted(fd):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_file.os, "fsync", interrupted)
    part = PartFile(str(tmp_path / "a.ffr"))
    with pytest.raises(KeyboardInterrupt):
        part.publish()
    part.discard()
    assert names(tmp_path) == []


def test_interrupted_while_it_is_made(tmp_path, monkeypatch):
    """Nothing is left, whoever keeps the error and with it all frames."""

    class Interrupted(io.FileIO):
        def __init__(self, *args):
            super().__init__(*args)
            self.close()
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic_file.io, "FileIO", Interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        PartFile(str(tmp_path / "a.ffr"))
    assert names(tmp_path) == []
    assert kept.traceback


@pytest.mark.parametrize(("call", "number"), [("fsync", errno.EIO), ("rename", errno.EPERM)])
def test_a_failing_system_call(tmp_path, call, number):
    """The same without patching Python: the kernel answers so."""
    code = """
import sys, children
from ffrecord.system.atomic_file import PartFile
part = PartFile(sys.argv[1])
try:
    children.refuse(sys.argv[2], int(sys.argv[3]))
except OSError as error:
    sys.exit(f"no filters: {error}")
try:
    part.publish()
except RuntimeError as error:
    print(error.errno)
"""
    done = children.finished(code, tmp_path / "a.ffr", call, number)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{number}\n", "")
    assert names(tmp_path) == []


def test_a_forked_child_only_forgets_it(tmp_path):
    part = PartFile(str(tmp_path / "a.ffr"))
    child = os.fork()
    if child == 0:
        part.discard()
        os._exit(part.owned)
    assert os.waitpid(child, 0)[1] == 0
    assert part.owned
    part.publish()
    assert names(tmp_path) == ["a.ffr"]


def test_publishing_beside_what_is_there(tmp_path):
    """Not in its place: it stays, and nothing of ours is left."""
    target = tmp_path / "a.ffr"
    PartFile(str(target)).publish(replace=False)
    target.write_bytes(b"old")
    part = PartFile(str(target))
    with pytest.raises(FileExistsError, match="nothing was published"):
        part.publish(replace=False)
    assert (target.read_bytes(), names(tmp_path)) == (b"old", ["a.ffr"])


# Files that were left, and locks


def left_file(directory: Path) -> Path:
    path = directory / ".a.ffr.0123456789ab.part"
    path.write_bytes(b"left")
    return path


def test_going_on_with_a_file_that_was_left(tmp_path):
    """Discarding it keeps it; publishing and removing do not."""
    left = left_file(tmp_path)
    part = PartFile(str(tmp_path / "a.ffr"), str(left))
    part.discard()
    assert names(tmp_path) == [left.name]
    PartFile(str(tmp_path / "a.ffr"), str(left)).publish()
    assert (tmp_path / "a.ffr").read_bytes() == b"left"
    PartFile(str(tmp_path / "a.ffr"), str(left_file(tmp_path))).remove()
    assert names(tmp_path) == ["a.ffr"]


def test_a_failing_step_keeps_what_was_left(tmp_path, monkeypatch):
    left = left_file(tmp_path)
    part = PartFile(str(tmp_path / "a.ffr"), str(left))
    monkeypatch.setattr(atomic_file.os, "rename", fail(errno.EIO))
    with pytest.raises(OSError, match="rename failed"):
        part.publish()
    assert left.read_bytes() == b"left"


def test_a_living_writer_s_file_is_not_to_be_had(tmp_path):
    part = PartFile(str(tmp_path / "a.ffr"))
    for _ in range(2):
        with pytest.raises(OSError, match="its writer lives") as caught:
            PartFile(str(tmp_path / "a.ffr"), part.path)
        assert caught.value.errno == errno.EBUSY
    part.discard()
    with pytest.raises(FileNotFoundError):
        PartFile(str(tmp_path / "a.ffr"), part.path)


def test_a_lock_is_of_the_file_that_has_the_name(tmp_path):
    path = tmp_path / "f"
    path.touch()
    with path.open("rb") as first, path.open("rb") as second:
        assert atomic_file.lock(first.fileno(), str(path))
        assert not atomic_file.lock(second.fileno(), str(path))
    with path.open("rb") as opened:
        path.unlink()
        assert not atomic_file.lock(opened.fileno(), str(path))
        path.touch()
        assert not atomic_file.lock(opened.fileno(), str(path))


def refused(fd, operation):
    raise BlockingIOError(errno.EWOULDBLOCK, "somebody has it")


@pytest.mark.parametrize(
    ("place", "name", "answer"),
    [(atomic_file.fcntl, "flock", refused), (os.path, "samestat", lambda one, other: False)],
    ids=["locks refused", "files that are never the same"],
)
def test_no_lock_is_ever_to_be_had(tmp_path, monkeypatch, place, name, answer):
    """As on some network file systems: a few attempts that leave nothing, then as where there are no locks."""
    with monkeypatch.context() as patch:
        patch.setattr(place, name, answer)
        part = PartFile(str(tmp_path / "a.ffr"))
    assert len(names(tmp_path)) == 1
    write_all(part.fd, memoryview(b"new"), 0)
    part.publish()
    assert (names(tmp_path), (tmp_path / "a.ffr").read_bytes()) == (["a.ffr"], b"new")


def test_a_forked_child_has_no_descriptor_of_it(tmp_path):
    part = PartFile(str(tmp_path / "a.ffr"))
    here = str(tmp_path)  # files of other tests may be open, such as one whose name ends in .parquet
    assert any(here in path for path in children.descriptors().values())
    assert children.in_child(lambda: not any(here in path for path in children.descriptors().values())) == 0
    part.publish()


# Space in front of data

CHUNK = 8192


@pytest.mark.parametrize("how", ["file system", "copying"])
@pytest.mark.parametrize("size", [4096, 8192, 40960])
@pytest.mark.parametrize("length", [0, 1, 4095, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17])
def test_insert_space(tmp_path, monkeypatch, how, size, length):
    monkeypatch.setattr(atomic_file, "COPY_CHUNK", CHUNK)
    if how == "copying":
        monkeypatch.setattr(atomic_file, "fallocate", Refusing(errno.ENOSYS))
    head, data = os.urandom(4096), os.urandom(length)
    path = tmp_path / "f"
    path.write_bytes(head + data)
    with path.open("r+b") as file:
        insert_space(file.fileno(), 4096, size, 4096 + length)
    assert path.read_bytes() == head + bytes(size) + data


class Refusing:
    """A fallocate that fails, once or always."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def __call__(self, *arguments: int) -> None:
        if self.numbers:
            number = self.numbers.pop(0)
            raise OSError(number, os.strerror(number))
        _calls.fallocate(*arguments)


@pytest.mark.parametrize("name", ["EOPNOTSUPP", "ENOSYS", "EINVAL", "EPERM", "EINTR"])
def test_insert_space_after_a_refusal(tmp_path, monkeypatch, name):
    """By copying where the file system cannot, and asked again where a signal came."""
    path, refusing = tmp_path / "f", Refusing(getattr(errno, name))
    path.write_bytes(bytes(4096) + b"data" * 5000)
    monkeypatch.setattr(atomic_file, "fallocate", refusing)
    with path.open("r+b") as file:
        insert_space(file.fileno(), 4096, 4096, 4096 + 20000)
    assert path.read_bytes() == bytes(8192) + b"data" * 5000
    assert refusing.numbers == []


@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EFBIG", "ESTALE"])
def test_insert_space_that_fails(tmp_path, monkeypatch, name):
    """A disk that is broken is not written to any more."""
    path, number = tmp_path / "f", getattr(errno, name)
    path.write_bytes(bytes(4096) + b"data")
    monkeypatch.setattr(atomic_file, "fallocate", Refusing(number))
    with path.open("r+b") as file, pytest.raises(OSError, match=os.strerror(number)) as caught:
        insert_space(file.fileno(), 4096, 4096, 4100)
    assert caught.value.errno == number
    assert path.read_bytes() == bytes(4096) + b"data"


def test_insert_space_where_the_file_system_cannot():
    """tmpfs refuses FALLOC_FL_INSERT_RANGE."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    path = Path("/dev/shm") / f"test_atomic_file.{os.getpid()}"
    try:
        path.write_bytes(bytes(4096) + b"data" * 5000)
        with path.open("r+b") as file:
            insert_space(file.fileno(), 4096, 4096, 4096 + 20000)
        assert path.read_bytes() == bytes(8192) + b"data" * 5000
    finally:
        path.unlink()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 5 * CHUNK + 17])
@pytest.mark.parametrize(
    "start, target", [(100, 40), (40, 100), (0, 3 * CHUNK), (3 * CHUNK, 0), (7, 7), (CHUNK + 1, 1), (1, CHUNK + 1)]
)
def test_move_range(tmp_path, monkeypatch, size, start, target):
    """Behind them the file ends, before them are zeros, whichever way they are moved and however far."""
    monkeypatch.setattr(atomic_file, "COPY_CHUNK", CHUNK)
    head, data = os.urandom(start), os.urandom(size)
    path = tmp_path / "f"
    path.write_bytes(head + data)
    with path.open("r+b") as file:
        atomic_file.move_range(file.fileno(), start, start + size, target)
    assert path.read_bytes() == (head + bytes(max(0, target - start)))[:target] + data


def test_move_range_beyond_the_end(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(10))
    with path.open("r+b") as file, pytest.raises(OSError, match="1 bytes are missing at offset 10") as caught:
        atomic_file.move_range(file.fileno(), 5, 11, 20)
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("size", [0, 1, CHUNK, 3 * CHUNK + 5])
def test_copy_range(tmp_path, monkeypatch, size):
    monkeypatch.setattr(atomic_file, "COPY_CHUNK", CHUNK)
    data = os.urandom(10 + size)
    (tmp_path / "f").write_bytes(data)
    with open(tmp_path / "f", "rb") as source, open(tmp_path / "g", "w+b") as file:
        atomic_file.copy_range(source.fileno(), 10, size, file.fileno(), 3)
        assert (tmp_path / "g").read_bytes() == (bytes(3) + data[10:] if size else b"")
        with pytest.raises(OSError, match="1 bytes are missing"):
            atomic_file.copy_range(source.fileno(), 10, size + 1, file.fileno(), 3)


def test_write_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_file, "COPY_CHUNK", CHUNK)
    (tmp_path / "f").write_bytes(b"x" * 4 * CHUNK)
    with open(tmp_path / "f", "r+b") as file:
        atomic_file.write_zeros(file.fileno(), 5, 3 * CHUNK)
        atomic_file.write_zeros(file.fileno(), 7, 2)
    assert (tmp_path / "f").read_bytes() == b"x" * 5 + bytes(3 * CHUNK - 5) + b"x" * CHUNK


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_file_system_without_links(tmp_path, monkeypatch, number):
    """A file that may replace none gets its name by a rename that replaces none, where there is such a call."""

    def refuse(source, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "a.ffr"
    part = PartFile(str(target))
    write_all(part.fd, memoryview(b"new"), 0)
    part.publish(replace=False)
    assert names(tmp_path) == ["a.ffr"] and target.read_bytes() == b"new"
    later = PartFile(str(target))
    with pytest.raises(FileExistsError):
        later.publish(replace=False)
    assert names(tmp_path) == ["a.ffr"] and target.read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_neither_links_nor_a_rename_that_replaces_nothing(tmp_path, monkeypatch, number):
    def refuse(source, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(named_calls, "_rename_to_free_name", lambda source, target: errno.EINVAL)
    part = PartFile(str(tmp_path / "a.ffr"))
    with pytest.raises(OSError, match=r"link is refused: .*; allow this call where it is refused") as caught:
        part.publish(replace=False)
    assert caught.value.errno == number and names(tmp_path) == []


def test_what_we_refuse_ourselves_is_no_refusal_of_the_system(tmp_path):
    (tmp_path / "victim").write_bytes(b"kept")
    left = tmp_path / ".a.ffr.0123456789ab.part"
    left.symlink_to("victim")
    with pytest.raises(PermissionError) as refused:
        PartFile(str(tmp_path / "a.ffr"), left=str(left))
    assert "it is a symbolic link" in str(refused.value)
    assert "refused" not in str(refused.value) and "seccomp" not in str(refused.value)
    assert (tmp_path / "victim").read_bytes() == b"kept"
