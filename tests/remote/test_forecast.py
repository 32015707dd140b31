"""Blocks by URL: neighbours of a window come by one request, whoever asks for them first."""

import gc
import itertools
import logging
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders
import children
import numpy as np
import pytest
import remote_datasets
from servers import Nginx, faulty, nginx

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")

from ffrecord import FileReader, order  # noqa: E402
from ffrecord.errors import ArgumentError, ClosedError, RemoteError  # noqa: E402
from ffrecord.remote.engine import RemoteFiles  # noqa: E402
from ffrecord.remote.forecast import Forecast  # noqa: E402
from ffrecord.torch import BatchSampler, DataLoader, Dataset, IterableDataset, Loader  # noqa: E402
from ffrecord.torch.indices import PlannedBatch  # noqa: E402

COUNT, SHARDS = 1200, 8
DATA = builders.records([1500 + 7 * (i % 90) for i in range(COUNT)], seed=4)
BLOCKS = order.Block(block_size=25, window=8)
TABLES = SHARDS + 2  # requests for dataset.json and tables, once for each process that reads


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    directory = tmp_path_factory.mktemp("blocks")
    remote_datasets.write_dataset(directory / "root" / "set", DATA, COUNT // SHARDS)
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[str]:
    """The URL of the same dataset, in the memory of this process."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    remote_datasets.write_dataset(tmp_path / "set", DATA, COUNT // SHARDS)
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path / "set"), "/blocks/set", recursive=True)
    yield "memory://blocks/set"
    files.rm("/blocks", recursive=True)


def read(loader: Loader) -> list[int]:
    """Read an epoch, compare each sample, and return their numbers."""
    found: list[int] = []
    for batch in loader:
        assert [bytes(sample.numpy()) for sample in batch] == [DATA[i] for i in loader.batch_indices]
        found += loader.batch_indices.tolist()
    return found


def apart(url: str, **more: Any) -> int:
    """Return the requests of an epoch in which each sample is asked for by itself."""
    with Loader(url, 20, BLOCKS, seed=1, **more, storage_options={"ahead_memory": 0}) as loader:
        assert sorted(read(loader)) == list(range(COUNT))
        return loader.reader.stats().requests


@pytest.mark.parametrize("options", [{}, {"num_threads": 0}, {"num_workers": 2}], ids=["threads", "alone", "workers"])
def test_a_block_is_a_request(served: Nginx, options: dict[str, int]) -> None:
    with served.counted() as requests, Loader(f"{served.url}/set", 20, BLOCKS, seed=1, **options) as loader:
        first = read(loader)
        stats = loader.reader.stats()
    processes = options.get("num_workers", 1)
    # A window may begin within a block. Neighbouring blocks, or blocks across the end of a shard, change little.
    assert len(requests) <= (COUNT // 25 * 1.5 + TABLES) * processes
    assert processes > 1 or (stats.requests, stats.bytes) == (len(requests), sum(map(len, DATA)))
    assert stats.held_bytes == 0
    assert len(requests) * 4 < apart(f"{served.url}/set")
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1, storage_options={"ahead_memory": 0}) as loader:
        assert read(loader) == first


@pytest.mark.parametrize("lanes", [1, 2])
def test_ranks(served: Nginx, lanes: int) -> None:
    """With lanes each rank has blocks of its own. Without, ranks share them, but fetch only what they need."""
    blocks, found = order.Block(block_size=25, window=8, lanes=lanes), []
    for rank in range(2):
        with Loader(f"{served.url}/set", 20, blocks, seed=1, rank=rank, world_size=2) as loader:
            found += read(loader)
            assert loader.reader.stats().requests < COUNT // 25 * 1.5 / lanes + TABLES
            assert loader.reader.stats().bytes == sum(len(DATA[i]) for i in found[len(found) - COUNT // 2 :])
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["batches", "stream", "subset"])
def test_loaders_of_torch(served: Nginx, kind: str, workers: int) -> None:
    """Workers take batches in turn, so each fetches the neighbours among its own."""

    class Bytes(Dataset[Any]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return [(index, array.tobytes()) for index, array in zip(indices, data, strict=True)]

    with served.counted() as requests, Bytes(f"{served.url}/set") as dataset:
        if kind == "stream":
            stream = IterableDataset(dataset, 20, order=BLOCKS)
            loader = DataLoader(stream, 20, num_workers=workers, collate_fn=list)
        else:
            chosen = range(0, COUNT, 2) if kind == "subset" else None
            batches = BatchSampler(dataset, 20, order=BLOCKS, indices=chosen)
            loader = DataLoader(dataset, batch_sampler=batches, num_workers=workers, collate_fn=list)
        found = [sample for batch in loader for sample in batch]
        assert dataset.reader.stats().held_bytes == 0
    count = COUNT // 2 if kind == "subset" else COUNT
    assert sorted(found) == [(i, DATA[i]) for i in range(0, COUNT, COUNT // count)]
    if kind != "subset" or not workers:
        assert len(requests) <= (count // 25 * 1.5 + TABLES) * max(1, workers)


@pytest.mark.parametrize("chosen", [None, range(0, COUNT, 3)], ids=["all", "some"])
def test_planned_batches(served: Nginx, chosen: Any) -> None:
    """They are lists, and pickle small: only those of all samples bring their plan to another process."""
    with Dataset(f"{served.url}/set", transform=len) as dataset:
        sampler = BatchSampler(dataset, 20, order=BLOCKS, indices=chosen)
        batch = next(iter(sampler))
        again = pickle.loads(pickle.dumps(batch))
        assert type(batch) is PlannedBatch and again == batch and len(pickle.dumps(batch)) < 2000
        assert type(again) is (list if chosen else PlannedBatch)
        assert type(next(iter(BatchSampler(dataset, 20)))) is list
        assert type(next(iter(BatchSampler(COUNT, 20, order=BLOCKS)))) is list


def test_a_loop_of_torch_that_is_left(served: Nginx) -> None:
    """What it holds is freed by the next loop, or by `close`."""
    with Dataset(f"{served.url}/set", transform=len) as dataset:
        loader = DataLoader(dataset, batch_sampler=BatchSampler(dataset, 20, order=BLOCKS), collate_fn=list)
        held = []
        for _ in range(4):
            next(iter(loader))
            gc.collect()
            held.append(dataset.reader.stats().held_bytes)
        assert 0 < max(held) < 3 * held[0]
    assert dataset.reader.stats().held_bytes == 0


def test_placement(served: Nginx) -> None:
    placed = order.Placed(2, BLOCKS)
    with Loader(f"{served.url}/set", 20, placed, rank=1, world_size=2) as loader:
        assert sorted(read(loader)) == list(range(COUNT // 2, COUNT))
        assert loader.reader.stats().requests < COUNT // 25 + TABLES


@pytest.mark.parametrize("kind", ["sorted", "repeated", "shuffled"])
def test_some_of_the_samples(served: Nginx, kind: str) -> None:
    chosen = np.arange(0, COUNT, 2)
    if kind == "repeated":
        chosen = np.repeat(chosen, 2)
    if kind == "shuffled":
        chosen = np.random.default_rng(1).permutation(chosen)
    with Loader(f"{served.url}/set", 20, BLOCKS, indices=chosen) as loader:
        assert sorted(read(loader)) == sorted(chosen.tolist())
        if kind == "sorted":
            assert loader.reader.stats().requests < len(chosen) // 25 * 1.5 + TABLES
        assert loader.reader.stats().held_bytes == 0


def test_other_orders_hold_nothing(served: Nginx) -> None:
    with Loader(f"{served.url}/set", 20, seed=1) as loader:
        for _ in loader:
            assert loader.reader.stats().held_bytes == 0
    with FileReader(f"{served.url}/set") as reader:
        assert reader.read([3, 4])[1].tobytes() == DATA[4]


def test_the_middle_of_an_epoch(served: Nginx) -> None:
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1) as loader:
        whole = read(loader)
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1) as loader:
        seen = [index for _ in itertools.islice(loader, 13) for index in loader.batch_indices.tolist()]
        state = loader.state_dict()
    with Loader(f"{served.url}/set", 30, BLOCKS, seed=1) as loader:
        loader.load_state_dict(state)
        assert seen + read(loader) == whole
        assert loader.reader.stats().requests < COUNT // 25 * 1.5 + TABLES


@pytest.mark.parametrize("most", [1, 20_000, 200_000])
def test_memory(served: Nginx, most: int) -> None:
    """A window that does not fit comes in parts, and never more than fits."""
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1, storage_options={"ahead_memory": most}) as loader:
        found, peak = [], 0
        for batch in loader:
            peak = max(peak, loader.reader.stats().held_bytes)
            found += [bytes(sample.numpy()) for sample in batch]
        assert peak <= most
        assert (loader.reader.stats().held_bytes, sorted(found)) == (0, sorted(DATA))
        requests = loader.reader.stats().requests
    assert requests <= apart(f"{served.url}/set")


def test_uneven_sizes(tmp_path: Path) -> None:
    """Where much larger samples stand together, they exceed what averages let expect."""
    data = builders.records([40_000 if 300 <= i < 340 else 400 for i in range(600)], seed=2)
    remote_datasets.write_dataset(tmp_path / "root" / "set", data, 600)
    most = 300_000
    with (
        nginx(tmp_path / "root", directory=tmp_path / "nginx") as server,
        Loader(f"{server.url}/set", 10, order.Block(20, 8), storage_options={"ahead_memory": most}) as loader,
    ):
        found = []
        for batch in loader:
            assert loader.reader.stats().held_bytes <= most
            found += [bytes(sample.numpy()) for sample in batch]
    assert sorted(found) == sorted(data)


def test_a_loop_that_is_left(served: Nginx) -> None:
    """Its memory is freed, and it reads no further."""
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1) as loader:
        running = iter(loader)
        next(running)
        assert loader.reader.stats().held_bytes > 0
        running.close()  # type: ignore[attr-defined]
        del running
        end = time.monotonic() + 20
        while loader.reader.stats().held_bytes and time.monotonic() < end:
            time.sleep(0.01)  # of requests that were on their way
            gc.collect()
        assert loader.reader.stats().held_bytes == 0
        assert sorted(read(loader)) == list(range(COUNT))


def test_a_cache_gets_whole_blocks(served: Nginx, tmp_path: Path) -> None:
    with served.counted() as requests, Loader(f"{served.url}/set", 20, BLOCKS, cache_dir=tmp_path / "cache") as loader:
        assert sorted(read(loader)) == list(range(COUNT))
        assert loader.reader.stats().held_bytes == 0
    assert len(requests) < COUNT // 25 * 1.5 + TABLES
    with Loader(f"{served.url}/set", 20, BLOCKS, epoch=1, cache_dir=tmp_path / "cache") as loader:
        assert sorted(read(loader)) == list(range(COUNT))
        assert loader.reader.stats().requests == 1  # dataset.json
        assert loader.reader.stats().held_bytes == 0


def test_a_cache_that_has_some(served: Nginx, tmp_path: Path) -> None:
    """Only what is missing is fetched."""
    with FileReader(f"{served.url}/set", cache_dir=tmp_path / "cache") as reader:
        reader.read(range(0, COUNT, 2))
    with Loader(f"{served.url}/set", 20, BLOCKS, cache_dir=tmp_path / "cache") as loader:
        assert sorted(read(loader)) == list(range(COUNT))
        assert loader.reader.stats().requests <= 1 + SHARDS  # those between came with them, but not the last ones


# Errors


def test_faults(served: Nginx) -> None:
    """Samples that came damaged are fetched once more, each by itself."""
    with (
        faulty(served.url, seed=3, share=0) as proxy,
        Loader(f"{proxy.url}/set", 20, BLOCKS, seed=1) as loader,
    ):
        proxy.share, proxy.kinds = 0.2, ("reset", "cut", "503", "short", "less", "corrupt")
        for _ in range(2):
            assert sorted(read(loader)) == list(range(COUNT))
        assert proxy.done["corrupt"] and loader.reader.stats().refetched
        assert loader.reader.stats().held_bytes == 0


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=["threads", "workers"])
def test_a_block_that_cannot_be_read(served: Nginx, options: dict[str, int]) -> None:
    """It fails the batches that need it, names a sample of theirs, and is tried again."""
    refused = [True]
    storage = {"max_tries": 1}
    with faulty(served.url, share=0) as proxy:
        with Loader(f"{proxy.url}/set", 20, BLOCKS, seed=1, storage_options=storage, **options) as loader:
            whole = read(loader)
            proxy.refuses = lambda request: 500 if refused[0] and "003" in request else None
            state = loader.state_dict()
            # Each worker has to read tables, too.
            with pytest.raises(RemoteError, match=r"part%20003.*500" if options else r"Sample \d+: .*part%20003.*500"):
                read(loader)
            seen = loader.position
            refused[0] = False
            rest = read(loader)  # goes on where the error was
            loader.load_state_dict(state)
            again = read(loader)
        assert again[seen:] == rest
        assert sorted(again) == sorted(whole) == list(range(COUNT))


def test_damaged_samples_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "ffrecord")
    directory = remote_datasets.write_dataset(tmp_path / "root" / "set", DATA[:300], 150)
    with FileReader(directory) as reader:
        path, local = reader.locate(77)
        place = int(reader.get_offsets(0)[local])
    with open(path, "r+b") as file:
        file.seek(place + 5)
        file.write(b"\xff\x00\xff\x00")
    with (
        nginx(tmp_path / "root", directory=tmp_path / "nginx") as server,
        Loader(f"{server.url}/set", 20, BLOCKS, on_error="skip") as loader,
    ):
        assert sorted(read(loader)) == [i for i in range(300) if i != 77]
        assert loader.stats().skipped == 1
        assert loader.reader.stats().held_bytes == 0


def test_batches_wait_for_one_request(served: Nginx) -> None:
    """Of many batches that begin at once, with all of one window."""
    with FileReader(f"{served.url}/set") as reader:
        forecast = reader._forecast()
        assert forecast.add(np.arange(COUNT)) == COUNT
        before = reader.stats().requests
        batches = [list(range(start, COUNT, 40)) for start in range(40)]
        results: dict[int, list[bytes]] = {}

        def run(number: int) -> None:
            results[number] = [each.tobytes() for each in reader.read(batches[number])]

        threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(results[number] == [DATA[i] for i in batch] for number, batch in enumerate(batches))
        assert reader.stats().requests - before <= 2 * SHARDS + 1  # tables, and less than 1 MiB of each shard
        assert reader.stats().held_bytes == 0


def test_closed_while_a_block_comes(served: Nginx) -> None:
    """Nobody waits for a server that is silent."""
    with faulty(served.url, share=0) as proxy:
        reader = FileReader(f"{proxy.url}/set", storage_options={"max_requests": 4})
        forecast = reader._forecast()
        forecast.add(np.arange(COUNT))
        reader.read([0, 100])
        proxy.share, proxy.kinds = 1, ("silent",)
        errors: list[BaseException] = []

        def run(batch: list[int]) -> None:
            try:
                reader.read(batch)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=([700 + i, 1000 + i],), daemon=True) for i in range(3)]
        for thread in threads:
            thread.start()
        while not proxy.done["silent"]:
            threads[0].join(0.01)
        reader.close()
        for thread in threads:
            thread.join(20)
        assert [type(error).__name__ for error in errors] == ["ClosedError"] * 3


def test_loops_of_torch_over_one_reader(stored: str) -> None:
    """Each has its own blocks, though samples that both are to read come again now and then."""
    with Dataset(stored, transform=len) as dataset:
        samplers = [BatchSampler(dataset, 20, order=BLOCKS, seed=seed) for seed in (1, 2)]
        running = [
            iter(torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=len)) for sampler in samplers
        ]
        for _ in range(COUNT // 20):
            assert [next(each) for each in running] == [20, 20]
        stats = dataset.reader.stats()
    assert stats.requests <= 4 * (COUNT // 25 * 1.5 + TABLES) < COUNT / 3
    assert stats.held_bytes == 0


def test_closed_while_a_block_comes_that_no_batch_has_begun(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that waits for it ends soon, too."""
    reader, over = FileReader(stored), threading.Event()
    forecast = reader._forecast()
    reader.read([COUNT - 1])
    forecast.add(np.arange(COUNT))
    begun = threading.Event()

    def silent(*_: Any) -> Any:
        begun.set()
        over.wait(60)
        raise RemoteError("silent")

    monkeypatch.setattr(RemoteFiles, "ask", silent)
    forecast._begin_chains()
    assert begun.wait(20)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            reader.read([0, 1])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(0.2)
    start = time.monotonic()
    reader.close()
    thread.join(20)
    assert time.monotonic() - start < 5 * children.PATIENCE
    over.set()
    assert [type(error).__name__ for error in errors] == ["ClosedError"]


@pytest.mark.timeout(60)
def test_records_that_are_read_again(stored: str) -> None:
    """Of a block that was delivered, in a window that was not: by themselves, with one request."""
    with FileReader(stored) as reader:
        forecast = reader._forecast()
        forecast.add(np.arange(COUNT))
        first = reader.read([*range(COUNT - 1)])[3]
        before = reader.stats().requests
        assert np.array_equal(reader.read([3])[0], first)
        assert reader.stats().requests == before + 1
        assert forecast.held < reader.record_sizes(range(COUNT)).sum()


@pytest.mark.timeout(60)
def test_samples_that_are_read_in_a_loop(stored: str) -> None:
    """Half of the dataset between two batches, as a validation might."""
    with FileReader(stored) as reader:
        for number, _ in enumerate(Loader(reader, 20, BLOCKS, seed=1)):
            if number == 2:
                reader.read(range(COUNT // 2))


def test_forked_in_a_loop(served: Nginx) -> None:
    """The child reads by itself, whatever the threads of the parent had locked."""
    with Loader(f"{served.url}/set", 20, BLOCKS, seed=1) as loader:
        running = iter(loader)
        next(running)

        def child() -> bool:
            assert loader.reader.stats().held_bytes == 0
            return [each.tobytes() for each in loader.reader.read([5, 700])] == [DATA[5], DATA[700]]  # type: ignore[no-any-return]

        assert children.in_child(child) == 0
        assert sum(1 for _ in running) == COUNT // 20 - 1


def test_what_is_added_is_bounded() -> None:
    class Source:
        closed = False

        def sizes_about(self) -> Any:
            return np.array([100.0]), 100.0

        def split(self, samples: Any) -> Any:
            return np.zeros_like(samples), samples

        def begin(self, task: Any) -> bool:
            return False

    forecast = Forecast(Source(), 1000, 1)  # type: ignore[arg-type]
    assert forecast.samples_most == 5
    assert [forecast.add(np.arange(10 * i, 10 * i + 9)) for i in range(4)] == [5] * 4
    assert [sorted(window.parts[0].locals.tolist())[0] for window in forecast._windows] == [20, 30]
    assert Forecast(Source(), 10, 1).add(np.arange(9)) == 1  # type: ignore[arg-type]


def test_it_is_known_while_it_is_kept(served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader:
        engine: RemoteFiles = reader._engine
        forecast = reader._forecast()
        assert engine._foreseen() == [forecast]
        del forecast
        assert engine._foreseen() == []
    with pytest.raises(ClosedError):
        reader.read([0])


@pytest.mark.parametrize("memory", [0, "1GB", "64 MiB", None])
def test_memory_is_a_size(served: Nginx, memory: Any) -> None:
    options = {"ahead_memory": memory, "tables_memory": memory or 0}
    with FileReader(f"{served.url}/set", storage_options=options) as reader:
        assert len(reader.read(range(5))) == 5


@pytest.mark.parametrize("wrong", [-1, "1 gallon", 1.5, True])
def test_memory_that_cannot_be(served: Nginx, wrong: Any) -> None:
    with pytest.raises((ArgumentError, TypeError), match=r"storage_options: ahead_memory is .*, expected"):
        FileReader(f"{served.url}/set", storage_options={"ahead_memory": wrong})
