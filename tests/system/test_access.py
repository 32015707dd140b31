"""Modes, groups and access lists stay when a file or directory takes the place of another."""

import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import children
import ffr_twin
import pytest

import ffrecord
from ffrecord.folders.folder_pack import pack_folder
from ffrecord.sources import TFRecordWriter, unpack
from ffrecord.system import access, atomic_directory
from ffrecord.system.atomic_file import PartFile

STRANGER = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """A umask by which new files are their owner's alone."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def made(path: Path, mode: int, group: int = -1, user: int = -1) -> Path:
    path.write_bytes(b"old")
    os.chown(path, user, group)
    path.chmod(mode)
    return path


def replaced(path: Path) -> os.stat_result:
    PartFile(str(path)).publish()
    return path.stat()


def access_list(user: int, rights: int) -> bytes:
    """A list that gives a user these rights, its mask the same ones (acl(5), as the kernel has it)."""
    nobody = 0xFFFFFFFF
    entries = [(1, 6, nobody), (2, rights, user), (4, 0, nobody), (0x10, rights, nobody), (0x20, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A file that another user may read by an access list."""
    path = made(tmp_path / "listed", 0o600)
    try:
        os.setxattr(path, access.ACCESS_LIST, access_list(STRANGER, 4))
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error}")
    return path


# One file


@pytest.mark.parametrize("old", [0o644, 0o664, 0o600, 0o400, 0o755])
def test_the_mode(tmp_path: Path, old: int) -> None:
    path = made(tmp_path / "a", old)
    replaced(path)
    assert mode(path) == f"{old:o}"


@root_only
def test_the_group(tmp_path: Path) -> None:
    assert replaced(made(tmp_path / "a", 0o640, group=STRANGER)).st_gid == STRANGER
    assert mode(tmp_path / "a") == "640"


@root_only
@pytest.mark.parametrize(("old", "new"), [(0o640, "600"), (0o664, "644"), (0o777, "777"), (0o604, "604")])
def test_a_group_that_cannot_be_given_gains_nothing(tmp_path: Path, old: int, new: str) -> None:
    """Who is in the group of the new file is not who was in that of the old one."""
    tmp_path.chmod(0o777)
    made(tmp_path / "a", old, group=0, user=STRANGER)
    code = """
import os, sys
from ffrecord.system.atomic_file import PartFile
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.chdir(sys.argv[1])
PartFile("a").publish()
"""
    for directory in list(tmp_path.parents)[:-2]:
        directory.chmod(directory.stat().st_mode | 0o011)
    children.run(code, tmp_path)
    assert ((tmp_path / "a").stat().st_gid, mode(tmp_path / "a")) == (STRANGER, new)


@root_only
def test_a_stranger_s_file_adds_no_rights(tmp_path: Path) -> None:
    status = replaced(made(tmp_path / "a", 0o666, STRANGER, STRANGER))
    assert (status.st_uid, status.st_gid, mode(tmp_path / "a")) == (0, 0, "600")


def test_the_access_list(listed: Path) -> None:
    before = os.getxattr(listed, access.ACCESS_LIST)
    replaced(listed)
    assert os.getxattr(listed, access.ACCESS_LIST) == before


@root_only
def test_the_access_list_of_a_stranger_s_file(listed: Path) -> None:
    """What the list allows looks like the rights of the group, which it does not have."""
    assert mode(listed) == "640"
    os.chown(listed, STRANGER, -1)
    with open(listed.with_name("new"), "xb") as file:
        assert not access.keep(file.fileno(), str(listed), "new", adds=True)
    assert mode(listed.with_name("new")) == "600"


def test_nothing_to_keep(tmp_path: Path) -> None:
    with open(tmp_path / "new", "xb") as file:
        assert not access.keep(file.fileno(), str(tmp_path / "none"), "new")
        made(tmp_path / "same", 0o600)
        assert not access.keep(file.fileno(), str(tmp_path / "same"), "new")
        made(tmp_path / "other", 0o604)
        assert access.keep(file.fileno(), str(tmp_path / "other"), "new")


def test_an_old_file_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with (
        open(tmp_path / "new", "xb") as file,
        pytest.raises(OSError, match=rf"new: giving .* the mode of the old one \({tmp_path}"),
    ):
        access.keep(file.fileno(), str(tmp_path / "loop"), "new")


# Directories


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.bin").write_bytes(b"a")
    pack_folder(tmp_path / "source", tmp_path / "source.ffr")
    return tmp_path / "source.ffr"


def export_folder(zipped: Path, target: Path) -> None:
    ffrecord.export([{"a": b"1"}], target, "folder", progress=False)


def export_shards(zipped: Path, target: Path) -> None:
    ffrecord.export([{"a": b"1"}], target, "zip", samples_per_shard=1, progress=False)


def write_dataset(zipped: Path, target: Path) -> None:
    ffrecord.DatasetWriter(target, num_workers=0, progress=False).from_indexed_dataset([b"1"])


def convert(zipped: Path, target: Path) -> None:
    ffrecord.convert(zipped, target, num_workers=0, progress=False)


Way = Callable[[Path, Path], object]
WAYS: list[Way] = [unpack, export_folder, export_shards, write_dataset, convert]


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_directory_that_is_filled(zipped: Path, tmp_path: Path, way: Way) -> None:
    target = tmp_path / "out"
    target.mkdir()
    target.chmod(0o2755)
    if os.geteuid() == 0:
        os.chown(target, -1, STRANGER)
        target.chmod(0o2755)
    group = target.stat().st_gid
    way(zipped, target)
    assert os.listdir(target) and (mode(target), target.stat().st_gid) == ("2755", group)


@pytest.mark.parametrize("way", WAYS)
def test_a_new_directory_is_of_the_umask(zipped: Path, tmp_path: Path, way: Way) -> None:
    way(zipped, tmp_path / "out")
    assert mode(tmp_path / "out") == "700"


@root_only
def test_a_stranger_s_directory_adds_no_rights(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o777)
    os.chown(tmp_path / "old", STRANGER, STRANGER)
    atomic_directory.replace(str(tmp_path / "new"), str(tmp_path / "old"))
    assert mode(tmp_path / "old") == "700"


# What is added to a dataset


def write(path: Path, **options: Any) -> None:
    writer = ffrecord.DatasetWriter(path, num_workers=0, progress=False, samples_per_shard=10, **options)
    writer.from_indexed_dataset([{"label": i} for i in range(20)])


@pytest.fixture
def readable(tmp_path: Path) -> Path:
    """A dataset that everybody can read."""
    os.umask(0o022)
    write(tmp_path / "data")
    os.umask(0o077)
    return tmp_path / "data"


def modes(dataset: Path) -> set[str]:
    return {mode(path) for path in dataset.iterdir() if path.name[0] != "."}


@pytest.mark.parametrize("old", [0o644, 0o640, 0o444, 0o660])
def test_an_append(readable: Path, old: int) -> None:
    for path in readable.iterdir():
        path.chmod(old)
    for _ in range(2):
        write(readable, mode="append")
    assert len(list(readable.glob("*.ffr"))) == 6 and modes(readable) == {f"{old:o}"}
    assert len(ffrecord.FileReader(readable)) == 60


def test_an_append_to_bare_shards(readable: Path) -> None:
    (readable / "dataset.json").unlink()
    write(readable, mode="append")
    assert (readable / "dataset.json").exists() and modes(readable) == {"644"}


def test_an_append_that_is_not_to_be_read_by_others(readable: Path) -> None:
    os.umask(0o022)
    for path in readable.iterdir():
        path.chmod(0o600)
    write(readable, mode="append")
    assert modes(readable) == {"600"}


def test_an_append_whose_shards_were_finished_by_an_interrupted_one(readable: Path) -> None:
    class Ending(list[dict[str, int]]):
        def __getitem__(self, index: Any) -> Any:
            if index == 15:
                raise KeyError(index)
            return super().__getitem__(index)

    samples = [{"label": i} for i in range(20)]
    writer = ffrecord.DatasetWriter(readable, num_workers=0, progress=False, samples_per_shard=10, mode="append")
    with pytest.raises(RuntimeError):
        writer.from_indexed_dataset(Ending(samples))
    os.umask(0o027)
    write(readable, mode="append")
    assert len(ffrecord.FileReader(readable)) == 40 and modes(readable) == {"644"}


@root_only
def test_an_append_to_a_stranger_s_dataset(readable: Path) -> None:
    """All who could read it still can; and who owns it chooses nobody who may write to what is ours."""
    for path in readable.iterdir():
        os.chown(path, STRANGER, STRANGER)
        path.chmod(0o664)
    write(readable, mode="append")
    assert {path.name: mode(path) for path in readable.iterdir() if path.stat().st_uid == 0} == {
        "PART_00002.ffr": "644",
        "PART_00003.ffr": "644",
        "dataset.json": "644",
    }
    assert {path.stat().st_gid for path in readable.iterdir()} == {STRANGER}


# What else replaces files


def test_a_file_writer(tmp_path: Path) -> None:
    path = made(tmp_path / "a.ffr", 0o644)
    builders.write_samples(path, [b"1"])
    assert mode(path) == "644"


def test_recovery(tmp_path: Path) -> None:
    """The file that it replaces may be another one than was there when its writer began."""
    path = tmp_path / "a.ffr"
    code = """
import os, sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1])
writer.write_one(b"1")
writer.flush()
os.kill(os.getpid(), 9)
"""
    children.finished(code, path)
    path.write_bytes(ffr_twin.build([b"old"]))
    path.chmod(0o644)
    ffrecord.recover(path, replace=True)
    assert (mode(path), ffr_twin.parse(path.read_bytes())) == ("644", [b"1"])


def test_a_kept_index(tmp_path: Path) -> None:
    for count in (3, 5):
        with TFRecordWriter(tmp_path / "a.tfrecord") as writer:
            for i in range(count):
                writer.write(bytes([i]))
        with ffrecord.open(tmp_path / "a.tfrecord", index_cache=True) as reader:
            assert len(reader) == count
        (kept,) = tmp_path.glob("*.ffindex")
        if count == 3:
            kept.chmod(0o644)
    assert mode(kept) == "644"
