"""T1 (guarantees G1, G7): kill -9 at random times, of a writer, of a worker, or of all its processes at once.

Afterwards the same must be true as in test_kills_at_calls.py: nothing, the old one or a complete new one; what was
flushed comes back; and the next write gives the bytes of an undisturbed one.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import children
import disk_calls
import figures
import pytest
from figures import counts

RUN = "import killing; killing.main(*sys.argv[1:])"
# Percent of all kills: most for what is killed quickest.
SHARES = {
    "files": {
        "file": 12,
        "file, flushed": 20,
        "file of any n, flushed": 20,
        "large file of any n": 3,
        "recovery": 8,
        "recovery, no room": 7,
    },
    "datasets": {
        "dataset": 4,
        "dataset of one size": 3,
        "dataset inside": 4,
        "append": 5,
        "packed folder": 3,
        "zip": 2,
        "exported folder": 1,
    },
    "workers": {"workers": 2, "workers, one size": 2, "workers, iterable": 2, "workers, append": 2},
}
pytestmark = pytest.mark.timeout(1800)  # of the long run, on a machine with other things to do


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs, where calls cost little."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs at /dev/shm: nobody is killed at random times")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@counts(100, 7_500)
@pytest.mark.parametrize("group", SHARES)
def test_any_time(
    preloadable: Callable[[str], Path], memory: Path, counted: figures.Counted, seed: int, group: str, count: int
) -> None:
    library = preloadable("reliability/disk_calls.c")
    cases = {name: count * share // 100 for name, share in SHARES[group].items()}
    given = json.dumps({"cases": cases, "seed": seed})
    found = json.loads(disk_calls.in_child(RUN, library, memory, "random", given, timeout=1700))
    assert found == cases
    counted.add("kills survived", sum(found.values()))


def test_shares() -> None:
    assert sum(share for group in SHARES.values() for share in group.values()) == 100


KILLED_WITH_LOCK = """
import os, signal
from tqdm import tqdm
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.dataset_writer.dump import dump

lock = tqdm.get_lock()
child = os.fork()
if child == 0:
    lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
for show in (False, None):
    DatasetWriter(f"{sys.argv[1]}/{show}", num_workers=0, progress=show).from_iterable([b"a"] * 10)
dump([b"a"] * 10, f"{sys.argv[1]}/a.ffr", 1)
"""


def test_killed_while_it_draws_a_bar(tmp_path: Path) -> None:
    """All forks share the lock of tqdm's bars: who draws none must not wait for it."""
    children.run("import sys" + KILLED_WITH_LOCK, tmp_path, timeout=20)
    assert sorted(os.listdir(tmp_path)) == ["False", "None", "a.ffr"]
