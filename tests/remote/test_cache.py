"""Copies of remote shards: what is stored comes back, right or not at all; complete ones are files like any other."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import builders
import numpy as np
import pytest
import shards
from children import descriptors
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import FileReader, FileWriter
from ffrecord.errors import ArgumentError, NotAFolderError
from ffrecord.format.extension import Extension
from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache.cache import Cache


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at now and then is looked at each time."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "STAMP_SECONDS", 0.0)


def test_what_is_stored_comes_back(source: shards.Source, directory: Path) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    assert file.tables() is None and file.needs_tables
    assert source.found(file) == []
    source.give(file, [6, 2, 2, 1])
    assert not file.needs_tables and file.tables() == source.tables
    assert source.found(file) == [1, 2, 6]
    assert source.found(source.in_cache(Cache(directory))) == [1, 2, 6]
    assert file.path() is None and shards.names(directory) == [".have", ".part"]
    assert (cache.counted["stored"], cache.counted["read"]) == (3, 3)


def test_records_are_in_memory_of_their_own(source: shards.Source, directory: Path) -> None:
    file = source.in_cache(Cache(directory))
    source.give(file, [4])
    first, second = file.read(np.array([4, 4]))
    assert first is not None and second is not None
    first[:] = 0
    assert second.tobytes() == source.samples[4]
    assert source.found(file) == [4]


@given(st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=12), max_size=12))
def test_a_dict_judges_it(tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]) -> None:
    """Batches of any indices, stored and read, through two caches in turns."""
    place = tmp_path_factory.mktemp("dict")
    source = shards.source(place / "source.ffr", [1 + i * 37 % 400 for i in range(40)])
    caches = [Cache(place / "cache"), Cache(place / "cache")]
    files = [source.in_cache(cache) for cache in caches]
    stored: set[int] = set()
    for turn, batch in enumerate(batches):
        source.give(files[turn % 2], batch)
        stored.update(batch)
        records = files[1 - turn % 2].read(np.array(batch))
        assert [record.tobytes() for record in records if record is not None] == [source.samples[i] for i in batch]
    assert source.found(files[0]) == sorted(stored)
    for cache in caches:
        cache.close()


def test_a_complete_copy_is_the_shard(source: shards.Source, directory: Path) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file, [0, 1, 2, 3])
    assert cache.changes == 0 and cache.complete() == []
    source.give(file, [4, 5, 6, 7])
    path = shards.whole(cache, file)
    assert Path(path).read_bytes() == source.data
    assert (cache.changes, cache.complete()) == (1, [0])
    assert source.found(file) == list(range(source.n)) and file.tables() == source.tables
    assert shards.names(directory) == [".ffr", ".have"]
    with FileReader(path) as reader:
        assert builders.read_all(reader) == source.samples
    # Who comes later finds it at once.
    again = Cache(directory)
    there = source.in_cache(again)
    assert again.complete() == [0] and there.path() == path


def test_all_shards_together(tmp_path: Path, directory: Path) -> None:
    """Several are complete one after the other; one is then gone."""
    cache = Cache(directory)
    sources = [shards.source(tmp_path / f"{i}.ffr", [100 + i, 200], seed=i) for i in range(3)]
    files = [each.in_cache(cache, f"s3://bucket/{i}.ffr") for i, each in enumerate(sources)]
    for i in (2, 0, 1):
        sources[i].give(files[i])
        shards.whole(cache, files[i])
    assert cache.complete() == [0, 1, 2]
    files[1].drop()
    assert cache.complete() == [0, 2] and files[1].path() is None
    sources[1].give(files[1])
    shards.whole(cache, files[1])
    assert cache.complete() == [0, 1, 2]


def test_what_another_process_completed(source: shards.Source, directory: Path, soon: None) -> None:
    mine, others = Cache(directory), Cache(directory)
    file = source.in_cache(mine)
    source.give(file, [0])
    other = source.in_cache(others)
    source.give(other)
    shards.whole(others, other)
    assert source.found(file) == list(range(source.n))  # through what is open
    mine.tick()
    assert mine.changes == 1 and file.path() == other.path()


def test_tables_of_a_copy_that_another_process_completes(tmp_path: Path, directory: Path) -> None:
    """They are read though the file has another name by now."""
    path = str(tmp_path / "typed.ffr")
    with FileWriter(path, 1, extension=Extension(schema={"x": 1})) as writer:
        writer.write_one(b"sample")
    source = shards.of_file(path, [b"sample"])
    mine, others = Cache(directory), Cache(directory)
    file, other = source.in_cache(mine), source.in_cache(others)
    file.store_tables(source.tables)
    assert file.tables() == source.tables
    source.give(other)
    shards.whole(others, other)
    assert file.tables() == source.tables


def test_extension_blocks_belong_to_the_tables(tmp_path: Path, directory: Path) -> None:
    path = str(tmp_path / "typed.ffr")
    samples = builders.records([10, 20, 30])
    with FileWriter(path, 3, extension=Extension(schema={"x": 1}, writer="me")) as writer:
        for sample in samples:
            writer.write_one(sample)
    source = shards.of_file(path, samples)
    assert source.data_start > 12 + 3 * 12
    cache = Cache(directory)
    file = source.in_cache(cache)
    with pytest.raises(ArgumentError, match="the tables have 48 bytes, expected"):
        file.store_tables(source.data[:48])
    source.give(file)
    assert file.tables() == source.tables
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]], ids=["no samples", "an empty sample", "empty samples"])
def test_shards_without_bytes(tmp_path: Path, directory: Path, sizes: list[int]) -> None:
    source = shards.source(tmp_path / "empty.ffr", sizes)
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file)
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


def test_records_without_bytes_are_there_as_soon_as_the_tables_are(tmp_path: Path, directory: Path) -> None:
    """Nobody fetches them, so nobody stores them."""
    source = shards.source(tmp_path / "some.ffr", [0, 5, 0, 0, 7, 0])
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file, [4])
    assert source.found(file) == [0, 2, 3, 4, 5]
    source.give(file, [1])
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


def test_old_files_without_checksum_are_not_cached(source: shards.Source, directory: Path) -> None:
    file = source._replace(crc=0).in_cache(Cache(directory))
    source.give(file)
    file.store_tables(source.tables)
    assert not file.needs_tables and file.tables() is None and source.found(file) == [] and file.path() is None
    assert os.listdir(directory) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:11], "the tables have 11 bytes"),
        (lambda data: data + b"x", "expected 108"),
        (builders.flip(8 * 3), "CRC-32"),
        (builders.flip(8 * 90), "CRC-32"),
        (builders.flip(8 * 50), "the tables have 108 bytes, expected [0-9]{4,}"),
        (builders.flip(8 * 5), "tables of"),
    ],
)
def test_wrong_tables_are_refused(source: shards.Source, directory: Path, damage: builders.Damage, said: str) -> None:
    file = source.in_cache(Cache(directory))
    with pytest.raises(ArgumentError, match=said):
        file.store_tables(damage(source.tables))
    assert file.needs_tables and os.listdir(directory) == []


def test_records_of_another_size_touch_nothing(source: shards.Source, directory: Path) -> None:
    file = source.in_cache(Cache(directory))
    source.give(file, [0, 2, 3])
    file.store(np.array([2]), [b"x" * 5001])
    file.store(np.array([0, 2]), [source.samples[0], b""])
    assert source.found(file) == [0, 2, 3]


def test_wrong_bytes_never_come_back(source: shards.Source, directory: Path) -> None:
    """Stored by who did not compare them; the copy is complete only when they are right."""
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file, [0, 1, 2, 3, 5, 6, 7])
    file.store(np.array([4]), [bytes(70_000)])
    assert shards.settled(cache, shards.PATIENCE) and file.path() is None
    assert source.found(file) == [0, 1, 2, 3, 5, 6, 7]
    file._seal_at = 0.0  # it is tried again later
    source.give(file, [4])
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


def test_shards_of_one_name_are_told_apart(tmp_path: Path, directory: Path) -> None:
    cache = Cache(directory)
    one, other = (shards.source(tmp_path / f"{i}.ffr", [50, 60], seed=i) for i in range(2))
    here, there = one.in_cache(cache, "s3://a/x/shard-0.ffr"), one.in_cache(cache, "s3://a/y/shard-0.ffr")
    replaced = other.in_cache(cache, "s3://a/x/shard-0.ffr")
    assert len({here.stem, there.stem, replaced.stem}) == 3
    one.give(here)
    assert (other.found(replaced), one.found(there)) == ([], [])
    other.give(replaced)
    assert one.found(here) == other.found(replaced) == [0, 1]
    cache.close()


@pytest.mark.parametrize("name", ["s3://b/" + "ä" * 300 + ".ffr", "x://h/..", "https://h/a b%20*?.ffr", ""])
def test_any_url_makes_a_name(source: shards.Source, directory: Path, name: str) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache, name)
    source.give(file)
    path = shards.whole(cache, file)
    assert os.path.dirname(path) == str(directory) and os.path.basename(path).isascii()


def test_a_copy_that_is_gone_is_begun_anew(source: shards.Source, directory: Path, soon: None) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file, [0, 2])
    for name in os.listdir(directory):
        (directory / name).unlink()
    records = file.read(np.array([0, 2]))  # of the file that is still open
    assert [None if record is None else record.tobytes() for record in records] == [
        source.samples[0],
        source.samples[2],
    ]
    assert file.needs_tables  # which it noticed
    source.give(file, [3])
    assert source.found(file) == [3]


def test_a_complete_copy_that_is_gone(source: shards.Source, directory: Path, soon: None) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file)
    path = shards.whole(cache, file)
    with FileReader(path) as reader:
        for name in os.listdir(directory):
            (directory / name).unlink()
        assert builders.read_all(reader) == source.samples
    before = cache.changes
    cache.tick()
    assert cache.changes == before + 1 and file.path() is None and source.found(file) == []
    source.give(file)
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


def test_a_damaged_complete_copy_is_dropped(source: shards.Source, directory: Path) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file)
    path = Path(shards.whole(cache, file))
    builders.write(path, builders.flip(-8)(source.data))
    assert source.found(file) == list(range(source.n - 1))
    file.drop()
    assert file.path() is None and os.listdir(directory) == []
    source.give(file)
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


@pytest.mark.parametrize(
    "damage", [builders.flip(8 * 20), lambda data: data[:-1], lambda data: b"", lambda data: bytes(len(data))]
)
def test_a_complete_copy_with_wrong_tables_is_begun_anew(
    source: shards.Source, directory: Path, damage: builders.Damage
) -> None:
    cache = Cache(directory)
    file = source.in_cache(cache)
    source.give(file)
    builders.write(Path(shards.whole(cache, file)), damage(source.data))
    assert source.found(file) == [] and file.needs_tables
    source.give(file)
    assert Path(shards.whole(cache, file)).read_bytes() == source.data


def test_few_copies_are_open_at_a_time(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(directory)
    monkeypatch.setattr(cache, "_open_most", 4)
    source = shards.source(tmp_path / "source.ffr", [10, 20, 30])
    files = [source.in_cache(cache, f"s3://b/{i}.ffr") for i in range(20)]
    for file in files:
        source.give(file, [0, 1])
    assert all(source.found(file) == [0, 1] for file in files)
    gc.collect()
    assert sum(str(directory) in target for target in descriptors().values()) <= 4
    cache.close()
    gc.collect()
    assert not any(str(directory) in target for target in descriptors().values())
    assert source.found(files[0]) == [] and files[0].tables() is None


def test_the_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotAFolderError, match=r"cache_dir .* is not a directory"):
            Cache(place)


def test_closing_does_not_wait_for_all_that_is_to_be_done(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes as long as it is let."""
    begun: list[str] = []

    def endless(stem: str, facts: object, stop: Callable[[], bool]) -> bool:
        begun.append(stem)
        while not stop():
            time.sleep(0.001)
        return False

    cache = Cache(directory)
    source = shards.source(tmp_path / "source.ffr", [1000] * 50)
    files = [source.in_cache(cache, f"s3://b/{i}.ffr") for i in range(20)]
    monkeypatch.setattr(module, "seal", endless)
    for file in files:
        source.give(file)
    cache.close()
    assert len(begun) <= 1
    monkeypatch.undo()
    # The next one goes on with what was left.
    again = Cache(directory)
    files = [source.in_cache(again, f"s3://b/{i}.ffr") for i in range(20)]
    assert all(source.found(file) == list(range(50)) for file in files)
    assert shards.settled(again, shards.PATIENCE) and again.complete() == list(range(20))
