"""Very many files of one reader: few mappings, whatever their tables are, and all else as with few files."""

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import builders
import children
import pytest
from many_files import in_memory, many_names

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.cli import main
from ffrecord.format import manifest
from ffrecord.reading import ffr_file
from ffrecord.reading.ffr_file import TableRoom
from ffrecord.sources import TFRecordWriter
from ffrecord.system import resources

COUNT = 40


def samples_of(number: int) -> list[bytes]:
    return [b"%d of %d" % (i, number) * (1 + i) for i in range(3 + number % 5)]


SAMPLES = [sample for number in range(COUNT) for sample in samples_of(number)]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a thousand times as many files."""
    monkeypatch.setattr(resources, "MAPPED_FEW", 4)
    monkeypatch.setattr(resources, "mappings", lambda: 6)
    monkeypatch.setattr(ffr_file, "CHUNK", 1000)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A directory of forty files."""
    (tmp_path / "set").mkdir()
    for number in range(COUNT):
        builders.write_samples(tmp_path / "set" / f"{number:03}.ffr", samples_of(number))
    return tmp_path / "set"


def mapped(path: Path) -> int:
    """Mappings of files below a directory that this process has."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("io", ["auto", "pread", "direct"])
def test_few_mappings_and_all_samples(shards: Path, io: str) -> None:
    with FileReader(shards, io=io) as reader:
        assert mapped(shards) == 4
        for _ in range(3):
            assert builders.read_all(reader) == SAMPLES
            assert [bytes(sample) for sample in reader.read(range(len(SAMPLES) - 1, -1, -3))] == SAMPLES[::-3]
        assert reader.get_offsets(-1)[-1] == os.path.getsize(shards / f"{COUNT - 1:03}.ffr")
        reader.validate()
    with FileReader(shards) as reader, FileReader(shards) as other:
        assert children.in_child(lambda: builders.read_all(reader) == SAMPLES) == 0
        assert builders.read_all(other) == SAMPLES


@pytest.mark.usefixtures("few")
def test_large_tables_are_mapped_as_long_as_there_are_few(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffr_file, "LARGE", 70)  # of five samples and more
    with FileReader(shards) as reader:
        assert mapped(shards) == 6
        assert builders.read_all(reader) == SAMPLES


@pytest.mark.usefixtures("few")
def test_damaged_tables_are_found(shards: Path) -> None:
    _flip(shards / "020.ffr", 13)
    with pytest.raises(ffrecord.ChecksumError, match=r"020\.ffr"):
        FileReader(shards)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.usefixtures("few")
def test_a_file_that_was_replaced_is_told(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mapping keeps it; its size, its time and the header's CRC-32 tell."""
    monkeypatch.setattr(resources, "descriptors", lambda: 2)
    with FileReader(shards) as reader:
        builders.write_samples(shards / "020.ffr", samples_of(25))
        first = len([s for number in range(20) for s in samples_of(number)])
        with pytest.raises(OSError, match=r"020\.ffr"):
            reader.read_one(first)
        assert bytes(reader.read_one(first - 1)) == SAMPLES[first - 1]


def test_places_in_a_chunk(tmp_path: Path, few: None) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(250)))
    with open(path, "rb") as file:
        room = TableRoom()
        places = [room.place(file.fileno(), size, size == 7) for size in (1, 2, 3, 4, 100, 250, 7, 250, 250, 250, 200)]
    assert [bytes(memoryview(place)) for place in places] == [
        bytes(range(250))[: len(memoryview(place))] for place in places
    ]
    assert [place.copied for place in places] == [False] * 4 + [True] * 7


@pytest.mark.parametrize("text", [None, "", "few", "8000"])
def test_mappings_of_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    path = tmp_path / "max_map_count"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(resources, "open", lambda given: path.open(), raising=False)
    resources.mappings.cache_clear()
    try:
        assert resources.mappings() == (1024 if text == "8000" else 65_530 // 8)
    finally:
        resources.mappings.cache_clear()


@pytest.mark.usefixtures("few")
def test_kept_indexes(tmp_path: Path) -> None:
    for number in range(COUNT):
        with TFRecordWriter(tmp_path / f"{number:03}.tfrecord") as writer:
            for sample in samples_of(number):
                writer.write(sample)
    for _ in range(2):
        with ffrecord.open(tmp_path, "tfrecord", index_cache=True) as store:
            assert builders.read_all(store) == SAMPLES
    del store
    assert mapped(tmp_path) == 0
    with ffrecord.open(tmp_path, "tfrecord", index_cache=True) as store:
        assert mapped(tmp_path) <= 4 + len(os.listdir("/proc/self/task"))
        assert builders.read_all(store) == SAMPLES


# A hundred thousand, and a million


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory of tmpfs."""
    with in_memory() as made:
        yield made


def many_shards(directory: Path, count: int) -> Path:
    """A dataset of so many shards of five samples, all alike."""
    path = directory / "set"
    DatasetWriter(path, num_workers=0, progress=False).from_indexed_dataset([{"label": i} for i in range(5)])
    listed = manifest.load(str(path))
    assert listed is not None
    os.rename(path / "PART_00000.ffr", path / "PART-0.ffr")
    names = many_names(path, "PART-0.ffr", count)
    (shard,) = listed.shards
    shards = [manifest.Shard(name, shard.samples, shard.size, shard.crc) for name in names]
    manifest.save(str(path), manifest.build(shards, listed.schema))
    return path


OPENED = """
import json, sys, time
import numpy as np
from pathlib import Path
from ffrecord import FileReader

def used():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10

path, count = sys.argv[1], int(sys.argv[2])
before, began = used(), time.monotonic()
with FileReader(path) as reader:
    opened, mappings = time.monotonic() - began, len(Path("/proc/self/maps").read_text().splitlines())
    indices = np.random.default_rng(0).integers(0, reader.n, 2000)
    assert reader.n == 5 * count
    assert [sample["label"] for sample in reader.samples(indices)] == [index % 5 for index in indices]
    print(json.dumps({"each": (used() - before) / count, "seconds": opened, "mappings": mappings}))
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_very_many_shards(memory: Path, capsys: pytest.CaptureFixture[str], count: int) -> None:
    """They are opened, verified, described and added to."""
    path = many_shards(memory, count)
    found = json.loads(children.run(OPENED, path, count, timeout=1500))
    assert found["mappings"] < 4000 and found["each"] < 1500, found
    began = time.monotonic()
    for command in ("info", "verify"):
        assert main([command, str(path), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said.get("samples", said.get("records")) == 5 * count
    writer = DatasetWriter(path, num_workers=0, progress=False, mode="append")
    writer.from_indexed_dataset([{"label": i} for i in range(5)])
    with FileReader(path, check_data=False) as reader:
        assert len(reader.fnames) == count + 1 and reader.n == 5 * count + 5
    print(f"{count} shards: {found}; all else took {time.monotonic() - began:.0f} s")


def test_names_are_of_one_file(tmp_path: Path) -> None:
    """What the long tests read is what they think."""
    path = many_shards(tmp_path, 30)
    with FileReader(path) as reader:
        labels = [sample["label"] for sample in reader.samples(range(reader.n))]
        assert labels == list(itertools.chain.from_iterable([range(5)] * 30))
