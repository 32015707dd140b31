"""T7 (guarantees G3, G9): Samples of every size are checked to the last byte in every mode; cut ones are no zeros."""

import os
from pathlib import Path

import builders
import faults
import ffr_twin
import pytest

from ffrecord import ChecksumError, FFRecordError, FileReader

# About every limit between two ways to read and check, and beside them.
SIZES = [1, 63, 64, 65, 511, 513, 1023, 1025, 4095, 4097, 8193, 16_385, 65_535, 65_537, 131_073, (1 << 20) + 1]


@pytest.fixture(params=["tmp_path", "in_memory"], ids=["disk", "memory"])
def directory(request: pytest.FixtureRequest) -> Path:
    """Where files are first read from a disk, and where they are cached from the first batch on."""
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("io", builders.IO_MODES)
def test_the_last_byte_of_each_size(directory: Path, io: str) -> None:
    samples = builders.records(SIZES)
    whole = ffr_twin.build(samples)
    ends = [len(whole) - sum(SIZES[index + 1 :]) for index in range(len(SIZES))]
    for bad, end in enumerate(ends):
        path = builders.write(directory / "a.ffr", whole[: end - 1] + bytes([whole[end - 1] ^ 1]) + whole[end:])
        others = [index for index in range(len(SIZES)) if index != bad]
        with FileReader(path, io=io) as reader:
            for indices in (range(len(SIZES)), [bad], [0, bad, bad, 2]):  # many, one, several
                with pytest.raises(ChecksumError, match=f"Sample {bad}:"):
                    reader.read(indices)
                with pytest.raises(ChecksumError, match=f"Sample {bad}:"):
                    reader.read_packed(indices)
            assert [bytes(sample) for sample in reader.read(others)] == [samples[index] for index in others]


@pytest.mark.parametrize("io", ["auto", "pread", "direct"])
@pytest.mark.parametrize("check", [True, False])
def test_what_was_cut_off_is_no_zeros(directory: Path, io: str, check: bool) -> None:
    """The rest of the last page of a file reads as zeros, where it is mapped."""
    samples = builders.records([3000] * 20)
    path = builders.write_samples(directory / "a.ffr", samples)
    size = os.path.getsize(path)
    with FileReader(path, check, io=io) as reader:
        for _ in range(12):
            assert builders.read_all(reader) == samples
        os.truncate(path, size - (size % 4096 or 4096) // 2)
        for _ in range(2):
            with pytest.raises(FFRecordError, match="Sample 19"):
                reader.read(range(reader.n))
        assert [bytes(sample) for sample in reader.read(range(19))] == samples[:19]


CUT_MEANWHILE = """
import os, sys, time
from ffrecord import FFRecordError, FileReader
from ffrecord.system import _calls
path, io, many = sys.argv[1], sys.argv[2], sys.argv[3] == "many"
size = os.path.getsize(path)
with FileReader(path, False, io=io) as reader:
    indices = list(range(reader.n)) if many else [reader.n - 1]
    read = (lambda: reader.read(indices)) if many else (lambda: reader.read_one(indices[0]))
    for _ in range(12):
        read()
    # The first of a batch is before the samples are read; a single sample is read at once, after an lseek.
    _calls.fault("fstat", 2 if many or io == "direct" else 1, "delay", 300, for_good=True)
    child = os.fork()  # as a single sample is read with the GIL
    if not child:
        time.sleep(0.15)
        os.truncate(path, size - 1)
        os._exit(0)
    try:
        read()
    except FFRecordError as error:
        print(error)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("io", ["auto", "pread", "direct"])
@pytest.mark.parametrize("many", ["many", "one"])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, io: str, many: str) -> None:
    """Unchecked: the kernel may give zeros for what is being cut off, so the size is looked at again afterwards."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([3000] * 20))
    assert "Sample 19: length 3000 but read 2999 bytes" in faults.run(CUT_MEANWHILE, path, io, many)
