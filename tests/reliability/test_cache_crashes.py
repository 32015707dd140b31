"""T1, T2 (guarantees G1, G3): kill -9 at every call of a cache of remote shards, and power cuts at any moment.

What it gives afterwards is right, or is fetched again; a copy that was told to be complete is so; the same work goes on
and ends with the shards' own bytes; and nothing is left that nobody would use or remove.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import disk_calls
import figures
import pytest
from figures import counts


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs, where calls cost little."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@pytest.mark.parametrize(("step", "actions"), [(5, 1), pytest.param(1, 2, marks=pytest.mark.long)])
def test_kills_at_every_call(
    preloadable: Callable[[str], Path], memory: Path, counted: figures.Counted, step: int, actions: int
) -> None:
    library = preloadable("reliability/disk_calls.c")
    code = "import cache_cases, sys; cache_cases.kill(*sys.argv[1:])"
    said = disk_calls.in_child(code, library, memory, step, actions)
    found = json.loads(said)
    assert all(kills > 5 for kills in found.values()), found
    counted.add("kills survived", sum(found.values()))


@counts(8, 600)
def test_power_cuts(
    preloadable: Callable[[str], Path], memory: Path, counted: figures.Counted, seed: int, count: int
) -> None:
    library = preloadable("reliability/disk_calls.c")
    code = "import cache_cases, sys; cache_cases.cut(*sys.argv[1:])"
    found = json.loads(disk_calls.in_child(code, library, memory, count, seed))
    assert sum(found.values()) > count, found
    counted.add("power cuts replayed", sum(found.values()))
