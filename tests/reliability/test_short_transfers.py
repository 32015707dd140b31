"""T5 (guarantees G2, G3): calls stop short, come late or are answered in any order, and nobody notices.

In the build with faults, see faults.py.
"""

import errno
import json
from pathlib import Path

import faults
import figures
import pytest

READ = """
import json, sys
from pathlib import Path
import read_works, short_transfers

found = read_works.works(Path(sys.argv[1]))
works = [found[name]() for name in ("pread", "auto", "direct", "auto, in sequence", "direct", "pread, in sequence")]
print(short_transfers.run(works, short_transfers.READING, int(sys.argv[2]), int(sys.argv[3])))
"""
WRITE = """
import sys
from pathlib import Path
import builders, short_transfers, written_works

found = written_works.works(Path(sys.argv[1]) / "d")
works = [found[name]() for name in ("file of n, flushed", "file", "file, flushed", "tfrecord", "recordio, appended")]
print(short_transfers.run(works, short_transfers.WRITING, int(sys.argv[2]), int(sys.argv[3])))
"""
EVERY = """
import json, logging, sys
from pathlib import Path
import read_works, short_transfers, sweeping, written_works
from sweeping import Change

kind, name, changes, sites = sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), json.loads(sys.argv[5])
module = read_works if kind == "read" else written_works
work = module.works(Path(sys.argv[1]) / "d")[name]()
print(sweeping.sweep(work, sites, [Change(*each) for each in changes]))
print(short_transfers.stale())
"""
ALONE = """
import errno, json, sys
import builders
from ffrecord import FileReader
from sweeping import Change, faults

path, indices = sys.argv[1], json.loads(sys.argv[2])
with FileReader(path, io="direct") as reader, faults(("pread", 1, Change("fail", errno.EIO, True))) as fired:
    got = builders.unpack(reader.read_packed(indices))
with FileReader(path, io="pread") as reader:
    assert builders.unpack(reader.read_packed(indices)) == got
print(*fired)
"""
SIZES = (1, 511, 512, 4095)
# One byte at a time for good would take a million calls.
SHORT = [("short", size, for_good) for size in SIZES for for_good in (False, True) if size > 1 or not for_good]
EVENT_ERRORS = (errno.EAGAIN, errno.EIO, errno.EINVAL, errno.EINTR)
EVENTS = [
    (action, value, for_good)
    for action, values in {
        "events reversed": (0,),
        "event fails": EVENT_ERRORS,
        "event short": (0, *SIZES),
        "short": (1,),
    }.items()
    for value in values
    for for_good in (False, True)
]


def every(directory: Path, kind: str, name: str, changes: list[tuple[str, int, bool]], *sites: str) -> tuple[int, int]:
    """How many calls were changed, one at a time, and how many stale events were dropped."""
    said = faults.run(EVERY, directory, kind, name, json.dumps(changes), json.dumps(sites), timeout=200)
    changed, stale = map(int, said.split())
    return changed, stale


@figures.counts(210, 17_000)
@pytest.mark.timeout(600)
def test_schedules_of_reading(tmp_path: Path, counted: figures.Counted, count: int, seed: int) -> None:
    """Up to six faults at once in a batch or an iteration: the exact bytes."""
    changed = int(faults.run(READ, tmp_path, count, seed, timeout=580))
    assert changed > count / 2
    counted.add("shortened or delayed calls", changed)


@figures.counts(40, 3_000)
@pytest.mark.timeout(600)
def test_schedules_of_writing(in_memory: Path, counted: figures.Counted, count: int, seed: int) -> None:
    changed = int(faults.run(WRITE, in_memory, count, seed, timeout=580))
    assert changed > count / 2
    counted.add("shortened or delayed calls", changed)


@pytest.mark.parametrize(
    ("name", "sites"),
    [
        ("pread", ["preadv"]),
        ("auto", ["preadv2"]),
        ("direct", ["io_submit"]),
        ("auto, last resort", ["pread"]),
        ("pread, in sequence, last resort", ["pread"]),
        ("auto, in sequence", ["preadv", "pread"]),
        ("auto, large", ["preadv2", "pread"]),
        ("pread, large", ["pread"]),
    ],
)
def test_every_read_stopping_short(tmp_path: Path, counted: figures.Counted, name: str, sites: list[str]) -> None:
    changed, stale = every(tmp_path, "read", name, SHORT, *sites)
    assert changed >= 7 and stale == 0
    counted.add("shortened or delayed calls", changed)


def test_events_in_any_state_and_order(tmp_path: Path, counted: figures.Counted) -> None:
    """A short or failed piece is read again in the ordinary way, which finds the exact error: here none.

    One EINTR or EAGAIN failed the whole batch of the original, and its late events were taken for the next one's.
    """
    changed, stale = every(tmp_path, "read", "direct", EVENTS, "io_getevents")
    assert changed >= len(EVENTS) and stale == 0
    counted.add("shortened or delayed calls", changed)


def test_events_of_another_batch_are_dropped(tmp_path: Path) -> None:
    """There are none, since every batch collects its own; should there be one, it is counted and harms nobody."""
    changes = [("event stale", errno.EIO, for_good) for for_good in (False, True)]
    changed, stale = every(tmp_path, "read", "direct", changes, "io_getevents")
    assert changed >= 2 and stale > 0


@pytest.mark.parametrize("name", ["file of n, flushed", "file, flushed", "tfrecord"])
def test_every_write_stopping_short(tmp_path: Path, counted: figures.Counted, name: str) -> None:
    changes = [("short", size, False) for size in (1, 511, 4096, 1 << 20)]
    changed, _ = every(tmp_path, "write", name, changes, "pwrite")
    assert changed >= 4
    counted.add("shortened or delayed calls", changed)


@pytest.mark.parametrize("indices", [[0, 2, 5], [4], [4, 4, 4, 7], [7, 4, 3, 3, 5, 4, 0, 1, 6, 2, 5]])
def test_direct_reads_leave_nothing_to_the_last_resort(tmp_path: Path, indices: list[int]) -> None:
    """Every byte of a good batch comes by AIO: pread would mend a plan with holes, and hide it."""
    faults.run("import sys, read_works; from pathlib import Path; read_works.works(Path(sys.argv[1]))", tmp_path)
    assert faults.run(ALONE, tmp_path / "a.ffr", json.dumps(indices)) == "0\n"
