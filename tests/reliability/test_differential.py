"""T14 (guarantees G3, G10): the same bytes as the twin's, for any samples, indices, engine and workers.

The twin, ffr_twin.py, writes what ffrecord 1.4.0 wrote; the files of tests/golden, which that wrote itself, say so.
"""

import errno
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import builders
import children
import ffr_twin
import hypothesis
import numpy as np
import pytest
import strategies
from builders import GOLDEN, IO_MODES
from damage import quiet
from figures import counts
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ffrecord import DatasetWriter, FileReader, FileWriter, _aio
from ffrecord.fields import BytesField, IntField
from ffrecord.utils import dump

FEW = settings(max_examples=settings().max_examples // 2)
MIB = 1 << 20


def examples(count: int, seed: int) -> Callable[[Any], Any]:
    """So many examples, those of a seed."""
    chosen = settings(max_examples=count, database=None)
    return lambda test: hypothesis.seed(seed)(chosen(test))


def samples_of(most: int = 200) -> st.SearchStrategy[list[bytes]]:
    """Samples of every size at which something changes; one of a MiB, now and then, at an end."""
    large = st.sampled_from([[], [], [], [bytes(MIB - 1) + b"\1"], [b"\2" + bytes(MIB)]])
    return st.builds(
        lambda some, one: [*one, *some] if len(some) % 2 else [*some, *one], strategies.records(most), large
    )


# Reading


def agree(path: str, samples: Sequence[bytes], indices: list[int], io: str) -> None:
    """Every way to read gives what the list of samples gives."""
    wanted = [samples[i] for i in indices]
    with FileReader(path, io=io) as reader:
        assert [sample.tobytes() for sample in reader.read(indices)] == wanted
        assert builders.unpack(reader.read_packed(np.array(indices, np.int64))) == wanted
        assert [sample.tobytes() for sample in reader] == list(samples)
        assert [reader.read_one(i).tobytes() for i in indices[:3]] == wanted[:3]


def compare(directory: Path, count: int, seed: int, modes: Sequence[str]) -> None:
    """As many examples in each of the modes; then the golden files."""

    @examples(count, seed)
    @given(samples_of(), st.data())
    def check(samples: list[bytes], data: st.DataObject) -> None:
        path = builders.write_samples(directory / "a.ffr", samples)
        indices = data.draw(strategies.index_batches(len(samples)))
        for io in modes:
            agree(path, samples, indices, io)

    check()
    with quiet():
        for path in sorted(GOLDEN.rglob("*.ffr")):
            samples = ffr_twin.parse(path.read_bytes())
            for io in modes:
                agree(str(path), samples, list(range(-len(samples), len(samples))), io)


@pytest.mark.timeout(1800)
@counts(80, 12_000)
def test_every_engine_reads_what_the_twin_wrote(tmp_path, in_memory, count, seed, counted):
    """Everyday on the disk; the many examples of the long run in memory, which takes direct reads too."""
    compare(tmp_path if count < 1000 else in_memory, count, seed, IO_MODES)
    assert _aio.stats()["made"] > 0
    counted.add("differential examples", count)


@pytest.mark.timeout(1800)
@counts(20, 1_000)
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EAGAIN], ids=errno.errorcode.get)
def test_aio_is_refused(in_memory, count, seed, number, counted):
    """As in containers that filter system calls, and where all slots of the host are taken."""

    def refused() -> bool:
        children.refuse("io_setup", number)
        try:
            compare(in_memory, count, seed + number, ("direct", "auto"))
            return _aio.stats()["refused"] > 0
        except BaseException:
            traceback.print_exc()
            raise

    if children.in_child(lambda: children.refuse("io_setup", number) is None):
        pytest.skip("this machine allows no filters of system calls")
    _aio.release()
    assert children.in_child(refused) == 0
    counted.add("differential examples", count)


# Writing


@pytest.mark.timeout(1800)
@counts(40, 4_000)
def test_the_writer_writes_what_the_twin_writes(in_memory, count, seed, counted):
    @examples(count, seed)
    @given(samples_of())
    def check(samples: list[bytes]) -> None:
        with FileWriter(in_memory / "a.ffr", len(samples)) as writer:
            writer.write_many(samples[: len(samples) // 2])
            for sample in samples[len(samples) // 2 :]:
                writer.write_one(sample)
        assert (in_memory / "a.ffr").read_bytes() == ffr_twin.build(samples)

    check()
    counted.add("differential examples", count)


def shards(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.ffr"))]


@pytest.mark.timeout(1800)
@counts(12, 700)
def test_workers_write_what_the_twin_writes(in_memory, count, seed, counted):
    """One to four of them, with small chunks, so that every shard is of several."""

    @examples(count, seed)
    @given(samples_of(60).filter(bool), st.integers(1, 20), st.integers(1, 4), st.integers(1, 7))
    def check(samples: list[bytes], per_shard: int, workers: int, chunk: int) -> None:
        with tempfile.TemporaryDirectory(dir=in_memory) as directory:
            made = DatasetWriter(directory, num_workers=workers, samples_per_shard=per_shard)
            made.from_indexed_dataset(samples, chunksize=chunk)
            cuts = [samples[i : i + per_shard] for i in range(0, len(samples), per_shard)]
            assert shards(Path(directory)) == [ffr_twin.build(cut) for cut in cuts]

    check()
    counted.add("differential examples", count)


@pytest.mark.timeout(600)
@counts(1, 15)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_however_workers_are_started(in_memory, random, count, method, counted):
    """Plain samples as the twin writes them, written and then appended to; typed ones as one process writes them."""
    for turn in range(count):
        samples = builders.records(random.integers(0, 700, random.integers(20, 90)).tolist())
        typed = [{"data": sample, "size": len(sample)} for sample in samples]
        options = {"samples_per_shard": int(random.integers(1, 20)), "progress": False}
        workers, chunk = int(random.integers(1, 4)), int(random.integers(1, 9))
        started = {**options, "num_workers": workers, "start_method": method}
        place = in_memory / str(turn)
        DatasetWriter(place / "plain", **started).from_indexed_dataset(samples, chunksize=chunk)
        DatasetWriter(place / "plain", **started, mode="append").from_indexed_dataset(samples, chunksize=chunk)
        size = options["samples_per_shard"]
        cuts = [samples[i : i + size] for i in range(0, len(samples), size)]
        assert shards(place / "plain") == [ffr_twin.build(cut) for cut in cuts] * 2
        fields = {"data": BytesField(), "size": IntField()}
        DatasetWriter(place / "typed", fields=fields, **started).from_indexed_dataset(typed, chunksize=chunk)
        DatasetWriter(place / "alone", fields=fields, **options, num_workers=0).from_indexed_dataset(typed)
        assert shards(place / "typed") == shards(place / "alone")
        assert (place / "typed/dataset.json").read_bytes() == (place / "alone/dataset.json").read_bytes()
    counted.add("differential examples", count)


@pytest.mark.filterwarnings("ignore:Split into:UserWarning")
@pytest.mark.timeout(1800)
@counts(10, 300)
def test_a_dump_writes_what_the_original_wrote(in_memory, count, seed, counted):
    """`dump` of ffrecord 1.x: as many files as asked, each by a worker of its own, ceil(n / files) samples each."""

    @examples(count, seed)
    @given(samples_of(40).filter(bool), st.integers(1, 4))
    def check(samples: list[bytes], files: int) -> None:
        with tempfile.TemporaryDirectory(dir=in_memory) as directory:
            dump(samples, os.path.join(directory, "out.ffr") if files == 1 else directory, files)
            size = -(-len(samples) // files)
            cuts = [samples[i : i + size] for i in range(0, len(samples), size)]
            assert shards(Path(directory)) == [ffr_twin.build(cut) for cut in cuts]

    check()
    counted.add("differential examples", count)


@FEW
@given(st.lists(strategies.sizes, max_size=600))
def test_the_twin_reads_what_is_written_without_n(tmp_path, of_sizes):
    samples = builders.records(of_sizes)
    with FileWriter(tmp_path / "a.ffr") as writer:
        for sample in samples:
            writer.write_one(sample)
    data = (tmp_path / "a.ffr").read_bytes()
    assert ffr_twin.parse(data) == samples
    gap = int.from_bytes(data[12 + 4 * len(samples) :][:8], "little") if samples else len(data)
    assert gap % 4096 == 0


# Many files, slices, damage


@given(st.lists(strategies.records(8), min_size=1, max_size=12), strategies.io_modes, st.data())
def test_many_files_are_one_sequence(tmp_path, parts, io, data):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", part) for i, part in enumerate(parts)]
    samples = [sample for part in parts for sample in part]
    indices = data.draw(strategies.index_batches(len(samples)))
    with FileReader(names, io=io) as reader:
        assert reader.n == len(samples)
        assert builders.unpack(reader.read_packed(indices)) == [samples[i] for i in indices]
        assert builders.read_all(reader) == samples


@given(strategies.records(20), strategies.io_modes, st.data())
def test_slices_are_those_of_a_list(tmp_path, samples, io, data):
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    cut = data.draw(st.slices(len(samples)))
    again = data.draw(st.slices(len(samples)))
    with FileReader(path, io=io) as reader:
        assert [sample.tobytes() for sample in reader[cut]] == samples[cut]
        assert [sample.tobytes() for sample in reader[cut][again]] == samples[cut][again]


@given(strategies.records(12), strategies.io_modes, st.data())
def test_damaged_samples_only_are_skipped(tmp_path, samples, io, data):
    """Every subset of samples may be damaged; the rest of the batch is what it was."""
    damage = [i for i, sample in enumerate(samples) if sample and data.draw(st.booleans())]
    path = builders.write(
        tmp_path / "a.ffr", builders.chain(*map(builders.flip_in_sample, damage))(ffr_twin.build(samples))
    )
    indices = data.draw(strategies.index_batches(len(samples)))
    wanted = [samples[i] for i in indices if i % len(samples) not in damage]
    with FileReader(path, io=io, on_error="skip") as reader:
        assert builders.unpack(reader.read_packed(indices)) == wanted
        assert reader.skipped == len(indices) - len(wanted)
        assert [sample.tobytes() for sample in reader.read(indices)] == wanted


# Any order of writing and reading


class WriterAndReader(RuleBasedStateMachine):
    """Write, close, drop, read, in any order: a path holds the last file that was closed whole, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.ffr"
        self.published: list[bytes] | None = None
        self.writer: FileWriter | None = None
        self.readers: list[tuple[FileReader, list[bytes]]] = []

    @precondition(lambda self: self.writer is None)
    @rule(n=st.none() | st.integers(0, 4))
    def begin(self, n: int | None) -> None:
        self.writer, self.n, self.written = FileWriter(self.path, n), n, []

    @precondition(lambda self: self.writer is not None)
    @rule(size=strategies.sizes)
    def write(self, size: int) -> None:
        sample = bytes([len(self.written)]) * size
        if self.n is not None and len(self.written) == self.n:
            with pytest.raises(RuntimeError, match="Exceed total number"):
                self.writer.write_one(sample)
        else:
            self.writer.write_one(sample)
            self.written.append(sample)

    @precondition(lambda self: self.writer is not None)
    @rule()
    def close(self) -> None:
        if self.n in (None, len(self.written)):
            self.writer.close()
            self.writer, self.published = None, self.written
        else:
            with pytest.raises(RuntimeError, match="mismatched"):
                self.writer.close()

    @precondition(lambda self: self.writer is not None)
    @rule()
    def abort(self) -> None:
        with pytest.raises(ZeroDivisionError), self.writer:
            raise ZeroDivisionError
        self.writer = None

    @precondition(lambda self: self.published is not None)
    @rule(io=strategies.io_modes)
    def open(self, io: str) -> None:
        self.readers.append((FileReader(self.path, io=io), self.published))

    @invariant()
    def every_reader_reads_the_file_it_opened(self) -> None:
        for reader, samples in self.readers:
            assert builders.read_all(reader) == samples
        assert self.path.exists() == (self.published is not None)

    def teardown(self) -> None:
        for reader, _ in self.readers:
            reader.close()
        if self.writer is not None:
            self.abort()
        self.directory.cleanup()


TestWriterAndReader = WriterAndReader.TestCase
TestWriterAndReader.settings = settings(max_examples=max(10, settings().max_examples // 3), stateful_step_count=20)
