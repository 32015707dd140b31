"""`bad_records`: what is cached is checked where it lies, what is not is read around the page cache."""

import os
from contextlib import suppress
from pathlib import Path

import builders
import numpy as np
import pytest

from ffrecord import FileReader
from ffrecord.engine._engine import CHECKED

SIZE, COUNT = 100_000, 150  # several pieces of 4 MiB
BAD = [0, 1, 77, 148, 149]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Records that are cached: they were just written."""
    random = np.random.default_rng(0)
    return Path(builders.write_samples(tmp_path / "a.ffr", [random.bytes(SIZE) for _ in range(COUNT)]))


def found(reader: FileReader) -> list[int]:
    return [index for index, _ in reader.bad_records()]


def largest_mapping(path: Path) -> int:
    """Bytes that this process has mapped of a file in one piece."""
    sizes = [0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, name = line.split(maxsplit=5)
        if name == str(path):
            low, high = (int(address, 16) for address in addresses.split("-"))
            sizes.append(high - low)
    return max(sizes)


def spoil(path: Path) -> None:
    with FileReader(path) as reader:
        offsets = reader.get_offsets(0)
    with path.open("r+b") as file:
        for index in BAD:
            file.seek(int(offsets[index]) + SIZE - 1)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))


def test_what_is_cached_is_not_copied(path: Path) -> None:
    with FileReader(path) as reader:
        assert found(reader) == found(reader) == []
        assert largest_mapping(path) >= path.stat().st_size  # nothing else maps records
        before = reader.stats()
        assert found(reader) == []
        after = reader.stats()
    assert after.bytes - before.bytes == SIZE * COUNT
    assert after.requests - before.requests < COUNT  # none, but for a piece during which a thread waited for a lock


@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap"])
def test_damage_is_found_however_it_is_read(path: Path, io: str) -> None:
    spoil(path)
    with FileReader(path, io=io) as reader:
        for _ in range(3):  # where it lies, from the second time on
            assert found(reader) == BAD
            assert all("CRC-32" in str(error) for _, error in reader.bad_records())


def test_a_file_that_was_cut_meanwhile(path: Path) -> None:
    with FileReader(path) as reader:
        assert found(reader) == found(reader) == []
        kept = 60
        os.truncate(path, int(reader.get_offsets(0)[kept]) + 10)
        assert found(reader) == list(range(kept, COUNT))


def test_records_may_be_few_and_large(tmp_path: Path) -> None:
    samples = [np.random.default_rng(i).bytes(5_000_000) for i in range(3)]
    with FileReader(builders.write_samples(tmp_path / "a.ffr", samples)) as reader:
        for _ in range(3):
            assert found(reader) == []
        assert largest_mapping(tmp_path / "a.ffr") > 15_000_000


def test_a_batch_gives_failures_alone(path: Path) -> None:
    spoil(path)
    with FileReader(path) as reader:
        _, failures = reader._engine.read(np.arange(COUNT), True, True, CHECKED)
    assert [failure.order for failure in failures] == BAD
    assert {failure.status for failure in failures} == {"mismatch"}


def cached_share(path: Path, offsets: list[int]) -> float:
    """Of some bytes, without reading what is not there."""
    here = 0
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # or what is not there would come, and more
        for offset in offsets:
            with suppress(BlockingIOError):
                here += os.preadv(file.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT)
    return here / len(offsets)


def test_what_is_not_cached_is_not_put_into_the_page_cache(path: Path) -> None:
    with FileReader(path) as reader:
        places = (reader.get_offsets(0) + SIZE // 2).tolist()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        before = cached_share(path, places[::2])
    except OSError as error:
        pytest.skip(f"no direct reads, or nobody tells what is cached: {error}")
    if before > 0.3:  # the tables were mapped, and pages lie there in large groups
        pytest.skip("the page cache keeps the file, whatever it is told")
    with FileReader(path) as reader:
        assert found(reader) == []
        assert reader.stats().cache_hit_share < 0.5
    assert cached_share(path, places[1::2]) < 0.5


def test_damage_is_found_where_nothing_is_cached(path: Path) -> None:
    spoil(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with FileReader(path) as reader:
        assert found(reader) == BAD
