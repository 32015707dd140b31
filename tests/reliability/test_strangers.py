"""Surface (guarantees G1, G5, G7, G8): leftovers of a killed writer may be anything, of anybody."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import children
import msgspec
import pytest

import ffrecord
from ffrecord import DatasetWriter, FFRecordError, FileReader, FileWriter
from ffrecord.cli import main
from ffrecord.cli.commands.split import SplitPart
from ffrecord.dataset_writer import write_log
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.write_log import ShardFinished, Uploaded, WriteBegun
from ffrecord.format import journal as journals
from ffrecord.format import manifest
from ffrecord.format.leftovers import Publishing
from ffrecord.format.manifest import Shard
from ffrecord.system import untrusted
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.writing.recovery import part_files

SAMPLES = [b"first", b"second", b""]
VICTIM = b"precious"
SECONDS = 20  # for anything here; what waits for ever is ended
USER, OTHER = 4321, 4322
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users, or make devices")


class Timeout(BaseException):
    """No error that a test could take for one that it expects."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """End a test that waits for ever."""

    def end(*_: object) -> None:
        raise Timeout(f"not done in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS * children.PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory that nobody may touch; it is the same afterwards."""
    victim = tmp_path / "victim"
    (victim / "finished").mkdir(parents=True)
    (victim / "open-letters").mkdir()
    for name in ("file", "finished/dataset.json", "open-letters/one"):
        (victim / name).write_bytes(VICTIM)
    before = {path: path.lstat().st_mode for path in victim.rglob("*")}
    yield victim
    assert {path: path.lstat().st_mode for path in victim.rglob("*")} == before
    assert all(path.read_bytes() == VICTIM for path in before if path.is_file())


# What may be there


def a_socket(path: Path, victim: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{fd}/{path.name}")  # which may have no more than 107 bytes
    os.close(fd)


def a_sparse_file(path: Path, victim: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def a_sparse_file_that_begins(path: Path, victim: Path) -> None:
    path.write_bytes(journals.MAGIC + b"{}")
    os.truncate(path, 1 << 40)


THINGS: dict[str, Callable[[Path, Path], object]] = {
    "link to a directory": lambda path, victim: path.symlink_to(victim),
    "link to a file": lambda path, victim: path.symlink_to(victim / "file"),
    "link to nothing": lambda path, victim: path.symlink_to(victim / "nothing"),
    "hard link": lambda path, victim: path.hardlink_to(victim / "file"),
    "FIFO": lambda path, victim: os.mkfifo(path),
    "socket": a_socket,
    "device": lambda path, victim: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),  # /dev/zero, without end
    "directory": lambda path, victim: (path / "below").mkdir(parents=True),
    "sparse file": a_sparse_file,
    "sparse file that begins": a_sparse_file_that_begins,
}
PLACES = ("", "ledger", "finished", "open-letters", "finished/PART_00000.ffr", "finished/dataset.json")
things = pytest.mark.parametrize(
    "thing", [pytest.param(each, marks=root) if each == "device" else each for each in THINGS]
)


def put(thing: str, path: Path, victim: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    THINGS[thing](path, victim)


def write(path: Path, **options: Any) -> None:
    DatasetWriter(path, num_workers=0, progress=False, **options).from_indexed_dataset(SAMPLES)


def create(place: Path) -> tuple[Path, Callable[[], object], int]:
    return place / ".set.part", lambda: write(place / "set"), 1


def append(place: Path) -> tuple[Path, Callable[[], object], int]:
    write(place / "set")
    return place / "set" / ".dataset.part", lambda: write(place / "set", mode="append"), 2


def dump_inside(place: Path) -> tuple[Path, Callable[[], object], int]:
    (place / "set").mkdir()
    (place / "set" / "notes").write_bytes(b"here before")
    return place / "set" / ".dataset.part", lambda: dump(SAMPLES, str(place / "set"), 3), 1


def convert(place: Path) -> tuple[Path, Callable[[], object], int]:
    write(place / "source")
    options: dict[str, Any] = {"num_workers": 0, "progress": False}
    return place / ".set.part", lambda: ffrecord.convert(place / "source", place / "set", **options), 1


def shuffle(place: Path) -> tuple[Path, Callable[[], object], int]:
    write(place / "source")
    return place / ".set.part", lambda: command("shuffle", place / "source", place / "set"), 1


def command(*arguments: object) -> None:
    code = main([str(each) for each in arguments])
    if code:
        raise OSError(f"exit status {code}")


WAYS = {"create": create, "append": append, "dump": dump_inside, "convert": convert, "shuffle": shuffle}


def check_right(dataset: Path, times: int) -> None:
    """Or the write was refused, with the dataset as it was."""
    assert not dataset.is_symlink()
    found = [path for path in dataset.iterdir() if path.name[:1] != "."]
    assert [path for path in found if path.is_symlink() or path.stat().st_nlink > 1] == []
    with FileReader(dataset) as reader:
        assert sorted(builders.read_all(reader)) == sorted(SAMPLES * times)


@things
@pytest.mark.parametrize(
    ("way", "name"),
    # All write by the same part directory; the commands are here to show that they do.
    [(way, name) for way in WAYS for name in (PLACES if way in ("create", "append", "dump") else ("", "finished"))],
)
def test_whatever_is_there(
    tmp_path: Path, victim: Path, way: str, name: str, thing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused by its name, or does no harm: nothing else is touched, and nothing waits for ever."""
    place = tmp_path / "place"
    place.mkdir()
    part, work, times = WAYS[way](place)
    if name.startswith("finished/"):
        (part / "finished").mkdir(parents=True)
    put(thing, part / name if name else part, victim)
    before = sorted(path.name for path in (place / "set").iterdir()) if (place / "set").exists() else None
    try:
        work()
    except (FFRecordError, OSError) as error:
        assert part.name in str(error) + capsys.readouterr().err
        after = sorted(path.name for path in (place / "set").iterdir()) if (place / "set").exists() else None
        assert after == before
    else:
        check_right(place / "set", times)


@pytest.mark.parametrize("way", ["create", "append"])
def test_what_is_refused_stays_until_somebody_removes_it(tmp_path: Path, victim: Path, way: str) -> None:
    part, work, times = WAYS[way](tmp_path)
    part.mkdir()
    (part / "finished").symlink_to(victim)
    for _ in range(2):
        with pytest.raises(PermissionError, match=r"finished is a symbolic link, .*; remove what is there"):
            work()
        assert (part / "finished").is_symlink()
    (part / "finished").unlink()
    work()
    check_right(tmp_path / "set", times)
    assert not part.exists()


def test_others_may_not_write_to_what_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".set.part").mkdir()
    (tmp_path / ".set.part").chmod(0o777)
    old = os.umask(0)
    try:
        part, new = PartDirectory(str(tmp_path / "set")), PartDirectory(str(tmp_path / "new"))
        part.acquire()
        new.acquire()
        modes = {stat.S_IMODE(os.stat(each.path).st_mode) for each in (part, new)}
        part.discard()
        new.discard()
    finally:
        os.umask(old)
    assert modes == {0o755}


def test_another_one_at_its_path_is_noticed(tmp_path: Path, victim: Path) -> None:
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    (Path(part.finished) / "a.ffr").write_bytes(b"x")
    (tmp_path / ".set.part").rename(tmp_path / "away")
    (tmp_path / ".set.part").symlink_to(victim)
    with pytest.raises(PermissionError, match="replaced after it was locked"):
        part.publish(["a.ffr"], "0" * 64)
    part.discard()
    assert sorted(os.listdir(tmp_path)) == [".set.part", "away", "victim"] and os.listdir(tmp_path / "away") == []


# Names that are read from a file

BAD_NAMES = ("../victim", "a/evil.ffr", "/etc/evil.ffr", "..", ".", "", ".ffr", "evil", "a\0.ffr", "../../set/x.ffr")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_no_name(name: str) -> None:
    good = Shard("a.ffr", 1, 30, 0)
    first = msgspec.json.encode(WriteBegun(1, {})) + b"\n"
    lines = [ShardFinished(good, Start(1)), Uploaded("a.ffr", None), Publishing(["dataset.json", "a.ffr"], None, "f")]
    for line in lines:
        text = msgspec.json.encode(line)
        assert write_log.replay(first + text + b"\n").end >= len(first)
        assert write_log.replay(first + text + b"\n") != write_log.replay(first)
        forged = text.replace(b'"a.ffr"', msgspec.json.encode(name))
        assert write_log.replay(first + forged + b"\n") == write_log.replay(first)
    text = msgspec.json.encode(manifest.build([good]))
    with pytest.raises(ffrecord.FormatError, match="expected a plain file name"):
        manifest.parse(text.replace(b'"a.ffr"', msgspec.json.encode(name)), "dataset.json")
    assert not untrusted.is_plain(name, ".ffr")


@pytest.mark.parametrize("moved", ["../victim", "a/evil.ffr", "PART_00000.ffr"])
def test_a_ledger_moves_nothing_but_what_its_write_has_moved(tmp_path: Path, victim: Path, moved: str) -> None:
    """Neither what is elsewhere, nor what a link leads to, nor what the dataset had before."""
    data = tmp_path / "data"
    write(data)
    listed = manifest.load(str(data))
    assert listed is not None
    (data / "a").mkdir()
    (data / "a" / "evil.ffr").write_bytes(b"not to get out")
    part = data / ".dataset.part"
    (part / "finished").mkdir(parents=True)
    (part / "finished" / "a").symlink_to(victim)
    lines = [
        {"type": "begun", "version": 1, "request": {}},
        {"type": "publishing", "names": [moved], "before": listed.fingerprint, "after": "0" * 64},
    ]
    (part / "ledger").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.suppress(FFRecordError, OSError):
        write(data, mode="append")
    with FileReader(data) as reader:
        assert builders.read_all(reader)[: len(SAMPLES)] == SAMPLES
    assert (data / "a" / "evil.ffr").exists()


def a_killed_write(place: Path) -> Path:
    """Its part directory, with two finished shards."""
    write_in_child = f"""
import os, sys
from ffrecord import DatasetWriter
from ffrecord.dataset_writer.part_directory import PartDirectory
PartDirectory.publish = lambda *_: os._exit(9)
writer = DatasetWriter({str(place / "set")!r}, num_workers=0, progress=False, samples_per_shard=2)
writer.from_indexed_dataset({SAMPLES!r})
"""
    assert children.finished(write_in_child, check=False).returncode == 9
    return place / ".set.part"


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_link_to_a_finished_shard_is_none(tmp_path: Path, link: str) -> None:
    """Though it is that to the last byte: who made it keeps another way to it."""
    part = a_killed_write(tmp_path)
    shard, kept = part / "finished" / "PART_00000.ffr", tmp_path / "kept.ffr"
    shutil.move(shard, kept)
    before = kept.read_bytes()
    shard.symlink_to(kept) if link == "symbolic" else shard.hardlink_to(kept)
    write(tmp_path / "set", samples_per_shard=2)
    check_right(tmp_path / "set", 1)
    assert kept.read_bytes() == before and kept.stat().st_nlink == 1


def test_what_is_whole_is_still_gone_on_with(tmp_path: Path) -> None:
    inode = (a_killed_write(tmp_path) / "finished" / "PART_00000.ffr").stat().st_ino
    write(tmp_path / "set", samples_per_shard=2)
    check_right(tmp_path / "set", 1)
    assert (tmp_path / "set" / "PART_00000.ffr").stat().st_ino == inode


def test_a_link_at_a_manifest_s_name_is_not_written_through(tmp_path: Path, victim: Path) -> None:
    (tmp_path / manifest.NAME).symlink_to(victim / "file")
    manifest.save(str(tmp_path), manifest.build([]))
    assert not (tmp_path / manifest.NAME).is_symlink() and manifest.load(str(tmp_path)) == manifest.build([])


# recover

KILLED = """
import os, sys, ffrecord
writer = ffrecord.FileWriter(sys.argv[1])
for i in range(50):
    writer.write_one(b"%d" % i * 10)
writer.flush()
os._exit(9)
"""
FLUSHED = [b"%d" % i * 10 for i in range(50)]


def killed(place: Path) -> tuple[Path, Path]:
    """Part file and journal of a writer of x.ffr that was killed."""
    assert children.finished(KILLED, place / "x.ffr", check=False).returncode == 9
    (part,) = part_files(str(place / "x.ffr"))
    return Path(part), Path(journals.journal_name(part))


@things
@pytest.mark.parametrize("which", ["part file", "journal"])
@pytest.mark.parametrize("given", ["target", "part file"])
def test_whatever_is_left_of_a_file(tmp_path: Path, victim: Path, which: str, thing: str, given: str) -> None:
    """It is refused, and neither changed nor published."""
    place = tmp_path / "place"
    place.mkdir()
    part, journal = killed(place)
    changed = part if which == "part file" else journal
    changed.rename(tmp_path / "kept")
    put(thing, changed, victim)
    if thing.startswith("sparse file") and which == "part file":
        return  # of any size, it has none of the samples, as a part file may
    before = sorted(os.listdir(place))
    with pytest.raises((FFRecordError, OSError), match=r"\.(part|journal)"):
        ffrecord.recover(place / "x.ffr" if given == "target" else part)
    assert sorted(os.listdir(place)) == before
    os.rmdir(changed / "below") if thing == "directory" else None
    os.rmdir(changed) if thing == "directory" else os.unlink(changed)
    (tmp_path / "kept").rename(changed)
    assert ffrecord.recover(place / "x.ffr").samples == len(FLUSHED)


def test_a_part_file_that_has_its_final_name_already_is_no_stranger_s(tmp_path: Path) -> None:
    """Its writer was killed between the two last steps, where nothing is replaced."""
    part, journal = killed(tmp_path)
    shutil.copy(part, tmp_path / "kept.part")
    shutil.copy(journal, tmp_path / "kept.journal")
    ffrecord.recover(tmp_path / "x.ffr")
    part.hardlink_to(tmp_path / "x.ffr")
    shutil.copy(tmp_path / "kept.journal", journal)
    assert ffrecord.recover(tmp_path / "x.ffr").samples == len(FLUSHED)
    assert sorted(os.listdir(tmp_path)) == ["kept.journal", "kept.part", "x.ffr"]
    assert (tmp_path / "x.ffr").stat().st_nlink == 1


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")
    part, _ = killed(tmp_path / "link")
    assert ffrecord.recover(tmp_path / "link" / part.name).samples == len(FLUSHED)
    assert os.listdir(tmp_path / "place") == ["x.ffr"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_journal_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    part, journal = killed(tmp_path)
    noted = journals.read(str(part))
    journal.write_bytes(journals._header(noted.about._replace(name=name)))
    with pytest.raises(ffrecord.FormatError, match=r"expected a \.ffr file of its directory"):
        ffrecord.recover(part)


@things
def test_what_nobody_has_flushed_is_removed_only_if_it_is_ours(tmp_path: Path, victim: Path, thing: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    names = [f".x.ffr.{'0' * 12}.part", f".x.ffr.{'1' * 12}.journal"]
    for name in names:
        put(thing, place / name, victim)
    with pytest.raises(FileNotFoundError):
        ffrecord.recover(place / "x.ffr")
    # A sparse file is one of this user that nobody has flushed.
    assert sorted(os.listdir(place)) == ([] if thing.startswith("sparse file") else names)


# split


@things
@pytest.mark.parametrize("name", ["", "part.json", ".part.json", "a", ".a.part", ".a.part/ledger", ".a.part/finished"])
def test_whatever_is_left_of_a_split(
    tmp_path: Path, victim: Path, name: str, thing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    write(place / "source")
    put(thing, place / ".a.split" / name if name else place / ".a.split", victim)
    code = main(["split", str(place / "source"), f"{place}/a=1.0"])
    if code:
        assert ".a.split" in capsys.readouterr().err and not (place / "a").exists()
    else:
        check_right(place / "a", 1)


@pytest.mark.parametrize("state", [b"[]", b"{}", b'{"summary": {}}', b'{"request": 3}', b'{"summary": {"path": 1}}'])
def test_a_forged_note_of_a_split_is_none(tmp_path: Path, state: bytes) -> None:
    write(tmp_path / "source")
    (tmp_path / ".a.split").mkdir()
    (tmp_path / ".a.split" / "part.json").write_bytes(state)
    command("split", tmp_path / "source", f"{tmp_path}/a=1.0")
    check_right(tmp_path / "a", 1)


@pytest.mark.parametrize("inside", [False, True])
def test_a_split_publishes_no_link(tmp_path: Path, inside: bool) -> None:
    """Though it leads to just what is to be there."""
    request = {"of": "it"}
    with SplitPart(str(tmp_path / "a")) as part:
        part.begin(request)
        part.write(lambda path: DatasetWriter(path, num_workers=0, progress=False).from_indexed_dataset(SAMPLES))
    made, kept = tmp_path / ".a.split" / "a", tmp_path / "kept"
    if inside:
        made, kept = made / "PART_00000.ffr", tmp_path / "kept.ffr"
    made.rename(kept)
    made.symlink_to(kept)
    with SplitPart(str(tmp_path / "a")) as part:
        part.begin(request)
        assert part.summary is None
    assert kept.exists()


# MDS


@things
def test_an_index_json_that_is_no_file(tmp_path: Path, victim: Path, thing: str) -> None:
    put(thing, tmp_path / "data" / "index.json", victim)
    for open_it in (ffrecord.open, lambda path: ffrecord.open(path, "mds")):
        with pytest.raises((FFRecordError, OSError), match="data"):
            open_it(tmp_path / "data").close()


# A start that fails


def unpacked(place: Path) -> None:
    ffrecord.sources.unpack(place.parent / "archive.zip", place / "data")


def exported(name: str, **options: Any) -> Callable[[Path], object]:
    def export(place: Path) -> None:
        ffrecord.export(SAMPLES, place / name, num_workers=0, progress=False, **options)

    return export


def split(place: Path) -> None:
    with SplitPart(str(place / "a")):
        pass


def file(place: Path) -> None:
    with FileWriter(place / "a.ffr") as writer:
        writer.write_one(b"x")
        writer.flush()


STARTS: dict[str, Callable[[Path], object]] = {
    "dataset": lambda place: write(place / "data"),
    "dataset in new directories": lambda place: write(place / "new" / "er" / "data"),
    "dump": lambda place: dump(SAMPLES, str(place / "data"), 3),
    "split": split,
    "split in new directories": lambda place: split(place / "new" / "er"),
    "file": file,
    "zip": exported("a.zip"),
    "folder": exported("folder", format="folder"),
    "shards": exported("shards", format="webdataset", samples_per_shard=2),
    "unpack": unpacked,
}


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process have so many descriptors more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(64)]  # fills what is free below
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
    for fd in taken[len(taken) - count :]:
        os.close(fd)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken[: len(taken) - count]:
            os.close(fd)


@pytest.mark.parametrize("way", STARTS)
def test_a_start_without_descriptors_leaves_nothing(tmp_path: Path, way: str) -> None:
    ffrecord.export(SAMPLES, tmp_path / "archive.zip", num_workers=0, progress=False)
    (tmp_path / "first").mkdir()
    STARTS[way](tmp_path / "first")  # what is imported at the first write is there then
    failed = 0
    for count in range(12):
        place = tmp_path / str(count)
        place.mkdir()
        try:
            with free_descriptors(count):
                STARTS[way](place)
        except (OSError, FFRecordError):
            failed += 1
            assert os.listdir(place) == [], count
    assert failed


def test_a_directory_that_is_taken_leaves_no_parents(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        write(tmp_path / "new" / "er" / ("x" * 300))
    assert os.listdir(tmp_path) == []


# Two users


@pytest.fixture
def sticky() -> Iterator[Path]:
    """A directory like /tmp."""
    place = Path(tempfile.mkdtemp(prefix="strangers-", dir="/tmp"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def as_user(user: int, work: Callable[[], object]) -> str:
    """What another user's process says when it does `work`: "" or its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            signal.alarm(SECONDS)
            work()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as said:
        told = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return told


def a_whole_part_directory(place: Path) -> None:
    """As of a write that can be gone on with."""
    part = PartDirectory(str(place / "set"))
    part.acquire()
    part.begin({"call": "any"})
    builders.write_samples(Path(part.open) / "a.ffr", [b"theirs"])
    part.write_log.append(ShardFinished(Shard("a.ffr", 1, 30, 0), Start(1, 1, 6)))
    part._unlock()


def an_open_part_directory(place: Path) -> None:
    (place / ".set.part").mkdir()
    (place / ".set.part").chmod(0o777)
    os.mkfifo(place / ".set.part" / "ledger")


PLANTED: dict[str, Callable[[Path], object]] = {
    "part directory": lambda place: (place / ".set.part" / "finished").mkdir(parents=True),
    "part directory of a write": a_whole_part_directory,
    "part directory with a FIFO": an_open_part_directory,
    "link": lambda place: (place / ".set.part").symlink_to(place / "mine"),
    "file": lambda place: (place / ".set.part").touch(),
    "FIFO": lambda place: os.mkfifo(place / ".set.part"),
}


@root
@pytest.mark.parametrize("user", [0, USER])
@pytest.mark.parametrize("planted", PLANTED)
def test_what_another_user_has_planted_is_refused_as_it_is(sticky: Path, planted: str, user: int) -> None:
    def everything() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.lstat().st_uid, path.lstat().st_mode) for path in sticky.rglob("*"))

    def mine() -> None:
        (sticky / "mine").mkdir(mode=0o755)
        (sticky / "mine" / "finished").mkdir()
        (sticky / "mine" / "finished" / "letter").write_bytes(VICTIM)

    assert as_user(user, mine) == ""
    assert as_user(OTHER, lambda: PLANTED[planted](sticky)) == ""
    before, began = everything(), time.monotonic()
    said = as_user(user, lambda: write(sticky / "set"))
    assert said.startswith("RecordPermissionError: ") and ".set.part" in said and "write elsewhere" in said
    assert everything() == before and time.monotonic() - began < SECONDS / 2


@root
def test_the_split_of_another_user_is_refused_as_it_is(sticky: Path) -> None:
    assert as_user(USER, lambda: write(sticky / "source")) == ""

    def plant() -> None:
        (sticky / ".a.split").mkdir()
        (sticky / ".a.split").chmod(0o777)
        os.mkfifo(sticky / ".a.split" / "part.json")

    assert as_user(OTHER, plant) == ""
    said = as_user(USER, lambda: split(sticky))
    assert said.startswith("PermissionError") and "belongs to another user" in said
    assert [path.name for path in (sticky / ".a.split").iterdir()] == ["part.json"]


@root
@pytest.mark.parametrize("user", [0, USER])
def test_a_stranger_s_part_file_is_not_published(sticky: Path, user: int) -> None:
    """Who has it open could go on to write to what is then ours; nor is it removed."""
    part, journal = killed(sticky)
    for path in (part, journal):
        os.chown(path, OTHER, OTHER)
        path.chmod(0o666)
    for given in (sticky / "x.ffr", part):
        assert "belongs to user 4322" in as_user(user, lambda given=given: ffrecord.recover(given))  # type: ignore[misc]
    os.chown(journal, user, user)
    assert f"belongs to user 4322, expected {user}" in as_user(user, lambda: ffrecord.recover(part))
    assert {path.name for path in sticky.iterdir()} == {part.name, journal.name}
    os.chown(part, user, user)
    assert as_user(user, lambda: ffrecord.recover(sticky / "x.ffr")) == ""
    with FileReader(sticky / "x.ffr") as reader:
        assert builders.read_all(reader) == FLUSHED


@root
def test_of_its_own_things_a_user_of_a_shared_directory_goes_on(sticky: Path) -> None:
    def interrupted() -> None:
        def samples() -> Iterator[bytes]:
            yield from SAMPLES
            raise ValueError("no more")

        writer = DatasetWriter(sticky / "set", num_workers=0, progress=False, samples_per_shard=1)
        with contextlib.suppress(Exception):
            writer.from_iterable(samples())

    assert as_user(USER, interrupted) == ""
    assert as_user(USER, lambda: write(sticky / "set")) == ""
    check_right(sticky / "set", 1)


# Files that are opened


def test_what_is_no_file_is_not_even_opened(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open some devices is to use them."""
    opened: list[object] = []

    def count(*given: Any, **options: Any) -> int:
        opened.append(given)
        return real(*given, **options)

    real = os.open
    monkeypatch.setattr(os, "open", count)
    for thing in THINGS:
        if thing.startswith("sparse file") or (thing == "device" and os.geteuid()):
            continue
        path = tmp_path / thing
        put(thing, path, victim)
        opened.clear()
        with pytest.raises(PermissionError):
            untrusted.open_file(str(path), os.O_RDWR)
        assert not untrusted.is_own(str(path)) and opened == []


def test_one_that_comes_in_between_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    real = os.open

    def swapped(*given: Any, **options: Any) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(*given, **options)

    before = set(children.open_files(collect=True))
    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(PermissionError, match="it is a FIFO"):
        untrusted.open_file(str(path), os.O_RDONLY)  # which would wait for a writer
    assert set(children.open_files()) == before


def test_a_user_who_is_squashed_knows_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server gives all that root makes to somebody else, that is who he is there."""
    user = os.geteuid()
    (tmp_path / "mine").touch()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with untrusted.enter_directory(str(tmp_path)) as fd:
        assert untrusted.owner_of(fd) == untrusted.user_of("mine", fd) == user
    assert os.listdir(tmp_path) == ["mine"]
    with contextlib.closing(LockedDirectory(str(tmp_path / "own"), "lock")) as own:
        assert own.owner == user


def test_only_one_has_it(tmp_path: Path) -> None:
    path, events = str(tmp_path / "own"), []

    def take() -> None:
        try:
            own = LockedDirectory(path, "lock")
        except BlockingIOError:
            events.append("refused")
        else:
            events.append("had")
            own.close()

    own = LockedDirectory(path, "lock")
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    own.discard()
    own.close()
    take()
    assert events == ["refused", "had"]


@things
def test_what_is_removed_is_no_more_than_what_is_in_it(tmp_path: Path, victim: Path, thing: str) -> None:
    own = LockedDirectory(str(tmp_path / "own"))
    for name in ("one", "deep/er/two"):
        put(thing, tmp_path / "own" / name, victim)
    own.remove("one")
    own.remove("deep")
    own.remove("nothing")
    assert own.names() == set()
    own.discard()
    own.close()
    own.close()
    assert sorted(os.listdir(tmp_path)) == ["victim"]


def test_the_reason_of_our_own_check_comes_out(tmp_path, monkeypatch):
    with contextlib.closing(LockedDirectory(str(tmp_path / "own"))) as own:

        def check(*arguments, **options):
            raise untrusted.Refused("it belongs to user 5, expected 0")

        monkeypatch.setattr(untrusted, "open_file", check)
        with pytest.raises(PermissionError) as refused:
            own.write("note", b"text")
    assert "could not be written: it belongs to user 5, expected 0" in str(refused.value)
    assert "seccomp" not in str(refused.value)
