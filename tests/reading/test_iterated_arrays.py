"""Arrays that iteration gives, whatever is done with those before: each has the bytes of its own sample."""

import itertools
import signal
import sys
import sysconfig
import threading
import time
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import builders
import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ffrecord
from ffrecord import FileReader
from ffrecord.errors import StateError
from ffrecord.sources import TFRecordWriter

# Blocks that samples share have 512 KiB, and large samples have their own.
SIZES = [*range(40), *(i * 7919 % 3000 for i in range(900)), 70_000, 5, 0, 200_000, 1, 1, 65_536, 65_535, 9]
SAMPLES = builders.records(SIZES)


moved = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="without a GIL each sample has an array of its own"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(builders.write_samples(tmp_path_factory.mktemp("iterated") / "a.ffr", SAMPLES))


def change_shape(array: Any) -> None:
    array.shape = (1, -1)


def change_dtype(array: Any) -> None:
    array.dtype = np.int8


def make_column(array: Any) -> None:
    if len(array) > 1:
        array.shape = (len(array), 1)


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns every 10 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def make_readonly(array: Any) -> None:
    array.flags.writeable = False


def overwrite(array: Any) -> None:
    if array.flags.writeable:
        array[:] = 255


DROPPED: list[Callable[[Any], Any]] = [
    *(change_shape, change_dtype, make_column, make_readonly, overwrite, bytes, memoryview, np.array, repr),
]
KEPT: list[Callable[[Any], Any]] = [
    *(lambda array: array, memoryview, lambda array: array[1:], lambda array: array.view(np.int8)),
    *(lambda array: array.reshape(1, -1), lambda array: [array, memoryview(array)], np.asarray),
    lambda array: np.frombuffer(array, np.uint8) if len(array) else array,
]


def bytes_of(kept: Any) -> bytes:
    return bytes_of(kept[0]) if isinstance(kept, list) else bytes(kept)


@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype):DeprecationWarning")  # by NumPy 2.5
@pytest.mark.parametrize("io", builders.IO_MODES)
@given(data=st.data())
def test_each_has_the_bytes_of_its_sample(path: Path, io: str, data: st.DataObject) -> None:
    """Some are kept, as they are or as a view; some are changed and dropped."""
    turns = data.draw(st.lists(st.sampled_from([None, *DROPPED, *KEPT]), min_size=1, max_size=12))
    step = data.draw(st.sampled_from([1, 1, -1, 3]))
    kept: list[tuple[Any, bytes]] = []
    wanted = SAMPLES[::step]
    with FileReader(path, io=io) as reader:
        for i, (array, sample) in enumerate(zip(reader[::step], wanted, strict=True)):
            assert array.dtype == np.uint8
            assert array.shape == (len(sample),)
            assert array.flags.c_contiguous
            assert array.tobytes() == sample
            assert array.flags.writeable == (io != "mmap")
            turn = turns[i % len(turns)]
            if turn in KEPT:
                value = turn(array)
                kept.append((value, bytes_of(value)))
            elif turn is not None:
                turn(array)
    assert all(bytes_of(value) == sample for value, sample in kept)


@pytest.mark.parametrize("most", range(5))
def test_the_last_ones_are_kept(path: Path, most: int) -> None:
    with FileReader(path) as reader:
        last: deque[Any] = deque(maxlen=most)
        for i, array in enumerate(reader):
            last.append(array)
            assert [each.tobytes() for each in last] == SAMPLES[max(i + 1 - most, 0) : i + 1]


def line_of(array: Any) -> int:
    """Return the line of this file that made an array."""
    made = tracemalloc.get_object_traceback(array)
    assert made is not None
    return next(frame.lineno for frame in made if frame.filename == __file__)


@moved
def test_a_dropped_array_is_used_for_a_later_sample(path: Path) -> None:
    """Else each sample of some bytes would cost more time for its array than for its bytes."""
    tracemalloc.start(5)
    try:
        with FileReader(path) as reader:
            arrays = iter(reader[40:200])
            first = [next(arrays), next(arrays)]
            line = line_of(first[0])
            del first[0]
            moved = next(arrays)
            new = next(arrays)
            assert line_of(moved) == line != line_of(new)
            assert [each.tobytes() for each in (first[0], moved, new)] == SAMPLES[41:44]
    finally:
        tracemalloc.stop()


def test_pieces_that_a_thread_reads(tmp_path: Path) -> None:
    """Of this many samples, the first ones are used while the others are read."""
    samples = [b"%06d" % i for i in range(20_000)]
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        kept: list[tuple[Any, bytes]] = []
        for i, (array, sample) in enumerate(zip(reader, samples, strict=True)):
            assert array.tobytes() == sample
            if i % 7 == 0:
                kept.append((array[2:], sample[2:]))
        assert all(view.tobytes() == sample for view, sample in kept)


@moved
def test_a_weak_reference_sees_its_own_array_die(path: Path) -> None:
    """An array that is moved would go on to live."""
    with FileReader(path) as reader:
        references: list[Any] = [lambda: None] * 3
        for array in reader[:200]:
            references.append(weakref.ref(array))
            assert references[-4]() is None


def test_the_end_of_an_array_may_ask_for_the_next_one(path: Path) -> None:
    with FileReader(path) as reader:
        arrays: Iterator[Any] = iter(reader)
        found: list[bytes] = []

        def take(place: int) -> None:
            if place < 400 and place % 3 == 0:
                found.extend(array.tobytes() for _, array in zip(range(place % 5), arrays, strict=False))

        for place, array in enumerate(arrays):
            found.append(array.tobytes())
            weakref.finalize(array, take, place)
        del array
    assert sorted(found) == sorted(SAMPLES)


@pytest.mark.parametrize("last", range(4))
def test_the_last_array_of_a_piece_asks_for_the_next_piece(tmp_path: Path, last: int) -> None:
    """A piece has at most 8,192 samples, and is gone when the next one begins."""
    samples = [b"%06d" % i for i in range(9_000)]
    found: list[bytes] = []
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        arrays: Iterator[Any] = iter(reader)

        def take() -> None:
            found.extend(array.tobytes() for array in itertools.islice(arrays, 1))

        for place, array in enumerate(arrays):
            found.append(array.tobytes())
            if place == 8_191 - last:
                weakref.finalize(array, take)
        del array
    assert sorted(found) == samples


def test_each_array_takes_another_when_it_ends(path: Path) -> None:
    found: list[bytes] = []
    with FileReader(path) as reader:
        arrays: Iterator[Any] = iter(reader[:30])

        def take(*_: object) -> None:
            array = next(arrays, None)
            if array is not None:
                found.append(array.tobytes())
                weakref.finalize(array, take)

        for _ in range(30):
            take()
    assert sorted(found) == sorted(SAMPLES[:30])


def test_threads_share_an_iterator_of_arrays_whose_end_takes_time(path: Path) -> None:
    with FileReader(path) as reader:
        for _ in range(20):
            arrays: Iterator[Any] = iter(reader[:60])
            found = [next(arrays).tobytes()]

            def take(arrays: Iterator[Any] = arrays, found: list[bytes] = found) -> None:
                for array in arrays:
                    weakref.finalize(array, time.sleep, 0.0002)
                    found.append(array.tobytes())
                    del array

            threads = [threading.Thread(target=take) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(found) == sorted(SAMPLES[:60])


def test_memory_of_dropped_samples_comes_back(path: Path) -> None:
    """An iterator that is kept after its end keeps no samples."""
    with FileReader(path) as reader:
        arrays = iter(reader)
        block = next(arrays).base
        count = sys.getrefcount(block)
        assert sum(len(array) for array in arrays) == sum(SIZES[1:])
        assert sys.getrefcount(block) < count
        assert next(arrays, None) is None


def shared(iterator: Iterator[Any], use: Callable[[Any], Any]) -> list[Any]:
    """Return what four threads make of the items of an iterator."""
    with ThreadPoolExecutor(4) as threads:
        taken = [threads.submit(lambda each: [use(item) for item in each], iterator) for _ in range(4)]
        return [each for done in taken for each in done.result()]


@pytest.mark.usefixtures("many_switches")
@pytest.mark.parametrize("size", [4, 3_000])
def test_threads_share_an_iterator(tmp_path: Path, size: int) -> None:
    """Each array goes to one of them, also where a piece ends and where all of them wait for the next one."""
    samples = [b"%06d" % i + bytes(size) for i in range(20_000)]
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        for _ in range(10):
            assert sorted(shared(iter(reader), lambda array: array[:6].tobytes())) == [each[:6] for each in samples]


@pytest.mark.usefixtures("many_switches")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_threads_share_batches(tmp_path: Path, prefetch: int) -> None:
    samples = [b"%06d" % i + bytes(500) for i in range(4_000)]
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        for _ in range(10):
            batches = reader.iter_batches(np.split(np.arange(4_000), 400), prefetch)
            found = shared(batches, lambda batch: [array[:6].tobytes() for array in batch])
            assert sorted(itertools.chain.from_iterable(found)) == [each[:6] for each in samples]


@pytest.mark.usefixtures("many_switches")
def test_threads_share_the_bad_samples(tmp_path: Path) -> None:
    samples = [b"%06d" % i for i in range(20_000)]
    path = Path(builders.write_samples(tmp_path / "a.ffr", samples))
    path.write_bytes(path.read_bytes().replace(b"".join(samples), bytes(120_000)))
    with FileReader(path) as reader:
        assert sorted(shared(reader.bad_records(), lambda bad: bad[0])) == list(range(20_000))


def test_a_loop_inside_of_its_own_batches(path: Path) -> None:
    """The indices of a batch may come from anywhere, but not from the iterator that asks for them."""
    with FileReader(path) as reader:

        def indices() -> Iterator[list[int]]:
            yield [0]
            yield [1]
            next(batches)

        batches: Iterator[Any] = reader.iter_batches(indices(), 0)
        assert [len(batch) for batch in itertools.islice(batches, 2)] == [1, 1]
        with pytest.raises(ValueError, match="this iterator is at work"):
            next(batches)


@pytest.mark.usefixtures("many_switches")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_goes_on_where_another_thread_waits_for_a_piece(tmp_path: Path) -> None:
    samples = [b"%06d" % i + bytes(3_000) for i in range(20_000)]
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        for turn in range(8):
            arrays: Iterator[Any] = iter(reader)

            def go_on(arrays: Iterator[Any] = arrays) -> bool:
                signal.alarm(30)
                try:
                    return all(array[6:].tobytes() == bytes(3_000) for array in arrays)
                except StateError as error:
                    return "forked while another thread read" in str(error)

            thread = threading.Thread(target=lambda each: [array[:1] for array in each], args=(arrays,))
            thread.start()
            time.sleep(turn / 1_000)
            assert children.in_child(go_on) == 0
            thread.join()


@pytest.mark.parametrize("io", builders.IO_MODES)
@pytest.mark.parametrize("step", [1, -1, 7])
@pytest.mark.parametrize("bad", [0, 700, 8_190, 8_192, 8_999])
def test_samples_before_a_bad_one_come_first(tmp_path: Path, io: str, step: int, bad: int) -> None:
    samples = [b"%06d" % i for i in range(9_000)]
    path = Path(builders.write_samples(tmp_path / "a.ffr", samples))
    data = bytearray(path.read_bytes())
    data[data.index(b"".join(samples)) + 6 * bad] ^= 1
    path.write_bytes(data)
    numbers = range(9_000)[::step]
    with FileReader(path, io=io) as reader:
        found: list[bytes] = []
        arrays: Iterator[Any] = iter(reader[::step])
        if bad not in numbers:
            assert [array.tobytes() for array in arrays] == samples[::step]
            return
        with pytest.raises(ffrecord.ChecksumError, match=f"[Ss]ample {bad}"):
            for array in arrays:
                found.append(array.tobytes())  # an error would lose them
        assert list(arrays) == []
        with pytest.raises(ffrecord.ChecksumError, match=f"[Ss]ample {bad}"):
            reader.read_range(bad, bad + 1)
    assert found == samples[::step][: numbers.index(bad)]


@pytest.mark.parametrize("kind", ["tfrecord", "remote", "cached"])
def test_samples_before_a_bad_one_come_first_from_other_stores(tmp_path: Path, kind: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    samples = [b"<%06d>" % i for i in range(9_000)]
    path = tmp_path / "a.tfrecord"
    if kind == "tfrecord":
        with TFRecordWriter(path) as writer:
            for sample in samples:
                writer.write(sample)
    else:
        path = Path(builders.write_samples(tmp_path / "a.ffr", samples))
    path.write_bytes(path.read_bytes().replace(samples[8_500], b"!" * 8))
    source, options = str(path), {}
    if kind != "tfrecord":
        source = f"memory://{tmp_path.name}-{kind}/a.ffr"
        fsspec.filesystem("memory").pipe(source, path.read_bytes())
        options = {"cache_dir": tmp_path / "cache"} if kind == "cached" else {}
    with ffrecord.open(source, **options) as store:
        found: list[bytes] = []
        with pytest.raises(ffrecord.ChecksumError, match="ample 8500"):
            for array in store:
                found.append(array.tobytes())  # an error would lose them
    assert found == samples[:8_500]
