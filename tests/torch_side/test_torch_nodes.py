"""torchdata.nodes with our samplers and datasets: exact, at every batch, on any number of ranks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord.torch import BatchSampler, Dataset, Sampler, collate

nodes = pytest.importorskip("torchdata.nodes", reason="needs torchdata")
# Of torchdata's own threads, whenever Python takes an iterator away.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored .*<function (_ParallelMapperIter|_SingleThreadedMapper).__del__"
)

SAMPLES, BATCH, EPOCHS = 24, 3, 3
BATCHES = SAMPLES // BATCH
KINDS = ["batches", "indices"]


@pytest.fixture
def data(tmp_path: Path) -> str:
    ffrecord.DatasetWriter(tmp_path / "data", num_workers=0).from_indexed_dataset([{"i": i} for i in range(SAMPLES)])
    return str(tmp_path / "data")


def make_loader(data: str, kind: str = "batches", threads: int = 0, rank: int = 0, ranks: int = 1) -> Any:
    dataset: Dataset[Any] = Dataset(data)
    if kind == "batches":
        node = nodes.IterableWrapper(BatchSampler(dataset, BATCH, seed=1, rank=rank, num_replicas=ranks))
    else:
        sampler = Sampler(dataset, seed=1, rank=rank, num_replicas=ranks)
        node = nodes.Batcher(nodes.IterableWrapper(sampler), BATCH, drop_last=False)

    def read(indices: list[int]) -> Any:
        return collate(dataset.__getitems__(indices))

    if threads:
        return nodes.Loader(nodes.Prefetcher(nodes.ParallelMapper(node, read, threads, method="thread"), 2))
    return nodes.Loader(nodes.Mapper(node, read))


def batches(loader: Any) -> Iterator[list[int]]:
    """Yield the samples of each batch, epoch after epoch."""
    while True:
        for batch in loader:
            yield batch["i"].tolist()


def take(count: int, found: Iterator[list[int]]) -> list[list[int]]:
    return [next(found) for _ in range(count)]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_after_every_batch(data: str, kind: str, threads: int):
    total = EPOCHS * BATCHES
    endless = take(total + 4, batches(make_loader(data, kind, threads)))
    whole = endless[:total]
    for epoch in range(EPOCHS):
        samples = [i for batch in whole[epoch * BATCHES : (epoch + 1) * BATCHES] for i in batch]
        assert sorted(samples) == list(range(SAMPLES))
    assert len({str(whole[begin : begin + BATCHES]) for begin in range(0, total, BATCHES)}) == EPOCHS
    for stop in (5, 8, 17) if threads else range(1, total):  # each end of a thread takes long
        loader = make_loader(data, kind, threads)
        found = batches(loader)
        assert take(stop, found) == whole[:stop]
        state = json.loads(json.dumps(loader.state_dict()))
        for _ in range(2):  # and once more, from a state of the run that went on
            loader = make_loader(data, kind, threads)
            loader.load_state_dict(state)
            found = batches(loader)
            assert take(2, found) == endless[stop : stop + 2], stop
            state, stop = loader.state_dict(), stop + 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_goes_on_with_other_ranks(data: str, kind: str, ranks: int):
    whole = [i for batch in take(BATCHES, batches(make_loader(data, kind))) for i in batch]
    loaders = [make_loader(data, kind, rank=rank, ranks=2) for rank in range(2)]
    running = [batches(loader) for loader in loaders]
    before = [[i for batch in take(2, each) for i in batch] for each in running]
    state = loaders[0].state_dict()
    assert [i for dealt in zip(*before, strict=True) for i in dealt] == whole[:12]
    after = []
    for rank in range(ranks):
        loader = make_loader(data, kind, rank=rank, ranks=ranks)
        loader.load_state_dict(state)
        after.append([i for batch in loader for i in batch["i"].tolist()])
    assert [i for dealt in zip(*after, strict=True) for i in dealt] == whole[12:]


def test_a_loop_that_is_left_gives_up_its_epoch(data: str):
    whole = take(2 * BATCHES, batches(make_loader(data)))
    loader = make_loader(data)
    for _ in loader:
        break
    assert [batch["i"].tolist() for batch in loader] == whole[BATCHES:]
