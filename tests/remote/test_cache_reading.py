"""Readers of URLs with a cache: what is there is not asked for, by no process of the machine, and is right."""

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import builders
import children
import numpy as np
import pytest
import remote_datasets
import shards
from servers import Nginx, faulty, nginx

from ffrecord import FileReader
from ffrecord.errors import FormatError
from ffrecord.format import ffr_layout
from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache.names import list_copies

pytest.importorskip("obstore", reason="obstore is not installed")
DATA = remote_datasets.samples()
BYTES = sum(map(len, DATA))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("root")
    remote_datasets.write_dataset(directory / "set", DATA)
    return directory


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(root, directory=tmp_path_factory.mktemp("served") / "nginx") as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(served: Nginx, cache: Path, **options: object) -> FileReader:
    return FileReader(f"{served.url}/set", cache_dir=cache, **options)  # type: ignore[arg-type]


def epoch(reader: FileReader, seed: int = 0, batch: int = 16) -> None:
    """Read everything once, in some order."""
    order = np.random.default_rng(seed).permutation(len(DATA))
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch].tolist()
        assert [array.tobytes() for array in reader.read(chosen)] == [DATA[i] for i in chosen]


def settled(reader: FileReader) -> None:
    """Wait until copies with all records are complete ones."""
    assert shards.settled(reader._engine._cached._cache, shards.PATIENCE)


def test_a_second_epoch_makes_no_request(root: Path, served: Nginx, cache: Path) -> None:
    with opened(served, cache) as reader:
        epoch(reader, 0)
        with served.counted() as requests:
            epoch(reader, 1)
        assert requests == []
        settled(reader)
        before = reader.stats()
        epoch(reader, 2)
        after = reader.stats()
        assert len(after.engines) == 2 and len(before.engines) >= 1  # the local engine has come in
        assert (after.requests, after.records - before.records) == (before.requests, len(DATA))
    with served.counted() as requests, opened(served, cache) as reader:
        epoch(reader, 3)
        assert reader.stats().cache_hit_share == 1
    assert requests == ["GET /set/dataset.json 200"]


@pytest.mark.parametrize("limit", [None, "1GB"])
def test_a_directory_that_is_removed_while_it_is_used(
    served: Nginx, cache: Path, limit: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Which empties the cache: it is made again."""
    with FileReader(f"{served.url}/set", cache_dir=cache, cache_limit=limit) as reader:
        epoch_of(reader, range(0, len(DATA), 2))
        shutil.rmtree(cache)
        epoch(reader, 0)
        epoch(reader, 1)
        settled(reader)
        with served.counted() as requests:
            epoch(reader, 2)
    assert requests == [] and caplog.records == []
    assert len(list(cache.glob("*.ffr"))) > 3


def test_a_directory_that_cannot_be_made_again(served: Nginx, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = tmp_path / "above" / "cache"
    with FileReader(f"{served.url}/set", cache_dir=cache) as reader:
        epoch_of(reader, range(9))
        shutil.rmtree(cache.parent)
        cache.parent.write_bytes(b"")
        epoch(reader, 0)
        epoch(reader, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_all_ways_to_read(root: Path, served: Nginx, cache: Path) -> None:
    """Of nothing, of some, of most that is complete, and of all."""
    with FileReader(root / "set") as local:
        with opened(served, cache) as reader:
            reader.read(range(0, len(DATA), 3))
            remote_datasets.check_all(reader, DATA, local)
            settled(reader)
            remote_datasets.check_all(reader, DATA, local)
        for path in sorted(cache.glob("part_003*")):
            path.unlink()
        with opened(served, cache) as reader:
            remote_datasets.check_all(reader, DATA, local)
            settled(reader)
            remote_datasets.check_all(reader, DATA, local)


def test_columns(served: Nginx, tmp_path: Path) -> None:
    data = builders.records([48] * 90, seed=3)
    remote_datasets.write_dataset(tmp_path / "root" / "columns", data, 40)
    slots = [(40, 8), (0, 4), (1, 5)]
    with (
        nginx(tmp_path / "root", directory=tmp_path / "nginx") as running,
        FileReader(f"{running.url}/columns", cache_dir=tmp_path / "cache") as reader,
    ):
        for some in ([1, 2, 80], [3, 2, 1, 2], range(90), [5, 88, 5], range(90)):
            columns = reader.read_columns(some, 48, slots)
            wanted = remote_datasets.columns_of([data[i] for i in some], slots)
            assert [[row.tobytes() for row in column] for column in columns] == wanted
            settled(reader)
        assert "requests" in reader.stats().engines.values() and len(reader.stats().engines) == 2


def test_an_engine_over_what_is_complete(served: Nginx, cache: Path) -> None:
    """Though the others never will be: a batch within complete shards is the local engine's, any other is right."""
    with opened(served, cache) as reader:
        first = list(range(70))
        epoch_of(reader, first)
        settled(reader)
        epoch_of(reader, [5, 5, 69, 0])
        assert len(reader.stats().engines) == 2
        with served.counted() as requests:
            epoch_of(reader, first)
            assert reader._engine._cached._local.read(np.array(first), "arrays", None) is not None
            assert reader._engine._cached._local.read(np.array([70]), "arrays", None) is None
        assert requests == []
        epoch_of(reader, [3, 200, 69, 70, 499])


def epoch_of(reader: FileReader, chosen: Sequence[int]) -> None:
    assert [array.tobytes() for array in reader.read(chosen)] == [DATA[i] for i in chosen]


def test_what_one_process_fetched_no_other_fetches(served: Nginx, cache: Path) -> None:
    with opened(served, cache) as first, opened(served, cache) as second:
        epoch_of(first, range(250))
        with served.counted() as requests:
            epoch_of(second, range(250))
        assert requests == []
        epoch_of(second, range(200, 500))
        with served.counted() as requests:
            epoch(first)
        assert requests == []


def fetched(served: Nginx) -> int:
    """Bytes of all bodies so far."""
    return sum(int(line.split('"')[2].split()[1]) for line in served._access.read_text().splitlines())


LARGE = builders.records([90_000 + i for i in range(60)], seed=8)  # neighbours are not fetched for what is between


@pytest.fixture(scope="module")
def large(root: Path) -> str:
    remote_datasets.write_dataset(root / "large", LARGE, 10)
    return "large"


def test_processes_fetch_each_record_about_once(served: Nginx, cache: Path, large: str) -> None:
    """Side by side, each all of it, in another order: twice only what both lacked at the same moment."""
    before = fetched(served)

    def work(seed: int) -> bool:
        with FileReader(f"{served.url}/{large}", cache_dir=cache) as reader:
            for i in 2 * random.Random(seed).sample(range(len(LARGE)), len(LARGE)):
                assert reader.read_one(i).tobytes() == LARGE[i]
        return True

    pids = [children.begin(lambda seed=seed: work(seed)) for seed in range(3)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    time.sleep(0.05)
    assert 1 < (fetched(served) - before) / sum(map(len, LARGE)) < 1.5


def test_a_limit_below_the_dataset(served: Nginx, cache: Path, large: str) -> None:
    """What is here stays: each epoch fetches what has no room, and nothing more."""
    size = sum(map(len, LARGE))
    with FileReader(f"{served.url}/{large}", cache_dir=cache, cache_limit=size // 2) as reader:
        for seed in range(3):
            before = fetched(served)
            for i in random.Random(seed).sample(range(len(LARGE)), len(LARGE)):
                assert reader.read_one(i).tobytes() == LARGE[i]
            time.sleep(0.05)
            share = (fetched(served) - before) / size
            assert share > 1 if seed == 0 else 0.45 < share < 0.6
    assert sum(each.bytes for each in list_copies(str(cache))) < size // 2 + 20 * 8192


def test_what_comes_with_others_is_kept(served: Nginx, cache: Path) -> None:
    """Requests for two records bring what lies between, which need not be asked for again."""
    with opened(served, cache) as reader:
        epoch_of(reader, [1, 4, 9])
        with served.counted() as requests:
            epoch_of(reader, range(10))
        assert requests == []
        epoch_of(reader, [60, 62])
        with served.counted() as requests:
            epoch_of(reader, [61])
            epoch_of(reader, [59])
        assert len(requests) == 1


def test_another_dataset_takes_its_room(served: Nginx, root: Path, cache: Path) -> None:
    other = root / "other"
    data = remote_datasets.samples(seed=6)
    remote_datasets.write_dataset(other, data)
    limit = BYTES + 400_000
    with opened(served, cache, cache_limit=limit) as reader:
        epoch(reader)
        settled(reader)
    for name in os.listdir(cache):
        os.utime(cache / name, (1, 1))
    with FileReader(f"{served.url}/other", cache_dir=cache, cache_limit=limit) as reader:
        assert [array.tobytes() for array in reader.read(range(500))] == data
        with served.counted() as requests:
            assert [array.tobytes() for array in reader.read(range(500))] == data
        assert requests == []
    with opened(served, cache, cache_limit=limit) as reader:
        epoch(reader)
    shutil.rmtree(other)


def test_copies_removed_under_a_reader(served: Nginx, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are open are right; those opened again are fetched again."""
    with opened(served, cache) as reader:
        epoch(reader)
        settled(reader)
        epoch(reader)
        shutil.rmtree(cache)
        cache.mkdir()
        with served.counted() as requests:  # of both epochs: a slow one notices by itself
            epoch(reader)
            monkeypatch.setattr(module, "STAMP_SECONDS", 0.0)
            reader._engine._cached._cache._tick_at = 0.0
            epoch(reader)
        assert requests
        settled(reader)
        assert any(name.endswith(".ffr") for name in os.listdir(cache))


@pytest.mark.parametrize("place", ["records", "tables", "end"])
def test_complete_copies_that_were_damaged(served: Nginx, cache: Path, place: str) -> None:
    """Found by their checksums, and mended."""
    with opened(served, cache) as reader:
        epoch(reader)
        settled(reader)
    for path in cache.glob("*.ffr"):
        data = bytearray(path.read_bytes())
        if place == "end":
            data = data[: len(data) * 2 // 3]
        elif len(data) > 2000:
            at = 40 if place == "tables" else len(data) - 7
            data[at] ^= 0xFF
        path.write_bytes(data)
    with opened(served, cache) as reader:
        epoch(reader, 1)
        epoch(reader, 2)
        settled(reader)
        with served.counted() as requests:
            epoch(reader, 3)
        assert requests == []


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_tables_of_complete_copies_that_were_damaged(served: Nginx, root: Path, cache: Path, when: str) -> None:
    """By which records would be of other sizes."""
    data = builders.records([48] * 60, seed=4)
    if not (root / "sizes").exists():
        remote_datasets.write_dataset(root / "sizes", data, 30)
    url, slots = f"{served.url}/sizes", [(0, 48)]
    with FileReader(url, cache_dir=cache) as reader:
        reader.read(range(60))
        settled(reader)
    if when == "before":
        damage_offsets(cache)
    with FileReader(url, cache_dir=cache) as reader:
        for _ in range(3):
            assert [row.tobytes() for row in reader.read_columns(range(60), 48, slots)[0]] == data
            settled(reader)
            damage_offsets(cache)
        with pytest.raises(FormatError, match=r"Sample 0: .*expected 24"):
            reader.read_columns([0], 24, [(0, 24)])


def damage_offsets(cache: Path) -> None:
    """Of the second sample of each complete copy, in place."""
    for path in cache.glob("*.ffr"):
        with open(path, "r+b") as file:
            n = ffr_layout.PREFIX.unpack(file.read(ffr_layout.PREFIX.size))[1]
            if n:
                file.seek(ffr_layout.offsets_start(n) + ffr_layout.OFFSET.itemsize)
                first = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([first[0] ^ 1]))


@pytest.mark.parametrize("name", ["set", "set/part 000.ffr"])
def test_tables_that_come_damaged_are_not_kept(served: Nginx, cache: Path, name: str) -> None:
    """Also where the reader does not ask for checks."""
    kinds = ["corrupt"]
    with faulty(served.url, share=0, kinds=kinds, in_a_row=1) as proxy:
        if name == "set":  # whose tables come with the first record
            reader = FileReader(f"{proxy.url}/{name}", False, cache_dir=cache)
            proxy.share, proxy.place = 1.0, lambda size: 40  # type: ignore[method-assign]
        else:
            proxy.share, proxy.place = 1.0, lambda size: 40  # type: ignore[method-assign]
            reader = FileReader(f"{proxy.url}/{name}", False, cache_dir=cache)
        with reader:
            assert reader.read_one(3).tobytes() == DATA[3]
            assert reader.read_one(9).tobytes() == DATA[9]
    assert proxy.done["corrupt"] > 0
    with opened(served, cache) as reader:
        epoch(reader)


def test_a_dataset_replaced_at_its_source(tmp_path: Path, cache: Path) -> None:
    place = tmp_path / "root" / "set"
    with nginx(tmp_path, directory=tmp_path / "nginx") as running:
        for seed in (1, 2):
            shutil.rmtree(place, ignore_errors=True)
            data = builders.records([500] * 40, seed)
            remote_datasets.write_dataset(place, data, 15)
            with FileReader(f"{running.url}/root/set", cache_dir=cache) as reader:
                for _ in range(2):
                    assert [array.tobytes() for array in reader] == data
                settled(reader)


def test_what_comes_damaged_is_not_kept(served: Nginx, cache: Path) -> None:
    """Also where the reader does not ask for checks."""
    with faulty(served.url, seed=3, share=0.3, kinds=["corrupt", "short", "reset"], in_a_row=1) as proxy:
        url = f"{proxy.url}/set"
        with FileReader(url, cache_dir=cache, storage_options={"retry_seconds": 30}) as reader:
            epoch(reader, 0)
        with FileReader(url, False, cache_dir=cache, storage_options={"retry_seconds": 30}) as reader:
            epoch(reader, 1)
            settled(reader)
            proxy.share = 1.0
            proxy.in_a_row = 1000
            epoch(reader, 2)
    assert proxy.done["corrupt"] > 0


def test_threads_of_one_reader(served: Nginx, cache: Path) -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            epoch(reader, seed, batch=7)
        except BaseException as error:
            failed.append(error)

    with opened(served, cache) as reader:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled(reader)
        epoch(reader, 9)
    assert failed == []


def test_a_reader_forked_in_use(served: Nginx, cache: Path) -> None:
    with opened(served, cache) as reader:
        epoch_of(reader, range(100))

        def child() -> bool:
            epoch(reader, os.getpid())
            settled(reader)
            epoch(reader, os.getpid() + 1)
            return True

        assert children.in_child(child) == 0
        with served.counted() as requests:
            epoch(reader, 5)
        assert requests == []


def test_gone_servers_are_not_missed(root: Path, tmp_path: Path, cache: Path) -> None:
    """Once all is here only dataset.json is asked for, when a reader is opened."""
    with nginx(root, directory=tmp_path / "nginx") as running:
        reader = opened(running, cache, storage_options={"max_tries": 1})
        epoch(reader)
        settled(reader)
    epoch(reader, 1)
    order = random.Random(0).sample(range(len(DATA)), 50)
    assert [array.tobytes() for batch in reader.iter_batches([order]) for array in batch] == [DATA[i] for i in order]
    reader.close()


def test_a_directory_that_cannot_be_had(served: Nginx, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="cache_dir"):
        opened(served, tmp_path / "file")
