"""Whatever the samples, the indices and the mode: the same bytes as the twin's."""

import tempfile
from pathlib import Path

import builders
import ffr_twin
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ffrecord import FileReader, FileWriter

FEW = settings(max_examples=settings().max_examples // 2)


@given(strategies.records(), st.data())
def test_every_mode_reads_what_the_twin_wrote(tmp_path, samples, data):
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    for io in builders.IO_MODES:
        indices = data.draw(strategies.index_batches(len(samples)))
        wanted = [samples[i] for i in indices]
        with FileReader(path, io=io) as reader:
            assert [sample.tobytes() for sample in reader.read(indices)] == wanted
            assert builders.unpack(reader.read_packed(indices)) == wanted
            assert [sample.tobytes() for sample in reader] == samples
            assert [reader.read_one(i).tobytes() for i in indices[:3]] == wanted[:3]


@given(strategies.records())
def test_the_writer_writes_what_the_twin_writes(tmp_path, samples):
    with FileWriter(tmp_path / "a.ffr", len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build(samples)


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
