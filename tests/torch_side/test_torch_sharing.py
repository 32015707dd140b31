"""How batches get from workers to the loader."""

import copy
import ctypes
import fcntl
import os
import pickle
import resource
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from test_torch_schema import same, write
from torch.utils.data import DataLoader
from torch_builders import WORKERS_ANYWHERE

from ffrecord.torch import Dataset, offering, sharing

pytestmark = WORKERS_ANYWHERE

LARGE = 100_000
PR_SET_DUMPABLE = 4


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "get_worker_info", lambda: object())
    monkeypatch.setattr(offering, "_offered", {})
    # A test before these that was another user for a while has closed this process to others.
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0


def large(value: int = 7) -> torch.Tensor:
    return sharing.tensor_of(np.full((4, 2 * LARGE), value, np.uint8)[:, ::2][:, :LARGE])


def send(batch: Any) -> Any:
    return pickle.loads(ForkingPickler.dumps(sharing.carried(batch)))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_large_tensors_are_mapped_not_copied():
    tensor = large()
    got = send({"a": tensor.view(4, LARGE), "b": [torch.tensor([1, 2])]})
    assert type(got) is dict
    assert got["a"].shape == (4, LARGE)
    assert same(got["b"], [torch.tensor([1, 2])])
    tensor[0] = 9
    assert got["a"][0, 0] == 9
    assert type(send([tensor])) is list


def test_sent_by_the_oldest_torch(monkeypatch: pytest.MonkeyPatch):
    """torch 2.0 has no `nbytes`; an error here would be one in a thread of torch's queue."""

    def missing(self: torch.Tensor) -> int:
        raise AttributeError("'Tensor' object has no attribute 'nbytes'")

    monkeypatch.setattr(torch.Tensor, "nbytes", property(missing), raising=False)
    got = send([large(), torch.tensor([1, 2])])
    assert [each[-1].item() for each in got] == [7, 2]


def test_what_was_accepted_is_closed():
    before = open_files()
    kept = []
    for i in range(20):
        kept = [send({"a": large(i)})]
        assert kept[0]["a"].unique().tolist() == [i]
        assert len(offering._offered) <= 2
    del kept
    send({"a": large()})
    offering._offered.clear()
    assert open_files() == before


def test_what_was_not_accepted_is_kept():
    messages = [ForkingPickler.dumps(sharing.carried({"a": large(i)})) for i in range(5)]
    assert len(offering._offered) == 5
    assert [pickle.loads(each)["a"][0].item() for each in messages] == list(range(5))


def test_a_message_is_for_one_only():
    message = bytes(ForkingPickler.dumps(sharing.carried({"a": large()})))
    first = pickle.loads(message)
    assert first["a"][0] == 7
    with pytest.raises(PermissionError):
        pickle.loads(message)
    offering._offered.clear()
    with pytest.raises(FileNotFoundError, match="no longer has the memory"):
        pickle.loads(message)


def test_a_descriptor_that_is_another_by_now(tmp_path: Any):
    message = bytes(ForkingPickler.dumps(sharing.carried({"a": large()})))
    ((fd, _),) = offering._offered.items()
    with open(tmp_path / "x", "w+b") as file:
        os.dup2(file.fileno(), fd)
        with pytest.raises(FileNotFoundError, match=f"process {os.getpid()} no longer has the memory"):
            pickle.loads(message)


def test_the_same_tensor_sent_twice_goes_torchs_way(monkeypatch: pytest.MonkeyPatch):
    tensor = large()
    sent = [sharing._sent([tensor])[0] for _ in range(2)]
    assert type(sent[0]) is sharing.Sent
    assert sent[1] is tensor
    sent[0].tensor()
    assert sharing._sent([tensor])[0] is tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: large()[1:],
        lambda: torch.zeros(LARGE),
        lambda: torch.zeros(LARGE).share_memory_(),
        lambda: large().view(4, LARGE).T,
        lambda: torch.zeros(2, requires_grad=True),
        lambda: torch.zeros(3, 2).T,
        lambda: torch.zeros(2, dtype=torch.complex64).conj(),
        lambda: torch.zeros(2).to_sparse(),
    ],
)
def test_tensors_left_to_torch(make: Any):
    tensor = make()
    assert sharing._sent({"a": tensor})["a"] is tensor


def test_where_processes_may_not_look_at_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offering, "_allowed", lambda: False)
    tensor = large()
    assert sharing._sent([tensor])[0] is tensor


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("unable to map")])
def test_what_fails_on_the_way_goes_torchs_way(monkeypatch: pytest.MonkeyPatch, error: Exception):
    """Who sends is a thread of torch's queue, where an error would lose the batch."""

    def fail(fd: int) -> None:
        raise error

    tensor = large()
    monkeypatch.setattr(offering, "_file", fail)
    assert sharing._sent([tensor])[0] is tensor
    assert not offering._offered


@pytest.fixture
def in_files() -> Iterator[None]:
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    yield
    torch.multiprocessing.set_sharing_strategy(before)


def test_in_files_nothing_is_copied(in_files: None):
    for tensor in (large(), torch.zeros(LARGE).share_memory_()):
        place = tensor.data_ptr()
        assert sharing._sent([tensor])[0] is tensor
        assert tensor.is_shared()
        assert tensor.data_ptr() == place


@pytest.mark.parametrize(("module", "name"), [(os, "memfd_create"), (fcntl, "F_ADD_SEALS")])
def test_without_memory_to_seal(monkeypatch: pytest.MonkeyPatch, module: Any, name: str):
    monkeypatch.delattr(module, name)
    offering._has_memfds.cache_clear()
    try:
        tensor = large(3)
        assert tensor.is_shared()
        assert tensor.unique().tolist() == [3]
        assert sharing._sent([tensor])[0] is tensor
    finally:
        offering._has_memfds.cache_clear()


def test_a_process_that_is_closed_to_others():
    tensor = large()
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    try:
        assert sharing._sent([tensor])[0] is tensor
    finally:
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    assert type(sharing._sent([tensor])[0]) is sharing.Sent


def test_a_process_that_was_closed_to_others_since(monkeypatch: pytest.MonkeyPatch):
    message = bytes(ForkingPickler.dumps(sharing.carried({"a": large()})))

    def refuse(*args: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError, match=f"process {os.getpid()} sent a batch, but this one may not open"):
        pickle.loads(message)


def test_allowed(monkeypatch: pytest.MonkeyPatch):
    offering._allowed.cache_clear()
    assert offering._allowed()
    offering._allowed.cache_clear()
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)
    assert not offering._allowed()
    offering._allowed.cache_clear()


def test_copies_and_pickles_are_plain():
    for batch in ({"a": large(), "b": torch.ones(2)}, [large()]):
        carried = sharing.carried(batch)
        for clone in (copy.deepcopy(carried), pickle.loads(pickle.dumps(carried))):
            assert type(clone) is type(batch)
            tensor = clone["a"] if isinstance(clone, dict) else clone[0]
            assert torch.equal(tensor, large())
            tensor[0] = 1
        assert torch.equal(batch["a"] if isinstance(batch, dict) else batch[0], large())
        assert type(copy.copy(carried)) is type(batch)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
def test_small_tensors_are_copied(dtype: torch.dtype, shape: tuple[int, ...]):
    tensor = torch.ones(shape, dtype=dtype)
    got = send([tensor])[0]
    assert same(got, tensor)
    assert got.data_ptr() != tensor.data_ptr() or not got.numel()
    got.zero_()


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_many_batches_at_once(tmp_path: Any, context: str):
    """More than there are descriptors, when those that the loop no longer holds are not closed."""
    samples = [(np.full(LARGE, i, np.uint8), i) for i in range(40)]
    dataset = Dataset[Any](write(tmp_path / "x.ffr", samples))
    many = dataset.subset([i % 40 for i in range(240)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 100, hard))
    try:
        loader = DataLoader(many, 2, num_workers=1, prefetch_factor=8, multiprocessing_context=context)
        for k, (images, labels) in enumerate(loader):
            assert images[:, 0].tolist() == labels.tolist() == [2 * k % 40, 2 * k % 40 + 1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
