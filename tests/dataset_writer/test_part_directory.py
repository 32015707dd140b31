"""The hidden directory of a write, piece by piece: its name, lock and ledger; verifying, comparing, publishing."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import builders
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import DatasetWriter, FileReader, FormatError
from ffrecord.dataset_writer import part_directory, shards, write_log
from ffrecord.dataset_writer import publish as publishing
from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory, hidden_name
from ffrecord.dataset_writer.write_log import LogState, ShardFinished, WriteBegun, WriteLog, differences, replay
from ffrecord.errors import ChecksumError, StateError
from ffrecord.format import manifest
from ffrecord.format.leftovers import INSIDE, Publishing
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import locked_directory

SHARD = Shard("PART_00000.ffr", 3, 100, 7)


def named(path: str) -> Shard:
    opened = OpenedFile(path, check=True)
    opened.close()
    return Shard(os.path.basename(path), opened.n, opened.size, opened.crc)


# Name and lock


@given(name=st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=80))
def test_names_are_stable_hidden_and_short_enough(name: str) -> None:
    found = os.path.basename(hidden_name(f"/data/{name}"))
    assert found == os.path.basename(hidden_name(f"/data/{name}"))
    assert found.startswith(".") and found.endswith(".part") and len(os.fsencode(found)) <= 255


def test_long_names_are_told_apart() -> None:
    one, other = ("x" * 230 + end for end in "ab")
    assert hidden_name(one) != hidden_name(other)


def test_who_leaves_lets_the_next_one_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_directory, "PATIENCE", 0.1)
    for _ in range(3):
        part = PartDirectory(str(tmp_path / "set"))
        part.acquire()
        assert part.is_held
        with pytest.raises(BlockingIOError):
            PartDirectory(str(tmp_path / "set")).acquire()
        assert part.leave() == [] and not part.is_held
        assert os.listdir(tmp_path) == []
    part.discard()
    assert part.leave() == []


def test_what_is_published_leaves_nothing(tmp_path: Path) -> None:
    """To whoever is interrupted after it, and leaves as if the write had failed."""
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    (Path(part.finished) / "a.ffr").write_bytes(b"x")
    part.publish(["a.ffr"], "0" * 64)
    assert part.leave() == []
    assert os.listdir(tmp_path) == ["set"] and os.listdir(tmp_path / "set") == ["a.ffr"]


def test_what_is_finished_stays_and_what_was_open_goes(tmp_path: Path) -> None:
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    for name in ("a.ffr", "b.ffr"):
        (Path(part.open) / name).write_bytes(b"x")
    part.keep(Shard("a.ffr", 1, 30, 0), Start(1, 1, 1))
    assert part.leave() == ["a.ffr"]
    assert sorted(os.listdir(part.path)) == ["finished", "ledger"] and os.listdir(part.finished) == ["a.ffr"]
    with pytest.raises(StateError, match="has ended"):
        part.keep(Shard("b.ffr", 1, 30, 0), Start(2, 2, 2))
    again = PartDirectory(str(tmp_path / "set"))
    again.acquire()
    # Without a first line that says what was asked, nothing is told.
    assert again.write_log.state == LogState()
    again.discard()
    assert os.listdir(tmp_path) == []


def test_a_forked_child_neither_has_it_nor_removes_it(tmp_path: Path) -> None:
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    child = os.fork()
    if child == 0:
        part.discard()
        os._exit(0 if not part.is_held and part.leave() == [] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert part.is_held and os.path.isdir(part.open)
    part.discard()


def test_a_link_in_place_of_the_ledger_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".set.part").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".set.part" / "ledger").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="could not be created"):
        PartDirectory(str(tmp_path / "set")).acquire()
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_link_to_nowhere_in_its_place(tmp_path: Path) -> None:
    (tmp_path / ".set.part").symlink_to(tmp_path / "nowhere")
    with pytest.raises(
        PermissionError,
        match=r"set: the directory, or .*\.set\.part for it, could not be created \(.*is a symbolic link, .*\)",
    ) as caught:
        PartDirectory(str(tmp_path / "set")).acquire()
    assert isinstance(caught.value, RuntimeError)
    assert os.listdir(tmp_path) == [".set.part"]


def test_a_ledger_that_is_another_one_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_directory, "PATIENCE", 0.1)
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    with pytest.raises(OSError, match=r"\.set\.part for it") as caught:
        PartDirectory(str(tmp_path / "set")).acquire()
    assert caught.value.errno == errno.ESTALE


# Ledger


def test_a_ledger_is_told_again(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "ledger", os.O_RDWR | os.O_CREAT)
    write_log = WriteLog(fd)
    assert write_log.state == LogState()
    write_log.begin({"x": 1})
    write_log.append(ShardFinished(SHARD, Start(1, 3, 50)))
    end = os.fstat(fd).st_size
    write_log.append(Publishing(["a.ffr", "b.ffr"], None, "f"))
    write_log.sync()
    state = WriteLog(fd).state
    assert (state.request, state.end) == ({"x": 1}, end)
    assert state.finished == {SHARD.name: ShardFinished(SHARD, Start(1, 3, 50))}
    assert state.publishing == Publishing(["a.ffr", "b.ffr"], None, "f")
    # What is appended takes the place of the publication that did not come about.
    WriteLog(fd).append(ShardFinished(SHARD, Start(1, 3, 51)))
    state = WriteLog(fd).state
    assert state.publishing is None and state.finished[SHARD.name].next.bytes == 51
    write_log.clear()
    assert WriteLog(fd).state == LogState() and os.fstat(fd).st_size == 0
    os.close(fd)


@given(data=st.binary(max_size=300), lines=st.integers(0, 2))
def test_any_bytes_tell_something_or_nothing(data: bytes, lines: int) -> None:
    good = [WriteBegun(1, {}), ShardFinished(SHARD, Start(1, 3, 50))][:lines]
    start = b"".join(msgspec.json.encode(entry) + b"\n" for entry in good)
    state = replay(start + data)
    assert state.end >= len(start) and (state.request is not None or state.end == 0)


# Differences


def test_differences_in_words() -> None:
    before = {"a": 1, "b": [1, {"c": "x"}], "d": None, "gone": True}
    now = {"a": 1.0, "b": (1, {"c": "y" * 99}), "d": None, "new": {}}
    assert differences(before, before) == differences({"b": (1, 2)}, {"b": [1, 2]}) == []
    found = differences(before, now)
    assert found[0] == "a was 1, is 1.0"
    assert found[1].startswith("b[1].c was 'x', is 'yyy") and found[1].endswith("…")
    assert found[2:] == ["gone was True, is nothing", "new was nothing, is {}"]
    assert differences([1], [1, 2]) == ["[1] was nothing, is 2"]


# Verification


def test_records_larger_than_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK", 100)
    samples = builders.records([0, 1, 99, 100, 101, 0, 1000, 7, 0])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    shards.check_whole(str(tmp_path), named(path))
    size = os.path.getsize(path)
    for offset in range(120, size):
        with open(path, "r+b") as file:
            file.seek(offset)
            (byte,) = file.read(1)
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
            file.flush()
            with pytest.raises(ChecksumError, match=r"a\.ffr: sample \d"):
                shards.check_whole(str(tmp_path), named(path))
            file.seek(offset)
            file.write(bytes([byte]))
    shards.check_whole(str(tmp_path), named(path))


def test_a_file_that_is_not_the_one_listed(tmp_path: Path) -> None:
    path = builders.write_samples(tmp_path / "a.ffr", [b"x", b"y"])
    listed = named(path)
    builders.write_samples(tmp_path / "a.ffr", [b"x", b"z"])
    with pytest.raises(FormatError, match=r"old copy: \(samples, size, CRC-32 of tables\) is \(2, 38, "):
        shards.check_listed(str(tmp_path), listed)
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        shards.check_whole(str(tmp_path), listed)


# Publishing


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Directories with new files, and with old ones."""
    for name, files in (("new", "bcd"), ("old", "a")):
        (tmp_path / name).mkdir()
        for file in files:
            builders.write_samples(tmp_path / name / f"{file}.ffr", [file.encode()])
    return tmp_path / "new", tmp_path / "old"


def listing(directory: Path, *names: str) -> manifest.Manifest:
    return manifest.build([named(str(directory / f"{name}.ffr")) for name in names])


def test_a_move_that_fails_is_undone(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = two
    (old / "d.ffr").write_text("theirs")
    with pytest.raises(FileExistsError, match=r"another process has created .* during this write"):
        publishing.move(str(new), str(old), ["b.ffr", "c.ffr", "d.ffr"])
    assert sorted(os.listdir(new)) == ["b.ffr", "c.ffr", "d.ffr"]
    assert sorted(os.listdir(old)) == ["a.ffr", "d.ffr"] and (old / "d.ffr").read_text() == "theirs"


@pytest.mark.parametrize("at", range(4))
def test_an_exception_after_a_rename_strands_nothing(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """As a signal's handler may raise one before the next line."""
    new, old = two
    real, calls = os.rename, [0]

    def renamed(source: Any, place: Any) -> None:
        real(source, place)
        calls[0] += 1
        if calls[0] == at + 1:
            raise KeyboardInterrupt

    names = [manifest.NAME, "b.ffr", "c.ffr", "d.ffr"]
    manifest.save(str(new), listing(new, "b", "c", "d"))
    monkeypatch.setattr(os, "rename", renamed)
    with pytest.raises(KeyboardInterrupt):
        publishing.move(str(new), str(old), names)
    assert sorted(os.listdir(new)) == ["b.ffr", "c.ffr", "d.ffr", manifest.NAME]
    assert os.listdir(old) == ["a.ffr"]


@pytest.mark.parametrize("at", range(4))
def test_an_addition_that_fails_is_undone(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    new, old = two
    before = listing(old, "a")
    manifest.save(str(old), before)
    after = manifest.build([*before.shards, *listing(new, "b", "c", "d").shards])
    real, calls = os.rename, [0]

    def refuse(source: Any, place: Any) -> None:
        if Path(place).parent == old:
            calls[0] += 1
            if calls[0] == at + 1:
                raise OSError(errno.EIO, "disk")
        real(source, place)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="disk"):
        publishing.add(str(new), str(old), ["b.ffr", "c.ffr", "d.ffr"], before, after)
    assert sorted(os.listdir(old)) == ["a.ffr", "dataset.json"]
    assert publishing.fingerprint(str(old)) == before.fingerprint
    monkeypatch.undo()
    publishing.add(str(new), str(old), ["b.ffr", "c.ffr", "d.ffr"], before, after)
    assert publishing.fingerprint(str(old)) == after.fingerprint
    mark = Publishing(["b.ffr", "c.ffr", "d.ffr"], before.fingerprint, after.fingerprint)
    assert publishing.is_complete(str(old), mark)


@pytest.mark.parametrize("mode", ["create", "append"])
@pytest.mark.parametrize("at", [1, 2])
def test_an_undoing_that_fails_says_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, at: int
) -> None:
    """The error is the first one, and the same call again goes on from what is there."""
    monkeypatch.chdir(tmp_path)
    samples = [b"x", b"y", b"z"]

    def write(mode: Any) -> None:
        writer = DatasetWriter(tmp_path, mode=mode, num_workers=0, samples_per_shard=1, progress=False)
        writer.from_indexed_dataset(samples)

    if mode == "append":
        write("create")
    real, numbers = os.rename, iter([*[0] * at, errno.ENOSPC, *[errno.EIO] * 99])

    def refuse(source: Any, place: Any) -> None:
        among = {Path(source).parent, Path(place).parent}
        if tmp_path in among and (number := next(numbers)):
            raise OSError(number, os.strerror(number))
        real(source, place)

    with (
        monkeypatch.context() as patch,
        pytest.raises(RuntimeError, match="publishing failed, and some files could not be removed") as caught,
    ):
        patch.setattr(os, "rename", refuse)
        write(mode)
    assert isinstance(caught.value, OSError) and caught.value.errno == errno.ENOSPC
    assert os.strerror(errno.EIO) in str(caught.value) and "nothing" not in str(caught.value)
    write(mode)
    with FileReader(tmp_path) as reader:
        assert builders.read_all(reader) == samples * (2 if mode == "append" else 1)
    assert not (tmp_path / INSIDE).exists()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("mode", ["create", "append"])
def test_in_place_though_the_last_fsync_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, inside: bool
) -> None:
    """The error says so, and the same call again finds what is there: it adds nothing twice."""
    samples = [b"x", b"y", b"z"]
    place = tmp_path / "set"
    place.mkdir()
    if inside:
        monkeypatch.chdir(place)

    def write(mode: Any) -> None:
        writer = DatasetWriter(place, mode=mode, num_workers=0, samples_per_shard=2, progress=False)
        writer.from_indexed_dataset(samples)

    if mode == "append":
        write("create")
    real, synced = part_directory.fsync_directory, tmp_path if mode == "create" and not inside else place

    def fails(directory: str) -> None:
        mark = write_log.load_state(found.write_log_path).publishing
        if directory == str(synced) and mark is not None and publishing.is_complete(str(place), mark):
            raise OSError(errno.EIO, "disk")
        real(directory)

    found = PartDirectory(str(place), among_others=mode == "append")
    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(RuntimeError) as caught:
            patch.setattr(part_directory, "fsync_directory", fails)
            write(mode)
        expected = samples * (2 if mode == "append" else 1)
        with FileReader(place) as reader:
            assert builders.read_all(reader) == expected
        # Of the second and third, which could not make sure of it either.
        assert "is in place, but fsync" in str(caught.value) or "could not be created" in str(caught.value)
    write(mode)
    with FileReader(place) as reader:
        assert builders.read_all(reader) == expected
    assert not os.path.exists(found.path)


@pytest.mark.parametrize("moved", range(4))
def test_taken_back_from_wherever_it_got_to(two: tuple[Path, Path], moved: int) -> None:
    new, old = two
    before = listing(old, "a")
    manifest.save(str(old), before)
    mark = Publishing(["b.ffr", "c.ffr", "d.ffr"], before.fingerprint, "later")
    for name in mark.names[:moved]:
        os.rename(new / name, old / name)
    assert not publishing.is_complete(str(old), mark)
    assert publishing.take_back(str(new), str(old), mark, {})
    assert sorted(os.listdir(new)) == mark.names and sorted(os.listdir(old)) == ["a.ffr", "dataset.json"]


@pytest.mark.parametrize("before", [None, "earlier"])
def test_nothing_is_taken_from_a_directory_without_a_manifest(two: tuple[Path, Path], before: str | None) -> None:
    new, old = two
    mark = Publishing(["b.ffr", "c.ffr", "d.ffr"], before, "later")
    assert publishing.take_back(str(new), str(old), mark, {})
    theirs = {"b.ffr": named(str(new / "c.ffr"))}
    shutil.move(new / "b.ffr", old / "b.ffr")
    assert not publishing.take_back(str(new), str(old), mark, {})
    assert not publishing.take_back(str(new), str(old), mark, theirs)
    assert sorted(os.listdir(old)) == ["a.ffr", "b.ffr"]


def test_nothing_is_taken_from_another_dataset(two: tuple[Path, Path]) -> None:
    new, old = two
    shutil.move(new / "b.ffr", old / "b.ffr")
    manifest.save(str(old), listing(old, "a", "b"))
    mark = Publishing(["b.ffr", "c.ffr", "d.ffr"], "earlier", "later")
    assert not publishing.take_back(str(new), str(old), mark, {})
    assert sorted(os.listdir(old)) == ["a.ffr", "b.ffr", "dataset.json"]
