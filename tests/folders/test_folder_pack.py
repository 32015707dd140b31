"""Packing: the bytes of the original, what is followed, and what is refused by name."""

import os
import re
import resource
import socket
import struct
import tempfile
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import children
import pytest

from ffrecord import FileReader, FileWriter
from ffrecord.folders import folder_pack
from ffrecord.folders.folder import PackedFolder
from ffrecord.folders.folder_pack import dump_files, dump_structure, pack_folder

GOLDEN = Path(__file__).parents[1] / "golden/ffrecord/packed_folder.ffr"
# What the golden file was made of: path → sample.
GOLDEN_FILES = {"a.txt": 0, "sub/deep/q": 1, "sub/z.bin": 2, "unié.txt": 3, "zero": 4}


def samples(path: Path) -> list[bytes]:
    """The samples of a file, by a reader of six lines."""
    data = path.read_bytes()
    n = struct.unpack_from("<q", data, 4)[0]
    offsets = [*struct.unpack_from(f"<{n}q", data, 12 + 4 * n), len(data)]
    return [data[start:end] for start, end in pairwise(offsets)]


@pytest.fixture
def folder(tmp_path):
    """A folder of files in two levels, with an empty directory and an empty file."""
    root = tmp_path / "folder"
    (root / "b/empty").mkdir(parents=True)
    for name, data in {"a": b"1", "b/x": b"22", "b.txt": b"", "c": bytes(range(256)) * 9000}.items():
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def out(tmp_path):
    """The path of a packed file, in a directory of its own."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out/packed.ffr"


def refused(folder, out, error, phrase):
    """Packing raises `error` with `phrase`, and leaves nothing but what was there."""
    before = {path: path.read_bytes() for path in out.parent.iterdir()}
    with pytest.raises(error, match=phrase) as caught:
        pack_folder(folder, out)
    assert {path: path.read_bytes() for path in out.parent.iterdir()} == before
    return caught.value


def test_golden_bytes(tmp_path, out):
    content = samples(GOLDEN)
    (tmp_path / "golden/empty").mkdir(parents=True)
    for name, i in GOLDEN_FILES.items():
        path = tmp_path / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[i])
    pack_folder(tmp_path / "golden", out)
    assert out.read_bytes() == GOLDEN.read_bytes()


def test_equal_names_refer_to_each_other(tmp_path, out):
    # So do the original's: its names are interned.
    for name in ("a", "b", "c"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "a rather long name").touch()
    pack_folder(tmp_path / "folder", out)
    assert out.read_bytes().count(b"a rather long name") == 1


def test_order_and_content(folder, out):
    assert pack_folder(str(folder), str(out)) is None
    with PackedFolder(out) as packed:
        assert list(packed) == ["a", "b/x", "b.txt", "c"]
        assert packed.structure == OrderedDict(
            [("a", 0), ("b", OrderedDict([("empty", OrderedDict()), ("x", 1)])), ("b.txt", 2), ("c", 3)]
        )
        assert [bytes(data) for data in packed.read(list(packed))] == [(folder / name).read_bytes() for name in packed]


def test_empty_folder(tmp_path, out):
    (tmp_path / "folder").mkdir()
    pack_folder(tmp_path / "folder", out)
    with PackedFolder(out) as packed:
        assert packed.num_files() == 0
        assert packed.list(recursive=True) == []


def test_relative_folder(folder, out, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    pack_folder("folder", out, verbose=True)
    assert capsys.readouterr().out.splitlines()[0] == f"0/4 {folder / 'a'}"


def test_verbose(tmp_path, out, capsys):
    (tmp_path / "folder").mkdir()
    for i in range(11):
        (tmp_path / f"folder/{i:02d}").touch()
    pack_folder(tmp_path / "folder", out, verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{i:02d}/11 {tmp_path / 'folder' / f'{i:02d}'}" for i in range(11)]
    pack_folder(tmp_path / "folder", out)
    assert capsys.readouterr().out == ""


def test_name_that_is_not_utf8(tmp_path, out):
    (tmp_path / "folder").mkdir()
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / "folder" / name).write_bytes(b"x")
    pack_folder(tmp_path / "folder", out)
    with PackedFolder(out) as packed:
        assert bytes(packed.read_one(name)) == b"x"


def test_old_file_inside_the_folder_is_replaced(folder):
    out = folder / "d.ffr"
    out.write_bytes(b"old")
    pack_folder(folder, out)
    with PackedFolder(out) as packed:
        assert bytes(packed.read_one("d.ffr")) == b"old"


def test_links_are_followed(folder, tmp_path, out):
    (tmp_path / "elsewhere/in").mkdir(parents=True)
    (tmp_path / "elsewhere/in/file").write_bytes(b"33")
    (folder / "d").symlink_to("../elsewhere")
    (folder / "e").symlink_to("../elsewhere/in/file")
    (folder / "f").symlink_to("../elsewhere")
    pack_folder(folder, out)
    with PackedFolder(out) as packed:
        assert list(packed) == ["a", "b/x", "b.txt", "c", "d/in/file", "e", "f/in/file"]
        assert {bytes(data) for data in packed.read(["d/in/file", "e", "f/in/file"])} == {b"33"}


def test_folder_is_a_link(folder, tmp_path, out):
    (tmp_path / "link").symlink_to("folder")
    pack_folder(tmp_path / "link", out)
    with PackedFolder(out) as packed:
        assert len(packed) == 4


@pytest.mark.parametrize("target", [".", "..", "../b", "../../folder"])
def test_loop_is_refused(folder, out, target):
    (folder / "b/loop").symlink_to(target)
    error = refused(folder, out, OSError, "leads back to a directory above it: Too many levels")
    assert "loop" in error.filename
    assert isinstance(error, RuntimeError)


def test_loops_through_each_other(folder, out):
    (folder / "d").mkdir()
    (folder / "b/to_d").symlink_to("../d")
    (folder / "d/to_b").symlink_to("../b")
    refused(folder, out, OSError, "b/to_d/to_b leads back to a directory above it")


def test_link_to_itself(folder, out):
    (folder / "self").symlink_to("self")
    assert refused(folder, out, OSError, "cannot be packed: Too many levels").filename == str(folder / "self")


def test_dangling_link(folder, out):
    (folder / "gone").symlink_to("nowhere")
    assert refused(folder, out, FileNotFoundError, "cannot be packed").filename == str(folder / "gone")


def test_fifo(folder, out):
    os.mkfifo(folder / "b/fifo")
    assert refused(folder, out, OSError, "is a FIFO, expected a regular").filename == str(folder / "b/fifo")


def test_link_to_fifo(folder, out):
    os.mkfifo(folder.parent / "fifo")
    (folder / "pipe").symlink_to("../fifo")
    refused(folder, out, OSError, "pipe is a FIFO")


def test_socket(folder, out, monkeypatch):
    monkeypatch.chdir(folder)  # a socket's path has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        refused(folder, out, OSError, "socket is a socket")


def test_device(folder, out):
    (folder / "null").symlink_to("/dev/null")
    refused(folder, out, OSError, "null is a character device")


def test_file_that_cannot_be_read(folder, out):
    # A regular file of size 0 whose reads fail, for root too.
    (folder / "memory").symlink_to("/proc/self/mem")
    assert refused(folder, out, OSError, "memory cannot be packed: Input/output error").filename == str(
        folder / "memory"
    )


def test_file_without_permission(out):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "secret"
        path.touch(mode=0)
        os.chmod(directory, 0o755)
        os.chmod(out.parent, 0o777)
        with unprivileged():
            error = refused_read(path)
    assert isinstance(error, PermissionError)
    assert error.filename == str(path)


class unprivileged:  # noqa: N801, used like a function
    """Without the powers of root, if it has them."""

    def __enter__(self):
        self.uid = os.geteuid()
        if self.uid == 0:
            os.seteuid(65534)

    def __exit__(self, *_):
        os.seteuid(self.uid)


def refused_read(path):
    with pytest.raises(RuntimeError, match="cannot be packed: Permission denied") as caught:
        folder_pack._read_file(str(path), False)
    return caught.value


def test_directory_without_permission(tmp_path):
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        (Path(directory) / "locked").mkdir(mode=0)
        with unprivileged(), pytest.raises(PermissionError, match=re.escape(f"{directory}/locked cannot be packed")):
            dump_structure(directory, OrderedDict(), 0)


def during_read(monkeypatch, change):
    """Let `change` happen before the first byte of a file is read."""
    readv = os.readv

    def changed(fd, buffers):
        monkeypatch.setattr(os, "readv", readv)
        change()
        return readv(fd, buffers)

    monkeypatch.setattr(os, "readv", changed)


def test_file_that_grows(folder, out, monkeypatch):
    during_read(monkeypatch, lambda: (folder / "a").write_bytes(b"12345"))
    refused(folder, out, OSError, "a changed while it was packed: it had 1 bytes, 2 were read, it has 5 now")


def test_file_that_shrinks(folder, out, monkeypatch):
    during_read(monkeypatch, lambda: os.truncate(folder / "a", 0))
    refused(folder, out, OSError, "a changed while it was packed: it had 1 bytes, 0 were read, it has 0 now")


def test_file_rewritten_in_place(folder, out, monkeypatch):
    os.utime(folder / "a", ns=(0, 0))
    during_read(monkeypatch, lambda: (folder / "a").write_bytes(b"2"))
    refused(folder, out, OSError, "a changed while it was packed: it was written to")


def after_scan(monkeypatch, change):
    """Let `change` happen between the scan of the names and the first file."""
    encode = folder_pack.encode_index

    def changed(*args):
        change()
        return encode(*args)

    monkeypatch.setattr(folder_pack, "encode_index", changed)


def replace_by_link(path, target):
    path.unlink()
    path.symlink_to(target)


def test_file_replaced_by_a_link(folder, out, monkeypatch):
    after_scan(monkeypatch, lambda: replace_by_link(folder / "b/x", "/etc/passwd"))
    error = refused(folder, out, OSError, "changed while it was packed: it is a symbolic link now")
    assert error.filename == str(folder / "b/x")


def test_file_replaced_by_a_fifo(folder, out, monkeypatch):
    after_scan(monkeypatch, lambda: ((folder / "a").unlink(), os.mkfifo(folder / "a")))
    refused(folder, out, OSError, "a is a FIFO")


def test_file_replaced_by_a_directory(folder, out, monkeypatch):
    after_scan(monkeypatch, lambda: ((folder / "a").unlink(), (folder / "a").mkdir()))
    refused(folder, out, OSError, "a is a directory now")


def test_file_removed(folder, out, monkeypatch):
    after_scan(monkeypatch, (folder / "a").unlink)
    refused(folder, out, FileNotFoundError, "a cannot be packed")


@children.limits_memory
def test_file_larger_than_memory(folder, out):
    os.truncate(folder / "a", 1 << 40)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 39, limits[1]))
    try:
        refused(folder, out, MemoryError, f"a: out of memory: {1 << 40} bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_old_file_stays(folder, out, monkeypatch):
    out.write_bytes(b"old")
    os.mkfifo(folder / "fifo")
    refused(folder, out, OSError, "fifo is a FIFO")
    (folder / "fifo").unlink()
    after_scan(monkeypatch, (folder / "c").unlink)
    refused(folder, out, OSError, "c cannot be packed")


@pytest.mark.parametrize("name", ["a", "missing"])
def test_no_folder(folder, out, name):
    error = refused(folder / name, out, NotADirectoryError, "is not a directory")
    assert isinstance(error, AssertionError)


@pytest.mark.parametrize(("name", "error"), [("x.txt", ValueError), (b"x.ffr", TypeError), (None, TypeError)])
def test_wrong_out_file(folder, name, error):
    with pytest.raises(error) as caught:
        pack_folder(folder, name)
    assert isinstance(caught.value, AssertionError)


def test_wrong_type_of_folder(out):
    for wrong in (5, None, b"folder"):
        with pytest.raises(TypeError):
            pack_folder(wrong, out)


def test_dump_structure(folder):
    structure = OrderedDict()
    assert dump_structure(folder, structure, 0) == 4
    assert list(structure) == ["a", "b", "b.txt", "c"]
    assert type(structure["b"]) is OrderedDict
    assert dump_structure(str(folder / "b"), structure, 10) == 11
    assert structure["x"] == 10


def test_dump_structure_of_no_folder(folder):
    with pytest.raises(NotADirectoryError):
        dump_structure(folder / "a", OrderedDict(), 0)


def test_each_file_is_told(folder, out):
    told = []
    pack_folder(folder, out, on_file=lambda *numbers: told.append(numbers))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_dump_files(folder, out, capsys):
    (folder / "d").symlink_to("a")
    structure = OrderedDict()
    n = dump_structure(folder, structure, 0)
    with FileWriter(out, n) as writer:
        assert dump_files(writer, folder, structure, 0, True, n) == n == 5
    assert [bytes(data) for data in FileReader(out)] == [
        (folder / name).read_bytes() for name in ("a", "b/x", "b.txt", "c", "d")
    ]
    assert capsys.readouterr().out.splitlines()[1] == f"1/5 {folder / 'b/x'}"


def test_dump_files_out_of_order(folder, out):
    with pytest.raises(ValueError, match=r"a is sample 3 of the structure, expected 0"), FileWriter(out, 1) as writer:
        dump_files(writer, folder, OrderedDict(a=3), 0, False, 1)
    assert not out.exists()


def test_deep_folder(tmp_path, out):
    levels = 400
    root = tmp_path / "folder"
    (root / "/".join("d" * levels)).mkdir(parents=True)
    pack_folder(root, out)
    with PackedFolder(out) as packed:
        assert packed.is_dir("/".join("d" * levels))
        assert not packed.is_dir("/".join("d" * (levels + 1)))
