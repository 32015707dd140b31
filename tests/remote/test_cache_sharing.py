"""A cache that others use, fill up, cut or plant things in: what comes out of it is right, or nothing does."""

import logging
import os
import random
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import children
import numpy as np
import pytest
import shards

from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache.cache import Cache

ALICE, BOB, TEAM = 40_001, 40_002, 40_000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that every user can reach."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        (Path(made) / "cache").mkdir()
        yield Path(made) / "cache"


def as_user(user: int, umask: int, work: Callable[[], object]) -> None:
    """Run `work` in a child as somebody of the team; what it asserts must hold."""

    def child() -> bool:
        os.setgroups([])
        os.setgid(TEAM)
        os.setuid(user)
        os.umask(umask)
        work()
        return True

    assert children.in_child(child) == 0


# Users


@as_root
def test_users_of_a_group_share(source: shards.Source, open_directory: Path) -> None:
    os.chown(open_directory, ALICE, TEAM)
    os.chmod(open_directory, 0o2775)

    def alice() -> None:
        source.give(source.in_cache(Cache(open_directory)), [0, 1, 2, 3])

    def bob() -> None:
        cache = Cache(open_directory)
        file = source.in_cache(cache)
        assert source.found(file) == [0, 1, 2, 3]
        source.give(file, [4, 5, 6, 7])
        assert Path(shards.whole(cache, file)).read_bytes() == source.data

    as_user(ALICE, 0o002, alice)
    as_user(BOB, 0o002, bob)
    as_user(ALICE, 0o002, lambda: shards.whole(cache := Cache(open_directory), source.in_cache(cache)))


@as_root
def test_what_is_not_ones_own_is_read_as_it_is(
    source: shards.Source, open_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(open_directory, ALICE, TEAM)
    os.chmod(open_directory, 0o2775)
    as_user(ALICE, 0o022, lambda: source.give(source.in_cache(Cache(open_directory)), [0, 1, 2, 3]))

    def bob() -> None:
        caplog.clear()
        cache = Cache(open_directory)
        file = source.in_cache(cache)
        for _ in range(3):
            source.give(file, [4, 5])
            assert source.found(file) == [0, 1, 2, 3]
        assert len(caplog.records) == 1 and "Permission denied" in caplog.text
        other = source.in_cache(cache, "s3://b/other.ffr")  # his own is another matter
        source.give(other, [4])
        assert source.found(other) == [4]

    as_user(BOB, 0o022, bob)

    def again() -> None:
        file = source.in_cache(Cache(open_directory))
        source.give(file, [4])
        assert source.found(file) == [0, 1, 2, 3, 4]

    as_user(ALICE, 0o022, again)


@as_root
def test_who_completed_what_others_may_not_write(source: shards.Source, open_directory: Path) -> None:
    """Bob sees that all records are there, and cannot make the copy complete: he reads it as it is."""
    os.chown(open_directory, ALICE, TEAM)
    os.chmod(open_directory, 0o2775)

    def alice() -> None:
        cache = Cache(open_directory)
        file = source.in_cache(cache)
        file._frozen = False
        source.give(file, range(7))
        file._seal_at = np.inf  # she is killed before
        source.give(file, [7])

    def bob() -> None:
        cache = Cache(open_directory)
        file = source.in_cache(cache)
        for _ in range(3):
            assert source.found(file) == list(range(8))
            assert shards.settled(cache, shards.PATIENCE)
        assert file.path() is None

    as_user(ALICE, 0o022, alice)
    as_user(BOB, 0o022, bob)


@as_root
def test_where_everybody_may_write_each_has_a_part(source: shards.Source, open_directory: Path) -> None:
    os.chmod(open_directory, 0o1777)

    def first() -> None:
        cache = Cache(open_directory)
        source.give(source.in_cache(cache), [0])
        status = os.stat(cache.directory)
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, ALICE)

    as_user(ALICE, 0o000, first)
    as_user(BOB, 0o000, lambda: shards.nothing(source, Cache(open_directory)))
    as_user(ALICE, 0o000, lambda: shards.some(source, Cache(open_directory), [0]))


@as_root
@pytest.mark.parametrize("kind", ["directory", "file", "link", "writable"])
def test_a_part_that_somebody_else_made(source: shards.Source, open_directory: Path, kind: str) -> None:
    os.chmod(open_directory, 0o1777)
    theirs = open_directory / f"user-{BOB}"

    def plant() -> None:
        if kind == "link":
            theirs.symlink_to(open_directory.parent)
        elif kind == "file":
            theirs.write_text("")
        else:
            theirs.mkdir(mode=0o777)

    as_user(BOB if kind == "writable" else ALICE, 0o000, plant)

    def bob() -> None:
        with pytest.raises(OSError, match=r"cache_dir .*(belongs to another user|is not a directory)"):
            Cache(open_directory)

    as_user(BOB, 0o022, bob)


@as_root
def test_a_directory_that_may_not_be_written(
    source: shards.Source, open_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is there is read; nothing is kept; and that is said once."""
    cache = Cache(open_directory)
    source.give(source.in_cache(cache, "s3://b/whole.ffr"))
    shards.whole(cache, source.in_cache(cache, "s3://b/whole.ffr"))
    source.give(source.in_cache(cache, "s3://b/some.ffr"), [1, 2])
    os.chmod(open_directory, 0o755)

    def bob() -> None:
        caplog.clear()
        cache = Cache(open_directory, "1GB")
        some, none = (source.in_cache(cache, f"s3://b/{name}.ffr") for name in ("some", "none"))
        for _ in range(3):
            source.give(some, [3])
            source.give(none, [3])
            cache.tick()
        assert source.found(some) == [1, 2] and source.found(none) == []
        assert source.found(source.in_cache(cache, "s3://b/whole.ffr")) == list(range(source.n))
        assert len(caplog.records) == 1

    as_user(BOB, 0o022, bob)


# What was planted


@pytest.mark.parametrize("suffix", [".part", ".have", ".ffr"])
@pytest.mark.parametrize("kind", ["link", "broken link", "hard link", "FIFO", "directory"])
def test_what_was_planted_is_not_followed(source: shards.Source, directory: Path, suffix: str, kind: str) -> None:
    victim = directory.parent / "victim"
    victim.write_bytes(before := bytes(source.size))
    cache = Cache(directory)
    file = source.in_cache(cache)
    place = Path(file.stem + suffix)
    if kind == "link":
        place.symlink_to(victim)
    elif kind == "broken link":
        place.symlink_to(directory.parent / "new")
    elif kind == "hard link":
        os.link(victim, place)
    elif kind == "FIFO":
        os.mkfifo(place)
    else:
        place.mkdir()
    for _ in range(2):
        source.give(file)
        assert set(source.found(file)) <= set(range(source.n))
        assert shards.settled(cache, shards.PATIENCE)
    assert victim.read_bytes() == before and not (directory.parent / "new").exists()
    path = file.path()
    assert path is None or Path(path).read_bytes() == source.data


# Damage


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def longer(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 10_000)


def zeros(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(bytes(size))


def ones(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(b"\1" * size)


def noise(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(random.Random(0).randbytes(size))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [cut, empty, longer, zeros, ones, noise, remove])
@pytest.mark.parametrize("suffix", [".part", ".have"])
@pytest.mark.parametrize("again", [False, True], ids=["open", "opened again"])
def test_copies_that_others_damage(
    source: shards.Source,
    directory: Path,
    harm: Callable[[Path], None],
    suffix: str,
    again: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The models of a power cut are among them: what says which records are here was kept and they were not, or they
    were and it was not."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "SEAL_AGAIN_SECONDS", 0.0)
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file, [0, 2, 4, 6])
    assert source.found(file) == [0, 2, 4, 6]
    harm(Path(file.stem + suffix))
    if again:
        cache = Cache(directory)
        file = source.in_cache(cache)
    assert set(source.found(file)) <= {0, 2, 4, 6}
    deadline = time.monotonic() + shards.PATIENCE
    while file.path() is None and time.monotonic() < deadline:
        missing = sorted(set(range(source.n)) - set(source.found(file)))
        source.give(file, missing or [0])
        assert shards.settled(cache, shards.PATIENCE)
    path = file.path()
    assert path is not None and Path(path).read_bytes() == source.data
    assert source.found(file) == list(range(source.n))


# No room

FULL = """
import logging, os, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import children, shards
from ffrecord.remote.cache.cache import Cache
said = []
class Listening(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("ffrecord").addHandler(Listening())
logging.getLogger("ffrecord").propagate = False
place = Path(sys.argv[2])
source = shards.source(place / "source.ffr", [50_000] * 20)
(place / "disk").mkdir()
try:
    children.small_disk(str(place / "disk"), 1_500_000)
except OSError as error:
    print("skipped", error)
    sys.exit()
cache = Cache(place / "disk")
files = [source.in_cache(cache, f"s3://b/{i}.ffr") for i in range(4)]
for epoch in range(2):
    for file in files:
        for i in range(20):
            source.give(file, [i])
    assert shards.settled(cache, 30)
found = [len(source.found(file)) for file in files]
assert found[0] == 20 and 0 < sum(found[1:]) < 20, found
assert files[0].path() is not None and files[1].path() is None
assert len(said) == 1 and "No space left" in said[0] and str(place) in said[0], said
print("done")
"""


def test_a_full_disk_is_said_once(tmp_path: Path) -> None:
    said = children.run(FULL, Path(__file__).parent, tmp_path)
    if said.startswith("skipped"):
        pytest.skip(f"no mounts: {said}")
    assert said == "done\n"


def test_a_limit_of_the_size_of_files(source: shards.Source, directory: Path) -> None:
    """EFBIG, as of a quota: of one shard, and others go on."""

    def child() -> bool:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        logging.getLogger("ffrecord").setLevel(logging.ERROR)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        cache = Cache(directory)
        file = source.in_cache(cache)
        source.give(file)
        return source.found(file) == [] and file.path() is None

    assert children.in_child(child) == 0


# Forks and threads


def test_a_fork_while_threads_store_and_read(source: shards.Source, directory: Path) -> None:
    """Children use the same cache on, whatever their parent's threads held at that moment."""
    cache = Cache(directory, "1GB")
    files = [source.in_cache(cache, f"s3://b/{i}.ffr") for i in range(30)]
    stop = threading.Event()

    def work(seed: int) -> None:
        order = random.Random(seed)
        while not stop.is_set():
            file = order.choice(files)
            source.give(file, [order.randrange(source.n)])
            source.found(file)

    def child() -> bool:
        for file in files:
            source.give(file)
            assert source.found(file) == list(range(source.n))
        return shards.settled(cache, shards.PATIENCE)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert children.in_child(child) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    cache.close()


CROWD = """
import os, random, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import shards
from ffrecord.remote.cache.cache import Cache
place, directory, seed, seconds = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
chance = random.Random(seed)
sources = [shards.source(place / f"{seed}-{i}.ffr", [3000 * j for j in range(12)], seed=i) for i in range(8)]
end = time.monotonic() + seconds
turns = hits = 0
while time.monotonic() < end:
    cache = Cache(directory, chance.choice([None, 300_000, 900_000]))
    chosen = chance.sample(range(8), 3)
    files = [(sources[i], sources[i].in_cache(cache, f"s3://b/{i}.ffr")) for i in chosen]
    for _ in range(20):
        source, file = chance.choice(files)
        source.give(file, chance.sample(range(source.n), 4))
        hits += len(source.found(file))
        path = file.path()
        if path is not None:
            try:
                data = Path(path).read_bytes()
            except FileNotFoundError:
                file.drop()
            else:
                assert data == source.data
        turns += 1
    if chance.random() < 0.2:
        for name in os.listdir(directory):
            when = time.time() - chance.choice([0, 1000])
            try:
                os.utime(os.path.join(directory, name), (when, when))
            except FileNotFoundError:
                pass
    cache.close()
print(turns > 0 and hits > 0)
"""


@pytest.mark.parametrize("seconds", [0.7, pytest.param(60, marks=pytest.mark.long)])
def test_a_crowd(tmp_path: Path, directory: Path, seconds: float) -> None:
    """Processes that fill, complete, read and evict copies of the same shards."""
    directory.mkdir()
    arguments = [(Path(__file__).parent, tmp_path, directory, seed, seconds) for seed in range(3)]
    with (
        children.started(CROWD, *arguments[0]) as a,
        children.started(CROWD, *arguments[1]) as b,
        children.started(CROWD, *arguments[2]) as c,
    ):
        for child in (a, b, c):
            out, errors = child.communicate(timeout=seconds + 60)
            assert (out, errors) == ("True\n", "")
