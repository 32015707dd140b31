"""T13 (guarantees G1, G9): files and datasets that are replaced or appended to, again and again, while others read."""

import mmap
import os
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import children
import pytest
from builders import IO_MODES
from figures import Counted, counts

import ffrecord
from ffrecord import DatasetWriter, FFRecordError, FileReader, FileWriter

pytestmark = [pytest.mark.usefixtures("no_leaked_descriptors"), children.forks]


class Board:
    """Numbers that forked processes share: whether to stop, and of each how often it looked."""

    def __init__(self, readers: int) -> None:
        self.words = memoryview(mmap.mmap(-1, 8 * (readers + 1))).cast("q")

    @property
    def stopped(self) -> bool:
        return bool(self.words[0])

    def looked(self, number: int) -> None:
        self.words[number + 1] += 1

    def settle(self) -> int:
        """Wait until every process has looked; how often all did."""
        deadline = time.monotonic() + 30
        while min(self.words[1:]) == 0:
            assert time.monotonic() < deadline, "a reader came to no end"
            time.sleep(0.001)
        return sum(self.words[1:])


@contextmanager
def readers(count: int, look: Callable[[int], None]) -> Iterator[Board]:
    """Processes that look again and again, and must find nothing wrong until the end."""
    board = Board(count)

    def work(number: int) -> bool:
        while not board.stopped:
            look(number)
            board.looked(number)
        return True

    begun = [children.begin(lambda number=number: work(number)) for number in range(count)]
    try:
        yield board
    finally:
        board.words[0] = 1
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in begun]
    assert statuses == [0] * count


def samples_of(version: int) -> list[bytes]:
    """No two versions have a sample in common, nor as many of them, but for every thirteenth."""
    return [b"%d of %d." % (i, version) * (1 + (7 * i + version) % 97) for i in range(60 + version % 13)]


def version_of(sample: bytes) -> int:
    return int(sample.split(b".")[0].split(b" of ")[1])


def check_whole(store: object) -> None:
    """All of one version, and the same one at a second look."""
    first = [bytes(sample) for sample in store.read(range(len(store)))]
    assert first == samples_of(version_of(first[0]))
    assert [bytes(sample) for sample in store.read([5, -1, 5])] == [first[5], first[-1], first[5]]


def write(path: Path, version: int) -> None:
    samples = samples_of(version)
    with FileWriter(path, len(samples) if version % 2 else None) as writer:
        for sample in samples:
            writer.write_one(sample)


@counts(25, 250)
@pytest.mark.parametrize("io", IO_MODES)
def test_a_file_rewritten_while_others_read_it(tmp_path: Path, io: str, count: int, counted: Counted) -> None:
    """Each who opens it gets one version, whole, and keeps that."""
    path = tmp_path / "a.ffr"
    write(path, 0)

    def look(number: int) -> None:
        with FileReader(path, io=io, check_data=number != 2) as reader:
            for _ in range(3):
                check_whole(reader)

    with FileReader(path, io=io) as old, readers(3, look) as board:
        for version in range(1, count + 1):
            write(path, version)
            if version % 5 == 0:
                check_whole(old)
        assert version_of(bytes(old.read_one(0))) == 0
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 6 * looks)


def tar_of(path: Path, samples: list[bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for i, sample in enumerate(samples):
            member = tarfile.TarInfo(f"{i:03}")
            member.size = len(sample)
            archive.addfile(member, BytesIO(sample))


def zip_of(path: Path, samples: list[bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, sample in enumerate(samples):
            archive.writestr(f"{i:03}", sample)


@counts(20, 150)
@pytest.mark.parametrize("made", [tar_of, zip_of])
def test_archives_replaced_while_others_read_them(
    tmp_path: Path, made: Callable[[Path, list[bytes]], None], count: int, counted: Counted
) -> None:
    """One version whole, or an error that says what happened."""
    path = tmp_path / f"a.{made.__name__[:3]}"
    made(path, samples_of(0))

    def look(number: int) -> None:
        try:
            with ffrecord.open(path) as store:
                check_whole(store)
        except (FFRecordError, OSError) as error:
            assert path.name in str(error)

    with readers(2, look) as board:
        for version in range(1, count + 1):
            made(tmp_path / "next", samples_of(version))
            os.replace(tmp_path / "next", path)
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 2 * looks)


FIRST, MORE = 100, 40


def sample_at(i: int) -> bytes:
    return b"%d," % i * (1 + i % 50)


@counts(6, 30)
@pytest.mark.parametrize("io", ["auto", "direct"])
def test_a_dataset_appended_to_while_eight_read_it(tmp_path: Path, io: str, count: int, counted: Counted) -> None:
    """Before or after an append, never in the middle; whoever has it open keeps what was there."""
    path = tmp_path / "set"
    options = {"num_workers": 0, "samples_per_shard": 17}
    DatasetWriter(path, **options).from_indexed_dataset([sample_at(i) for i in range(FIRST)])

    def look(number: int) -> None:
        with FileReader(path, io=io) as reader:
            n = len(reader)
            assert (n - FIRST) % MORE == 0, n
            for _ in range(2):
                assert [bytes(sample) for sample in reader.read(range(n))] == [sample_at(i) for i in range(n)]
            assert len(reader) == n

    with readers(8, look) as board:
        for turn in range(count):
            start = FIRST + MORE * turn
            samples = [sample_at(i) for i in range(start, start + MORE)]
            DatasetWriter(path, mode="append", **options).from_indexed_dataset(samples)
        looks = board.settle()
    counted.add("concurrent reads checked", 2 * looks)


@counts(10, 60)
def test_a_dataset_replaced_as_a_directory(tmp_path: Path, count: int, counted: Counted) -> None:
    """Two renames, between which there is none: a reader finds one version, whole, or says that there is none."""
    path = tmp_path / "set"
    options = {"num_workers": 0, "samples_per_shard": 9}

    def make(name: str, version: int) -> Path:
        DatasetWriter(tmp_path / name, **options).from_indexed_dataset(samples_of(version))
        return tmp_path / name

    make("set", 0)

    def look(number: int) -> None:
        try:
            with FileReader(path) as reader:
                check_whole(reader)
        except (FFRecordError, OSError) as error:
            assert "set" in str(error)

    with readers(3, look) as board:
        for version in range(1, count + 1):
            made = make("next", version)
            os.rename(path, tmp_path / "old")
            os.rename(made, path)
            shutil.rmtree(tmp_path / "old")
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 2 * looks)
