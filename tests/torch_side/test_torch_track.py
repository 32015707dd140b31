"""The progress bar of a loop: it begins where the epoch stands."""

import io
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch_builders import WORKERS_ANYWHERE, Ints, seeded

import ffrecord.torch.dataloader
from ffrecord.torch import BatchSampler, DataLoader, Loader, Sampler, track
from ffrecord.torch.dataloader import BatchBar

pytestmark = WORKERS_ANYWHERE

BATCHES = 6  # of 23 samples
DONE = 2


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where bars begin, and their totals."""
    found: list[tuple[int, int]] = []

    class Noting(BatchBar):
        def begin_at(self, done: int) -> None:
            super().begin_at(done)
            assert self.n == done
            found.append((done, self.total))

    monkeypatch.setattr(ffrecord.torch.dataloader, "BatchBar", Noting)
    return found


def followed(loader: Any) -> list[Any]:
    return [torch.as_tensor(batch).tolist() for batch in track(loader, file=io.StringIO())]


def loader_of(kind: str, path: str, workers: int) -> Any:
    options: dict[str, Any] = {"num_workers": workers}
    if kind == "Loader":
        return Loader(path, 4, seed=1, num_threads=workers, batch_transform=len)
    dataset = Ints(path)
    if kind == "DataLoader, BatchSampler":
        return DataLoader(dataset, batch_sampler=BatchSampler(dataset, 4, seed=1), **options)
    if kind == "DataLoader, Sampler":
        return DataLoader(dataset, 4, sampler=Sampler(dataset, seed=1), **options)
    return DataLoader(dataset, 4, shuffle=True, generator=seeded(3), **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["Loader", "DataLoader, BatchSampler", "DataLoader, Sampler", "DataLoader"])
def test_resumed(path: str, kind: str, workers: int, begun: list[tuple[int, int]]):
    loader = loader_of(kind, path, workers)
    whole = followed(loader)
    for step, _ in enumerate(track(loader, file=io.StringIO())):
        if step == DONE - 1:
            state = loader.state_dict()
            break
    assert followed(loader)  # the next epoch, from its start
    loader = loader_of(kind, path, workers)
    loader.load_state_dict(state)
    rest = followed(loader)
    assert len(whole) == BATCHES and len(rest) == BATCHES - DONE
    assert len(followed(loader)) == BATCHES
    assert begun == [(0, BATCHES)] * 3 + [(DONE, BATCHES), (0, BATCHES)]


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_with_our_sampler(path: str, workers: int, begun: list[tuple[int, int]]):
    dataset = Ints(path)
    sampler = BatchSampler(dataset, 4, seed=1)
    sampler.set_position(4 * DONE)
    context = "fork" if workers else None
    loader = TorchLoader(dataset, batch_sampler=sampler, num_workers=workers, multiprocessing_context=context)
    assert len(followed(loader)) == BATCHES - DONE and len(followed(loader)) == BATCHES
    assert begun == [(DONE, BATCHES), (0, BATCHES)]


def test_anything_with_a_length(path: str, begun: list[tuple[int, int]]):
    assert followed([1, 2, 3]) == [1, 2, 3]
    assert followed([]) == []
    assert followed(TorchLoader(Ints(path), 23)) == [[7 * i - 30 for i in range(23)]]
    assert begun == [(0, 3), (0, 1)]
    with pytest.raises(TypeError):
        list(track(iter([1])))


def test_the_bar_counts(path: str):
    out = io.StringIO()
    assert len(list(track(Loader(path, 4, "sequential"), desc="epoch 0", file=out, mininterval=0))) == BATCHES
    last = out.getvalue().split("\r")[-1]
    assert last.startswith("epoch 0: 100%") and f"{BATCHES}/{BATCHES}" in last
