"""How much a cache may hold, and what is removed to make room."""

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any

import children
import pytest
import shards
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import ArgumentTypeError
from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache import eviction
from ffrecord.remote.cache.cache import Cache
from ffrecord.remote.cache.names import CopyOnDisk, list_copies

PAGE = 4096
SIZES = [100_000] * 10  # 1 MB a shard


@pytest.mark.parametrize("limit", [1.5, True, b"1GB", ["1GB"]])
def test_other_types_are_no_limit(tmp_path: Path, limit: object) -> None:
    with pytest.raises(ArgumentTypeError, match=r"cache_limit is .*, expected an int or a str"):
        Cache(tmp_path / "cache", limit)  # type: ignore[arg-type]
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def source(tmp_path: Path) -> shards.Source:
    return shards.source(tmp_path / "source.ffr", SIZES)


def filled(cache: Cache, source: shards.Source, names: str) -> list[int]:
    """Store all records of as many shards as there are names; how many each has then."""
    files = [source.in_cache(cache, f"s3://b/{name}.ffr") for name in names]
    for file in files:
        for i in range(source.n):
            source.give(file, [i])
    assert shards.settled(cache, shards.PATIENCE)
    return [len(source.found(file)) for file in files]


def aged(directory: Path) -> None:
    """As if nothing there had been used for a day, in the order of names."""
    for age, name in enumerate(sorted(os.listdir(directory), reverse=True)):
        then = time.time() - 86400 - age
        os.utime(directory / name, (then, then))


def used(directory: Path) -> int:
    return sum(each.bytes for each in list_copies(str(directory)))


def stems(directory: Path) -> list[str]:
    return sorted({Path(each.stem).name[0] for each in list_copies(str(directory))})


def test_a_dataset_larger_than_the_limit(source: shards.Source, directory: Path) -> None:
    """What has no room is left out, and what is there stays: the next epoch finds as much as there is room for."""
    cache = Cache(directory, 2_500_000)
    found = filled(cache, source, "abcdef")
    assert found[:2] == [10, 10] and found[3:] == [0, 0, 0]
    assert 2_300_000 < used(directory) <= 2_500_000
    assert filled(cache, source, "abcdef") == found
    cache.close()
    again = Cache(directory, 2_500_000)
    files = [source.in_cache(again, f"s3://b/{name}.ffr") for name in "fedcba"]
    for file in files:  # of which the first are not here, and make no room for themselves
        source.give(file, [0])
    assert [len(source.found(file)) for file in files] == found[::-1]


def test_what_others_left_longest_ago_goes_first(source: shards.Source, directory: Path) -> None:
    first = Cache(directory)
    assert filled(first, source, "abcd") == [10] * 4
    assert shards.settled(first, shards.PATIENCE)
    first.close()
    aged(directory)
    cache = Cache(directory, 4_500_000)
    assert filled(cache, source, "c") == [10]  # is used again
    assert filled(cache, source, "xy") == [10, 10]
    assert stems(directory) == ["b", "c", "x", "y"] or stems(directory) == ["c", "d", "x", "y"]
    assert used(directory) <= 4_500_000


def test_what_is_in_use_stays(source: shards.Source, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two readers of different datasets, the second finds no room where the first still reads."""
    monkeypatch.setattr(module, "STAMP_SECONDS", 0.0)
    first = Cache(directory, 2_200_000)
    file = source.in_cache(first, "s3://b/a.ffr")
    source.give(file)
    assert shards.settled(first, shards.PATIENCE)
    aged(directory)
    second = Cache(directory, 2_200_000)
    first.tick()  # in use: the copy is complete, so the reader does not come here to read
    assert sum(filled(second, source, "xyz")) <= 12
    assert source.found(file) == list(range(source.n)) and stems(directory)[0] == "a"


def test_a_copy_that_is_made_complete_while_sizes_are_added_up(
    source: shards.Source, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is counted, though a file of the name that was listed is not there any more."""
    file = source.in_cache(Cache(directory))
    source.give(file, range(9))
    expected = used(directory)
    lstat = os.lstat

    def renamed(path: str, **options: Any) -> os.stat_result:
        if os.path.exists(file.stem + ".part"):
            os.rename(file.stem + ".part", file.stem + ".ffr")
        return lstat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", renamed)
        assert used(directory) == expected
    assert sorted(shards.names(directory)) == [".ffr", ".have"]
    os.link(file.stem + ".ffr", file.stem + ".part")  # as seen by who looks at both while it is renamed
    assert used(directory) == expected > 900_000


def test_a_copy_evicted_while_it_is_open(source: shards.Source, directory: Path) -> None:
    first = Cache(directory)
    file = source.in_cache(first, "s3://b/a.ffr")
    source.give(file)
    path = shards.whole(first, file)
    assert source.found(file) == list(range(10))
    aged(directory)
    second = Cache(directory, 1_100_000)
    assert filled(second, source, "x") == [10]
    assert not os.path.exists(path)
    assert source.found(file) == list(range(10))  # by what is open
    file.close()
    assert source.found(file) == [] and file.needs_tables and file.path() is None
    source.give(file, [3])  # without a limit of its own
    assert source.found(file) == [3]


def test_an_unfinished_copy_evicted_while_it_is_filled(source: shards.Source, directory: Path) -> None:
    first = Cache(directory)
    file = source.in_cache(first, "s3://b/a.ffr")
    source.give(file, range(9))
    aged(directory)
    assert filled(Cache(directory, 1_000_000 + 4 * PAGE), source, "x")[0] >= 9
    assert stems(directory) == ["x"]
    source.give(file, [9])  # into nothing
    assert stems(directory) == ["x"]
    source.give(file, [1])
    assert source.found(file) == [1]


def test_a_disk_that_takes_no_stamps_is_read(
    source: shards.Source, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache, "s3://b/a.ffr")
    source.give(file, [1, 2])

    def refuse(*arguments: object) -> None:
        asked.append(arguments)
        raise OSError(errno.EROFS, "Read-only file system")

    asked: list[object] = []
    monkeypatch.setattr(os, "utime", refuse)
    file._stamp(float("inf"))
    assert asked and source.found(file) == [1, 2]


def test_a_copy_that_is_being_completed_stays(source: shards.Source, directory: Path) -> None:
    first = Cache(directory)
    file = source.in_cache(first, "s3://b/a.ffr")
    source.give(file, range(9))
    aged(directory)
    with open(file.stem + ".part", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert filled(Cache(directory, 1_100_000), source, "x")[0] <= 2
        assert source.found(file) == list(range(9)) and "a" in stems(directory)
    aged(directory)
    assert filled(Cache(directory, 1_100_000), source, "x") == [10]
    assert "a" not in stems(directory)


def test_only_one_process_makes_room(source: shards.Source, directory: Path) -> None:
    assert filled(Cache(directory), source, "a") == [10]
    aged(directory)
    with eviction.evicting(str(directory)) as alone:
        assert alone
        with eviction.evicting(str(directory)) as second:
            assert not second
        cache = Cache(directory, 1_100_000)
        assert filled(cache, source, "x")[0] <= 1 and "a" in stems(directory)
    cache._room._again = 0.0  # it looks again after a while
    assert filled(cache, source, "x") == [10]


def test_a_forked_child_does_not_keep_the_lock(directory: Path) -> None:
    directory.mkdir()

    def child() -> bool:
        with eviction.evicting(str(directory)) as alone:
            return not alone

    with eviction.evicting(str(directory)) as alone:
        assert alone and children.in_child(child) == 0
        waiting = children.begin(lambda: time.sleep(30))
    try:
        deadline = time.monotonic() + 10  # it gives the lock up as soon as it runs
        again = False
        while not again and time.monotonic() < deadline:
            with eviction.evicting(str(directory)) as again:
                pass
        assert again
    finally:
        os.kill(waiting, 9)
        os.waitpid(waiting, 0)


def test_what_is_not_of_the_cache_stays(source: shards.Source, directory: Path) -> None:
    directory.mkdir()
    for name in ("notes.txt", "shard-0.ffr", ".hidden", "a.0123456789abcdef0123456789abcdef.txt"):
        (directory / name).write_bytes(bytes(2_000_000))
    (directory / ("b." + "0" * 32 + ".ffr")).mkdir()
    aged(directory)
    assert filled(Cache(directory, 1_100_000), source, "xy") == [10, 0]
    assert {"notes.txt", "shard-0.ffr", ".hidden", "b." + "0" * 32 + ".ffr"} < set(os.listdir(directory))


def test_what_is_left_of_a_copy_is_removed_with_it(source: shards.Source, directory: Path) -> None:
    """Of one whose removal, or beginning, was interrupted."""
    directory.mkdir()
    for suffix in ("have", "part", "ffr"):
        (directory / f"a.{'0' * 32}.{suffix}").write_bytes(bytes(400_000))
    aged(directory)
    assert filled(Cache(directory, 1_100_000), source, "x") == [10]
    assert stems(directory) == ["x"]


def test_tables_count_too(tmp_path: Path, directory: Path) -> None:
    source = shards.source(tmp_path / "many.ffr", [1] * 10_000)  # 120 kB of tables
    cache = Cache(directory, 250_000)
    files = [source.in_cache(cache, f"s3://b/{i}.ffr") for i in range(5)]
    for file in files:
        source.give(file, [0])
    assert [len(source.found(file)) for file in files] == [1, 1, 0, 0, 0]
    assert used(directory) <= 250_000 + 2 * 2 * PAGE  # the last page of each file


SHARED = """
import sys, numpy as np
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import shards
from ffrecord.remote.cache import eviction as cache_room
from ffrecord.remote.cache.cache import Cache
cache_room.LEAST = 100_000  # at once
place, directory, number = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
source = shards.source(place / f"{number}.ffr", [100_000] * 10)
cache = Cache(directory, 6_000_000)
sys.stdin.readline()
for shard in range(4):
    file = source.in_cache(cache, f"s3://b/{number}-{shard}.ffr")
    for i in range(10):
        source.give(file, [i])
        source.found(file)
print("done", flush=True)
"""


def test_processes_keep_to_the_limit_together(tmp_path: Path, directory: Path) -> None:
    """Each of three would fill two thirds of it."""
    here = str(Path(__file__).parent)
    with (
        children.started(SHARED, here, tmp_path, directory, 0) as a,
        children.started(SHARED, here, tmp_path, directory, 1) as b,
        children.started(SHARED, here, tmp_path, directory, 2) as c,
    ):
        for child in (a, b, c):
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for child in (a, b, c):
            assert child.stdout is not None and child.stderr is not None
            assert child.stdout.readline() == "done\n", child.stderr.read()
    # More by what each took at once.
    assert 5_800_000 < used(directory) < 6_000_000 + 3 * 110_000
    cache = Cache(directory, 6_000_000)
    assert cache.take(1) <= 1


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**8))
def test_no_more_is_given_than_is_free(
    tmp_path_factory: pytest.TempPathFactory, limit: int, there: int, size: int
) -> None:
    room = eviction.Room("/nowhere", limit, set)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eviction, "list_copies", lambda _: [CopyOnDisk("/nowhere/other", there, time.time_ns() + 10**12)])
        given = room.take(size)
        assert 0 <= given <= min(size, max(0, limit - there))
        assert given == size or given >= max(0, limit - there)


def test_a_batch_is_stored_as_far_as_there_is_room(source: shards.Source, directory: Path) -> None:
    file = source.in_cache(cache := Cache(directory, 700_000))
    source.give(file)
    found = source.found(file)
    assert found == list(range(len(found))) and 5 <= len(found) <= 6
    cache.close()
