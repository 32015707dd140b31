"""`store` and `background`: stores that give only `_load` do all that a reader does."""

import gc
import os
import pickle
import signal
import threading
import time
import weakref
from pathlib import Path

import builders
import children
import numpy as np
import pytest

from ffrecord import FFRecordError, FileReader, FileWriter, FormatError
from ffrecord.errors import ArgumentError, ClosedError, MissingNamesError
from ffrecord.reading import python_engine
from ffrecord.reading import store as batching
from ffrecord.reading.store import Store

N = 100
RECORDS = builders.records([i * 37 % 300 for i in range(N)])


class Lines(Store):
    """A file of lines of hexadecimal digits; record i is line i. Line 13 cannot be had, if `unlucky`."""

    format = "lines"

    def __init__(self, path, check_data=True, *, on_error="raise", unlucky=False) -> None:
        self.path = path[0] if isinstance(path, list) else path
        self.unlucky = unlucky
        self.lines = Path(self.path).read_text().splitlines()
        super().__init__([self.path], len(self.lines), check_data, on_error=on_error)
        self.entered, self.go, self.released = threading.Event(), threading.Event(), 0
        self.go.set()

    def _load(self, positions):
        assert positions.dtype == np.int64
        self.entered.set()
        # Not `wait`: a signal handler that sets the event in this thread would be missed, or hang.
        assert children.wait_until(self.go.is_set, 10)
        return [self._one(position) for position in positions.tolist()]

    def _one(self, position):
        if self.unlucky and position == 13:
            return FFRecordError(f"Sample 13: {self.path}: line 13")
        return np.frombuffer(bytes.fromhex(self.lines[position]), np.uint8).copy()

    def _options(self):
        return {**super()._options(), "unlucky": self.unlucky}

    def _release(self):
        self.released += 1


class Named(Lines):
    """The same with names."""

    def keys(self):
        return [f"line {i}" for i in range(self.n)]


@pytest.fixture
def path(tmp_path) -> str:
    return builders.write(tmp_path / "a.txt", "\n".join(record.hex() for record in RECORDS).encode())


@pytest.fixture
def store(path):
    with Lines(path) as opened:
        yield opened


@pytest.fixture
def unlucky(path):
    with Lines(path, on_error="skip", unlucky=True) as opened:
        yield opened


def as_bytes(arrays) -> list[bytes]:
    return [array.tobytes() for array in arrays]


INDICES = [3, -1, 3, 0, -N, 99, 50]
WANTED = [RECORDS[i] for i in INDICES]


def test_what_it_is(store, path):
    assert (store.n, len(store), store.fnames, store.check_data, store.closed) == (N, N, [path], True, False)
    assert (store.format, store.checksum, store.skipped) == ("lines", None, 0)
    assert repr(store) == f"<Lines of 100 samples in 1 file, {path!r}>"
    assert store.locate(-1) == (path, 99)
    with pytest.raises(MissingNamesError, match=r"a\.txt: records of lines have no names"):
        store.keys()


def test_messages_about_several_files(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.ffr", "b.ffr")]
    for path in paths:
        with FileWriter(path) as writer:
            writer.write_one(b"x")
    with FileReader(paths) as reader:
        for wrong in (lambda: reader.read_one(2), lambda: reader.read([2]), reader.keys):
            with pytest.raises((IndexError, LookupError), match=r"a\.ffr …"):
                wrong()
    with FileReader(paths[0]) as reader, pytest.raises(IndexError, match=r"a\.ffr$"):
        reader.read_one(1)


def test_file_reader_is_a_store(small_file):
    with FileReader(small_file.path) as reader:
        assert isinstance(reader, Store)
        assert (reader.format, reader.checksum) == ("ffrecord", "CRC-32")
        assert as_bytes(sample["data"] for sample in reader.samples([3, -1])) == [
            small_file.samples[3],
            small_file.samples[-1],
        ]


def test_reading(store):
    assert as_bytes(store.read(INDICES)) == WANTED
    assert builders.unpack(store.read_packed(np.array(INDICES))) == WANTED
    assert store.read_one(-1).tobytes() == store[-1].tobytes() == RECORDS[-1]
    assert as_bytes(store[[1, 2]]) == RECORDS[1:3]
    assert as_bytes(store[10:90:7]) == RECORDS[10:90:7]
    assert as_bytes(store.read_range(20, 40)) == RECORDS[20:40]
    assert as_bytes(store) == RECORDS
    assert store.read([]) == []
    assert builders.unpack(store.read_packed([])) == []
    assert all(array.flags.writeable for array in store.read(INDICES))


def test_pieces_of_an_iteration(path, monkeypatch):
    monkeypatch.setattr(batching, "CHUNK_BYTES", 10 * batching.USUAL_SIZE)
    with Lines(path) as store:
        assert as_bytes(store) == RECORDS
        assert store.stats().batches == 11
        assert as_bytes(reversed(store[:])) == RECORDS[::-1]


def test_out(store):
    out = np.zeros(3000, np.uint8)
    data, offsets = store.read_packed(INDICES, out=out)
    assert np.shares_memory(data, out)
    assert builders.unpack((data, offsets)) == WANTED
    with pytest.raises(ValueError, match=f"out has 5 bytes, expected at least {sum(map(len, WANTED))}"):
        store.read_packed(INDICES, out=out[:5])
    with pytest.raises(TypeError, match="writable C-contiguous"):
        store.read_packed(INDICES, out=out[::2])


def test_columns(path, unlucky):
    """Of records of one size; another size is an error of its record."""
    size = len(RECORDS[5])
    same = [i for i in range(N) if len(RECORDS[i]) == size] * 2
    out = [np.zeros(1000, np.uint8), np.zeros(1000, np.uint8)]
    for room in (None, out):
        with Lines(path) as store:
            for column, (offset, length) in zip(
                store.read_columns(same, size, [(3, 4), (0, 2)], room), [(3, 4), (0, 2)], strict=True
            ):
                assert [row.tobytes() for row in column] == [RECORDS[i][offset : offset + length] for i in same]
            with pytest.raises(FormatError, match=f"Sample 6: .* expected {size}, the size of every sample"):
                store.read_columns([5, 6], size, [(0, 1)])
            with pytest.raises(ValueError, match="out has 1 arrays, expected 2"):
                store.read_columns(same, size, [(3, 4), (0, 2)], out[:1])
            with pytest.raises(ValueError, match=r"out\[0\] has 1 bytes, expected at least 8 for 2 records"):
                store.read_columns(same, size, [(3, 4)], [out[0][:1]])
    assert [len(column) for column in unlucky.read_columns([13, 5, 6], size, [(0, 1)])] == [1]
    (batch,) = unlucky.iter_columns([same], size, [(0, 1)])
    assert batch[0].shape == (len(same), 1)


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_batches(store, prefetch):
    batches = [[0, 1], np.array([5]), [], [-1, 7]]
    wanted = [[RECORDS[i] for i in batch] for batch in batches]
    assert [as_bytes(batch) for batch in store.iter_batches(batches, prefetch)] == wanted
    assert [builders.unpack(batch) for batch in store.iter_batches(batches, prefetch, packed=True)] == wanted


def test_batches_are_read_ahead(store):
    """And by what the indices were then."""
    indices = np.array([1, 2])
    store.go.clear()
    batches = store.iter_batches([[0], indices, [3]], 2)
    threading.Timer(0.05, store.go.set).start()
    assert as_bytes(next(batches)) == RECORDS[:1]
    indices[:] = 9
    deadline = time.monotonic() + 10
    while store.stats().batches < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert store.stats().batches == 3
    assert [as_bytes(batch) for batch in batches] == [RECORDS[1:3], RECORDS[3:4]]


@pytest.mark.parametrize("wrong", [N, -N - 1, 2**70])
def test_indices_out_of_range(store, wrong):
    for call in (store.read, store.read_packed, store.samples, lambda i: list(store.iter_batches([i]))):
        with pytest.raises(IndexError):
            call([0, wrong])
    for call in (store.read_one, store.sample, store.locate, store.__getitem__):
        with pytest.raises(IndexError):
            call(wrong)
    with pytest.raises(IndexError, match=r"expected 0 <= start <= stop <= 100"):
        store.read_range(0, N + 1)
    with pytest.raises(TypeError):
        store.read("12")


def test_stats(store):
    store.read([1, 2])
    store.read_packed([3])
    stats = store.stats()
    assert (stats.batches, stats.records, stats.bytes) == (2, 3, sum(map(len, RECORDS[1:4])))


# Errors


def test_raising(path):
    with Lines(path, unlucky=True) as store:
        for call in (store.read, store.read_packed, store.samples, lambda i: list(store.iter_batches([i]))):
            with pytest.raises(FFRecordError, match="line 13"):
                call([12, 13])
        assert as_bytes(store.read([12])) == [RECORDS[12]]
        with pytest.raises(FFRecordError):
            list(store)


def test_skipping(unlucky, caplog):
    kept = RECORDS[:13] + RECORDS[14:]
    assert as_bytes(unlucky) == kept
    assert builders.unpack(unlucky.read_packed(range(N))) == kept
    assert unlucky.skipped == 2
    assert "skipped or replaced: Sample 13" in caplog.text
    with pytest.raises(FFRecordError, match="line 13"):
        unlucky.read_one(13)
    outcome = unlucky._begin_packed([12, 13, 14])()
    assert [(place, str(error)) for place, error in outcome.failures] == [(1, f"Sample 13: {unlucky.path}: line 13")]
    assert builders.unpack(outcome.result) == [RECORDS[12], b"", RECORDS[14]]


def test_replacing(path):
    with Lines(path, on_error=lambda error: b"instead", unlucky=True) as store:
        assert as_bytes(store.read([12, 13])) == [RECORDS[12], b"instead"]
        assert builders.unpack(store.read_packed([13, 12])) == [b"instead", RECORDS[12]]
        assert store.read_one(13).tobytes() == store.sample(13)["data"].tobytes() == b"instead"


def test_skipping_has_a_limit(unlucky, monkeypatch):
    monkeypatch.setattr(batching, "SKIPPED_MOST", 3)
    with pytest.raises(FFRecordError, match="line 13"):
        unlucky.read([13] * 5)
    assert unlucky.skipped == 3


def test_arguments(path):
    with pytest.raises(ValueError, match="on_error is 'ignore'"):
        Lines(path, on_error="ignore")
    with pytest.raises(ArgumentError, match="nothing to open"):
        Lines.__mro__[1].__init__(Lines.__new__(Lines), [], 0)


# Samples


def test_samples(path):
    with Named(path, on_error="skip", unlucky=True) as store:
        samples = store.samples([14, 13, -1])
        assert [sample["key"] for sample in samples] == ["line 14", "line 99"]
        assert as_bytes(sample["data"] for sample in samples) == [RECORDS[14], RECORDS[99]]
        assert store.sample(-2)["key"] == "line 98"


def test_samples_without_names(store):
    (sample,) = store.samples([5])
    assert list(sample) == ["data"]
    assert sample["data"].tobytes() == RECORDS[5]


# Life


def test_closed(store):
    store.close()
    store.close()
    assert (store.closed, store.released) == (True, 1)
    for call in (store.read, store.read_packed, store.samples, lambda i: list(store.iter_batches([i]))):
        with pytest.raises(ClosedError, match="Lines has been closed"):
            call([0])
    assert repr(store).endswith(", closed>")


def test_closing_waits_for_reads(store):
    results: list[bytes] = []
    store.go.clear()
    reading = threading.Thread(target=lambda: results.extend(as_bytes(store.read([5]))))
    reading.start()
    assert store.entered.wait(10)
    closing = threading.Thread(target=store.close)
    closing.start()
    time.sleep(0.02)
    assert (closing.is_alive(), store.released) == (True, 0)
    store.go.set()
    closing.join(10)
    reading.join(10)
    assert (results, store.released) == ([RECORDS[5]], 1)


def test_closing_with_batches_in_flight(store):
    batches = store.iter_batches([[i] for i in range(20)], 10)
    next(batches)
    store.close()
    with pytest.raises(ClosedError):
        list(batches)


def test_closing_while_a_batch_waits_for_a_thread(store):
    """Whoever waits for it hears that the store is closed."""
    said = []

    def wait() -> None:
        try:
            waits[-1]()
        except BaseException as error:
            said.append(error)

    store.go.clear()
    waits = [store._begin_packed([0]) for _ in range(batching.THREADS + 1)]
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert store.entered.wait(10)
    time.sleep(0.02)
    threading.Timer(0.05, store.go.set).start()
    store.close()
    waiting.join(10)
    assert [str(error) for error in said] == [f"Lines has been closed. {store.fnames[0]}"]


def test_closing_in_the_middle_of_a_read_of_the_same_thread(store):
    """As a signal handler may: it cannot wait for that, which goes on and then releases what is open."""
    found = []

    def handle(*_) -> None:
        store.close()
        found.append(store.released)
        store.go.set()

    def signal_in_the_middle() -> None:
        if store.entered.wait(30):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    store.go.clear()
    store.entered.clear()
    with children.alarms(handle):
        thread = threading.Thread(target=signal_in_the_middle)
        thread.start()
        try:
            assert as_bytes(store.read([5])) == [RECORDS[5]]
        finally:
            thread.join()
    assert (found, store.released) == ([0], 1)
    with pytest.raises(ClosedError):
        store.read([5])


class Interrupted(threading.Condition):
    """Raises once when it is let go, as an interrupt may."""

    raised = False

    def __exit__(self, *exception) -> None:
        super().__exit__(*exception)
        if not self.raised:
            self.raised = True
            raise KeyboardInterrupt


def test_interrupted_before_it_reads(store):
    store._python_engine._pool.changed = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        store.read([0])
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(10)
    assert (closing.is_alive(), store.released) == (False, 1)


@pytest.mark.parametrize("threads", [1, 2, 6])
def test_threads_at_most(path, threads):
    class Counting(Lines):
        now = most = 0
        lock = threading.Lock()

        def _load(self, positions):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.01)
            with self.lock:
                self.now -= 1
            return super()._load(positions)

    with Counting(path) as store:
        list(store.iter_columns([[5]] * 18, len(RECORDS[5]), [(0, 1)], 17, threads=threads))
        assert store.most == threads


def test_threads_end_when_there_is_nothing_to_do(store, monkeypatch):
    monkeypatch.setattr(python_engine, "IDLE_SECONDS", 0.01)
    pool = store._python_engine._pool
    for _ in range(2):
        assert len(list(store.iter_batches([[1], [2]]))) == 2
        deadline = time.monotonic() + 10
        while pool.workers and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not pool.workers


SLOW = """
import atexit
atexit.register(lambda: print(store.stats().batches))  # the last thing that happens
import time
import numpy as np
from ffrecord.reading.store import Store

class Slow(Store):
    format = "slow"

    def _load(self, positions):
        time.sleep(0.02)
        return [np.zeros(3, np.uint8) for _ in positions]

store = Slow(["x"], 100)
batches = store.iter_batches([[0]] * 300, 300)
next(batches)
"""


def test_at_the_end_of_the_interpreter():
    """Batches that were begun ahead are not read any more, unless somebody asks for them."""
    assert int(children.run(SLOW)) < 100
    asked = "from ffrecord.reading import python_engine\natexit.unregister(python_engine._end)\n"
    asked += "atexit.register(lambda: print(len(list(zip(range(9), batches)))))\natexit.register(python_engine._end)"
    assert children.run(SLOW + asked).split()[0] == "9"


def test_dropped_without_closing(path):
    gc.disable()
    try:
        store = Lines(path)
        list(store.iter_batches([[1], [2]]))
        dropped, workers = weakref.ref(store), list(store._python_engine._pool.workers)
        del store
        assert dropped() is None
        for worker in workers:
            worker.join(python_engine.IDLE_SECONDS / 2)
        assert workers
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(path, protocol):
    with Named(path, on_error="skip", unlucky=True) as store:
        again = pickle.loads(pickle.dumps(store, protocol))
    assert (type(again), again.unlucky, again.fingerprint()) == (Named, True, store.fingerprint())
    assert as_bytes(again.read([13, 14])) == [RECORDS[14]]
    again.close()


def test_a_pickle_of_a_file_that_changed_before(store, path):
    """What it has is what was there when it was opened."""
    before = store.fingerprint()
    os.utime(path, ns=(1, 1))
    assert store.fingerprint() == before
    with pytest.raises(FFRecordError, match="the files differ"):
        pickle.loads(pickle.dumps(store))


def test_a_pickle_of_a_file_that_changed(store, path):
    pickled = pickle.dumps(store)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FFRecordError, match="the files differ"):
        pickle.loads(pickled)


def test_fork(store):
    """A child reads what was begun before it was forked, has threads of its own, and needs no lock of the parent."""
    store.read([0])
    store.go.clear()
    wait = store._begin_packed([7])
    assert store.entered.wait(10)
    with store._python_engine._pool.changed:
        child = os.fork()
    if child == 0:
        status = 1
        try:
            store.go.set()
            assert builders.unpack(wait().result) == [RECORDS[7]]
            assert [as_bytes(batch) for batch in store.iter_batches([[1], [2]])] == [[RECORDS[1]], [RECORDS[2]]]
            assert store.stats().batches == 3
            store.close()
            status = 0
        finally:
            os._exit(status)
    store.go.set()
    assert os.waitpid(child, 0)[1] == 0
    assert builders.unpack(wait().result) == [RECORDS[7]]


def test_threads_of_a_child(store):
    """That all begin at once, and by one of which a child is forked in turn."""
    store.read([0])

    def work() -> bool:
        good: list[bool] = []
        both = threading.Barrier(4)

        def read() -> None:
            both.wait(10)
            good.extend(as_bytes(store.read([i])) == [RECORDS[i]] for i in range(5))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        pool = store._python_engine._pool
        store.close()
        return good == [True] * 20 and not pool.reading and store.stats().batches == 20 and store.released == 1

    assert [children.in_child(work) for _ in range(10)] == [0] * 10


def test_forked_in_the_middle_of_a_read(path):
    class Forking(Lines):
        def _load(self, positions):
            self.child = os.fork()
            return super()._load(positions)

    with Forking(path) as store:
        found = as_bytes(store.read([5]))
        if store.child == 0:
            store.close()
            os._exit(0 if (found, store.released) == ([RECORDS[5]], 1) else 1)
        assert os.waitpid(store.child, 0)[1] == 0


def test_threads(store):
    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            indices = random.integers(0, N, 30)
            good.append(as_bytes(store.read(indices)) == [RECORDS[i] for i in indices])

    good: list[bool] = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 80
    assert store.stats().batches == 80
