"""T6, T7 (guarantees G1, G3): manifest, journal, part file, ledger and kept index, cut anywhere and with any bit wrong.

What is beside the samples is never believed: it is refused, made anew, or what it leads to is compared with checksums.
"""

import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
from figures import Counted

from ffrecord import DatasetWriter, FFRecordError, FileReader, FileWriter, FormatError, recover
from ffrecord.dataset_writer import write_log
from ffrecord.format import leftovers, manifest
from ffrecord.sources import index_file

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def cuts(data: bytes, counted: Counted) -> Iterator[bytes]:
    """Every shorter length."""
    for size in range(len(data)):
        yield data[:size]
        counted.add("truncations")


def flips(data: bytes, counted: Counted, step: int = 1) -> Iterator[bytes]:
    """Every bit inverted, or every `step`th."""
    for bit in range(0, 8 * len(data), step):
        yield builders.flip(bit)(data)
        counted.add("bit flips")


def damaged(data: bytes, counted: Counted, step: int = 1) -> Iterator[bytes]:
    """Both."""
    yield from cuts(data, counted)
    yield from flips(data, counted, step)


# The manifest of a dataset's directory

SAMPLES = builders.records([i * 31 % 97 for i in range(30)])


@pytest.fixture
def dataset(in_memory: Path) -> Path:
    """A directory of three shards and their manifest."""
    DatasetWriter(in_memory / "set", num_workers=0, samples_per_shard=10).from_indexed_dataset(SAMPLES)
    return in_memory / "set"


def read(directory: Path) -> list[bytes]:
    with FileReader(directory) as reader:
        return builders.read_all(reader)


def test_every_change_of_a_manifest(dataset, counted):
    """Refused; or it says the same in other words, as a space does for a line's end, or is another program's file."""
    path = dataset / manifest.NAME
    whole, expected = path.read_bytes(), manifest.load(str(dataset))
    for data in damaged(whole, counted):
        path.write_bytes(data)
        try:
            found = manifest.load(str(dataset))
        except FormatError as error:
            assert str(path) in str(error)
            continue
        assert found is None or (found.shards, found.samples) == (expected.shards, expected.samples) or renamed(found)
    path.write_bytes(whole)
    assert read(dataset) == SAMPLES


def renamed(found: manifest.Manifest) -> bool:
    """Whether a shard has another name, which no checksum covers: there is no such file, or it is another shard."""
    return [shard.name for shard in found.shards] != [f"PART_{i:05d}.ffr" for i in range(len(found.shards))]


def test_a_reader_of_a_changed_manifest(dataset, counted):
    """All samples, or an error: never fewer of them."""
    path = dataset / manifest.NAME
    for data in damaged(path.read_bytes(), counted, step=7):
        path.write_bytes(data)
        try:
            assert read(dataset) == SAMPLES
        except (FFRecordError, FileNotFoundError) as error:
            assert str(dataset) in str(error)


@pytest.mark.parametrize("shard", [0, 2])
def test_every_change_of_a_shard_s_header(dataset, shard, counted):
    """The manifest lists size and checksum of each: no length of a shard is taken for a smaller dataset."""
    path = dataset / f"PART_{shard:05d}.ffr"
    whole = path.read_bytes()
    for data in cuts(whole, counted):
        path.write_bytes(data)
        with pytest.raises(FFRecordError, match=path.name):
            FileReader(dataset)
    for data in flips(whole[:132], counted):
        path.write_bytes(data + whole[132:])
        with pytest.raises(FFRecordError, match=path.name):
            FileReader(dataset)


# What a killed writer left


@pytest.fixture(scope="module", params=[None, 9], ids=["n unknown", "n = 9"])
def left(request, tmp_path_factory) -> Path:
    """A directory with the part file and the journal of a killed writer: three flushes, and a sample after them."""
    directory = tmp_path_factory.mktemp("left")
    child = os.fork()
    if child == 0:
        opened = FileWriter(directory / "a.ffr", request.param)
        for first in range(0, 6, 2):
            opened.write_many(builders.small()[1:][first : first + 2])
            opened.flush()
        opened.write_one(b"not flushed")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return directory


FLUSHED = builders.small()[1:][:6]


def recovered(left: Path, changes: Iterable[bytes], suffix: str, directory: Path) -> Iterator[int | None]:
    """How many samples are recovered after each change of one of the two files; None if it is refused."""
    directory.mkdir()
    files = {path.name: path.read_bytes() for path in left.iterdir()}
    (part,) = (name for name in files if name.endswith(".part"))
    for data in changes:
        for name, whole in files.items():
            (directory / name).write_bytes(data if name.endswith(suffix) else whole)
        try:
            found = recover(directory / part, replace=True)
        except (FormatError, FileNotFoundError):
            yield None
            continue
        # Never invented, never out of order: the first of those that were flushed.
        assert ffr_twin.parse(Path(found.path).read_bytes()) == FLUSHED[: found.samples]
        os.unlink(found.path)
        yield found.samples
    shutil.rmtree(directory)


def only(left: Path, suffix: str) -> bytes:
    (path,) = (path for path in left.iterdir() if path.name.endswith(suffix))
    return path.read_bytes()


def test_every_change_of_a_journal(left, in_memory, counted):
    """Whatever it says, only samples whose bytes match their checksum are recovered."""
    whole = only(left, ".journal")
    counts = list(recovered(left, cuts(whole, counted), ".journal", in_memory / "cuts"))
    known = [count for count in counts if count is not None]
    assert known == sorted(known) and set(known) == {0, 2, 4}
    counts = list(recovered(left, flips(whole, counted), ".journal", in_memory / "flips"))
    assert set(counts) <= {None, 0, 2, 4, 6} and None in counts


def test_every_change_of_a_part_file(left, in_memory, counted):
    """The samples before the damaged one."""
    whole = only(left, ".part")
    start = whole.index(FLUSHED[0] + FLUSHED[1] + FLUSHED[2])
    end = start + sum(map(len, FLUSHED))
    ends = np.cumsum([start, *map(len, FLUSHED)])[1:]
    sizes = [0, 11, start // 2, *range(start - 1, len(whole))]
    changes = (whole[:size] for size in sizes)
    for size, count in zip(sizes, recovered(left, changes, ".part", in_memory / "cuts"), strict=True):
        assert count == np.searchsorted(ends, size, side="right"), size
        counted.add("truncations")
    bits = range(8 * start, 8 * end)
    changes = (builders.flip(bit)(whole) for bit in bits)
    for bit, count in zip(bits, recovered(left, changes, ".part", in_memory / "flips"), strict=True):
        assert count == np.searchsorted(ends, bit // 8, side="right"), bit
        counted.add("bit flips")


# The ledger of a write that was interrupted


def test_every_change_of_a_ledger(tmp_path, counted):
    """What it tells is the beginning of what it told; a shard that it lists is compared with its file all the same."""
    shards = [manifest.Shard(f"PART_{i:05d}.ffr", 10, 1000 + i, 7 * i) for i in range(3)]
    with open(tmp_path / leftovers.WRITE_LOG, "w+b") as file:
        kept = write_log.WriteLog(file.fileno())
        kept.begin({"samples": 30})
        for shard in shards:
            kept.append(write_log.ShardFinished(shard, write_log.Start()))
        whole = (tmp_path / leftovers.WRITE_LOG).read_bytes()
    for data in cuts(whole, counted):
        state = write_log.replay(data)
        assert [finished.shard for finished in state.finished.values()] == shards[: len(state.finished)]
        assert state.end <= len(data) and write_log.replay(data[: state.end]).finished == state.finished
    for data in flips(whole, counted):
        assert len(write_log.replay(data).finished) <= 3


# The kept index of a file of another format


def test_every_change_of_a_kept_index(in_memory, counted):
    """Made anew: none is used that is not what was kept."""
    arrays = {"offsets": np.arange(5, dtype=np.int64) << 40, "crcs": np.arange(7, dtype=np.uint32)}
    path, built = in_memory / "data.bin", 0
    path.write_bytes(b"some data")

    def build() -> dict[str, np.ndarray]:
        nonlocal built
        built += 1
        return arrays

    index_file.cached_index(str(path), "test-1", build, True)
    place = index_file.index_path(str(path), "test-1", True)
    assert place is not None
    whole, number = Path(place).read_bytes(), 1
    for data in damaged(whole, counted):
        Path(place).write_bytes(data)
        # Looked at as `cached` does, which would else write a good one each time.
        assert index_file._load(place, "test-1", os.stat(path), None) is None
        number += 1
    assert {
        name: array.tolist() for name, array in index_file.cached_index(str(path), "test-1", build, True).items()
    } == {name: array.tolist() for name, array in arrays.items()}
    assert (number > 8 * len(whole), built) == (True, 2)
