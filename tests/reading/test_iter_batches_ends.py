"""`iter_batches` cut short: by signals, by the end of the process, by a fork."""

import itertools
import multiprocessing
import os
import signal
import threading

import builders
import children
import numpy as np
import pytest
from builders import IO_MODES
from children import descriptors

from ffrecord import FileReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)


@in_every_mode
def test_signals_while_it_waits(sample_file, io):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with FileReader(sample_file.path, io=io) as reader:
            for packed in reader.iter_batches(itertools.repeat(range(reader.n)), 3, packed=True):
                assert builders.unpack(packed) == sample_file.samples
                if len(seen) > 50:
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Interrupted(BaseException):
    pass


@children.interrupts
@in_every_mode
def test_interrupts_while_it_waits(sample_file, io):
    """The iteration is lost, the reader is not."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    with children.alarms(interrupt), FileReader(sample_file.path, io=io) as reader:
        for i in range(30):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + i * 0.0002)
                for arrays in reader.iter_batches(itertools.repeat(range(reader.n)), 1 + i % 4):
                    del arrays
            except Interrupted:
                continue
        assert builders.read_all(reader) == sample_file.samples


# The handler's exception may come up in somebody's callback of the garbage collector, which can only report it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@children.interrupts
@in_every_mode
@pytest.mark.parametrize("packed", [False, True])
def test_going_on_after_interrupts(tmp_path, io, packed):
    """Wherever the handler struck, what comes afterwards is whole and in order; each may cost one batch, not two."""
    count = 3000
    path = builders.write_samples(tmp_path / "a.ffr", [b"%06d" % i * 200 for i in range(count)])
    found, waiting, interrupted = [], [], []

    def interrupt(*_: object) -> None:
        if waiting:
            waiting.clear()
            interrupted.append(1)
            raise Interrupted

    def following() -> object:
        try:
            waiting.append(1)
            result = next(batches, "end")
            waiting.clear()
        except Interrupted:
            return following()
        return result

    with children.alarms(interrupt), FileReader(path, io=io) as reader:
        batches = reader.iter_batches([[i, count - 1 - i] for i in range(count)], 3, packed=packed)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0017)
        while (result := following()) != "end":
            first, last = builders.unpack(result) if packed else [array.tobytes() for array in result]
            found.append((int(first[:6]), int(last[:6]), len(first), len(last)))
    assert all((first + last, *sizes) == (count - 1, 1200, 1200) for first, last, *sizes in found)
    order = [first for first, *_ in found]
    assert order == sorted(set(order))
    assert count - len(interrupted) <= len(order)


@pytest.mark.parametrize("how", ["sys.exit()", "os._exit(0)", "pass", "reader.close()", "del reader"])
def test_a_process_may_end_midway(sample_file, how):
    code = f"""
import os, sys
from ffrecord import FileReader
reader = FileReader(sys.argv[1])
batches = reader.iter_batches([range(300)] * 100, 8)
next(batches)
{how}
"""
    children.run(code, sample_file.path, timeout=20)


def test_ctrl_c_ends_a_loop(sample_file):
    code = """
import itertools, os, sys, threading, time
from ffrecord import FileReader
reader = FileReader(sys.argv[1])
threading.Timer(0.3, os.kill, (os.getpid(), 2)).start()
try:
    for arrays in reader.iter_batches(itertools.repeat(range(300)), 3):
        pass
except KeyboardInterrupt:
    print(len(reader.read(range(300))))
"""
    assert children.run(code, sample_file.path, timeout=20) == "300\n"
    assert os.path.exists(sample_file.path)


# Forks

BATCHES = [[i, 2 * i, 299 - i, 5] for i in range(60)]


def right(batches: object, samples: list[bytes], first: int = 0) -> bool:
    """Whether the rest of an iteration is what it should be."""
    found = [[array.tobytes() for array in arrays] for arrays in batches]
    return found == [[samples[i] for i in indices] for indices in BATCHES[first:]]


@in_every_mode
@pytest.mark.parametrize("prefetch", [0, 1, 4, 70])
def test_a_fork_with_batches_in_flight(sample_file, io, prefetch):
    """Threads do not survive it: what they were reading, the child reads itself; the parent notices nothing."""
    with FileReader(sample_file.path, io=io) as reader:
        batches = reader.iter_batches(iter(BATCHES), prefetch)
        for delivered in range(1, 21):
            next(batches)
            if delivered in (1, 3, 20):
                assert children.in_child(lambda first=delivered: right(batches, sample_file.samples, first)) == 0
        assert right(batches, sample_file.samples, 20)


@in_every_mode
def test_a_child_that_closes_midway(sample_file, io):
    """It has its own count of who reads: closing frees descriptors there, and none here."""
    with FileReader(sample_file.path, io=io) as reader:
        batches = reader.iter_batches(iter(BATCHES), 4)
        next(batches)

        def child() -> bool:
            good = right(batches, sample_file.samples, 1)
            reader.close()
            return good and sample_file.path not in descriptors().values() and reader.stats().open_files == 0

        def child_without_reading() -> bool:
            reader.close()
            return sample_file.path not in descriptors().values()

        assert [children.in_child(child), children.in_child(child_without_reading)] == [0, 0]
        assert right(batches, sample_file.samples, 1)


@in_every_mode
def test_a_child_that_drops_what_was_begun(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        batches = [reader.iter_batches(iter(BATCHES), 4) for _ in range(3)]
        for each in batches:
            next(each)

        def child() -> bool:
            dropped = builders.read_all(reader) == sample_file.samples
            batches.clear()
            return dropped and builders.read_all(reader) == sample_file.samples

        assert children.in_child(child) == 0
        assert all(right(each, sample_file.samples, 1) for each in batches)


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.long)])
@in_every_mode
def test_forks_while_other_threads_iterate(sample_file, io, rounds):
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if not right(reader.iter_batches(BATCHES, 3), sample_file.samples):
                wrong.append(1)

    with FileReader(sample_file.path, io=io) as reader:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            statuses = [
                children.in_child(lambda: right(reader.iter_batches(BATCHES, 2), sample_file.samples))
                for _ in range(rounds)
            ]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert (statuses, wrong) == ([0] * rounds, [])


def iterate(reader: FileReader, prefetch: int) -> list[bytes]:
    with reader:
        packed = list(reader.iter_batches(BATCHES, prefetch, packed=True))
    return [sample for each in packed for sample in builders.unpack(each)]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers(sample_file, method):
    """Readers go to them by name; batches in flight here do not matter."""
    with FileReader(sample_file.path) as reader:
        batches = reader.iter_batches(iter(BATCHES), 4)
        next(batches)
        with multiprocessing.get_context(method).Pool(2) as pool:
            got = pool.starmap(iterate, [(reader, prefetch) for prefetch in (0, 1, 4)])
            pool.close()
            pool.join()
        assert right(batches, sample_file.samples, 1)
    assert got == [[sample_file.samples[i] for indices in BATCHES for i in indices]] * 3


def test_mixed_calls_of_eight_threads(reader, sample_file):
    wrong, wanted = [], sample_file.samples

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for turn in range(12):
            indices = random.integers(0, reader.n, 40)
            low, high = sorted(random.integers(0, reader.n, 2).tolist())
            found = [
                [sample.tobytes() for sample in reader.read(indices)] == [wanted[i] for i in indices],
                builders.unpack(reader.read_packed(indices)) == [wanted[i] for i in indices],
                [sample.tobytes() for sample in reader.read_range(low, high)] == wanted[low:high],
                reader.read_one(turn).tobytes() == wanted[turn],
                right(reader.iter_batches(BATCHES, turn % 4), wanted) if turn % 4 == seed % 4 else True,
                reader.stats().records > 0,
            ]
            if not all(found):
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


COLLECTED = """
import gc, sys
from ffrecord import FileReader

for _ in range(20):
    with FileReader(sys.argv[1], io=sys.argv[2]) as reader:
        begun = reader.iter_batches([range(reader.n)] * 6, 4)
        next(begun)
        begun.kept = cycle = [begun]
    reader = FileReader(sys.argv[1], io=sys.argv[2])
    begun = reader.iter_batches([range(reader.n)] * 6, 4)
    next(begun)
    reader.kept = cycle = [reader, begun]
    begun.kept = cycle
    del begun, reader, cycle
    gc.collect()
    with FileReader(sys.argv[1], io=sys.argv[2]) as reader:
        assert [set(sample.tolist()) for sample in reader.read(range(3))] == [{1}, {2}, {3}]
"""


@in_every_mode
def test_the_collector_ends_them_midway(tmp_path, io):
    """In any order: memory that threads read into is there until they have ended."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes([i + 1]) * (1 << 20) for i in range(40)])
    children.run(COLLECTED, path, io, MALLOC_MMAP_THRESHOLD_="131072")
