"""`read_at_once`: one small cached record, read without a batch; what happens to reader and file is told as ever."""

import os
import shutil
import textwrap
import threading
import zipfile
from collections.abc import Callable
from typing import Any

import builders
import children
import numpy as np
import pytest

from ffrecord import FileReader
from ffrecord.engine import _engine
from ffrecord.errors import ChecksumError, ClosedError, TruncatedError
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.sources import ZipReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
MODES = ("auto", "pread", "mmap")
SIZES = (1, 15, 256, 1023, 1024, 3000, 4097, 8192, 16 << 10)
SAMPLES = builders.records(SIZES * 3)
N = len(SAMPLES)
in_every_mode = pytest.mark.parametrize("io", MODES)

# What children begin with: a reader that has read all of its records at once.
HOT = """
import faulthandler, os, signal, sys
from ffrecord import FileReader
from ffrecord.errors import FFRecordError
path, io = sys.argv[1:]
reader = FileReader(path, io=io)
for n in range(1000):  # on a busy machine one of them may wait, and the policy has to settle again
    before = [reader.read_one(i).tobytes() for i in range(reader.n)]
    if n >= 40 and all(reader._engine.read_at_once(i) is not None for i in range(reader.n)):
        break
else:
    raise AssertionError("the policy does not settle")

def is_wrong(index):
    assert reader._engine.read_at_once(index) is None
    for read in (reader.read_one, reader.__getitem__):
        try:
            read(index)
        except (FFRecordError, OSError):
            continue
        sys.exit(f"nothing was noticed by {read}")
"""


@pytest.fixture
def path(tmp_path) -> str:
    return builders.write_samples(tmp_path / "a.ffr", SAMPLES)


def hot(path: str, io: str, check: bool = True, kind: type[FileReader] = FileReader) -> FileReader:
    """Return a reader that has learned that the file is cached, and mapped it if it does."""
    reader = kind(path, check, io=io)
    for _ in range(40):
        for index in range(N):
            reader.read_one(index)
    return reader


def at_once(reader: FileReader, index: object) -> Any:
    return reader._engine.read_at_once(index)


@in_every_mode
@pytest.mark.parametrize("check", [True, False])
def test_every_record(path, io, check):
    with hot(path, io, check) as reader:
        for index in range(-N, N):
            for found in (at_once(reader, index), reader.read_one(index), reader[index]):
                assert found.tobytes() == SAMPLES[index]
                assert (found.dtype, found.ndim, found.flags.writeable) == (np.uint8, 1, io != "mmap")


@in_every_mode
def test_several_files(tmp_path, io):
    paths = [builders.write_samples(tmp_path / f"{i}.ffr", SAMPLES[i : i + 4]) for i in range(0, N, 4)]
    with FileReader(paths, io=io) as reader:
        for _ in range(40):
            assert [reader.read_one(index).tobytes() for index in range(N)] == SAMPLES
        assert [at_once(reader, index).tobytes() for index in range(N)] == SAMPLES


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_each_has_memory_of_its_own(path, io):
    with hot(path, io) as reader:
        first, second = reader.read_one(5), reader.read_one(5)
        first[:] = 0
        assert second.tobytes() == reader[5].tobytes() == SAMPLES[5]
    assert second.tobytes() == SAMPLES[5]


@in_every_mode
@pytest.mark.parametrize("index", [N, -N - 1, 1 << 62, -(1 << 63), 1 << 63, -(1 << 70)])
def test_outside(path, io, index):
    with hot(path, io) as reader:
        assert at_once(reader, index) is None
        for read in (reader.read_one, reader.__getitem__):
            with pytest.raises(IndexError):
                read(index)


@in_every_mode
def test_other_numbers(path, io):
    """They are read as ever."""
    with hot(path, io) as reader:
        for index in (np.int64(7), np.uint8(7), np.int32(7 - N), np.array(7)):
            assert at_once(reader, index) is None
            assert reader.read_one(index).tobytes() == reader[index].tobytes() == SAMPLES[7]
        assert reader[True].tobytes() == reader.read_one(True).tobytes() == SAMPLES[1]
        assert [each.tobytes() for each in reader[np.array([7, 8])]] == SAMPLES[7:9]
        assert [each.tobytes() for each in reader[7:9]] == SAMPLES[7:9]
        for index in ("7", 7.0, None):
            assert at_once(reader, index) is None
            with pytest.raises(TypeError):
                reader.read_one(index)


@in_every_mode
def test_empty_and_large_records(tmp_path, io):
    """They are left to the batch engine."""
    samples = builders.records([0, (16 << 10) + 1, 70_000, 9])
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples), io=io) as reader:
        for _ in range(40):
            assert [reader.read_one(index).tobytes() for index in range(4)] == samples
        assert [at_once(reader, index) is None for index in range(4)] == [True, True, True, False]


def test_not_around_the_page_cache(path):
    with hot(path, "direct") as reader:
        assert at_once(reader, 0) is None
        assert reader[0].tobytes() == SAMPLES[0]


@in_every_mode
def test_closed(path, io):
    reader = hot(path, io)
    reader.close()
    assert at_once(reader, 0) is None
    for read in (reader.read_one, reader.__getitem__):
        with pytest.raises(ClosedError):
            read(0)


@in_every_mode
def test_damage(path, io):
    with hot(path, io) as reader, hot(path, io, check=False) as trusting:
        place = int(reader.get_offsets(0)[3]) + 700
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(bytes([SAMPLES[3][700] ^ 1]))
        before = reader.stats()
        assert at_once(reader, 3) is None
        for read in (reader.read_one, reader.__getitem__):
            with pytest.raises(ChecksumError, match=r"Sample 3: "):
                read(3)
        assert reader.stats().records == before.records
        assert reader[4].tobytes() == SAMPLES[4]
        assert trusting[3].tobytes() == SAMPLES[3][:700] + bytes([SAMPLES[3][700] ^ 1]) + SAMPLES[3][701:]


@in_every_mode
def test_on_error(path, io):
    with hot(path, io) as reader:
        with open(path, "r+b") as file:
            file.seek(int(reader.get_offsets(0)[3]))
            file.write(bytes([SAMPLES[3][0] ^ 1]))
        reader._on_error = lambda error: b"instead"
        assert (reader[3].tobytes(), reader.read_one(3).tobytes(), reader.skipped) == (b"instead", b"instead", 2)


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_cut(path, io):
    with hot(path, io) as reader:
        os.truncate(path, int(reader.get_offsets(0)[20]) + 1)
        assert at_once(reader, 3) is None  # all of the file is suspect
        assert reader[3].tobytes() == SAMPLES[3]
        for read in (reader.read_one, reader.__getitem__):
            with pytest.raises(TruncatedError, match="Sample 20: "):
                read(20)


# A fork for each size, with a file of its own, before anything has been read.
EACH_SIZE = """
import os, shutil, sys
from ffrecord import FileReader
for size in (0, 5, 200, 4096):
    shutil.copy(sys.argv[1], own := f"{sys.argv[1]}.{size}.ffr")
    forked = os.fork()
    if not forked:
        sys.argv[1] = own
        break
    assert os.waitpid(forked, 0)[1] == 0, size
"""
DISPLACED = {
    "as it was": "",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})",
    "displaced": "faulthandler.enable()",
    "standard": "signal.signal(signal.SIGBUS, signal.SIG_DFL)",
}


@in_every_mode
@pytest.mark.parametrize("how", DISPLACED)
def test_cut_whatever_handles_the_signal(path, io, how):
    """Right after a read that found all well."""
    code = f"{HOT}\nreader.read_one(5)\n{DISPLACED[how]}\nos.truncate(path, size)\nis_wrong(5)\nis_wrong(26)"
    children.run(f"{EACH_SIZE}\nif not forked:\n{textwrap.indent(code, '    ')}", path, io)


@in_every_mode
def test_replaced(path, tmp_path, io):
    """The old file stays readable."""
    with hot(path, io) as reader:
        shutil.copy(path, tmp_path / "old")
        os.replace(builders.write_samples(tmp_path / "b.ffr", [b"new"] * N), path)
        assert [reader.read_one(index).tobytes() for index in range(N)] == SAMPLES
        assert at_once(reader, 5).tobytes() == SAMPLES[5]


@in_every_mode
def test_fork(path, io):
    with hot(path, io) as reader:

        def child() -> bool:
            first = at_once(reader, 5)  # before a batch has told the engine
            found = [reader[index].tobytes() for index in range(N)]
            again = [at_once(reader, index).tobytes() for index in range(N)]
            return first is None and found == again == SAMPLES and reader.stats().records == 2 * N

        before = reader.stats().records
        for _ in range(3):
            assert children.in_child(child) == 0
        assert reader.stats().records == before
        assert at_once(reader, 5).tobytes() == SAMPLES[5]


@in_every_mode
def test_a_child_closes(path, io):
    with hot(path, io) as reader:
        assert children.in_child(lambda: reader.close() or at_once(reader, 0) is None) == 0
        assert reader[5].tobytes() == SAMPLES[5]


@in_every_mode
def test_threads_and_close(path, io):
    """Each gets the record or is told; nothing is closed under a read."""
    for round in range(4):
        reader, wrong = hot(path, io), []
        threads = [threading.Thread(target=hammer, args=(reader, seed, wrong.append)) for seed in range(4)]
        for thread in threads:
            thread.start()
        while reader.stats().records < 40 * N + 500 * round:
            pass
        reader.close()
        for thread in threads:
            thread.join()
        assert (wrong, reader.stats().open_files) == ([], 0)


def hammer(reader: FileReader, seed: int, tell: Callable[[object], object]) -> None:
    index = seed
    try:
        while True:
            index = (index + 7) % N
            if reader.read_one(index).tobytes() != SAMPLES[index]:
                tell(index)
    except ClosedError:
        pass
    except BaseException as error:
        tell(error)


def test_fewer_files_open_than_read(tmp_path):
    """One that is closed is opened by a batch; none is closed while it is read."""
    paths = [builders.write_samples(tmp_path / f"{i}.ffr", SAMPLES[i : i + 1]) for i in range(N)]
    files = _engine.Files([OpenedFile(path, check=True) for path in paths], "pread", 3)
    files.checks = True
    for index in [*range(N), *range(N)]:
        found = files.read_at_once(index)
        if found is None:
            found = files.read_one(index, True)
        assert found.tobytes() == files.read_at_once(index).tobytes() == SAMPLES[index]
        assert files.open_files <= 3
    files.close()
    assert files.open_files == 0


@in_every_mode
def test_it_is_counted(path, io):
    with hot(path, io) as reader:
        before = reader.stats()
        for _ in range(10):
            for index in range(N):
                assert at_once(reader, index) is not None
        stats = reader.stats()
        size = 10 * sum(map(len, SAMPLES))
        assert (stats.batches, stats.records) == (before.batches + 10 * N, before.records + 10 * N)
        assert (stats.bytes, stats.cached_bytes) == (before.bytes + size, before.cached_bytes + size)
        assert stats.cache_hit_share > 0.9
        assert stats.io_seconds + stats.crc_seconds > before.io_seconds + before.crc_seconds
        assert stats.requests == before.requests + (10 * N if io == "pread" else 0)


class Doubling(FileReader):
    def read_one(self, index):
        return np.concatenate([super().read_one(index)] * 2)


class Apart(FileReader):
    def _read_single(self, index):
        return np.frombuffer(b"apart", np.uint8)


def test_what_a_subclass_overrides(path):
    with hot(path, "auto", kind=Doubling) as reader:
        assert reader[5].tobytes() == reader.read_one(5).tobytes() == 2 * SAMPLES[5]
    with hot(path, "auto", kind=Apart) as reader:
        assert reader[5].tobytes() == reader.read_one(5).tobytes() == b"apart"


def test_other_formats(tmp_path):
    """An archive whose members are all stored is read at once; with a compressed one, each member is looked at."""
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for index, sample in enumerate(SAMPLES):
                archive.writestr(f"{index}", sample, compression if index == 3 else None)
        with ZipReader(tmp_path / "a.zip") as reader:
            for _ in range(40):
                assert [reader[index].tobytes() for index in range(N)] == SAMPLES
            assert (reader._at_once(5) is not None) == (compression == zipfile.ZIP_STORED)
            assert reader.read_one("5").tobytes() == SAMPLES[5]
