"""What a loader leaves behind: no threads, no processes, no memory; whatever way a loop ends."""

import gc
import os
import signal
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import children
import numpy as np
import pytest
import torch
from loader_builders import child_processes, fixed, flat, ids, mixed, write
from torch_builders import WORKERS_ANYWHERE

from ffrecord.errors import StateError, UserFunctionError
from ffrecord.torch import Loader
from ffrecord.torch.loading.batch_builder import BuiltBatch
from ffrecord.torch.loading.placement import BatchPlacement
from ffrecord.torch.loading.stats import LoaderStats, Seconds

pytestmark = WORKERS_ANYWHERE
COUNT = 40
PREFETCH = 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "mixed.ffr", map(mixed, range(COUNT)))


@pytest.fixture(scope="module")
def fixed_path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "fixed.ffr", map(fixed, range(COUNT)))


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ffrecord")]


def soon(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def leave(loader, way):
    if way == "end":
        for _ in loader:
            pass
    elif way == "break":
        for _ in loader:
            assert threads()
            break
    elif way == "exception":
        with pytest.raises(ZeroDivisionError):
            for _ in loader:
                raise ZeroDivisionError
    elif way == "garbage":
        iterator = iter(loader)
        next(iterator)
        cycle = [iterator]
        cycle.append(cycle)
    elif way == "closed reader":
        iterator = iter(loader)
        next(iterator)
        loader.close()


@pytest.mark.parametrize("way", ["end", "break", "exception", "garbage", "closed reader"])
def test_threads_end(path, way):
    leave(Loader(path, 2, num_threads=3), way)
    gc.collect()
    assert soon(lambda: not threads())


@pytest.mark.parametrize("way", ["end", "break", "exception", "garbage"])
def test_workers_end(path, way):
    before = child_processes()
    if way == "break":
        for _ in Loader(path, 2, num_workers=2):
            break
    else:
        leave(Loader(path, 2, num_workers=2), way)
    gc.collect()
    assert child_processes() <= before


@pytest.mark.parametrize("way", ["end", "break", "garbage"])
def test_batches_are_freed(path, way):
    """Also those that were read ahead."""
    alive = weakref.WeakSet()

    class Held:
        pass

    def transform(sample):
        held = Held()
        alive.add(held)
        return {"held": held}

    leave(Loader(path, 2, num_threads=2, transform=transform), way)
    gc.collect()
    assert soon(lambda: not threads() and not alive)


def test_no_more_is_read_ahead_than_asked_for(path):
    seen = []

    def transform(sample):
        seen.append(sample["id"])
        return 0

    loader = Loader(path, 1, "sequential", num_threads=2, prefetch=PREFETCH, transform=transform)
    iterator = iter(loader)
    next(iterator)
    assert soon(lambda: len(seen) == 1 + PREFETCH)
    time.sleep(0.05)
    assert len(seen) == 1 + PREFETCH
    next(iterator)
    assert soon(lambda: len(seen) == 2 + PREFETCH)


def test_order_is_kept_whoever_is_late(path):
    def transform(sample):
        time.sleep(0.002 * (sample["id"] % 3))
        return sample

    assert flat(Loader(path, 1, "sequential", num_threads=4, transform=transform)) == list(range(COUNT))


def test_torch_computes_alone_in_our_threads_only(path):
    found = []

    def note():
        found.append(torch.get_num_threads())

    def transform(sample):
        note()
        return 0

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        list(Loader(path, 4, num_threads=2, transform=transform))
        assert set(found) == {1}
        other = threading.Thread(target=note)
        other.start()
        other.join()
        assert found[-1] == torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def three_threads():
    """For torch to compute with."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_a_new_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def slowly(monkeypatch):
    """Let threads take their time to compute alone."""
    real = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda count: real(count) or time.sleep(0.1 * (count == 1)))


def test_what_the_user_sets_in_the_loop_stays(path, three_threads, monkeypatch):
    slowly(monkeypatch)
    for i, _ in enumerate(Loader(path, 4, num_threads=3)):
        if i == 0:
            torch.set_num_threads(5)
            assert torch.get_num_threads() == 5
    assert soon(lambda: not threads())
    assert in_a_new_thread(torch.get_num_threads) == 5


def test_a_loop_in_a_thread_that_never_computed(path, three_threads, monkeypatch):
    slowly(monkeypatch)

    def work():
        next(iter(Loader(path, 4, num_threads=3)))
        return torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)

    assert in_a_new_thread(work) == (3, 3)


def test_forked_while_threads_start(path, monkeypatch):
    parent, real = os.getpid(), torch.set_num_threads
    entered, release = threading.Event(), threading.Event()

    def waiting(count):
        if os.getpid() == parent and count == 1:
            entered.set()
            release.wait(30)
        real(count)

    monkeypatch.setattr(torch, "set_num_threads", waiting)
    with ThreadPoolExecutor(1) as pool:
        loop = pool.submit(lambda: flat(Loader(path, 4, "sequential", num_threads=2)))
        try:
            assert entered.wait(30)
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # ends it if it hangs
                os._exit(flat(Loader(path, 4, "sequential", num_threads=2)) != list(range(COUNT)))
        finally:
            release.set()
        assert loop.result() == list(range(COUNT))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_cannot_be_set_up(path, monkeypatch):
    def refuses(count):
        if threading.current_thread().name.startswith("ffrecord"):
            raise MemoryError("no room for settings")

    monkeypatch.setattr(torch, "set_num_threads", refuses)
    with pytest.raises(MemoryError, match="no room for settings"):
        next(iter(Loader(path, 4, num_threads=2)))
    assert soon(lambda: not threads())


def test_threads_that_cannot_be_started(path, three_threads, monkeypatch):
    real = threading.Thread.start

    def start(thread):
        if thread.name == "ffrecord-loader-1":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        next(iter(Loader(path, 4, num_threads=2)))
    assert soon(lambda: not threads())
    assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3


def test_closed_while_it_waits(path):
    """The epoch does not count as done."""
    release = threading.Event()
    loader = Loader(path, 4, "sequential", transform=lambda sample: sample["id"] < 4 or release.wait(30))
    iterator = iter(loader)
    next(iterator)
    timer = threading.Timer(0.5, iterator.close)
    timer.start()
    try:
        with pytest.raises(StateError, match="closed while it waited"):
            next(iterator)
    finally:
        release.set()
        timer.join()
    assert (loader.epoch, loader.position) == (0, 4)
    assert list(iterator) == []


def test_after_the_end_nothing_comes(path):
    iterator = iter(Loader(path, 20))
    assert len(list(iterator)) == 2
    assert list(iterator) == []


def test_interrupt_while_waiting(path):
    release = threading.Event()
    loader = Loader(path, 4, transform=lambda sample: release.wait(30))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    finally:
        release.set()
        timer.join()
    assert time.monotonic() - start < 10
    assert soon(lambda: not threads())


def test_forked_in_the_middle(path, fixed_path):
    """The child may begin loops of its own, and its end is not the parent's business."""
    loader, plain = Loader(path, 4, "sequential", num_threads=2), Loader(fixed_path, 4, "sequential")
    iterator, other = iter(loader), iter(plain)
    next(iterator), next(other)

    def work():
        with pytest.raises(RuntimeError, match="begun before a fork"):
            next(iterator)
        return flat(other) == list(range(4, COUNT)) and sorted(flat(loader)) == list(range(COUNT))

    assert children.in_child(work) == 0
    assert flat(iterator) == list(range(4, COUNT)) == flat(other)


# Starting Python with torch takes seconds, so this is one process.
ALONE = """
import sys, time
from ffrecord.torch import Loader

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

loader = Loader(sys.argv[1], 8, seed=1, num_threads=2)
sizes = []
for epoch in range(60):
    for i, batch in enumerate(loader):
        if epoch % 2 and i == 20:
            break
    sizes.append(resident())

hanging = Loader(sys.argv[1], 4, transform=lambda sample: time.sleep(60), timeout=0.1)
try:
    next(iter(hanging))
except TimeoutError:
    print("late")

iterator = iter(Loader(sys.argv[1], 1, num_threads=4, transform=lambda sample: sample))
next(iterator)
print(min(sizes[-10:]) - min(sizes[10:20]))
"""


@children.measures_memory
def test_alone(tmp_path):
    """Memory stays flat over epochs of 40 MB; the interpreter ends within a loop, and while a thread hangs.

    A batch of 0.8 MB that each epoch kept would be 40 MB; allocators alone drift by 10 MB.
    """
    path = write(tmp_path / "large.ffr", [(np.full(100_000, i % 256, np.uint8), f"{i}") for i in range(400)])
    late, growth = children.run(ALONE, path, timeout=50).split()  # less than the thread hangs
    assert late == "late" and int(growth) < 20 << 20


# Statistics


def test_stats(path):
    loader = Loader(path, 4, transform=lambda sample: time.sleep(0.001) or sample, num_threads=1)
    assert loader.stats().verdict == "nothing was loaded yet"
    for _ in loader:
        pass
    stats = loader.stats()
    assert isinstance(stats, LoaderStats)
    assert (stats.batches, stats.samples, stats.skipped) == (10, COUNT, 0)
    assert stats.bytes > 0 and stats.transform >= 0.001 * COUNT and stats.decode > 0 and stats.collate > 0
    assert stats.waiting > 0.5 * stats.transform and stats.waiting_share > 0.5
    assert stats.verdict.startswith("the training loop waits for data ") and "on transform (" in stats.verdict
    assert str(stats).endswith(stats.verdict) and "samples          40" in str(stats)


def test_stats_of_a_slow_training_loop(path):
    loader = Loader(path, 4)
    for _ in loader:
        time.sleep(0.05)
    assert loader.stats().computing > 10 * 0.05
    assert loader.stats().verdict.endswith("the loader is fast enough")


def test_stats_of_workers(path):
    loader = Loader(path, 4, num_workers=2, transform=slow)
    assert len(ids(loader)) == 10
    stats = loader.stats()
    assert stats.samples == COUNT and stats.transform >= 0.001 * COUNT and stats.bytes > 0


def slow(sample):
    time.sleep(0.001)
    return sample


def test_verdict_of_the_disk():
    stats = LoaderStats(batches=1, waiting=3.0, computing=1.0, io=6.0, crc=2.0, decode=0.5)
    assert stats.verdict == "the training loop waits for data 75% of its time, on reading (71%), checking CRC-32 (24%)"


# Threads that share an iterator


@pytest.mark.parametrize("how", [{"num_threads": 0}, {"num_threads": 3}, {"num_workers": 2}], ids=str)
@pytest.mark.parametrize("kind", ["fixed", "mixed"])
def test_threads_share_an_iterator(path, fixed_path, how, kind):
    """Each batch goes to one of them, and none is lost, or is there twice; a state counts them all."""
    loader = Loader({"fixed": fixed_path, "mixed": path}[kind], 3, seed=4, **how)
    expected = flat(Loader({"fixed": fixed_path, "mixed": path}[kind], 3, seed=4))
    iterator, barrier = iter(loader), threading.Barrier(4)

    def take(_):
        barrier.wait()
        return ids(iterator)

    with ThreadPoolExecutor(4) as pool:
        found = [batch for batches in pool.map(take, range(4)) for batch in batches]
    assert sorted(each for batch in found for each in batch) == sorted(expected)
    assert len(found) == -(-COUNT // 3) == loader.stats().batches
    assert (loader.epoch, loader.position) == (1, 0)


def test_an_error_ends_the_loop_of_every_thread(path):
    """None of them takes the epoch for whole."""

    def transform(sample):
        if sample["id"] == 20:
            raise ValueError("no")
        return 0

    iterator, barrier = iter(Loader(path, 2, "sequential", num_threads=2, transform=transform)), threading.Barrier(3)

    def take(_):
        barrier.wait()
        try:
            for _ in iterator:
                pass
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(3) as pool:
        errors = sorted(pool.map(take, range(3)), key=lambda error: type(error).__name__)
    assert [type(error) for error in errors] == [StateError, StateError, UserFunctionError]
    assert str(errors[0]) == "the loop ended with an error in another thread"


def test_a_signal_handler_that_asks_for_a_batch(path):
    """It is refused, as it would wait for ever for the one that it interrupts."""
    told = []

    def transform(sample):  # in a thread, while the loop waits for the batch
        if sample["id"] == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            deadline = time.monotonic() + 30
            while not told and time.monotonic() < deadline:
                time.sleep(0.01)
        return 0

    iterator = iter(Loader(path, COUNT, num_threads=1, transform=transform))

    def ask(*_):
        with pytest.raises(StateError, match="signal handler") as error:
            next(iterator)
        told.append(error)

    with children.alarms(ask):
        assert len(next(iterator)) == COUNT
    assert len(told) == 1


@pytest.mark.parametrize("moment", ["taken", "given back"])
def test_a_signal_handler_that_asks_at_the_edge_of_a_batch(path, moment):
    """While the loop has its turn, and does not wait yet or any more: the handler gets a batch of its own."""
    iterator, told = iter(Loader(path, 4, transform=lambda sample: sample["id"])), []

    class Turn:
        def __enter__(self):
            turn.acquire()
            if moment == "taken":
                self.come()

        def __exit__(self, *_):
            if moment != "taken":
                self.come()
            turn.release()

        def come(self):
            if not told:
                told.append(None)
                signal.raise_signal(signal.SIGALRM)

    turn, iterator._turn = iterator._turn, Turn()
    with children.alarms(lambda *_: told.append(next(iterator))):
        got = next(iterator)
    batches = [told[1], got, *iterator]
    assert sorted(torch.cat(batches).tolist()) == list(range(COUNT))


def test_the_thread_of_an_error_is_not_taken_for_a_later_one(path):
    """Identifiers of threads are used again: one of eight threads gets that of the first."""

    def fail(sample):
        raise ValueError("bad")

    iterator = iter(Loader(path, 4, transform=fail))
    got = []

    def take(_):
        barrier.wait()
        try:
            next(iterator)
        except (StateError, UserFunctionError, StopIteration) as error:
            got.append(type(error))

    for count in (1, 8):
        barrier = threading.Barrier(count)
        with ThreadPoolExecutor(count) as pool:
            assert len([*pool.map(take, range(count))]) == count
    assert got == [UserFunctionError] + [StateError] * 8


def test_a_copy_keeps_only_what_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the images of a batch that a GPU has decoded. The device "meta" is in place of a GPU."""
    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: SimpleNamespace(record=lambda stream: None))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    host, image = torch.arange(3), torch.empty(3, device="meta")
    built = BuiltBatch(None, None, {"image": image, "id": host, "name": ["a"]}, Seconds())
    copied = BatchPlacement(False, torch.device("meta")).copy(built)
    assert copied.batch["image"] is image and copied.batch["id"].is_meta and copied.batch["name"] == ["a"]
    assert len(copied.host) == 1 and copied.host[0] is host
