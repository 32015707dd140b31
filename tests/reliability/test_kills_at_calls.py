"""T1 (guarantees G1, G7): kill -9 at every call of a writer that changes the disk.

What is under the final name is complete and right, or absent, or the old one; a directory never looks complete before
it is; every flushed record comes back; the same write goes on and gives the bytes of an undisturbed one; what is left
until then is one file or directory of a recognisable name, with the journal of what was flushed.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import disk_calls
import figures
import pytest

FILES = ["file", "file, flushed", "file of any n", "file of any n, flushed", "large file", "large file of any n"]
RECOVERIES = ["recovery", "recovery of all", "recovery, no room", "recovery, much room"]
DATASETS = ["dataset", "dataset of one size", "dataset inside", "dataset resumed"]
MORE_DATASETS = ["dataset of lines", "dataset of an iterable", "dataset inside resumed"]
APPENDS = ["append", "append to bare shards"]
WORKERS = [
    "workers",
    "workers, one size",
    "workers, lines",
    "workers, iterable",
    "workers, append",
    "dump",
    "dump among others",
]
ARCHIVES = ["zip", "tar", "TFRecord", "WebDataset shards"]
OTHERS = ["packed folder", "converted", *ARCHIVES, "exported folder", "unpacked", "split"]
RUN = "import killing; killing.main(*sys.argv[1:])"
pytestmark = pytest.mark.timeout(1800)  # of the long run, on a machine with other things to do


@pytest.fixture(scope="module")
def library(preloadable: Callable[[str], Path]) -> Path:
    return preloadable("reliability/disk_calls.c")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs, where calls cost little."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs at /dev/shm: writers are killed on the disk only")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


def killed_at_calls(library: Path, root: Path, names: list[str], step: int, actions: int) -> int:
    """How many kills the writers of these names survived."""
    given = json.dumps({"cases": names, "step": step, "actions": actions})
    found = json.loads(disk_calls.in_child(RUN, library, root, "calls", given, timeout=600))
    assert all(found[name] > 5 / step for name in names), found
    return sum(found.values())


# A kill after a call leaves what one before the next call does, unless what comes in between is not counted.
everyday_and_long = pytest.mark.parametrize("actions", [1, pytest.param(2, marks=pytest.mark.long)])


@everyday_and_long
@pytest.mark.parametrize("names", [FILES, RECOVERIES, DATASETS, APPENDS, OTHERS], ids=lambda names: names[0])
def test_every_call(library: Path, memory: Path, counted: figures.Counted, names: list[str], actions: int) -> None:
    """Only the long run has every call."""
    step = (6 if names in (DATASETS, OTHERS) else 2) if actions == 1 else 1
    counted.add("kills survived", killed_at_calls(library, memory, names, step, actions))


@everyday_and_long
@pytest.mark.parametrize("names", [WORKERS, MORE_DATASETS], ids=lambda names: names[0])
def test_parent_worker_or_both(
    library: Path, memory: Path, counted: figures.Counted, names: list[str], actions: int
) -> None:
    """In turns, where there are workers; only the long run has every call."""
    step = 8 if actions == 1 else 1
    counted.add("kills survived", killed_at_calls(library, memory, names, step, actions))


@everyday_and_long
def test_where_the_disk_inserts_space(library: Path, tmp_path: Path, counted: figures.Counted, actions: int) -> None:
    """Samples are moved back in the maps of ext4 and xfs, not by copying."""
    names = ["file of any n, flushed", "recovery, no room"] if actions == 1 else FILES + RECOVERIES
    counted.add("kills survived", killed_at_calls(library, tmp_path, names, 1, actions))
