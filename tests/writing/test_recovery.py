"""`FileWriter.flush` and `recover`. Kills are in reliability/test_kills_at_calls.py."""

import errno
import os
import random
import signal
import time
from pathlib import Path

import builders
import children
import ffr_twin
import numpy as np
import pytest

from ffrecord import FileReader, FileWriter, FormatError, recover
from ffrecord.format import journal
from ffrecord.format.extension import Extension
from ffrecord.system import atomic_file
from ffrecord.writing import file_writer

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
EXTENSION = Extension(schema={"a": 1}, writer="test")
OLD = ffr_twin.build([b"old"])


def samples(count: int) -> list[bytes]:
    return builders.records([i * 37 % 300 for i in range(count)])


def die(path: Path, n: int | None, flushed: list[bytes], further: list[bytes] = [], **options: object) -> None:  # noqa: B006
    """A child that flushes, writes on and is killed."""
    child = os.fork()
    if child == 0:
        try:
            opened = FileWriter(path, n, **options)
            opened.write_many(flushed)
            opened.flush()
            opened.write_many(further)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def names(directory: Path, suffix: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(suffix))


# Flushing


@pytest.mark.parametrize("n", [500, None])
@pytest.mark.parametrize("extension", [None, EXTENSION], ids=["plain", "extension"])
@pytest.mark.parametrize("every", [25, 499, 500])
def test_flushing_changes_no_bytes(tmp_path, n, extension, every):
    given = samples(500)
    for name, flushes in (("a.ffr", True), ("b.ffr", False)):
        with FileWriter(tmp_path / name, n, extension=extension) as opened:
            for i, sample in enumerate(given):
                if flushes and i % every == 0:
                    opened.flush()
                opened.write_one(sample)
    assert (tmp_path / "a.ffr").read_bytes() == (tmp_path / "b.ffr").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.ffr", "b.ffr"]


def test_who_never_flushes_has_no_journal(tmp_path):
    with FileWriter(tmp_path / "a.ffr") as opened:
        opened.write_many(samples(100))
        assert names(tmp_path, ".journal") == []
        opened.flush()
        assert len(names(tmp_path, ".journal")) == 1
        part = (tmp_path / names(tmp_path, ".part")[0]).read_bytes()
        assert part[4096:] == b"".join(samples(100))


def test_nothing_is_left_of_a_flush(tmp_path):
    with pytest.raises(KeyError), FileWriter(tmp_path / "a.ffr") as opened:
        opened.write_one(b"x")
        opened.flush()
        raise KeyError
    assert os.listdir(tmp_path) == []
    opened = FileWriter(tmp_path / "a.ffr", 2)
    opened.write_one(b"x")
    opened.flush()
    with pytest.warns(ResourceWarning):
        del opened
    assert os.listdir(tmp_path) == []


def test_order_of_steps(tmp_path, monkeypatch):
    """The data is durable before the journal says so, and both names after that."""
    log = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (log.append(os.readlink(f"/proc/self/fd/{fd}")[-8:]), real(fd))[1])
    with FileWriter(tmp_path / "a.ffr") as opened:
        for _ in range(2):
            opened.write_one(b"x")
            opened.flush()
        opened.flush()
        assert [each[-5:] for each in log] == [".part", "urnal", str(tmp_path)[-5:], ".part", "urnal"]


@pytest.mark.parametrize("failing", ["fsync", "write_all"])
def test_a_failing_flush_is_final(tmp_path, monkeypatch, failing):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "x")

    opened = FileWriter(tmp_path / "a.ffr", 2)
    opened.write_one(b"x")
    opened.flush()
    opened.write_one(b"y")
    with monkeypatch.context() as patch:
        patch.setattr(os if failing == "fsync" else journal, failing, fail)
        with pytest.raises(RuntimeError, match=r"a\.ffr: flushing 2 samples") as caught:
            opened.flush()
    assert (isinstance(caught.value, OSError), caught.value.errno) == (True, errno.EIO)
    for call in (opened.flush, opened.close):
        with pytest.raises(OSError, match="flushing 2 samples"):
            call()
    assert os.listdir(tmp_path) == []


# Recovering


@pytest.mark.parametrize("extension", [None, EXTENSION], ids=["plain", "extension"])
@pytest.mark.parametrize("count", [0, 1, 9, 600])
@pytest.mark.parametrize("n", [None, 0, 1, 2, 3, 4, 5, 100, 6_000_000], ids=lambda n: f"n+{n}")
def test_recovered(tmp_path, n, count, extension):
    """Every flushed sample, and no other: with fewer than n, with all of them, with n unknown."""
    path, given = tmp_path / "a.ffr", samples(count)
    total = None if n is None else n + count
    further = [b"more" * 100_000] if n is None or n else []
    die(path, total, given, further, extension=extension)
    found = recover(path)
    assert found == (str(path), count, sum(map(len, given)), 0, 0)
    assert os.listdir(tmp_path) == ["a.ffr"]
    assert ffr_twin.parse(path.read_bytes()) == given
    with FileReader(path) as reader:
        assert builders.read_all(reader) == given
        assert reader.extension == (extension if extension else reader.extension)
    if not n:
        with FileWriter(tmp_path / "b.ffr", total, extension=extension) as opened:
            opened.write_many(given)
        assert path.read_bytes() == (tmp_path / "b.ffr").read_bytes()


def test_what_is_behind_the_last_flush_is_counted(tmp_path):
    die(tmp_path / "a.ffr", None, [b"flushed"], [bytes(10 << 20)])
    found = recover(tmp_path / "a.ffr")
    assert (found.samples, found.bytes, found.damaged) == (1, 7, 0)
    assert 0 < found.dropped <= 10 << 20
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"flushed"]


def test_there_is_a_file_already(tmp_path):
    """It stays, unless it is to be replaced; so does what was left."""
    path = tmp_path / "a.ffr"
    path.write_bytes(OLD)
    path.chmod(0o640)
    die(path, 3, [b"x"])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(FileExistsError, match=r"a\.ffr already exists; pass replace=True") as caught:
        recover(path)
    assert isinstance(caught.value, RuntimeError)
    assert (path.read_bytes(), sorted(os.listdir(tmp_path))) == (OLD, before)
    assert recover(path, replace=True).samples == 1
    assert ffr_twin.parse(path.read_bytes()) == [b"x"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_by_the_name_of_the_part_file(tmp_path, monkeypatch):
    """And it may have been moved, as long as its journal is beside it."""
    die(tmp_path / "a.ffr", 3, [b"x"])
    (tmp_path / "elsewhere").mkdir()
    for name in os.listdir(tmp_path):
        if name.startswith(".a.ffr"):
            (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert recover(names(tmp_path / "elsewhere", ".part")[0]).samples == 1
    assert os.listdir(tmp_path / "elsewhere") == ["a.ffr"]


@pytest.mark.parametrize("where", ["link", "relative", "long"])
def test_names(tmp_path, monkeypatch, where):
    path = tmp_path / ("x" * 251 if where == "long" else "a")
    path = path.with_name(path.name + ".ffr")
    if where == "link":
        (tmp_path / "link.ffr").symlink_to(path)
        path = tmp_path / "link.ffr"
    if where == "relative":
        monkeypatch.chdir(tmp_path)
        path = Path("a.ffr")
    die(path, None, [b"x"])
    if where == "long":
        die(path.with_name("x" * 250 + ".ffr"), None, [b"another"])
    recover(path)
    assert ffr_twin.parse(path.read_bytes()) == [b"x"]


def test_several_writers_left_something(tmp_path):
    path = tmp_path / "a.ffr"
    die(path, None, [b"x"])
    die(path, None, [b"y"])
    parts = names(tmp_path, ".part")
    with pytest.raises(OSError, match="several killed writers") as caught:
        recover(path)
    assert caught.value.errno == errno.EINVAL
    assert all(part in str(caught.value) for part in parts)
    assert recover(tmp_path / parts[0]).samples == 1
    assert names(tmp_path, ".part") == parts[1:]


def test_nothing_was_flushed(tmp_path):
    """What dead writers of this file left is removed; what is of others stays."""
    others = {".a.ffr.part", ".a.ffr.0123456789ab.partly", ".b.ffr.0123456789ab.part", ".a.ffr.0123456789AB.part"}
    of_dead_writers = {".a.ffr.0123456789ad.part", ".a.ffr.0123456789ae.part", ".a.ffr.0123456789ae.journal"}
    for name in {*others, *of_dead_writers, ".a.ffr.0123456789af.journal"}:
        (tmp_path / name).touch()
    (tmp_path / ".a.ffr.0123456789ac.part").mkdir()
    with pytest.raises(FileNotFoundError, match="left anything that was flushed") as caught:
        recover(tmp_path / "a.ffr")
    assert isinstance(caught.value, RuntimeError)
    assert set(os.listdir(tmp_path)) == {*others, ".a.ffr.0123456789ac.part"}
    with pytest.raises(FileNotFoundError, match="no journal beside it"):
        recover(tmp_path / ".a.ffr.part")
    with FileWriter(tmp_path / "a.ffr") as writer:
        writer.write_one(b"a")
    with pytest.raises(FileNotFoundError, match=r"was flushed: .*; the file there is finished"):
        recover(tmp_path / "a.ffr")


def test_what_stays_of_killed_writers(tmp_path):
    """A later writer leaves it alone, and readers do not open it; `recover` never clears away what was flushed."""
    path = tmp_path / "a.ffr"
    for _ in range(2):
        assert children.in_child(lambda: (FileWriter(path), os.kill(os.getpid(), signal.SIGKILL))) < 0
    die(path, None, samples(5))
    with FileWriter(path) as opened:
        opened.write_many(samples(9))
    (kept,) = names(tmp_path, ".journal")
    parts = names(tmp_path, ".part")
    assert len(parts) == 3 and len(os.listdir(tmp_path)) == 5
    with pytest.raises(FileExistsError):
        recover(path)
    assert names(tmp_path, ".part") == parts and names(tmp_path, ".journal") == [kept]
    with FileReader(tmp_path) as reader:
        assert builders.read_all(reader) == samples(9)
    (tmp_path / kept).with_suffix(".part").unlink()
    with pytest.raises(FileNotFoundError):
        recover(path)
    assert os.listdir(tmp_path) == ["a.ffr"]


def renamed(directory: Path, name: str) -> Path:
    """The part file of a dead writer whose journal says another name."""
    die(directory / "a.ffr", 3, [b"x"])
    part = str(directory / names(directory, ".part")[0])
    noted = journal.read(part)
    os.unlink(journal.journal_name(part))
    made = journal.Journal(part)
    made.note_samples(noted.about._replace(name=name), noted.sizes, noted.checksums)
    made.close()
    return Path(part)


@pytest.mark.parametrize("name", ["../b.ffr", "/{}/b.ffr", "sub/b.ffr", ".bashrc", "", "..", "b\0.ffr", "b.ffr/"])
def test_a_journal_that_names_another_place(tmp_path, name):
    """Whoever passes a journal on does not say where this user's files are overwritten."""
    (tmp_path / "d" / "sub").mkdir(parents=True)
    part = renamed(tmp_path / "d", name.format(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FormatError, match=r"expected a \.ffr file of its directory") as caught:
        recover(part, replace=True)
    assert ".journal: its file is " in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_journal_may_name_another_file_of_its_directory(tmp_path):
    recover(renamed(tmp_path, "b.ffr"))
    assert os.listdir(tmp_path) == ["b.ffr"]


def test_a_link_to_a_file_without_the_suffix(tmp_path):
    """The user names the link, so may have what it leads to."""
    (tmp_path / "a.ffr").symlink_to(tmp_path / "data")
    die(tmp_path / "a.ffr", 3, [b"x"])
    with pytest.raises(FormatError):
        recover(tmp_path / names(tmp_path, ".part")[0])
    assert recover(tmp_path / "a.ffr").path == str(tmp_path / "data")
    assert ffr_twin.parse((tmp_path / "data").read_bytes()) == [b"x"]


# Run again


@pytest.fixture
def interrupted(tmp_path) -> Path:
    """A recovery that had to copy was killed after publishing; its part file and journal are left."""
    path = tmp_path / "a.ffr"
    die(path, 4, samples(3))
    kept = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    recover(path)
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    return path


def test_run_again_beside_its_own_result(tmp_path, interrupted):
    published = interrupted.read_bytes()
    assert recover(interrupted) == (str(interrupted), 3, sum(map(len, samples(3))), 0, 0)
    assert (interrupted.read_bytes(), os.listdir(tmp_path)) == (published, ["a.ffr"])


@pytest.mark.parametrize(
    "other",
    [samples(2), samples(4), [], [b"", b"another", samples(3)[2]], [b"", samples(3)[1] + samples(3)[2], b""], None],
    ids=["fewer", "more", "none", "another", "other sizes", "damaged"],
)
def test_beside_another_file(tmp_path, interrupted, other):
    """It is not taken for the result, not even where only a byte of a sample differs."""
    data = builders.flip(-1)(interrupted.read_bytes()) if other is None else ffr_twin.build(other)
    interrupted.write_bytes(data)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(FileExistsError, match=r"a\.ffr already exists; pass replace=True"):
        recover(interrupted)
    assert (interrupted.read_bytes(), sorted(os.listdir(tmp_path))) == (data, before)


def test_beside_the_beginning_of_what_is_left(tmp_path):
    """A file of the first of the samples is no result of a recovery that finds more."""
    path = tmp_path / "a.ffr"
    path.write_bytes(ffr_twin.build(samples(20)[:13]))
    die(path, 20, samples(20))
    with pytest.raises(FileExistsError, match=r"a\.ffr already exists; pass replace=True"):
        recover(path)
    part = tmp_path / names(tmp_path, ".part")[0]
    data = bytearray(part.read_bytes())
    data[data.index(samples(20)[13]) + 5] ^= 1
    part.write_bytes(data)
    assert recover(path)[1:] == (13, sum(map(len, samples(13))), sum(map(len, samples(20)[13:])), 7)
    assert os.listdir(tmp_path) == ["a.ffr"]


@pytest.mark.parametrize("wrong", [b"a.ffr", 3, None], ids=repr)
def test_wrong_type_of_path(wrong):
    with pytest.raises(TypeError) as caught:
        recover(wrong)
    assert isinstance(caught.value, AssertionError)


# The writer lives


def test_the_writer_lives(tmp_path):
    """In this process, in another, and in a forked child's parent."""
    path = tmp_path / "a.ffr"
    with FileWriter(path) as opened:
        opened.write_one(b"x")
        opened.flush()

        def refused() -> bool:
            kept = sorted(os.listdir(tmp_path))
            with pytest.raises(OSError, match="its writer lives") as caught:
                recover(path)
            return caught.value.errno == errno.EBUSY and sorted(os.listdir(tmp_path)) == kept

        assert refused()
        assert children.in_child(refused) == 0
        assert refused()
        other = FileWriter(path)  # which has flushed nothing, and whose part file is no leftover
        assert refused()
        other.close()
        path.unlink()
        opened.write_one(b"y")
    assert ffr_twin.parse(path.read_bytes()) == [b"x", b"y"]


def test_a_child_of_the_killed_writer_lives(tmp_path):
    """It has copies of the writer's descriptors, and does not keep the lock by them."""
    path = tmp_path / "a.ffr"
    ready, its = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            opened = FileWriter(path)
            opened.write_one(b"x")
            opened.flush()
            grandchild = os.fork()
            if grandchild == 0:
                time.sleep(60)
                os._exit(0)
            os.write(its, grandchild.to_bytes(4, "little"))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    grandchild = int.from_bytes(os.read(ready, 4), "little")
    os.close(ready)
    os.close(its)
    try:
        for _ in range(100):
            try:
                found = recover(path)
                break
            except OSError as error:
                assert error.errno == errno.EBUSY
                time.sleep(0.05)  # until its handler has run
        assert found.samples == 1
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_leftover_that_is_being_removed_is_not_taken_for_new(tmp_path, monkeypatch):
    """Between its making and its locking a new part file looks like a leftover: the writer takes another name."""
    real, taken = atomic_file.lock, []

    def lock(fd, path):
        if not taken:
            taken.append(path)
            os.unlink(path)
        return real(fd, path)

    monkeypatch.setattr(atomic_file, "lock", lock)
    with FileWriter(tmp_path / "a.ffr", 1) as opened:
        opened.write_one(b"x")
    assert taken
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"x"]


def test_file_systems_without_locks(tmp_path, monkeypatch):
    """Writing goes on as ever; whether a leftover's writer lives cannot be told there, so nothing is touched."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(atomic_file.fcntl, "flock", refuse)
    with FileWriter(tmp_path / "a.ffr", 1) as opened:
        opened.write_one(b"x")
    die(tmp_path / "b.ffr", 1, [b"x"])
    kept = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="No locks") as caught:
        recover(tmp_path / "b.ffr")
    assert caught.value.errno == errno.ENOLCK
    assert sorted(os.listdir(tmp_path)) == kept


# Damage


@pytest.mark.parametrize("n", [None, 20])
def test_damaged_samples_end_the_file(tmp_path, n):
    path, given = tmp_path / "a.ffr", samples(20)
    die(path, n, given)
    part = tmp_path / names(tmp_path, ".part")[0]
    data = bytearray(part.read_bytes())
    data[data.index(given[13]) + 5] ^= 1
    part.write_bytes(data)
    found = recover(path)
    assert (found.samples, found.damaged, found.dropped) == (13, 7, sum(map(len, given[13:])))
    assert ffr_twin.parse(path.read_bytes()) == given[:13]
    assert FileReader(path).validate() is None
    assert os.listdir(tmp_path) == ["a.ffr"]


def test_part_file_cut_or_empty(tmp_path):
    for size, count in ((4096 + 37, 2), (4096, 1), (100, 1), (0, 1)):
        path = tmp_path / f"{size}.ffr"
        die(path, None, samples(20))
        part = tmp_path / names(tmp_path, ".part")[0]
        os.truncate(part, size)
        assert recover(path).samples == count  # the first sample is empty, and is always there
        assert ffr_twin.parse(path.read_bytes()) == samples(20)[:count]


def test_journal_cut_anywhere(tmp_path):
    """As far as it goes; within its header no flush has returned."""
    path = tmp_path / "a.ffr"
    given = samples(6)
    die(path, None, given[:2])
    first = (tmp_path / names(tmp_path, ".journal")[0]).stat().st_size
    recover(path)
    child = os.fork()
    if child == 0:
        opened = FileWriter(tmp_path / "b.ffr")
        for part in (given[:2], given[2:]):
            opened.write_many(part)
            opened.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (part, noted) = (tmp_path / name for suffix in (".part", ".journal") for name in names(tmp_path, suffix))
    kept, whole = part.read_bytes(), noted.read_bytes()
    header = first - 16 - 2 * 12
    for size in range(len(whole) + 1):
        part.write_bytes(kept)
        noted.write_bytes(whole[:size])
        if size < header:
            with pytest.raises((FormatError, FileNotFoundError)):
                recover(part)
            continue
        assert recover(part, replace=True).samples == (6 if size == len(whole) else 2 if size >= first else 0)
    assert ffr_twin.parse((tmp_path / "b.ffr").read_bytes()) == given


def test_journal_with_any_byte_flipped(tmp_path):
    """Never a crash, never a wrong sample."""
    die(tmp_path / "a.ffr", 7, samples(6))
    (part, noted) = (tmp_path / name for suffix in (".part", ".journal") for name in names(tmp_path, suffix))
    kept, whole = part.read_bytes(), noted.read_bytes()
    for i in range(len(whole)):
        part.write_bytes(kept)
        noted.write_bytes(builders.flip(8 * i + i % 8)(whole))
        try:
            found = recover(part, replace=True)
        except FormatError:
            continue
        assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == samples(6)[: found.samples]


# Killed at random


def test_moved_before_the_kill(tmp_path, monkeypatch):
    """Killed with the samples where they are to be, and no tables yet; or with the place noted, and nothing moved."""
    given = samples(1000)
    for moves in (True, False):
        path = tmp_path / f"{moves}.ffr"
        child = os.fork()
        if child == 0:
            opened = FileWriter(path)
            opened.write_many(given)
            opened.flush()
            if not moves:
                monkeypatch.setattr(atomic_file, "insert_range", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            monkeypatch.setattr(file_writer, "write_tables", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            opened.close()
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert recover(path).samples == 1000
        assert ffr_twin.parse(path.read_bytes()) == given


def killed_at_random(directory: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    for round_ in range(rounds):
        path = directory / f"{round_}.ffr"
        n = chance.choice([None, 3000])
        given = builders.records([chance.choice([0, 10, 3000, 100_000]) for _ in range(300)] * 10, seed)
        ours, its = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with FileWriter(path, n) as opened:
                    for i, sample in enumerate(given):
                        opened.write_one(sample)
                        if i % 100 == 50:
                            opened.flush()
                            os.write(its, (i + 1).to_bytes(4, "little"))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(its)
        time.sleep(chance.random() * 0.4)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(ours, "rb") as pipe:
            flushed = int.from_bytes(pipe.read()[-4:], "little")
        if path.exists():
            assert ffr_twin.parse(path.read_bytes()) == given
        elif flushed:
            assert flushed <= recover(path).samples <= flushed + 100
            found = ffr_twin.parse(path.read_bytes())
            assert found == given[: len(found)]
        path.unlink(missing_ok=True)


def test_killed_at_random(tmp_path):
    killed_at_random(tmp_path, 4, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_random_for_long(tmp_path):
    killed_at_random(tmp_path, 300, seed=int(np.random.default_rng().integers(2**31)))
