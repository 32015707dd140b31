"""Surface (guarantees G1, G5): In directories that others may write to, no name is led away."""

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter, pack_folder
from ffrecord.dataset_writer import part_directory, shards
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.folders.safe_unpack import unpack_files
from ffrecord.sources import RecordIOWriter, TFRecordWriter
from ffrecord.system import locked_directory

TOKEN = "0" * 12
SAMPLES = [b"first", b"second", b""]
VICTIM = b"precious"


class Looking:
    """Samples; whoever takes one looks at the directory that they are written to.

    Args:
        look: called at each sample.
    """

    def __init__(self, look: Callable[[], object] = lambda: None) -> None:
        self._look = look

    def __len__(self) -> int:
        return len(SAMPLES)

    def __getitem__(self, index: int) -> bytes:
        self._look()
        return SAMPLES[index]


def write_file(directory: Path, look: Callable[[], object]) -> None:
    with FileWriter(directory / "a.ffr") as writer:
        writer.write_one(b"x")
        writer.flush()
        look()


def write_records(make: Callable[[Path], Any], name: str) -> Callable[[Path, Callable[[], object]], None]:
    def write(directory: Path, look: Callable[[], object]) -> None:
        with make(directory / name) as writer:
            writer.write(b"x")
            look()

    return write


def write_dataset(directory: Path, look: Callable[[], object]) -> None:
    DatasetWriter(directory / "set", num_workers=0).from_indexed_dataset(Looking(look))


def append(directory: Path, look: Callable[[], object]) -> None:
    write_dataset(directory, lambda: None)
    DatasetWriter(directory / "set", num_workers=0, mode="append").from_indexed_dataset(Looking(look))


def write_dump(directory: Path, look: Callable[[], object]) -> None:
    dump(Looking(look), str(directory / "set"), 2)


def export(name: str, **options: Any) -> Callable[[Path, Callable[[], object]], None]:
    def write(directory: Path, look: Callable[[], object]) -> None:
        ffrecord.export(Looking(look), directory / name, num_workers=0, progress=False, **options)

    return write


def pack(directory: Path, look: Callable[[], object]) -> None:
    source = directory.parent / "source"
    source.mkdir(exist_ok=True)
    (source / "file").write_bytes(b"x")
    pack_folder(source, directory / "packed.ffr")


def archive_in(directory: Path) -> Path:
    path = directory.parent / "archive.zip"
    if not path.exists():
        ffrecord.export(Looking(), path, num_workers=0, progress=False)
    return path


def unpack(directory: Path, look: Callable[[], object]) -> None:
    ffrecord.sources.unpack(archive_in(directory), directory / "unpacked")


def keep_index(directory: Path, look: Callable[[], object]) -> None:
    ffrecord.open(archive_in(directory), index_cache=directory).close()


WAYS = {
    "file": write_file,
    "packed folder": pack,
    "dataset": write_dataset,
    "dataset, appended": append,
    "dataset, dumped": write_dump,
    "tfrecord": write_records(TFRecordWriter, "a.tfrecord"),
    "recordio": write_records(RecordIOWriter, "a.recordio"),
    "zip": export("a.zip"),
    "tar": export("a.tar"),
    "tar shards": export("shards", format="webdataset", samples_per_shard=1),
    "records": export("b.tfrecord"),
    "folder": export("folder", format="folder"),
    "unpacked": unpack,
    "kept index": keep_index,
}
# Where somebody may look while they are at it.
WATCHED = ("file", "dataset", "dataset, appended", "tfrecord", "recordio", "zip", "tar shards", "folder")


def paths_below(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.name[:1] != "." or path.is_file())


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory, with another one beside it whose content nobody may touch."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_bytes(VICTIM)
    (tmp_path / "victim" / "finished").mkdir()
    (tmp_path / "victim" / "open-letters").mkdir()
    (tmp_path / "victim" / "open-letters" / "one").write_bytes(VICTIM)
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def untouched(shared: Path) -> Iterator[Path]:
    """The directory of the victim, which is the same afterwards."""
    victim = shared.parent / "victim"
    yield victim
    assert sorted(path.relative_to(victim).as_posix() for path in victim.rglob("*")) == [
        "file",
        "finished",
        "open-letters",
        "open-letters/one",
    ]
    assert (victim / "file").read_bytes() == (victim / "open-letters" / "one").read_bytes() == VICTIM


# Modes


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077], ids=oct)
@pytest.mark.parametrize("way", WAYS)
def test_the_umask_decides_who_may_read_and_write(shared: Path, way: str, umask: int) -> None:
    archive_in(shared)
    old = os.umask(umask)
    try:
        WAYS[way](shared, lambda: None)
    finally:
        os.umask(old)
    found = list(paths_below(shared))
    assert found
    for path in found:
        mode, most = stat.S_IMODE(path.stat().st_mode), 0o777 if path.is_dir() else 0o666
        # Indexes that everybody may write to are believed by nobody.
        most &= ~stat.S_IWOTH if way == "kept index" and path.is_file() else ~0
        assert oct(mode) == oct(most & ~umask), path


def test_while_it_is_written_a_file_is_as_closed_as_afterwards(shared: Path) -> None:
    seen: dict[str, int] = {}

    def look() -> None:
        seen.update({str(path): stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*")})

    old = os.umask(0o077)
    try:
        for way in WATCHED:
            (shared / way).mkdir()
            WAYS[way](shared / way, look)
    finally:
        os.umask(old)
    assert len(seen) > 2 * len(WATCHED)
    assert {path: oct(mode) for path, mode in seen.items() if mode & 0o077} == {}


def test_a_replaced_file_gives_nobody_the_rights_of_another(shared: Path) -> None:
    path = shared / "a.ffr"
    path.write_bytes(b"old")
    path.chmod(0o6755)
    write_file(shared, lambda: None)
    assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_stranger_s_file_does_not_choose_the_mode_of_what_replaces_it(shared: Path) -> None:
    path = shared / "a.ffr"
    path.write_bytes(b"old")
    path.chmod(0o666)
    os.chown(path, 65534, 65534)
    old = os.umask(0o022)
    try:
        write_file(shared, lambda: None)
    finally:
        os.umask(old)
    assert (path.stat().st_uid, oct(stat.S_IMODE(path.stat().st_mode))) == (0, oct(0o644))


# Names


@pytest.mark.parametrize("way", WATCHED)
def test_temporary_names_cannot_be_guessed(shared: Path, way: str) -> None:
    """But for the part directory of a dataset, which a later write must find; what is in it is its owner's alone."""
    runs: list[set[str]] = []
    for run in range(2):
        directory = shared / str(run)
        directory.mkdir()
        seen: set[str] = set()

        def look(directory: Path = directory, seen: set[str] = seen) -> None:
            seen.update(path.relative_to(directory).parts[0] for path in directory.rglob("*"))
            seen.update(path.name for path in directory.rglob("open-*"))

        WAYS[way](directory, look)
        hidden = {name for name in seen if name[:1] == "." or name.startswith("open-")}
        runs.append(hidden - {".set.part", part_directory.INSIDE})
    assert runs[0] and len(runs[0]) == len(runs[1]) and runs[0].isdisjoint(runs[1])
    for name in runs[0] | runs[1]:
        assert re.search(r"[.-][0-9a-f]{12}(\.|$)", name), name


@pytest.fixture
def guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody knows what will come of chance."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: TOKEN)


PLANTED = {
    "file": (".a.ffr.{}.part", ".a.ffr.{}.journal"),
    "packed folder": (".packed.ffr.{}.part",),
    "tfrecord": (".a.tfrecord.{}.part",),
    "recordio": (".a.recordio.{}.part",),
    "zip": (".a.zip.{}.part",),
    "tar": (".a.tar.{}.part",),
    "tar shards": (".shards.{}.part",),
    "records": (".b.tfrecord.{}.part",),
    "folder": (".folder.{}.part",),
    "unpacked": (".unpacked.{}.unpacking",),
}


@pytest.mark.usefixtures("guessed")
@pytest.mark.parametrize("target", ["file", "nothing", "."])
@pytest.mark.parametrize(("way", "name"), [(way, name) for way, names in PLANTED.items() for name in names])
def test_a_link_at_a_temporary_name_leads_nowhere(
    shared: Path, untouched: Path, way: str, name: str, target: str
) -> None:
    archive_in(shared)
    link = shared / name.format(TOKEN)
    link.symlink_to(untouched / target)
    with pytest.raises(OSError):
        WAYS[way](shared, lambda: None)
    assert {*os.listdir(shared)} <= {link.name}


@pytest.mark.usefixtures("guessed")
def test_a_file_at_a_temporary_name_is_not_written_to(shared: Path) -> None:
    """Somebody who keeps it open could change what is published."""
    for way in ("file", "tfrecord", "recordio", "packed folder"):
        path = shared / PLANTED[way][0].format(TOKEN)
        path.write_bytes(VICTIM)
        with pytest.raises(FileExistsError):
            WAYS[way](shared, lambda: None)
        assert path.read_bytes() == VICTIM


@pytest.mark.usefixtures("guessed")
def test_a_link_at_the_temporary_name_of_an_index_keeps_nothing(shared: Path, untouched: Path) -> None:
    keep_index(shared, lambda: None)
    (kept,) = shared.iterdir()
    kept.unlink()
    link = shared / f".{kept.name}.{TOKEN}.part"
    link.symlink_to(untouched / "file")
    keep_index(shared, lambda: None)
    assert os.listdir(shared) == [link.name]


@pytest.mark.parametrize("target", ["file", "nothing"])
def test_a_link_in_place_of_a_shard_leads_nowhere(shared: Path, untouched: Path, target: str) -> None:
    path = str(shared / "PART_00000.ffr")
    os.symlink(untouched / target, path)
    with pytest.raises(FileExistsError):
        shards.create(path, "label", 12)
    with pytest.raises(OSError, match="samples could not be moved"):
        shards.move_samples(path, "label", 12, 24)
    with pytest.raises(OSError, match="tables could not be written"):
        shards.finish(path, "label", 12, np.zeros(0, np.int64), np.zeros(0, np.uint32), None)


# Datasets


def test_a_link_in_place_of_the_part_directory_is_refused(shared: Path, untouched: Path) -> None:
    (shared / ".set.part").symlink_to(untouched)
    with pytest.raises(PermissionError):
        write_dataset(shared, lambda: None)
    assert os.listdir(shared) == [".set.part"]


@pytest.mark.parametrize("target", ["file", "nothing"])
def test_a_link_in_place_of_the_ledger_makes_nothing(
    shared: Path, untouched: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(locked_directory, "PATIENCE", 0.1)
    (shared / ".set.part").mkdir()
    (shared / ".set.part" / "ledger").symlink_to(untouched / target)
    with pytest.raises(OSError, match=r"set: the directory, or .*\.set\.part for it, could not be created"):
        write_dataset(shared, lambda: None)


def test_a_link_inside_of_the_target_is_refused(shared: Path, untouched: Path) -> None:
    write_dataset(shared, lambda: None)
    (shared / "set" / part_directory.INSIDE).symlink_to(untouched)
    with pytest.raises(PermissionError):
        DatasetWriter(shared / "set", num_workers=0, mode="append").from_indexed_dataset(SAMPLES)
    with FileReader(shared / "set") as reader:
        assert reader.n == len(SAMPLES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_stranger_s_part_directory_is_refused_as_it_is(shared: Path, untouched: Path) -> None:
    part = shared / ".set.part"
    (part / "finished").mkdir(parents=True)
    (part / "open-letters").mkdir()
    (part / "open-letters" / "one").write_bytes(VICTIM)
    part.chmod(0o777)
    os.chown(part, 65534, 65534)
    with pytest.raises(PermissionError):
        PartDirectory(str(shared / "set")).acquire()
    with pytest.raises(PermissionError):
        write_dataset(shared, lambda: None)
    assert sorted(path.name for path in part.iterdir()) == ["finished", "open-letters"]
    assert (part / "open-letters" / "one").read_bytes() == VICTIM


@pytest.mark.parametrize("name", ["PART_00000.ffr", "dataset.json"])
def test_what_comes_to_be_at_a_final_name_meanwhile_stays(shared: Path, untouched: Path, name: str) -> None:
    """Where the files are moved in one by one, beside others."""
    (shared / "set").mkdir()
    (shared / "set" / "notes").write_bytes(b"here before")
    link = shared / "set" / name

    def plant() -> None:
        if not link.is_symlink():
            link.symlink_to(untouched / "file")

    with pytest.raises(OSError):
        write_dump(shared, plant)
    assert sorted(path for path in os.listdir(shared / "set") if path[:1] != ".") == sorted([name, "notes"])
    assert link.is_symlink()


def test_a_link_in_place_of_a_manifest_is_replaced_not_followed(shared: Path, untouched: Path) -> None:
    write_dataset(shared, lambda: None)
    manifest, elsewhere = shared / "set" / "dataset.json", shared / "elsewhere.json"
    manifest.rename(elsewhere)
    manifest.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    DatasetWriter(shared / "set", num_workers=0, mode="append").from_indexed_dataset(SAMPLES)
    assert not manifest.is_symlink() and elsewhere.read_bytes() == before
    with FileReader(shared / "set") as reader:
        assert reader.n == 2 * len(SAMPLES)


@pytest.mark.parametrize("way", ["zip", "tar", "records", "folder", "unpacked"])
def test_a_link_at_the_name_of_something_new_is_refused(shared: Path, untouched: Path, way: str) -> None:
    """What may replace a file follows a link, as open(2) does; what is only made new does not."""
    name = {"zip": "a.zip", "tar": "a.tar", "records": "b.tfrecord"}.get(way, way)
    (shared / name).symlink_to(untouched / "file")
    with pytest.raises((OSError, ValueError)):
        WAYS[way](shared, lambda: None)
    assert os.listdir(shared) == [name]


def test_a_link_that_comes_to_be_where_files_are_unpacked_leads_nowhere(shared: Path, untouched: Path) -> None:
    def read(keys: list[Any]) -> list[bytes]:
        (temporary,) = shared.glob(".out.*.unpacking")
        (temporary / "a").symlink_to(untouched / "file")
        return [b"x" for _ in keys]

    with pytest.raises(FileExistsError):
        unpack_files([("a", 1, None)], [], read, None, shared / "out", label="a")
    assert os.listdir(shared) == []


# Indexes


def kept_again(shared: Path, change: Callable[[Path], object]) -> bool:
    """Whether an index that somebody changed is used, and not made anew, for an archive of this process's user."""
    archive_in(shared)
    time.sleep(0.02)  # else the archive is too young for an index to be kept
    keep_index(shared, lambda: None)
    (kept,) = shared.iterdir()
    change(kept)
    before = kept.stat().st_ino
    keep_index(shared, lambda: None)
    return kept.stat().st_ino == before


def test_an_index_that_everybody_may_write_to_is_not_believed(shared: Path) -> None:
    assert kept_again(shared, lambda kept: None)
    assert not kept_again(shared, lambda kept: kept.chmod(0o646))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_stranger_s_index_is_not_believed(shared: Path) -> None:
    assert not kept_again(shared, lambda kept: os.chown(kept, 65534, 65534))
