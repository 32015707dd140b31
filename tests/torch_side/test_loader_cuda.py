"""Pinned memory, and copies to a GPU; on machines that have one."""

import pytest
import torch
from loader_builders import fixed, flat, mixed, write
from torch_builders import WORKERS_ANYWHERE

from ffrecord.torch import Loader, Padded

COUNT = 40

pytestmark = [*WORKERS_ANYWHERE, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


@pytest.fixture(scope="module", params=[fixed, mixed])
def path(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "samples.ffr", map(request.param, range(COUNT)))


def tensors(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, (dict, list, tuple)):
        return [each for value in (batch.values() if isinstance(batch, dict) else batch) for each in tensors(value)]
    return []


@pytest.mark.parametrize("how", MAKERS)
def test_pinned(path, how):
    batches = list(Loader(path, 8, "sequential", pin_memory=True, ragged="padded", **how))
    assert all(tensor.is_pinned() for batch in batches for tensor in tensors(batch))
    assert flat(batches) == list(range(COUNT))


@pytest.mark.parametrize("how", [{"num_threads": 0}, {"num_threads": 2}])
def test_records_of_fixed_size_are_read_into_pinned_memory(tmp_path, how, monkeypatch):
    """Without a copy; while a batch is kept, its memory is not used again."""
    path, made = write(tmp_path / "fixed.ffr", map(fixed, range(COUNT))), []
    real = torch.empty

    def empty(*shape, **options):
        tensor = real(*shape, **options)
        made.append((options.get("pin_memory"), tensor.data_ptr()))
        return tensor

    monkeypatch.setattr(torch, "empty", empty)
    batches = list(Loader(path, 8, "sequential", pin_memory=True, **how))
    places = [tensor.data_ptr() for batch in batches for tensor in tensors(batch)]
    assert len(set(places)) == len(places) and {(True, place) for place in places} <= set(made)
    assert flat(batches) == list(range(COUNT))


@pytest.mark.parametrize("how", MAKERS)
def test_on_the_device(path, how):
    batches = list(Loader(path, 8, "sequential", device="cuda", ragged="padded", **how))
    assert all(tensor.is_cuda for batch in batches for tensor in tensors(batch))
    assert flat(batches) == list(range(COUNT))
    assert not isinstance(batches[0], dict) or isinstance(batches[0]["tokens"], Padded)


@pytest.mark.parametrize("how", MAKERS)
def test_copies_are_waited_for_on_the_stream_that_is_current(tmp_path, how):
    """Batches of 8 MB on a stream of the user's, dropped at once, so that their memory is used again."""
    path = write(tmp_path / "large.ffr", [torch.full((1 << 20,), i, dtype=torch.uint8) for i in range(COUNT)])
    stream = torch.cuda.Stream()
    sums = []
    with torch.cuda.stream(stream):
        for batch in Loader(path, 8, "sequential", device="cuda", **how):
            torch.cuda._sleep(10_000_000)
            sums.append(batch.sum(1, dtype=torch.int64))
            del batch
    torch.cuda.synchronize()
    assert torch.cat(sums).tolist() == [i << 20 for i in range(COUNT)]
