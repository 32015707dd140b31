"""T13 (guarantees G1, G9): files and datasets that are replaced or appended to, again and again, while others read."""

import json
import mmap
import os
import pickle
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import children
import pytest
from builders import IO_MODES
from figures import Counted, counts

import ffrecord
from ffrecord import DatasetWriter, FFRecordError, FileReader, FileWriter
from ffrecord.cli import main
from ffrecord.format import manifest
from ffrecord.sources import TFRecordWriter

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


class Board:
    """Numbers that forked processes share: whether to stop, and of each how often it looked."""

    def __init__(self, readers: int) -> None:
        self.words = memoryview(mmap.mmap(-1, 8 * (readers + 1))).cast("q")

    @property
    def stopped(self) -> bool:
        return bool(self.words[0])

    def looked(self, number: int) -> None:
        self.words[number + 1] += 1

    def settle(self) -> int:
        """Wait until every process has looked; how often all did."""
        deadline = time.monotonic() + 30
        while min(self.words[1:]) == 0:
            assert time.monotonic() < deadline, "a reader came to no end"
            time.sleep(0.001)
        return sum(self.words[1:])


@contextmanager
def readers(count: int, look: Callable[[int], None]) -> Iterator[Board]:
    """Processes that look again and again, and must find nothing wrong until the end."""
    board = Board(count)

    def work(number: int) -> bool:
        while not board.stopped:
            look(number)
            board.looked(number)
        return True

    begun = [children.begin(lambda number=number: work(number)) for number in range(count)]
    try:
        yield board
    finally:
        board.words[0] = 1
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in begun]
    assert statuses == [0] * count


def samples_of(version: int) -> list[bytes]:
    """No two versions have a sample in common, nor as many of them, but for every thirteenth."""
    return [b"%d of %d." % (i, version) * (1 + (7 * i + version) % 97) for i in range(60 + version % 13)]


def version_of(sample: bytes) -> int:
    return int(sample.split(b".")[0].split(b" of ")[1])


def check_whole(store: object) -> None:
    """All of one version, and the same one at a second look."""
    first = [bytes(sample) for sample in store.read(range(len(store)))]
    assert first == samples_of(version_of(first[0]))
    assert [bytes(sample) for sample in store.read([5, -1, 5])] == [first[5], first[-1], first[5]]


def write(path: Path, version: int) -> None:
    samples = samples_of(version)
    with FileWriter(path, len(samples) if version % 2 else None) as writer:
        for sample in samples:
            writer.write_one(sample)


@counts(15, 250)
@pytest.mark.parametrize("io", IO_MODES)
def test_a_file_rewritten_while_others_read_it(tmp_path: Path, io: str, count: int, counted: Counted) -> None:
    """Each who opens it gets one version, whole, and keeps that."""
    path = tmp_path / "a.ffr"
    write(path, 0)

    def look(number: int) -> None:
        with FileReader(path, io=io, check_data=number != 2) as reader:
            for _ in range(3):
                check_whole(reader)

    with FileReader(path, io=io) as old, readers(3, look) as board:
        for version in range(1, count + 1):
            write(path, version)
            if version % 5 == 0:
                check_whole(old)
        assert version_of(bytes(old.read_one(0))) == 0
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 6 * looks)


def tar_of(path: Path, samples: list[bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for i, sample in enumerate(samples):
            member = tarfile.TarInfo(f"{i:03}")
            member.size = len(sample)
            archive.addfile(member, BytesIO(sample))


def zip_of(path: Path, samples: list[bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, sample in enumerate(samples):
            archive.writestr(f"{i:03}", sample)


@counts(12, 150)
@pytest.mark.parametrize("made", [tar_of, zip_of])
def test_archives_replaced_while_others_read_them(
    tmp_path: Path, made: Callable[[Path, list[bytes]], None], count: int, counted: Counted
) -> None:
    """One version whole, or an error that says what happened."""
    path = tmp_path / f"a.{made.__name__[:3]}"
    made(path, samples_of(0))

    def look(number: int) -> None:
        try:
            with ffrecord.open(path) as store:
                check_whole(store)
        except (FFRecordError, OSError) as error:
            assert path.name in str(error)

    with readers(2, look) as board:
        for version in range(1, count + 1):
            made(tmp_path / "next", samples_of(version))
            os.replace(tmp_path / "next", path)
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 2 * looks)


FIRST, MORE = 100, 40


def sample_at(i: int) -> bytes:
    return b"%d," % i * (1 + i % 50)


@counts(4, 30)
@pytest.mark.parametrize("io", ["auto", "direct"])
def test_a_dataset_appended_to_while_eight_read_it(tmp_path: Path, io: str, count: int, counted: Counted) -> None:
    """Before or after an append, never in the middle; whoever has it open keeps what was there."""
    path = tmp_path / "set"
    options = {"num_workers": 0, "samples_per_shard": 17}
    DatasetWriter(path, **options).from_indexed_dataset([sample_at(i) for i in range(FIRST)])

    def look(number: int) -> None:
        with FileReader(path, io=io) as reader:
            n = len(reader)
            assert (n - FIRST) % MORE == 0, n
            for _ in range(2):
                assert [bytes(sample) for sample in reader.read(range(n))] == [sample_at(i) for i in range(n)]
            assert len(reader) == n

    with readers(8, look) as board:
        for turn in range(count):
            start = FIRST + MORE * turn
            samples = [sample_at(i) for i in range(start, start + MORE)]
            DatasetWriter(path, mode="append", **options).from_indexed_dataset(samples)
        looks = board.settle()
    counted.add("concurrent reads checked", 2 * looks)


@counts(10, 60)
def test_a_dataset_replaced_as_a_directory(tmp_path: Path, count: int, counted: Counted) -> None:
    """Two renames, between which there is none: a reader finds one version, whole, or says that there is none."""
    path = tmp_path / "set"
    options = {"num_workers": 0, "samples_per_shard": 9}

    def make(name: str, version: int) -> Path:
        DatasetWriter(tmp_path / name, **options).from_indexed_dataset(samples_of(version))
        return tmp_path / name

    make("set", 0)

    def look(number: int) -> None:
        try:
            with FileReader(path) as reader:
                check_whole(reader)
        except (FFRecordError, OSError) as error:
            assert "set" in str(error)

    with readers(3, look) as board:
        for version in range(1, count + 1):
            made = make("next", version)
            os.rename(path, tmp_path / "old")
            os.rename(made, path)
            shutil.rmtree(tmp_path / "old")
        looks = board.settle()
    counted.add("files replaced while read", count)
    counted.add("concurrent reads checked", 2 * looks)


# Links to datasets


def two_datasets(directory: Path, *, bare: bool = False) -> list[Path]:
    """Complete datasets with files of the same names, of which one or the other is `current`."""
    made = [directory / "v0" / "set", directory / "v1" / "set"]
    for version, path in enumerate(made):
        options = {"num_workers": 0, "samples_per_shard": 9}
        DatasetWriter(path, **options).from_indexed_dataset(samples_of(version))
        if bare:
            (path / "dataset.json").unlink()
    (directory / "current").symlink_to("v0")
    return made


def point(link: Path, target: str) -> None:
    (link.parent / "new").symlink_to(target)
    os.replace(link.parent / "new", link)


@contextmanager
def pointing(link: Path) -> Iterator[None]:
    """A process that has a link lead to one dataset and to the other in turns, as fast as it can."""

    def turn(number: int) -> None:
        for version in ("v1", "v0"):
            point(link, version)

    with readers(1, turn):
        yield


def read_all(store: object) -> None:
    with store:
        check_whole(store)


def as_torch(path: Path) -> None:
    with pytest.importorskip("ffrecord.torch").Dataset(path) as dataset:
        check_whole(dataset.reader)


OPENINGS: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "dataset": (False, lambda path: read_all(FileReader(path))),
    "bare shards": (True, lambda path: read_all(FileReader(path))),
    "any format": (False, lambda path: read_all(ffrecord.open(path))),
    "pattern": (True, lambda path: read_all(FileReader(path / "*.ffr"))),
    "torch": (False, as_torch),
}


@counts(40, 1000)
@pytest.mark.parametrize("how", OPENINGS)
def test_a_link_that_leads_to_another_dataset_meanwhile(tmp_path: Path, how: str, count: int, counted: Counted) -> None:
    """Each who opens it gets one of them, whole."""
    bare, look = OPENINGS[how]
    two_datasets(tmp_path, bare=bare)
    with pointing(tmp_path / "current"):
        for _ in range(count):
            look(tmp_path / "current" / "set")
    counted.add("files replaced while read", count)


@pytest.mark.parametrize("by", ["a link", "a rename"])
def test_the_format_of_a_directory_that_is_replaced_once_its_manifest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its shards have other names than those of the directory that takes its place."""
    for version in range(2):
        options = {"num_workers": 0, "samples_per_shard": 9 + 30 * version}
        DatasetWriter(tmp_path / f"v{version}", **options).from_indexed_dataset(samples_of(version))
    path = tmp_path / ("current" if by == "a link" else "v0")
    if by == "a link":
        path.symlink_to("v0")
    real, loaded = manifest.load, []

    def load(directory: str) -> manifest.Manifest | None:
        found = real(directory)
        loaded.append(directory)
        # While its format is found out.
        if len(loaded) == 1 and by == "a link":
            point(path, "v1")
        elif len(loaded) == 1:
            path.rename(tmp_path / "old")
            (tmp_path / "v1").rename(path)
        return found

    monkeypatch.setattr(manifest, "load", load)
    read_all(ffrecord.open(path))
    assert len(loaded) > 1


def make_tfrecords(path: Path, version: int) -> None:
    for number in range(3 + 2 * version):
        with TFRecordWriter(path / f"{number}.tfrecord") as writer:
            for _ in range(4):
                writer.write(b"%d" % version)


def make_zips(path: Path, version: int) -> None:
    for number in range(3 + 2 * version):
        with zipfile.ZipFile(path / f"{number}.zip", "w") as archive:
            archive.writestr("a", f"{version}")


def make_pictures(path: Path, version: int) -> None:
    for number in range(3 + 2 * version):
        (path / "cat").mkdir(exist_ok=True)
        (path / f"cat/{number}-{version}.jpg").write_bytes(b"%d" % version)


def make_environments(path: Path, version: int) -> None:
    for number in range(2 + version):
        shutil.copytree(SEEDS / "torchrecord_lmdb", path / f"db{number}")
        (path / f"db{number}" / "lock.mdb").unlink(missing_ok=True)


def make_mds(path: Path, version: int) -> None:
    shutil.copytree(SEEDS / "mds", path, dirs_exist_ok=True)
    index = json.loads((path / "index.json").read_text())
    for shard in index["shards"]:  # each has names of its own
        old = shard["raw_data"]["basename"]
        shard["raw_data"]["basename"] = f"{version}-{old}"
        (path / old).rename(path / f"{version}-{old}")
    (path / "index.json").write_text(json.dumps(index))


def read_other(path: Path) -> None:
    with ffrecord.open(path) as reader:
        found = {bytes(record)[:1] for record in reader.read(range(reader.n))}
        assert (reader.n, found) in [(12, {b"0"}), (20, {b"1"}), (3, {b"0"}), (5, {b"1"})], (reader.n, found)


def read_any(path: Path) -> None:
    with ffrecord.open(path) as reader:
        reader.read(range(reader.n))


OTHERS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], None]]] = {
    "TFRecord": (make_tfrecords, read_other),
    "pattern": (make_tfrecords, lambda path: read_other(path / "*.tfrecord")),
    "zips": (make_zips, read_other),
    "image folder": (make_pictures, read_other),
    "torchrecord": (make_environments, read_any),
    "MDS": (make_mds, read_any),
}


@counts(40, 1000)
@pytest.mark.parametrize("format", OTHERS)
def test_a_link_that_leads_to_another_directory_of_any_format(
    tmp_path: Path, format: str, count: int, counted: Counted
) -> None:
    """As of our own: what is opened is all of one, also if files of both have the same names."""
    make, look = OTHERS[format]
    for version in range(2):
        (tmp_path / f"v{version}" / "set").mkdir(parents=True)
        make(tmp_path / f"v{version}" / "set", version)
    (tmp_path / "current").symlink_to("v0")
    with pointing(tmp_path / "current"):
        for _ in range(count):
            look(tmp_path / "current" / "set")
    counted.add("files replaced while read", count)


@counts(10, 200)
@pytest.mark.parametrize("command", ["info", "verify"])
def test_commands_on_a_link_that_leads_to_another_dataset_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, count: int
) -> None:
    two_datasets(tmp_path)
    with pointing(tmp_path / "current"):
        for _ in range(count):
            assert main([command, str(tmp_path / "current" / "set"), "--json"]) == 0
            said = json.loads(capsys.readouterr().out)
            assert said["path"] == str(tmp_path / "current" / "set")
            assert (said.get("samples") or said["records"]) in (60, 61)


def test_info_on_a_link_that_is_swapped_once_the_manifest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_datasets(tmp_path)
    real = manifest.load

    def load(directory: str) -> manifest.Manifest | None:
        found = real(directory)
        point(tmp_path / "current", "v1")
        return found

    monkeypatch.setattr(manifest, "load", load)
    assert main(["info", str(tmp_path / "current" / "set"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["samples"], said["wrong"]) == (60, [])


@counts(40, 500)
def test_a_directory_that_another_takes_the_place_of(tmp_path: Path, count: int) -> None:
    """By two renames, without any link; shards that no manifest lists are of one of them, too."""
    two_datasets(tmp_path, bare=True)

    def exchange(number: int) -> None:
        for a, b in (("v0", "old"), ("v1", "v0"), ("old", "v1")):
            os.rename(tmp_path / a, tmp_path / b)

    with readers(1, exchange):
        for _ in range(count):
            try:
                read_all(FileReader(tmp_path / "v0" / "set"))
            except (FFRecordError, OSError) as error:
                assert "v0" in str(error)  # there was none just then


LATER = """
import pickle, resource, sys
from pathlib import Path
import test_replaced_files as tests
from ffrecord import FileReader
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (24, hard))
root = Path(sys.argv[1])
with FileReader(root / "current" / "set") as reader:
    tests.point(root / "current", "v1")
    for _ in range(2):
        tests.check_whole(reader)
    assert reader.stats().open_files == 6 < len(reader.fnames)
    with pickle.loads(pickle.dumps(reader)) as copy:
        tests.check_whole(copy)
        assert copy.fingerprint() == reader.fingerprint()
"""


def test_a_reader_keeps_to_the_dataset_that_it_opened(tmp_path: Path) -> None:
    """Also where it opens files again for want of descriptors, and in another process."""
    two_datasets(tmp_path)
    children.run(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{LATER}", tmp_path)


def test_a_pickled_reader_opens_what_was_given_where_links_lead_elsewhere(tmp_path: Path) -> None:
    """As on another machine, on which the same dataset is in another place."""
    two_datasets(tmp_path)
    with FileReader(tmp_path / "current" / "set") as reader:
        assert reader.fnames[0] == str(tmp_path / "v0" / "set" / "PART_00000.ffr")
        pickled = pickle.dumps(reader)
    (tmp_path / "v0").rename(tmp_path / "v2")
    point(tmp_path / "current", "v2")
    with pickle.loads(pickled) as copy:
        check_whole(copy)
        assert copy.fnames[0] == str(tmp_path / "v2" / "set" / "PART_00000.ffr")
    point(tmp_path / "current", "v1")
    with pytest.raises(FFRecordError, match="the files differ from those that this reader was pickled with"):
        pickle.loads(pickled)


def test_paths_without_links_stay_as_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_datasets(tmp_path)
    monkeypatch.chdir(tmp_path / "v0")
    for given, wanted in (("set", "set/PART_00000.ffr"), ("set/*.ffr", "set/PART_00000.ffr")):
        with FileReader(given) as reader:
            assert reader.fnames[0] == wanted
