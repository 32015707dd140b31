"""T4, T5 (guarantees G2, G6): every call fails or stops short that opening and reading a file of another format makes.

In the build with faults, see faults.py.
"""

import errno
import json
from importlib.util import find_spec
from pathlib import Path

import faults
import figures
import pytest

SWEPT = """
import json, logging, sys
from pathlib import Path
import source_works, sweeping

logging.disable()
numbers, once = json.loads(sys.argv[2])
for name, make in source_works.works(Path(sys.argv[1])).items():
    work = make()
    changes = [change for change in sweeping.errors(numbers or sweeping.NUMBERS) if not once or not change.for_good]
    print(sweeping.sweep(work, sweeping.used(work), changes), name)
"""
SHORT = """
import sys
from pathlib import Path
import source_works, sweeping

changes = [sweeping.Change("short", size, False) for size in (1, 511, 4095)]
for name, make in source_works.works(Path(sys.argv[1])).items():
    work = make()
    sites = [site for site in sweeping.used(work) if site in ("read", "pread", "preadv", "preadv2")]
    print(sweeping.sweep(work, sites, changes), name)
"""
FORMATS = 16 if find_spec("lmdb") else 15


def changed(code: str, directory: Path, *args: object) -> int:
    """How many calls were, in all formats together; some in each."""
    numbers = [int(line.split()[0]) for line in faults.run(code, directory, *args, timeout=580).splitlines()]
    assert len(numbers) == FORMATS and min(numbers) >= 1, numbers
    return sum(numbers)


def test_every_call_fails_once(in_memory: Path, counted: figures.Counted) -> None:
    """The right samples, or the error with its errno and the file's name; no descriptor stays open."""
    injected = changed(SWEPT, in_memory, json.dumps([[errno.EIO], True]))
    assert injected > 500
    counted.add("injected errors", injected)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_call_with_every_error(in_memory: Path, counted: figures.Counted) -> None:
    counted.add("injected errors", changed(SWEPT, in_memory, json.dumps([[], False])))


def test_every_read_stopping_short(in_memory: Path, counted: figures.Counted) -> None:
    counted.add("shortened or delayed calls", changed(SHORT, in_memory))
