"""T13 (guarantee G9): files cut, replaced or written over under a reader give errors, never a signal."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import builders
import children
import ffr_twin
import numpy as np
import pytest
from builders import COPYING_MODES, IO_MODES, set_header_crc
from figures import Counted, counts

from ffrecord import FFRecordError, FileReader
from ffrecord.errors import TruncatedError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_an_open_reader_keeps_the_old_file(sample_file, tmp_path, io, how):
    path = shutil.copy(sample_file.path, tmp_path / "a.ffr")
    with FileReader(path, io=io) as reader:
        assert reader.read_one(1).tobytes() == sample_file.samples[1]
        if how == "deleted":
            os.unlink(path)
        else:
            os.replace(builders.write_samples(tmp_path / "b.ffr", [b"new"]), path)
        assert builders.read_all(reader) == sample_file.samples
        reader.validate()
        assert len(reader.get_offsets(0)) == reader.n + 1


@pytest.mark.parametrize("io", COPYING_MODES)
def test_data_cut_between_batches(sample_file, tmp_path, io):
    path = shutil.copy(sample_file.path, tmp_path / "a.ffr")
    with FileReader(path, io=io) as reader:
        offsets = reader.get_offsets(0)
        reader.read([0])
        os.truncate(path, int(offsets[100]) + 1)
        assert [s.tobytes() for s in reader.read(range(100))] == sample_file.samples[:100]
        with pytest.raises(TruncatedError, match=r"Sample 100: length \d+ but read 1 bytes") as caught:
            reader.read(range(90, 101))
        assert (path.name in str(caught.value), isinstance(caught.value, OSError)) == (True, True)


@pytest.mark.parametrize("size", [0, 1, 5000, 4096, 12 + 12 * 1000 - 1])
def test_tables_cut_while_open(tmp_path, size):
    """A mapped table that is no longer there would be SIGBUS, so this is a child."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([10] * 1000))
    code = """
import os, sys
from ffrecord import FileReader
reader = FileReader(sys.argv[1], io=sys.argv[3])
os.truncate(sys.argv[1], int(sys.argv[2]))
calls = [lambda: reader.read(range(1000)), lambda: reader.read_packed([999, 1]), lambda: reader.read_one(0),
         lambda: reader.get_offsets(0), lambda: reader.get_checksums(0), reader.validate, lambda: reader.loc([5])]
for call in calls:
    try:
        call()
    except OSError as error:
        assert isinstance(error, RuntimeError) and sys.argv[2] in str(error) and "12012" in str(error), error
    else:
        raise SystemExit("no error")
"""
    children.run(code, path, size, IO_MODES[size % 4])


@pytest.mark.parametrize("io", IO_MODES)
def test_appended_bytes_are_not_seen(small_file, io):
    with FileReader(small_file.path, io=io) as reader:
        with open(small_file.path, "ab") as file:
            file.write(b"more")
        assert builders.read_all(reader) == small_file.samples


@pytest.mark.parametrize("io", IO_MODES)
def test_offsets_changed_under_a_reader(small_file, io):
    """Every span is checked again when used, whatever was checked at open."""
    bad = [-1, 0, 107, 405, 2**63 - 1, -(2**63)]
    with FileReader(small_file.path, io=io) as reader:
        for offset in bad:
            with open(small_file.path, "r+b") as file:
                file.write(builders.set_offset(4, offset)(ffr_twin.build(small_file.samples)))
            for i in (3, 4):
                with pytest.raises(RuntimeError, match=f"Sample {i}: "):
                    reader.read_one(i)
            assert reader.read_one(5).tobytes() == small_file.samples[5]


def test_validate_looks_again(small_file):
    with FileReader(small_file.path, check_data=False) as reader:
        reader.validate()
        with open(small_file.path, "r+b") as file:
            file.write(set_header_crc(1)(b"\0" * 4))
        reader.validate()  # the stored value was read when it was opened
        with open(small_file.path, "r+b") as file:
            file.seek(12)
            file.write(b"\1")
        with pytest.raises(RuntimeError, match="checksum of metadata mismatch:"):
            reader.validate()


# Cut at any time

TABLES = 12 + 12 * 301  # bytes of `sample_file`
CUTS = {
    "data": lambda random, size: int(random.integers(TABLES, size)),
    "tables": lambda random, size: int(random.integers(0, TABLES)),
    "whole pages": lambda random, size: int(random.integers(0, size // 4096)) * 4096,
}


def meanwhile(work: Callable[[], None], seconds: float) -> threading.Thread:
    """A thread that does it after that time."""
    thread = threading.Timer(seconds, work)
    thread.start()
    return thread


def reads_or_says_why(reader: FileReader, samples: list[bytes], random: np.random.Generator, until: float) -> int:
    """Read batches of all kinds up to an error that is documented, or to that time; how many. None may be wrong."""
    count = 0
    while time.monotonic() < until:
        indices = random.integers(0, len(samples), random.integers(1, 200))
        try:
            if count % 3 == 0:
                got = [sample.tobytes() for sample in reader.read(indices)]
            elif count % 3 == 1:
                got = builders.unpack(reader.read_packed(indices))
            else:
                got = [builders.unpack(packed) for packed in reader.iter_batches([indices] * 2, packed=True)][1]
        except (FFRecordError, OSError) as error:
            assert reader.fnames[0] in str(error), error
            break
        assert got == [samples[i] for i in indices]
        count += 1
    return count


@counts(6, 60)
@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("io", COPYING_MODES)
def test_cut_in_place_during_a_batch(
    sample_file, tmp_path: Path, random, io: str, where: str, count: int, counted: Counted
) -> None:
    """Checked and unchecked, and some are made as long again as they were: what is missing then reads as zeros."""
    path, whole = str(tmp_path / "a.ffr"), Path(sample_file.path).read_bytes()

    def cut(size: int, again: bool) -> None:
        os.truncate(path, size)
        if again:
            os.truncate(path, len(whole))

    def child() -> bool:
        for turn in range(count):
            Path(path).write_bytes(whole)
            size, check = CUTS[where](random, len(whole)), bool(turn % 3)
            with FileReader(path, io=io, check_data=check) as reader:
                thread = meanwhile(partial(cut, size, check and turn % 2 == 0), turn % 7 / 500)
                reads_or_says_why(reader, sample_file.samples, random, time.monotonic() + 0.03)
                thread.join()
                reads_or_says_why(reader, sample_file.samples, random, time.monotonic() + 0.01)
        return True

    assert children.in_child(child) == 0
    counted.add("files cut while read", count)


@counts(20, 200)
def test_tables_cut_while_they_are_looked_at(sample_file, tmp_path: Path, random, count: int, counted: Counted) -> None:
    """They are mapped: a page that is gone is a signal, which the guard makes an error."""
    path, whole = str(tmp_path / "a.ffr"), ffr_twin.build([b"x"] * 50_000)

    def child() -> bool:
        for turn in range(count):
            Path(path).write_bytes(whole)
            with FileReader(path, io=IO_MODES[turn % 4]) as reader:
                size = int(random.integers(0, 12 * 50_000))
                thread = meanwhile(partial(os.truncate, path, size), turn % 5 / 1000)
                looks = (lambda: reader.get_offsets(0), lambda: reader.get_checksums(0), reader.validate)
                for look in (looks * 100)[: 30 + turn]:
                    try:
                        look()
                    except (FFRecordError, OSError):
                        break
                thread.join()
                for look in looks:
                    try:
                        look()
                    except (FFRecordError, OSError) as error:
                        assert path in str(error)
                    else:
                        return False
        return True

    assert children.in_child(child) == 0
    counted.add("files cut while read", count)
