"""How batches get from workers to the loader."""

import copy
import ctypes
import gc
import os
import pickle
import queue
import resource
import sys
import threading
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import begin, in_child
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_torch_schema import same, write
from torch.utils.data import DataLoader
from torch_builders import WORKERS_ANYWHERE

from ffrecord.torch import Dataset, transfer
from ffrecord.torch import shared_memory as lending

pytestmark = WORKERS_ANYWHERE

LARGE = 100_000
PR_SET_DUMPABLE = 4


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(transfer, "get_worker_info", lambda: object())
    monkeypatch.setattr(lending, "_blocks", lending.SharedBlocks())
    # A test before these that was another user for a while has closed this process to others.
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
    yield
    lending._blocks.close()


def large(value: int = 7) -> torch.Tensor:
    return transfer.copy_rows(np.full((4, 2 * LARGE), value, np.uint8)[:, ::2][:, :LARGE])


def send(batch: Any) -> Any:
    return pickle.loads(ForkingPickler.dumps(transfer.carry(batch)))


def memory_files() -> int:
    """Return the number of open descriptors without sockets, which earlier tests may close at any time."""
    places = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(not os.readlink(place).startswith("socket:") for place in places if os.path.lexists(place))


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


def pieces() -> int:
    return len(lending._blocks)


def test_memory_is_used_again():
    for i in range(20):
        kept = send({"a": large(i)})
        assert kept["a"].unique().tolist() == [i]
        del kept
    assert pieces() == 1


def test_what_is_held_stays_as_it_was():
    kept = [send({"a": large(i)})["a"] for i in range(10)]
    here = [large(i) for i in range(10, 20)]
    assert [each.unique().tolist() for each in kept + here] == [[i] for i in range(20)]
    assert pieces() == 20


def test_what_has_not_arrived_stays_as_it_was():
    messages = [ForkingPickler.dumps(transfer.carry({"a": large(i)})) for i in range(5)]
    assert pieces() == 5
    assert [pickle.loads(each)["a"][0].item() for each in messages] == list(range(5))
    assert send([large(6)])[0][0] == 6
    assert pieces() == 5


def test_a_view_holds_it():
    part = send([large(1)])[0][:5]
    large(2)
    assert part.tolist() == [1] * 5


def test_a_message_of_another_memory():
    message = bytes(ForkingPickler.dumps(transfer.carry({"a": large()})))
    assert pickle.loads(message)["a"][0] == 7
    lending._blocks.close()
    with pytest.raises(FileNotFoundError, match="no longer has the memory"):
        pickle.loads(message)


def test_a_descriptor_that_is_another_by_now(tmp_path: Any):
    message = bytes(ForkingPickler.dumps(transfer.carry({"a": large()})))
    (piece,) = lending._blocks._blocks.values()
    with open(tmp_path / "x", "w+b") as file:
        os.dup2(file.fileno(), piece.fd)
        with pytest.raises(FileNotFoundError, match=f"process {os.getpid()} no longer has the memory"):
            pickle.loads(message)


def test_the_same_tensor_sent_twice():
    tensor = large(1)
    first, second = send([tensor])[0], send([tensor])[0]
    del tensor, first
    large(2)
    assert pieces() == 2
    assert second.unique().tolist() == [1]
    del second
    kept = [large(3), large(4)]
    assert pieces() == 2
    del kept


def test_sent_again_before_it_arrived_it_goes_torchs_way():
    """Which of the two arrived could not be told."""
    tensor = large()
    sent = [transfer._to_message([tensor])[0] for _ in range(2)]
    assert type(sent[0]) is transfer.SentTensor
    assert sent[1] is tensor
    pickle.loads(pickle.dumps(sent[0]))
    assert type(transfer._to_message([tensor])[0]) is transfer.SentTensor


def test_sizes():
    """A piece serves what is not much smaller; those that nothing needs are given up."""
    for size in (400_000, 300_000, 101_000, 400_000):
        transfer.copy_rows(np.zeros(size, np.uint8))
    assert [piece.capacity for piece in lending._blocks._blocks.values()] == [401_408]
    for _ in range(2 * lending.UNUSED_MOST):
        transfer.copy_rows(np.zeros(90_000, np.uint8))
    assert [piece.capacity for piece in lending._blocks._blocks.values()] == [90_112]


def test_no_more_pieces_than_descriptors_are_to_be_had(monkeypatch: pytest.MonkeyPatch):
    """What is held, or on its way, is left to it; what is more goes in the message, until something is given up."""
    monkeypatch.setattr(lending, "_blocks_most", lambda: 10)
    messages = [ForkingPickler.dumps(transfer.carry([large(i)])) for i in range(10)]
    tensor = large(20)
    assert not tensor.is_shared()
    assert same(send([tensor])[0], tensor)
    kept = [pickle.loads(each)[0] for each in messages]
    assert isinstance(transfer._to_message([large()])[0].data, bytes)
    assert pieces() == 10
    del kept[3]
    again = send([large(11)])[0]
    assert [each[0].item() for each in [*kept, again]] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]
    assert pieces() == 10


def test_what_is_held_for_long_is_given_up():
    kept = [send([large(1)])[0] for _ in range(5)]
    for _ in range(2 * lending.UNUSED_MOST):
        send([large(2)])
    assert pieces() == 1
    assert all((each == 1).all() for each in kept)


def test_nothing_is_left():
    gc.collect()
    before, maps = memory_files(), lines("/proc/self/maps")
    kept = [send([large(i)])[0] for i in range(20)]
    kept.clear()
    lending._blocks.close()
    gc.collect()
    assert memory_files() == before
    assert lines("/proc/self/maps") == maps


def lines(path: str) -> int:
    """Of those that are of memory that is lent."""
    return Path(path).read_text().count("ffrecord batch")


def test_a_batch_that_is_sent_on_may_be_used_on():
    """torch moves what it sends to shared memory, under the eyes of who uses it, unless it is there already."""
    tensor = send([large(3)])[0]
    place = tensor.data_ptr()
    message = ForkingPickler.dumps(tensor)
    assert tensor.data_ptr() == place
    again = pickle.loads(message)
    del tensor
    large(4)
    assert again.unique().tolist() == [3]


def test_what_a_forked_child_may_look_at_is_not_used_again():
    kept = [send([large(5)])[0]]
    go = os.pipe()
    # The child looks when all this has happened.
    child = begin(lambda: os.read(go[0], 1) == b"x" and not pieces() and (kept[0].numpy() == 5).all())
    kept.clear()
    for i in range(10):
        large(i)
    assert pieces() == 2
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for fd in go:
        os.close(fd)
    both = [large(1), large(2)]
    assert pieces() == len(both)


def test_what_a_child_drops_its_parent_still_holds():
    kept = [send([large(5)])[0]]
    assert in_child(lambda: not kept.clear()) == 0
    for i in range(10):
        large(i)
    assert kept[0].unique().tolist() == [5]


class LendingMachine(RuleBasedStateMachine):
    """Whatever is sent, received, kept and dropped, in whatever order: nothing that is held or on its way changes."""

    def __init__(self) -> None:
        super().__init__()
        lending._blocks.close()
        self.value = 0
        self.here: list[tuple[torch.Tensor, int]] = []
        self.messages: list[tuple[bytes, int]] = []

    @rule(size=st.sampled_from([70_000, 100_000, 300_000]))
    def make(self, size: int) -> None:
        self.value = self.value % 255 + 1
        self.here.append((transfer.copy_rows(np.full(size, self.value, np.uint8)), self.value))

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        tensor, value = data.draw(st.sampled_from(self.here))
        self.messages.append((bytes(ForkingPickler.dumps(transfer.carry([tensor]))), value))

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        message, value = self.messages.pop(data.draw(st.integers(0, len(self.messages) - 1)))
        self.here.append((pickle.loads(message)[0], value))

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.here.pop(data.draw(st.integers(0, len(self.here) - 1)))

    @invariant()
    def unchanged(self) -> None:
        for tensor, value in self.here:
            assert tensor[0] == tensor[-1] == value

    def teardown(self) -> None:
        for message, value in self.messages:
            assert pickle.loads(message)[0].unique().tolist() == [value]


@pytest.mark.usefixtures("in_a_worker")
class TestLending(LendingMachine.TestCase):
    """Its sequences."""

    settings = settings(max_examples=max(10, settings().max_examples // 3))


def test_large_tensors_from_elsewhere_are_copied_there():
    for tensor in (torch.arange(LARGE).view(2, -1), torch.ones(LARGE, dtype=torch.bool)):
        got = send([tensor])[0]
        assert torch.equal(got, tensor) and got.dtype == tensor.dtype
        tensor.zero_()
        assert got.any()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64])
@pytest.mark.parametrize(
    "shape, order",
    [((3, 2), (1, 0)), ((4, 50, 60, 3), (0, 3, 1, 2)), ((70_000, 2), (1, 0)), ((1, 9, 1, 2), (2, 1, 0, 3))],
)
def test_tensors_lie_as_they_did(shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype, shared: bool):
    """As channels_last ones do."""
    count = int(np.prod(shape))
    tensor = (torch.arange(count) % 7).to(dtype)
    if shared:
        tensor = transfer.copy_rows(tensor.view(torch.uint8).numpy()).view(dtype)
    tensor = tensor.view(shape).permute(order)
    got = send([tensor])[0]
    assert torch.equal(got, tensor) and got.dtype == tensor.dtype
    assert got.stride() == tensor.stride()


@pytest.mark.parametrize("count", [2, LARGE])
def test_what_has_yet_to_be_negated_is(count: int):
    """A conjugate, and its imaginary part: bits of a tensor, which torch's way forgets."""
    conjugate = torch.complex(torch.ones(count), torch.ones(count)).conj()
    for tensor in (conjugate, conjugate.imag):
        assert tensor.is_conj() or tensor.is_neg()
        assert torch.equal(send([tensor])[0], tensor.clone())


@pytest.mark.parametrize("cut", [lambda t: t[:, ::2], lambda t: t[1:, 3:], lambda t: t[0].expand(5, -1)])
@pytest.mark.parametrize("rows", [6, 60_000])
def test_tensors_with_gaps_arrive_without_them(rows: int, cut: Any):
    tensor = cut(torch.arange(rows * 5).view(rows, 5))
    got = send([tensor])[0]
    assert torch.equal(got, tensor) and got.dtype == tensor.dtype
    assert got.is_contiguous()


@pytest.mark.parametrize(
    "make",
    [
        lambda: large()[1:],
        lambda: torch.zeros(LARGE).share_memory_(),
        lambda: torch.zeros(2, requires_grad=True),
        lambda: torch.zeros(2).to_sparse(),
    ],
)
def test_tensors_left_to_torch(make: Any):
    tensor = make()
    assert transfer._to_message({"a": tensor})["a"] is tensor


def test_where_processes_may_not_look_at_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lending, "_may_open_others", lambda: False)
    tensor = large()
    assert transfer._to_message([tensor])[0] is tensor


@pytest.mark.parametrize("name", ["memfd_create", "posix_fallocate"])
def test_without_memory_to_lend_it_goes_in_the_message(monkeypatch: pytest.MonkeyPatch, name: str):
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    assert lending.can_lend()
    gc.collect()  # what earlier tests left
    before = memory_files()
    monkeypatch.setattr(os, name, fail)
    tensor = large()
    assert not tensor.is_shared()
    assert same(send([tensor])[0], tensor)
    del tensor
    assert memory_files() == before


@pytest.fixture
def in_files() -> Iterator[None]:
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    yield
    torch.multiprocessing.set_sharing_strategy(before)


def test_in_files_nothing_is_copied(in_files: None):
    for tensor in (large(), torch.zeros(LARGE).share_memory_()):
        place = tensor.data_ptr()
        assert transfer._to_message([tensor])[0] is tensor
        assert tensor.is_shared()
        assert tensor.data_ptr() == place


def test_where_there_are_no_memfds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "memfd_create")
    lending._can_make_block.cache_clear()
    try:
        tensor = large(3)
        assert tensor.is_shared()
        assert tensor.unique().tolist() == [3]
        assert transfer._to_message([tensor])[0] is tensor
    finally:
        lending._can_make_block.cache_clear()


def test_a_process_that_is_closed_to_others():
    tensor = large()
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    try:
        assert transfer._to_message([tensor])[0] is tensor
    finally:
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    assert type(transfer._to_message([tensor])[0]) is transfer.SentTensor


def test_a_process_that_was_closed_to_others_since(monkeypatch: pytest.MonkeyPatch):
    message = bytes(ForkingPickler.dumps(transfer.carry({"a": large()})))

    def refuse(*args: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError, match=f"process {os.getpid()} sent a batch, but this one may not open"):
        pickle.loads(message)


def test_allowed(monkeypatch: pytest.MonkeyPatch):
    lending._may_open_others.cache_clear()
    assert lending._may_open_others()
    lending._may_open_others.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getppid", lambda: 2**22 + 1)
        assert not lending._may_open_others()
        lending._may_open_others.cache_clear()
    # As in a namespace of process ids that has the /proc of another.
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not lending._may_open_others()
    lending._may_open_others.cache_clear()


def test_copies_and_pickles_are_plain():
    for batch in ({"a": large(), "b": torch.ones(2)}, [large()]):
        carried = transfer.carry(batch)
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


def test_more_columns_than_a_worker_has_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those that it has are not given up for the others, whatever is on its way."""
    monkeypatch.setattr(lending, "_blocks_most", lambda: 30)
    count = 40
    samples = [{f"c{k}": np.full(2000, (i + k) % 250, np.uint8) for k in range(count)} for i in range(40)]
    dataset = Dataset[Any](write(tmp_path / "x.ffr", samples))
    many = dataset.subset([i % 40 for i in range(2000)])
    for n, batch in enumerate(DataLoader(many, 40, num_workers=2, multiprocessing_context="fork")):
        for k in range(count):
            assert batch[f"c{k}"].shape == (40, 2000)
            assert torch.equal(batch[f"c{k}"][:, -1], ((torch.arange(40) + k) % 250).to(torch.uint8)), (n, k)


def test_one_thread_sends_while_another_makes(monkeypatch: pytest.MonkeyPatch):
    """As in a worker: what was made is sent by a thread of torch's queue, and received by another process."""
    monkeypatch.setattr(lending, "_blocks_most", lambda: 6)
    made: queue.Queue[Any] = queue.Queue(3)
    sent: queue.Queue[Any] = queue.Queue(3)
    wrong: list[Any] = []

    def send_all() -> None:
        while (batch := made.get()) is not None:
            sent.put(bytes(ForkingPickler.dumps(batch)))
            del batch  # before the next one is waited for
        sent.put(None)

    def receive_all() -> None:
        n = 0
        while (message := sent.get()) is not None:
            (tensor,) = pickle.loads(message)
            if tensor.numpy().min() != n % 251 or tensor.numpy().max() != n % 251:
                wrong.append((n, tensor[0].item()))
            n += 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=each) for each in (send_all, receive_all)]
    try:
        for thread in threads:
            thread.start()
        for n in range(3000):
            made.put(transfer.carry([transfer.copy_rows(np.full(70_000, n % 251, np.uint8))]))
        made.put(None)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_a_message_that_arrived_does_not_arrive_again():
    message = bytes(ForkingPickler.dumps(transfer.carry([large(1)])))
    first = pickle.loads(message)
    with pytest.raises(FileNotFoundError, match="no longer has the memory"):
        pickle.loads(message)
    assert send([large(2)])[0][0] == 2
    assert first[0][0] == 1
    assert pieces() == 2


def test_a_passing_want_of_descriptors_is_not_remembered(monkeypatch: pytest.MonkeyPatch):
    lending._can_make_block.cache_clear()
    with monkeypatch.context() as patched:

        def fail(*args: Any) -> None:
            raise OSError(24, "Too many open files")

        patched.setattr(os, "memfd_create", fail)
        assert lending.can_lend()
        assert lending.lend(np.zeros(LARGE, np.uint8)) is None
    assert lending.lend(np.zeros(LARGE, np.uint8)) is not None


@pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:TypedStorage")
def test_quantized_tensors_keep_their_scale() -> None:
    values = torch.arange(12.0).reshape(3, 4)
    each = torch.quantize_per_tensor(values, 0.5, 3, torch.quint8)
    by_channel = torch.quantize_per_channel(values, torch.ones(3) / 2, torch.zeros(3), 0, torch.qint8)
    for tensor in (each, by_channel):
        found = pickle.loads(ForkingPickler.dumps(transfer.Parcel({"x": tensor})))["x"]
        assert torch.equal(found.dequantize(), values)
