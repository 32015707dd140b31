"""What a sample that cannot be read does: raise, skip, replace."""

import builders
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES, chain, fix_checksum, flip_in_sample, set_offset

from ffrecord import ChecksumError, FileReader, FormatError
from ffrecord.errors import TruncatedError
from ffrecord.reading import store

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
SAMPLES = builders.small()
DAMAGED = (3, 6)
INDICES = [6, 0, 3, 7, -2, 5, 3]
GOOD = [0, 7, 5]


@pytest.fixture
def damaged(tmp_path) -> str:
    return builders.write(tmp_path / "a.ffr", chain(*map(flip_in_sample, DAMAGED))(ffr_twin.build(SAMPLES)))


@pytest.fixture(params=IO_MODES)
def io(request) -> str:
    return request.param


def test_raise_names_file_index_and_both_checksums(damaged, io):
    with FileReader([damaged, damaged], io=io) as reader:
        with pytest.raises(ChecksumError, match="Sample 11: checksum mismatch:") as caught:
            reader.read([8, 11, 9])
        error = caught.value
        assert (error.path, error.index, error.stored) == (damaged, 11, builders.ffr_twin.zlib.crc32(SAMPLES[3]))
        assert f"{damaged}: sample 3: CRC-32 {error.computed:#010x}, stored {error.stored:#010x}" in str(error)
        assert "(5 bytes at offset 111)" in str(error)


def test_raise_keeps_the_reader_usable(damaged, io):
    with FileReader(damaged, io=io) as reader:
        for _ in range(3):
            with pytest.raises(ChecksumError):
                reader.read(INDICES)
            with pytest.raises(ChecksumError):
                reader.read_one(-2)
            assert [sample.tobytes() for sample in reader.read(GOOD)] == [SAMPLES[i] for i in GOOD]
        assert reader.skipped == 0


def test_a_bad_record_is_read_once(damaged, io):
    with FileReader(damaged, io=io) as reader, FileReader(damaged, io=io) as other:
        for index in DAMAGED:
            with pytest.raises(ChecksumError):
                reader.read_one(index)
            with pytest.raises(ChecksumError):
                other.read([index])
        seen, expected = reader.stats(), other.stats()
        assert seen.batches == expected.batches == 2
        assert (seen.records, seen.bytes, seen.requests) == (expected.records, expected.bytes, expected.requests)


def test_skip_leaves_them_out_and_counts(damaged, io):
    with FileReader(damaged, io=io, on_error="skip") as reader:
        wanted = [SAMPLES[i] for i in INDICES if i % 8 not in DAMAGED]
        assert [sample.tobytes() for sample in reader.read(INDICES)] == wanted
        assert reader.skipped == 4
        assert builders.unpack(reader.read_packed(INDICES)) == wanted
        assert reader.skipped == 8
        assert [sample.tobytes() for sample in reader] == [SAMPLES[i] for i in range(8) if i not in DAMAGED]


def test_skip_of_all(damaged, io):
    with FileReader(damaged, io=io, on_error="skip") as reader:
        assert reader.read([3, 3, 6]) == []
        data, offsets = reader.read_packed([3, 3, 6])
        assert (data.shape, data.dtype, offsets.tolist()) == ((0,), np.uint8, [0])


def test_skip_of_one_has_nothing_else_to_return(damaged, io):
    with FileReader(damaged, io=io, on_error="skip") as reader:
        with pytest.raises(ChecksumError, match="Sample 3"):
            reader.read_one(3)
        assert reader.read_one(5).tobytes() == SAMPLES[5]


def test_a_callable_replaces(damaged, io):
    seen = []

    def replace(error: Exception) -> np.ndarray:
        seen.append(error.index)
        return np.full(4, error.index, np.uint8)

    with FileReader(damaged, io=io, on_error=replace) as reader:
        wanted = [bytes([i % 8]) * 4 if i % 8 in DAMAGED else SAMPLES[i] for i in INDICES]
        arrays = reader.read(INDICES)
        assert [sample.tobytes() for sample in arrays] == wanted
        assert all(sample.dtype == np.uint8 for sample in arrays)
        assert all(sample.flags.writeable for sample in arrays) or io == "mmap"
        assert sorted(seen) == [3, 3, 6, 6]
        assert builders.unpack(reader.read_packed(INDICES)) == wanted
        assert reader.read_one(6).tobytes() == b"\6" * 4


def test_replaced_samples_share_no_byte(damaged):
    same = np.zeros(4, np.uint8)
    with FileReader(damaged, on_error=lambda error: same) as reader:
        first, second = reader.read([3, 3])
        first[:] = 9
        assert second.tolist() == same.tolist() == [0] * 4


def test_a_callable_may_raise(damaged, io):
    def stop(error: Exception) -> np.ndarray:
        raise KeyError("stop") from error

    with FileReader(damaged, io=io, on_error=stop) as reader:
        with pytest.raises(KeyError) as caught:
            reader.read(INDICES)
        assert isinstance(caught.value.__cause__, ChecksumError)
        assert reader.read_one(0).tobytes() == SAMPLES[0]


@pytest.mark.parametrize(
    "given",
    [
        b"lost",
        bytearray(b"lost"),
        memoryview(b"lost"),
        np.frombuffer(b"lost", np.int16),
        np.frombuffer(b"l.o.s.t.", np.uint8)[::2],
        np.asfortranarray([[108, 111], [115, 116]], np.uint8),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_replaces_may_be_any_buffer(damaged, given):
    with FileReader(damaged, on_error=lambda error: given) as reader:
        assert reader.read_one(3).tobytes() == b"lost"
        assert reader.read([3, 0])[0].flags.writeable


def test_what_replaces_may_be_empty(damaged):
    with FileReader(damaged, on_error=lambda error: b"") as reader:
        assert [len(sample) for sample in reader.read([3, 1])] == [0, 1]


@pytest.mark.parametrize("given", [None, "text", 3, object()])
def test_what_replaces_must_be_bytes(damaged, given):
    with FileReader(damaged, on_error=lambda error: given) as reader, pytest.raises((TypeError, ValueError)):
        reader.read_one(3)


@pytest.mark.parametrize("policy", ["skip", lambda error: b"lost"], ids=["skip", "replace"])
def test_each_is_said_and_they_have_a_limit(damaged, io, policy, caplog, monkeypatch):
    """A dataset with thousands of bad samples is to be mended, not trained on."""
    monkeypatch.setattr(store, "SKIPPED_MOST", 5)
    with FileReader(damaged, io=io, on_error=policy) as reader:
        reader.read([3, 0, 6])
        said = [record.getMessage() for record in caplog.records]
        assert [message.split(damaged)[0] for message in said] == [
            f"skipped or replaced: Sample {i}: checksum mismatch: " for i in DAMAGED
        ]
        reader.read([3, 3, 3, 0])
        assert reader.skipped == 5
        with pytest.raises(ChecksumError, match="Sample 6"):
            reader.read([6])
        assert reader.read_one(0).tobytes() == SAMPLES[0]


def test_wrong_indices_are_not_skipped(damaged, io):
    with FileReader(damaged, io=io, on_error="skip") as reader:
        with pytest.raises(IndexError):
            reader.read([0, 8])
        assert reader.skipped == 0


@pytest.mark.parametrize("wrong", ["ignore", "", None, 3])
def test_unknown_policies(damaged, wrong):
    with pytest.raises(ValueError, match="on_error is"):
        FileReader(damaged, on_error=wrong)


# Every way a sample can fail

FAILURES = {
    "checksum": (flip_in_sample(6), {6: ChecksumError}),
    "offset below the one before": (chain(set_offset(6, 112), fix_checksum), {5: FormatError, 6: ChecksumError}),
    "offset inside the tables": (chain(set_offset(6, 20), fix_checksum), {5: FormatError, 6: FormatError}),
    "offset past the end": (chain(set_offset(6, 10**6), fix_checksum), {5: FormatError, 6: FormatError}),
    "negative offset": (chain(set_offset(6, -1), fix_checksum), {5: FormatError, 6: FormatError}),
    "greatest offset": (chain(set_offset(6, 2**63 - 1), fix_checksum), {5: FormatError, 6: FormatError}),
    "last offset past the end": (chain(set_offset(7, 405), fix_checksum), {6: FormatError, 7: FormatError}),
    "cut inside the last": (builders.truncate(-1), {7: ChecksumError}),
    "grown": (builders.append(b"x"), {7: ChecksumError}),
    "checksum of an empty one": (chain(builders.set_checksum(0, 1), fix_checksum), {0: ChecksumError}),
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_every_failure_hits_its_sample_only(tmp_path, io, kind, policy):
    damage, bad = FAILURES[kind]
    path = builders.write(tmp_path / "a.ffr", damage(ffr_twin.build(SAMPLES)))
    with FileReader(path, io=io, on_error=policy) as reader:
        for i, sample in enumerate(SAMPLES):
            if i not in bad:
                assert reader.read_one(i).tobytes() == sample
                continue
            with pytest.raises(bad[i], match=f"Sample {i}: ") as caught:
                reader.read_one(i)
            assert path in str(caught.value)
            assert isinstance(caught.value, RuntimeError)
        if policy == "skip":
            assert builders.unpack(reader.read_packed(range(8))) == [SAMPLES[i] for i in range(8) if i not in bad]
        else:
            with pytest.raises(RuntimeError, match=f"Sample ({'|'.join(map(str, bad))}): "):
                reader.read(range(8))


@pytest.mark.parametrize("io", builders.COPYING_MODES)
def test_cut_while_open(small_file, io):
    """Both numbers, and the errors of a truncated file. With io="mmap" all of it is gone: test_read_mapped.py."""
    import os

    with FileReader(small_file.path, io=io, on_error="skip") as reader:
        os.truncate(small_file.path, 200)
        for i, sample in enumerate(small_file.samples[:6]):
            assert reader.read_one(i).tobytes() == sample
        with pytest.raises(TruncatedError, match=r"Sample 6: length 100 but read 35 bytes") as caught:
            reader.read_one(6)
        assert all(isinstance(caught.value, kind) for kind in (FormatError, OSError, RuntimeError))
        with pytest.raises(TruncatedError, match=r"Sample 7: length 139 but read 0 bytes"):
            reader.read_one(7)
        assert builders.unpack(reader.read_packed(range(8))) == small_file.samples[:6]
