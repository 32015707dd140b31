"""T2 (guarantee G1): the power goes at any moment of a write; unsynced data is lost, in any part and order.

What a real writer did is logged and replayed on a disk that keeps no more than it must (lossy_disk.py). The same must
be true as after kill -9 (test_kills_at_calls.py), and nothing that was promised is lost: a flush that returned, a file
that was closed, a dataset that was written.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import disk_calls
import figures
import pytest
from disk_calls import Call, Kind
from figures import counts
from lossy_disk import LossyDisk, changed, sectors

RUN = "import power_cuts; power_cuts.main(*sys.argv[1:])"
# Percent of all cuts.
SHARES = {
    "file": 3,
    "file, flushed": 6,
    "file of any n": 2,
    "file of any n, flushed": 6,
    "recovery": 5,
    "recovery, no room": 5,
    "recovery of all": 1,
    "recovery, much room": 2,
    "dataset": 6,
    "dataset of one size": 4,
    "dataset inside": 9,
    "dataset resumed": 5,
    "dataset inside resumed": 5,
    "append": 8,
    "append to bare shards": 6,
    "workers": 2,
    "workers, one size": 2,
    "dump among others": 5,
    "packed folder": 1,
    "converted": 4,
    "zip": 3,
    "exported folder": 2,
    "exported folder, into a directory": 1,
    "WebDataset shards, into a directory": 1,
    "unpacked": 2,
    "unpacked into a directory": 1,
    "unpacked, file by file": 1,
    "saved": 1,
    "split": 1,
}
pytestmark = pytest.mark.timeout(1800)  # of the long run, on a machine with other things to do


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs: nothing here needs a real disk."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs at /dev/shm: no power is cut")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@counts(100, 6_500)
def test_any_moment(
    preloadable: Callable[[str], Path], memory: Path, counted: figures.Counted, seed: int, count: int
) -> None:
    """Of files there are fewer states than are asked for."""
    assert sum(SHARES.values()) == 100
    library = preloadable("reliability/disk_calls.c")
    given = json.dumps({"cases": {name: count * share // 100 for name, share in SHARES.items()}, "seed": seed})
    found = json.loads(disk_calls.in_child(RUN, library, memory, given, timeout=900))
    assert sum(found.values()) > 0.75 * count, found
    counted.add("power cuts replayed", sum(found.values()))


DIRECTORIES = ["exported folder", "exported folder, into a directory", "WebDataset shards, into a directory"]
UNPACKED = ["unpacked", "unpacked into a directory", "unpacked, file by file"]


def test_directories_of_files(
    preloadable: Callable[[str], Path], memory: Path, counted: figures.Counted, seed: int
) -> None:
    """Under its final name a directory has all of its files, with all that is in them."""
    library = preloadable("reliability/disk_calls.c")
    given = json.dumps({"cases": dict.fromkeys(DIRECTORIES, 30) | dict.fromkeys(UNPACKED, 120), "seed": seed})
    found = json.loads(disk_calls.in_child(RUN, library, memory, given))
    counted.add("power cuts replayed", sum(found.values()))


def test_where_the_disk_inserts_space(
    preloadable: Callable[[str], Path], tmp_path: Path, counted: figures.Counted, seed: int
) -> None:
    """Samples are moved back in the maps of ext4 and xfs, and only noted to be."""
    library = preloadable("reliability/disk_calls.c")
    given = json.dumps({"cases": {"file of any n, flushed": 15, "recovery, no room": 15}, "seed": seed})
    found = json.loads(disk_calls.in_child(RUN, library, tmp_path, given))
    counted.add("power cuts replayed", sum(found.values()))


# The disk


def of_file(kind: Kind, file: int, at: int = 0, data: bytes = b"", size: int = 0, flags: int = 0) -> Call:
    return Call(kind, flags, file, at, len(data) or size, "", "", data)


def of_name(kind: Kind, file: int, path: Path, other: Path | str = "") -> Call:
    return Call(kind, 0, file, 0, 0, str(path), str(other), b"")


def test_what_was_synced_stays(tmp_path: Path) -> None:
    """A name by the fsync of its directory, content by that of its file."""
    root = tmp_path.stat().st_ino
    disk = LossyDisk(tmp_path)
    disk.did([of_name(Kind.CREATE, 7, tmp_path / "a"), of_file(Kind.WRITE, 7, 0, b"xyz")])
    assert disk.pending(2) == [0, 1]
    disk.did([of_file(Kind.FSYNC, 7)])
    assert disk.pending(3) == [0]
    disk.did([of_name(Kind.RENAME, 7, tmp_path / "a", tmp_path / "b")])
    assert disk.pending(4) == [0, 3]
    assert disk.after(4, {3}, {}).directories == {0: {"a": 1}}
    disk.did([of_file(Kind.FSYNC, root)])
    assert disk.pending(5) == []
    found = disk.after(5, set(), {})
    assert (found.directories, found.files) == ({0: {"b": 1}}, {1: b"xyz"})


def test_a_call_that_syncs_all(tmp_path: Path) -> None:
    disk = LossyDisk(tmp_path)
    disk.did([of_name(Kind.CREATE, 7, tmp_path / "a"), of_file(Kind.FSYNC, 0, flags=1)])
    assert disk.pending(2) == []


def test_a_name_put_in_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    disk = LossyDisk(tmp_path)
    disk.did([of_name(Kind.CREATE, 7, tmp_path / "b"), of_file(Kind.WRITE, 7, 0, b"new")])
    disk.did([of_name(Kind.RENAME, 7, tmp_path / "b", tmp_path / "a")])
    found = disk.after(3, set(), {})
    assert found.files[found.directories[0]["a"]] == b"new" and list(found.directories[0]) == ["a"]
    # The rename is there, the data is not: a file of no bytes under the final name.
    found = disk.after(3, {1}, {})
    assert found.files[found.directories[0]["a"]] == b""
    found.put(_empty(tmp_path / "there"))
    assert (tmp_path / "there" / "a").read_bytes() == b""


def test_a_file_of_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    disk = LossyDisk(tmp_path)
    disk.after(0, set(), {}).put(_empty(tmp_path / "there"))
    assert (tmp_path / "there" / "a").samefile(tmp_path / "there" / "b")


def test_torn_writes() -> None:
    call = of_file(Kind.WRITE, 1, 500, b"a" * 12 + b"b" * 512 + b"c")
    assert sectors(call) == [(0, 12), (12, 524), (524, 525)]
    assert changed(b"-" * 600, call, [(12, 524)]) == b"-" * 512 + b"b" * 512
    assert changed(b"", call, None) == bytes(500) + call.data


def test_what_changes_sizes() -> None:
    assert changed(b"abc", of_file(Kind.TRUNCATE, 1, size=2), None) == b"ab"
    assert changed(b"abc", of_file(Kind.TRUNCATE, 1, size=4), None) == b"abc\0"
    assert changed(b"abc", of_file(Kind.ALLOCATE, 1, size=4), None) == b"abc\0"
    assert changed(b"abc", of_file(Kind.ALLOCATE, 1, size=4, flags=1), None) == b"abc"
    assert changed(b"abc", of_file(Kind.ALLOCATE, 1, at=1, size=2, flags=0x20), None) == b"a\0\0bc"


def _empty(directory: Path) -> Path:
    directory.mkdir()
    return directory
