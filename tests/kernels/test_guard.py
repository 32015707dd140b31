"""Guarded memory: tables cut under a reader are wrong, and kill nobody. For samples see test_read_copied.py."""

import builders
import children
import pytest

N = 100_000  # samples: 1.2 MB of tables

TABLES = """
import os, random, sys, threading
from pathlib import Path
from ffrecord import FileReader
from ffrecord.errors import FFRecordError
path = sys.argv[1]
whole = Path(path).read_bytes()

def is_wrong(act):
    try:
        act()
    except (FFRecordError, OSError):
        return
    sys.exit(f"nothing was noticed by {act}")
"""


@pytest.fixture(scope="module")
def whole() -> bytes:
    return builders.ffr_twin.build([b"x"] * N)


@pytest.fixture
def path(tmp_path, whole) -> str:
    return builders.write(tmp_path / "a.ffr", whole)


@pytest.mark.parametrize("cut", [0, 5, 100_000, 700_001])
def test_tables_that_were_cut(path, cut):
    code = f"""{TABLES}
reader = FileReader(path)
os.truncate(path, {cut})
is_wrong(lambda: reader.read(range(0, reader.n, 7)))
is_wrong(reader.validate)
is_wrong(lambda: reader.get_offsets(0))
reader.close()  # then there is no descriptor left to ask
is_wrong(reader.validate)
is_wrong(lambda: reader.get_offsets(0))
os.truncate(path, len(whole))  # what was lost stays lost
is_wrong(lambda: reader.get_offsets(0))
Path(path).write_bytes(whole)
with FileReader(path) as reader:
    reader.validate()
"""
    children.run(code, path)


@pytest.mark.parametrize("rounds", [6, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("check", [True, False])
def test_tables_cut_at_any_moment(path, check, rounds):
    """By another thread, while batches are being planned."""
    code = f"""{TABLES}
for round in range({rounds}):
    Path(path).write_bytes(whole)
    with FileReader(path, {check}) as reader:
        reader.read(range(0, reader.n, 3))
        cutter = threading.Timer(random.random() / 100, os.truncate, (path, random.randrange(1_100_000)))
        cutter.start()
        is_wrong(lambda: [reader.read_packed(range(reader.n)) for _ in iter(int, 1)])
        cutter.join()
"""
    children.run(code, path, timeout=600)


def test_tables_cut_while_a_file_is_opened(path):
    code = f"""{TABLES}
for round in range(100):
    Path(path).write_bytes(whole)
    cutter = threading.Timer(random.random() / 1000, os.truncate, (path, random.randrange(1_100_000)))
    cutter.start()
    try:
        FileReader(path).close()
    except (FFRecordError, OSError):
        pass
    cutter.join()
"""
    children.run(code, path)


def test_many_readers_come_and_go(tmp_path):
    """Each is told of, and forgotten: another's memory at the same place is not ours."""
    paths = [builders.write_samples(tmp_path / f"{i}.ffr", [b"x"] * 2000) for i in range(50)]
    code = """
import mmap, os, random, sys
from ffrecord import FileReader
paths = sys.argv[1:]
readers = []
for _ in range(500):
    readers.append(FileReader(random.choice(paths)))
    if len(readers) > 20:
        readers.pop(random.randrange(20)).close()
assert all(reader.read_one(3) == b"x"[0] for reader in readers)
readers.clear()
with open(paths[0], "rb") as file:
    mappings = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for _ in range(50)]
os.truncate(paths[0], 0)
print(mappings[random.randrange(50)][5])
"""
    done = children.finished(code, *paths)
    assert done.returncode == -7, done
    assert "Bus error" in done.stderr
