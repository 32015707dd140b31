"""T3 (guarantees G1, G2, G7): the disk is full at any point of a write, or a limit or a quota ends it.

Always an error with the right errno that names what was written, the destination untouched, nothing left behind but
finished shards that the same call goes on from, the room given back; and with room the same call does what it should.
"""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import children
import disk_calls
import figures
import pytest
from interrupting import write

from ffrecord import FileReader

RUN = "import full_disks; full_disks.main(*sys.argv[1:])"
PAGE = 4096  # of tmpfs
FILES = ["file of 300 kB", "file of 300 kB, any n"]
DATASETS = ["dataset", "dataset of one size", "workers", "workers, one size", "append"]
OTHERS = ["dump", "packed folder", "converted", "recovery", "recovery, no room", "tar", "exported folder"]
LONG = ["dataset inside", "dataset of an iterable", "workers, iterable", "workers, append", "zip", "WebDataset shards"]
pytestmark = pytest.mark.timeout(1800)  # of the long run, on a machine with other things to do


@pytest.fixture(scope="module")
def library(preloadable: Callable[[str], Path]) -> Path:
    return preloadable("reliability/disk_calls.c")


def no_room(library: Path, root: Path, counted: figures.Counted, **how: dict[str, int]) -> dict[str, Any]:
    """Let writes of these cases fail, and count how many did."""
    found = json.loads(disk_calls.in_child(RUN, library, root, json.dumps(how), timeout=600))
    if "skipped" in found:
        pytest.skip(f"no file system can be mounted here, so no disk is full: {found['skipped']}")
    counted.add("disk-full points", sum(found["failed"].values()))
    return found


everyday_and_long = pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])


@everyday_and_long
def test_disks_of_any_size(library: Path, tmp_path: Path, counted: figures.Counted, long: bool) -> None:
    """In steps of a page, which is what tmpfs gives; there one short write comes before ENOSPC."""
    names = [*FILES, *DATASETS, *OTHERS, *(LONG if long else [])]
    found = no_room(library, tmp_path, counted, sizes=dict.fromkeys(names, PAGE))
    said = "\n".join(found["said"])
    # In every part of a write: before it, in it, and where all samples fit and their tables do not.
    for part in ("reserving N bytes", "Sample N: length", "flushing N samples", "writing the tables of N samples"):
        assert part in said, said
    assert sum(found["failed"][f"sizes, {name}"] for name in FILES) > 150, found["failed"]


@everyday_and_long
def test_limits_of_any_size(library: Path, tmp_path: Path, counted: figures.Counted, long: bool) -> None:
    """RLIMIT_FSIZE, which ends writes at any byte; in the long run one for every 512 bytes of the large file."""
    steps = dict.fromkeys(FILES, 512 if long else 8192) | dict.fromkeys(DATASETS, 64 if long else 256)
    steps |= {"packed folder": 128, "converted": 128, "tar": 2048, "exported folder": 16} if long else {"tar": 4096}
    found = no_room(library, tmp_path, counted, limits=steps)
    assert sum(found["failed"].values()) > (1000 if long else 40), found["failed"]


@everyday_and_long
def test_quota_used_up_at_any_call(library: Path, tmp_path: Path, counted: figures.Counted, long: bool) -> None:
    """EDQUOT from one call that needs room on."""
    names = [*FILES, *DATASETS, "packed folder", "recovery, no room"] + ([*OTHERS, *LONG] if long else [])
    found = no_room(library, tmp_path, counted, quota=dict.fromkeys(names, 1))
    assert all(number > 0 for number in found["failed"].values()), found["failed"]


def in_limit(size: int, work: Callable[[], object]) -> int:
    """Exit status of a fork that does `work` with a limit of the size of files."""

    def limited() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()
        return True

    return children.in_child(limited)


BIG = [bytes(20)] * 50 + [bytes(3000)] * 20


def test_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """In the middle; what was finished is not lost."""

    def work() -> None:
        with pytest.raises(OSError, match="could not be written") as caught:
            write(tmp_path / "set", BIG, samples_per_shard=10, chunksize=10)
        assert caught.value.errno == 27

    assert in_limit(8000, work) == 0
    assert os.listdir(tmp_path) == [".set.part"]
    assert write(tmp_path / "set", BIG, samples_per_shard=10).kept_shards == 5
    with FileReader(tmp_path / "set") as reader:
        assert builders.read_all(reader) == BIG


def test_the_last_sample_of_the_shard_that_failed_is_named(tmp_path: Path) -> None:
    """Not the last one of the piece, which goes into several shards."""

    def work() -> None:
        with pytest.raises(OSError, match=r"PART_00005.*: 10 samples, the last of them sample 59, could not"):
            write(tmp_path / "set", BIG, samples_per_shard=10, chunksize=70)

    assert in_limit(8000, work) == 0
