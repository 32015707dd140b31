"""`write_many`, `write_packed`, and the buffers under all that writes samples."""

import gc
import os
import signal
import threading
import time

import builders
import children
import ffr_twin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import FileReader, FileWriter
from ffrecord.writing import _buffers

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
BUFFER = 4 << 20
SAMPLES = builders.records([0, 1, 3000, 0, 500_000, 16_383, 16_384, 70])


def packed(samples: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, samples)])
    return np.frombuffer(b"".join(samples), np.uint8), offsets


WAYS = {
    "list": lambda writer, samples: writer.write_many(samples),
    "tuple": lambda writer, samples: writer.write_many(tuple(samples)),
    "generator": lambda writer, samples: writer.write_many(sample for sample in samples),
    "arrays": lambda writer, samples: writer.write_many([np.frombuffer(sample, np.uint8) for sample in samples]),
    "bytearrays": lambda writer, samples: writer.write_many([bytearray(sample) for sample in samples]),
    "packed": lambda writer, samples: writer.write_packed(*packed(samples)),
    "one by one": lambda writer, samples: [writer.write_one(sample) for sample in samples],
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@ways
@pytest.mark.parametrize("n", [2 * len(SAMPLES), None], ids=["n", "no n"])
def test_same_bytes_as_one_by_one(tmp_path, way, n):
    with FileWriter(tmp_path / "a.ffr", n) as writer:
        for _ in range(2):
            assert way(writer, SAMPLES) is not None or writer.count % len(SAMPLES) == 0
        assert writer.count == 2 * len(SAMPLES)
    data = (tmp_path / "a.ffr").read_bytes()
    assert ffr_twin.parse(data) == 2 * SAMPLES
    assert n is None or data == ffr_twin.build(2 * SAMPLES)


@ways
def test_nothing(tmp_path, way):
    with FileWriter(tmp_path / "a.ffr", 0) as writer:
        way(writer, [])
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([])


@ways
@pytest.mark.parametrize("first", [0, 1, BUFFER - 12 - 24 - 1, BUFFER - 12 - 24])
@pytest.mark.parametrize("second", [1, 16_000, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER + 17])
def test_borders_of_buffers(tmp_path, way, first, second):
    """They end at multiples of their size in the file, wherever the samples begin."""
    random = np.random.default_rng(first + second).bytes(first + second)
    samples = [random[:first], random[first:]]
    with FileWriter(tmp_path / "a.ffr", 2) as writer:
        way(writer, samples)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build(samples)


def test_more_than_is_kept_in_the_page_cache(tmp_path):
    """The bytes behind the window, which the kernel was told to forget, are on the disk."""
    samples = builders.records([5_000_000] * 11 + [3])
    with FileWriter(tmp_path / "a.ffr", len(samples)) as writer:
        writer.write_many(samples)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build(samples)


@given(st.lists(st.integers(0, 20_000), max_size=30), st.integers(0, 4), st.booleans())
def test_any_sizes_in_any_batches(tmp_path, sizes, cuts, known):
    samples = builders.records(sizes)
    with FileWriter(tmp_path / "a.ffr", len(samples) if known else None) as writer:
        for part in np.array_split(np.arange(len(samples)), cuts + 1):
            list(WAYS.values())[len(part) % len(WAYS)](writer, [samples[i] for i in part])
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == samples


def test_packed_as_a_reader_gives_it(tmp_path):
    builders.write_samples(tmp_path / "a.ffr", SAMPLES)
    order = [5, 0, 5, 2]
    with FileReader(tmp_path / "a.ffr") as reader, FileWriter(tmp_path / "b.ffr", 4) as writer:
        writer.write_packed(*reader.read_packed(order))
    assert (tmp_path / "b.ffr").read_bytes() == ffr_twin.build([SAMPLES[i] for i in order])


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint64, list], ids=lambda kind: kind.__name__)
def test_offsets_of_any_whole_numbers(tmp_path, kind):
    """They may begin behind the start of the buffer and end before its end."""
    offsets = kind([1, 1, 4]) if kind is list else np.array([1, 1, 4], kind)
    with FileWriter(tmp_path / "a.ffr") as writer:
        writer.write_packed(b"abcdef", offsets)
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"", b"bcd"]


@pytest.mark.parametrize(
    ("offsets", "kind", "message"),
    [
        ([], TypeError, "offsets is .*, expected ints"),
        (np.zeros(0, np.int64), ValueError, r"expected \[k \+ 1\]"),
        ([0, 4], ValueError, r"offsets\[1\] is 4, expected 0 <= offset <= 3"),
        ([-1, 2], ValueError, r"offsets\[0\] is -1, expected 0 <= offset <= 3"),
        ([0, 2, 1], ValueError, r"offsets\[2\] is 1, expected 2 <= offset <= 3"),
        ([0, 2**63 - 1, 3], ValueError, r"offsets\[1\]"),
        (np.array([0, 2**63], np.uint64), ValueError, r"offsets\[1\] is 9223372036854775808, expected"),
        (np.array([2**64 - 1, 0], ">u8"), ValueError, r"offsets\[0\] is 18446744073709551615, expected"),
        ([0.0, 1.0], TypeError, "float64"),
        ([[0, 1]], TypeError, r"shape \(1, 2\)"),
        (None, TypeError, "object"),
    ],
    ids=str,
)
def test_wrong_offsets(tmp_path, offsets, kind, message):
    """Refused before anything is written; the writer goes on."""
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        with pytest.raises(kind, match=message):
            writer.write_packed(b"abc", offsets)
        assert writer.count == 0
        writer.write_one(b"x")


@pytest.mark.parametrize("wrong", [None, "text", 3, np.array([None])], ids=repr)
def test_wrong_data_of_packed(tmp_path, wrong):
    with FileWriter(tmp_path / "a.ffr", 0) as writer, pytest.raises(TypeError):
        writer.write_packed(wrong, [0])


# Refusals


@ways
def test_too_many(tmp_path, way):
    """Whoever says how many they are writes none of them; of others, those before the excess are written."""
    with FileWriter(tmp_path / "a.ffr", 3) as writer:
        writer.write_one(b"x")
        with pytest.raises(RuntimeError, match="Exceed total number of samples: 3") as caught:
            way(writer, [b"y"] * 3)
        assert isinstance(caught.value, ValueError)
        all_at_once = writer.count == 1
        assert all_at_once or writer.count == 3
        if all_at_once:
            assert "1 written and 3 more given" in str(caught.value)
            way(writer, [b"y"] * 2)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x", b"y", b"y"])


@ways
def test_closed(tmp_path, way):
    writer = FileWriter(tmp_path / "a.ffr")
    writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        way(writer, [b"y"])
    with pytest.raises(ValueError, match="closed"):
        writer.flush()


def test_what_is_no_buffer_among_others(tmp_path):
    with FileWriter(tmp_path / "a.ffr") as writer:
        with pytest.raises(TypeError, match=r"a sample is int \d+, expected an object with the buffer protocol"):
            writer.write_many([b"a", b"b", 3, b"c"])
        assert writer.count == 2
        with pytest.raises(TypeError, match=r"a\.ffr: sample 3: .*is int .*buffer protocol"):
            writer.write_many([b"c", 3])
        with pytest.raises(TypeError, match=r"a\.ffr: sample 3: .*is int .*buffer protocol"):
            writer.write_many(iter([3]))
        for wrong in (3, None):
            with pytest.raises(TypeError, match="iter"):
                writer.write_many(wrong)
        writer.write_many([b"d"])
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"a", b"b", b"c", b"d"]


def test_an_iterable_that_raises(tmp_path):
    def samples():
        yield b"a"
        raise KeyError("mine")

    with FileWriter(tmp_path / "a.ffr") as writer:
        with pytest.raises(KeyError, match="mine"):
            writer.write_many(samples())
        writer.write_one(b"b")
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"a", b"b"]


class Meddling(np.ndarray):
    """An array that does something while its bytes are asked for."""

    act = staticmethod(lambda: None)

    @property
    def dtype(self) -> np.dtype:
        Meddling.act()
        return np.dtype(np.uint8)


@pytest.mark.parametrize("way", [WAYS["list"], WAYS["one by one"]], ids=["list", "one by one"])
def test_closed_while_a_sample_is_asked_for_its_bytes(tmp_path, monkeypatch, way):
    writer = FileWriter(tmp_path / "a.ffr")
    sample = np.zeros(4, np.uint8).view(Meddling)
    monkeypatch.setattr(Meddling, "act", staticmethod(writer.close))
    with pytest.raises(RuntimeError, match="closed"):
        way(writer, [sample])
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == []


def test_a_list_that_shrinks_meanwhile(tmp_path, monkeypatch):
    samples = [np.zeros(3, np.uint8).view(Meddling), *[b"x"] * 5]
    with FileWriter(tmp_path / "a.ffr") as writer:
        monkeypatch.setattr(Meddling, "act", staticmethod(samples.clear))
        writer.write_many(samples)
        assert writer.count == 1


# Threads, signals, forks


def test_two_threads_at_once(tmp_path):
    """One of them is refused, or waits for the GIL; the file is whole whatever happens."""
    sample, refused = bytes(30 << 20), []
    with FileWriter(tmp_path / "a.ffr") as writer:

        def write() -> None:
            for _ in range(3):
                try:
                    writer.write_one(sample)
                except RuntimeError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = writer.count
    assert count + len(refused) == 6
    assert all("in the middle of writing" in each for each in refused)
    with FileReader(tmp_path / "a.ffr") as reader:
        assert reader.n == count
        assert all(not each.any() for each in reader)


def in_the_middle(writer: FileWriter, sample: bytes) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that is inside `write_one`, and then is there once more; what was raised there the second time."""
    raised: list[BaseException] = []

    def write() -> None:
        writer.write_one(sample)
        try:
            writer.write_one(b"second")
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    while writer.count == 0:
        time.sleep(0)
    return thread, raised


@pytest.mark.parametrize("n", [2, None], ids=["n", "no n"])
def test_ended_in_the_middle_of_a_sample(tmp_path, n):
    """It counts before its bytes are in, so neither may publish or note it."""
    sample = bytes(192 << 20)
    with FileWriter(tmp_path / "a.ffr", n) as writer:
        thread, _ = in_the_middle(writer, sample)
        for call in (writer.flush, writer.close):
            with pytest.raises(RuntimeError, match="in the middle of writing") as caught:
                call()
            assert isinstance(caught.value, AssertionError)
        assert [name[-5:] for name in os.listdir(tmp_path)] == [".part"]
        thread.join()
        writer.flush()
    with FileReader(tmp_path / "a.ffr") as reader:
        reader.validate()
        assert (reader.n, reader.read_one(1).tobytes()) == (2, b"second")


@pytest.mark.parametrize("n", [2, None], ids=["n", "no n"])
def test_left_in_the_middle_of_a_sample(tmp_path, n):
    """The thread inside has buffers and descriptor until it is out; then nothing is left."""
    with pytest.raises(KeyError, match="mine"), FileWriter(tmp_path / "a.ffr", n) as writer:
        thread, raised = in_the_middle(writer, bytes(192 << 20))
        raise KeyError("mine")
    thread.join()
    assert "ended while another thread" in str(raised)
    with pytest.raises(RuntimeError, match="ended while another thread"):
        writer.close()
    assert os.listdir(tmp_path) == []


def test_left_in_the_middle_of_the_last_sample(tmp_path):
    """Complete then, but not published."""
    with pytest.raises(KeyError), FileWriter(tmp_path / "a.ffr", 1) as writer:
        thread, raised = in_the_middle(writer, bytes(192 << 20))
        raise KeyError
    thread.join()
    assert "Exceed" in str(raised)
    with pytest.warns(ResourceWarning, match="discarded"):
        del writer, thread, raised
        gc.collect()
    assert os.listdir(tmp_path) == []


def test_ended_by_a_signal_s_handler(tmp_path):
    """Refused in the middle of a sample, of flush and of close; what was interrupted goes on."""
    refused, inside = [], []

    def handler(*_: object) -> None:
        if inside or writer.count == 0:
            return
        inside.append(signal.setitimer(signal.ITIMER_REAL, 0))
        for call in (writer.flush, writer.close, lambda: writer.write_one(b"x")):
            try:
                call()
            except RuntimeError as error:
                refused.append(str(error))
        inside.clear()

    real = os.fsync
    with (
        FileWriter(tmp_path / "a.ffr") as writer,
        pytest.MonkeyPatch.context() as patch,
        children.alarms(handler),
    ):
        patch.setattr(os, "fsync", lambda fd: (signal.raise_signal(signal.SIGALRM), real(fd)))
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        writer.write_one(bytes(64 << 20))  # which looks for signals when the first 4 MiB are full
        counts = [len(refused)]
        writer.flush()
        counts.append(len(refused))
        writer.write_many([b"second", b"third"])
        writer.close()
        counts.append(len(refused))
    # An alarm may have been on its way when the timer was stopped: at least one call of each three, then 3 and 2 more.
    assert counts[0] >= 3
    assert counts[1] >= counts[0] + 9
    assert counts[2] >= counts[1] + 6
    assert all(count % 3 == 0 for count in counts)
    assert all("in the middle of writing" in each for each in refused)
    with FileReader(tmp_path / "a.ffr") as reader:
        reader.validate()
        assert [sample.tobytes() for sample in reader.read([1, 2])] == [b"second", b"third"]


def test_offsets_that_change_meanwhile(tmp_path):
    """They are looked at without the GIL, long after they were checked."""
    data, offsets = np.zeros(192 << 20, np.uint8), np.arange(193, dtype=np.int64) << 20
    with FileWriter(tmp_path / "a.ffr") as writer:

        def change() -> None:
            while writer.count == 0:
                time.sleep(0)
            offsets[1:] = 192 << 20

        thread = threading.Thread(target=change)
        thread.start()
        writer.write_packed(data, offsets)
        thread.join()
    with FileReader(tmp_path / "a.ffr") as reader:
        assert reader.n == 192
        assert (np.diff(reader.get_offsets(0)) == 1 << 20).all()


def test_other_threads_run_meanwhile(tmp_path):
    """A large sample is copied, checked and written without the GIL."""
    ticks, done = [], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        start = time.perf_counter()
        writer.write_one(bytes(128 << 20))
        end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(start < each < end for each in ticks) > 2


@children.interrupts
def test_interrupted_by_a_signal(tmp_path):
    """The handler's exception comes out, also of one long call; nothing is published."""

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    writer = FileWriter(tmp_path / "a.ffr")
    sample = bytes(64 << 20)
    with children.alarms(handler), pytest.raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        writer.write_many([sample] * 1000)
    with pytest.raises(RuntimeError, match=r"interrupted|closed"):
        writer.close()
        writer.write_one(b"x")
    del writer
    assert os.listdir(tmp_path) in ([], ["a.ffr"])


def test_fork_in_the_middle(tmp_path):
    """With a buffer on its way and another half full; the child neither waits nor writes, and may go on or exit."""
    samples = builders.records([3_000_000] * 4)
    with FileWriter(tmp_path / "a.ffr") as writer:
        for sample in samples:
            writer.write_one(sample)

            def refused(sample: bytes = sample) -> bool:
                for call in (lambda: writer.write_one(sample), lambda: writer.write_many([sample] * 9), writer.flush):
                    with pytest.raises(RuntimeError, match="another process"):
                        call()
                return True

            assert children.in_child(refused) == 0
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == samples


def test_a_program_that_ends_in_the_middle(tmp_path):
    """It does not hang, whether the interpreter drops the writer or not."""
    code = """
import sys, warnings
from ffrecord import FileWriter
warnings.simplefilter("ignore")
writer = FileWriter(sys.argv[1])
writer.write_many([bytes(3 << 20)] * 20)
if sys.argv[2] == "cycle":
    sys.stdin.kept = kept = [writer]
    kept.append(kept)
"""
    for how in ("plain", "cycle"):
        children.run(code, tmp_path / "a.ffr", how)
    assert not (tmp_path / "a.ffr").exists()


def test_memory_does_not_grow(tmp_path):
    """But for 12 bytes of each sample."""
    code = """
import resource, sys
from ffrecord import FileWriter
with FileWriter(sys.argv[1], 1_000_000) as writer:
    writer.write_many([b"abcdefghij"] * 10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = [b"abcdefghij"] * 10_000
    for _ in range(99):
        writer.write_many(batch)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown)
"""
    grown = int(children.run(code, tmp_path / "a.ffr")) << 10
    assert grown < 12 * 1_000_000 * 1.25 + (2 * BUFFER) + (2 << 20)


# Reading back what is there


def test_count_intact(tmp_path):
    samples = builders.records([0, 10, 5_000_000, 0, 7, 4_000_000, 0])
    data = b"head" + b"".join(samples)
    sizes = np.array([*map(len, samples)])
    parsed = np.frombuffer(ffr_twin.build(samples), np.uint32, len(samples), 12)
    for damage, expected in ((None, 7), (4, 1), (4 + 10 + 4_999_999, 2), (4 + 5_000_010 + 6, 4)):
        changed = bytearray(data)
        if damage is not None:
            changed[damage] ^= 1
        (tmp_path / "f").write_bytes(changed)
        with (tmp_path / "f").open("rb") as file:
            assert _buffers.count_intact(file.fileno(), 4, sizes, parsed) == expected
    (tmp_path / "f").write_bytes(data[:-1])
    with (tmp_path / "f").open("rb") as file:
        assert _buffers.count_intact(file.fileno(), 4, sizes, parsed) == 5
        assert _buffers.count_intact(file.fileno(), 4, -sizes, parsed) == 1
        with pytest.raises(OSError, match="Bad file") as caught:
            _buffers.count_intact(-1, 4, sizes[1:], parsed[1:])
    assert caught.value.errno == 9


class Counted:
    """Samples that count how often their iterator is asked for: a shuffled loader gives another order each time."""

    def __init__(self, items):
        self.items, self.asked = items, 0

    def __iter__(self):
        self.asked += 1
        if not self.items:
            raise TypeError("of the class itself")
        return iter(self.items)


def test_an_iterator_is_asked_for_once(tmp_path):
    samples = Counted([b"a", b"b"])
    with FileWriter(tmp_path / "a.ffr", 2) as writer:
        writer.write_many(samples)
    batches = Counted([[0], [1, 0]])
    with FileReader(tmp_path / "a.ffr") as reader:
        found = [[bytes(each) for each in batch] for batch in reader.iter_batches(batches)]
    assert found == [[b"a"], [b"b", b"a"]] and (samples.asked, batches.asked) == (1, 1)
    with pytest.raises(TypeError, match="of the class itself"), FileWriter(tmp_path / "b.ffr", 2) as writer:
        writer.write_many(Counted([]))
