"""Descriptors: readers of more files than they may hold open."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import builders
import numpy as np
import pytest
from builders import IO_MODES
from children import descriptors

from ffrecord import FileReader
from ffrecord.engine import _engine
from ffrecord.reading.ffr_file import OpenedFile

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)
SHARDS = 40


def shard(number: int) -> list[bytes]:
    return builders.records([100 + number, 0, 5000, 70_000 if number % 8 == 0 else 3], number)


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> tuple[list[str], list[bytes]]:
    directory = tmp_path_factory.mktemp("shards")
    names = [builders.write_samples(directory / f"{i:02}.ffr", shard(i)) for i in range(SHARDS)]
    return names, [sample for i in range(SHARDS) for sample in shard(i)]


@pytest.fixture
def engine() -> Iterator[Callable[[list[str], str, int], _engine.Files]]:
    """Makes `Files` of which the first `held_most` are open, as `FileReader` leaves them."""
    made = []

    def make(names: list[str], io: str, held_most: int) -> _engine.Files:
        opened = [OpenedFile(path, check=True, whole=io == "mmap") for path in names]
        for each in opened[held_most:]:
            each.close()
        made.append(_engine.Files(opened, io, held_most))
        return made[-1]

    yield make
    for files in made:
        files.close()


def read(files: _engine.Files, indices: object) -> list[bytes]:
    arrays, failures = files.read(np.array(indices, np.int64), True, True)
    assert failures == []
    return [array.tobytes() for array in arrays]


def open_now(names: list[str]) -> list[str]:
    return [path for path in descriptors().values() if path in names]


@in_every_mode
@pytest.mark.parametrize("held_most", [1, 2, 7, SHARDS])
def test_open_files_are_bounded(engine, shards, io, held_most):
    names, samples = shards
    files, random = engine(names, io, held_most), np.random.default_rng(held_most)
    for size in (0, 1, 5, 160, 500, 3):
        indices = random.integers(-len(samples), len(samples), size)
        assert read(files, indices) == [samples[i] for i in indices]
        (data, offsets), failures = files.read(indices, True, False, _engine.PACKED)
        assert builders.unpack((data, offsets)) == [samples[i] for i in indices]
        assert failures == []
        assert files.open_files <= held_most
        # A sweep has one of its own.
        assert len(open_now(names)) <= held_most * (2 if io == "direct" else 1) + 1
    files.close()
    assert (open_now(names), files.open_files) == ([], 0)


def test_files_in_use_stay_open(engine, shards):
    """Second chances: what is read again and again is not closed for what is read once."""
    names, samples = shards
    files = engine(names, "auto", 8)
    for i in range(8, SHARDS):
        assert read(files, [0, 4 * i]) == [samples[0], samples[4 * i]]
        assert names[0] in open_now(names)


@in_every_mode
def test_threads_that_close_each_other_s_files(engine, shards, io):
    names, samples = shards
    files, wrong, stop = engine(names, io, 3), [], threading.Event()

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            indices = random.integers(0, len(samples), random.integers(1, 30))
            if read(files, indices) != [samples[i] for i in indices]:
                wrong.append(seed)

    def look() -> None:
        while not stop.is_set():
            if files.open_files > 3 + 5 * 3:
                wrong.append(files.open_files)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    watcher = threading.Thread(target=look)
    for thread in [*threads, watcher]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watcher.join()
    assert not wrong
    read(files, [0])
    assert files.open_files <= 3


@pytest.fixture
def few_held(tmp_path, monkeypatch) -> tuple[list[str], list[bytes]]:
    """Four files; readers of them hold two."""
    monkeypatch.setattr("ffrecord.system.resources.descriptors", lambda: 2)
    names = [builders.write_samples(tmp_path / f"{i}.ffr", shard(i)) for i in range(4)]
    return names, [sample for i in range(4) for sample in shard(i)]


@pytest.mark.parametrize("io", builders.COPYING_MODES)
@pytest.mark.parametrize("how", ["removed", "replaced", "replaced by a directory", "replaced by a pipe"])
def test_a_closed_file_that_is_gone(few_held, io, how):
    """A file that is held keeps its old content; of one that was closed the error says what it met."""
    names, samples = few_held
    with FileReader(names, io=io) as reader:
        for path in names:
            os.unlink(path)
            if how == "replaced":
                builders.write_samples(Path(path), shard(0))
            elif how.endswith("directory"):
                os.mkdir(path)
            elif how.endswith("pipe"):
                os.mkfifo(path)
        assert [sample.tobytes() for sample in reader.read(range(8))] == samples[:8]
        for call in (reader.read, reader.read_packed):
            with pytest.raises(OSError, match="Sample 12: ") as caught:
                call([12, 13])
            assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, names[3])
            assert names[3] in str(caught.value)
            assert isinstance(caught.value, RuntimeError)
        assert reader.read_one(5).tobytes() == samples[5]


def test_mapped_files_need_not_be_open(few_held):
    names, samples = few_held
    with FileReader(names, io="mmap") as reader:
        for path in names:
            os.unlink(path)
        assert builders.read_all(reader) == samples


def test_the_rest_of_a_batch_is_read(few_held):
    names, samples = few_held
    with FileReader(names, on_error="skip") as reader:
        os.unlink(names[2])
        assert builders.read_all(reader) == samples[:8] + samples[12:]
        assert reader.skipped == 4


@in_every_mode
def test_names_are_those_of_the_directory_at_open(few_held, tmp_path, monkeypatch, io):
    names, samples = few_held
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with FileReader([os.path.basename(path) for path in names], io=io) as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert builders.read_all(reader) == samples


def test_the_working_directory_is_gone(few_held, tmp_path, monkeypatch):
    names, samples = few_held
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with FileReader(names) as reader:
        assert builders.read_all(reader) == samples


@in_every_mode
def test_names_through_links(few_held, tmp_path, io):
    """`link/..` is where the link leads, not where it lies."""
    names, samples = few_held
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "far" / "link").symlink_to("away")
    for path in names:
        os.rename(path, tmp_path / "far" / os.path.basename(path))
    (tmp_path / "near").symlink_to("far/away")
    with FileReader([f"{tmp_path}/near/../{i}.ffr" for i in range(4)], io=io) as reader:
        assert builders.read_all(reader) == samples


@in_every_mode
def test_a_file_cut_while_it_was_closed(few_held, io):
    """Of its tables nothing may be looked at, or the process would die."""
    names, samples = few_held
    with FileReader(names, io=io) as reader:
        os.truncate(names[3], 20)
        with pytest.raises(RuntimeError, match=r"Sample 13: .*cut to 20 bytes"):
            reader.read([1, 13])
        assert reader.read_one(2).tobytes() == samples[2]


@in_every_mode
def test_a_closed_reader_opens_nothing(tmp_path, io):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", [bytes(1000)] * 5000) for i in range(2)]
    reader = FileReader(names, io=io)
    samples = iter(reader)
    next(samples)
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(samples)
    assert (open_now(names), reader.stats().open_files) == ([], 0)


@pytest.mark.parametrize("io", builders.COPYING_MODES)
def test_a_slice_opens_what_it_needs(shards, monkeypatch, io):
    names, samples = shards
    monkeypatch.setattr("ffrecord.system.resources.descriptors", lambda: 3)
    with FileReader(names, io=io) as reader:
        before = set(open_now(names))
        for low, high in ((80, 81), (82, 91), (158, 160), (100, 100)):
            assert [sample.tobytes() for sample in reader[low:high]] == samples[low:high]
            needed = set(names[low // 4 : (high + 3) // 4])
            assert set(open_now(names)) <= before | needed
            before |= needed
