"""T6 (guarantees G3, G4): a file cut anywhere is refused, or gives the samples that are still whole, in every mode."""

import os

import builders
import damage
import ffr_twin
import pytest
from builders import COPYING_MODES, IO_MODES
from damage import ENDS, EXTENDED, MODES, OPENING_MODES, PLAIN, SAMPLES, Damaged, Outcome

from ffrecord import ChecksumError, FileReader, FormatError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def check_cut(found: Outcome, size: int, check: bool) -> None:
    """What must become of the small file cut to `size` bytes."""
    if size < ENDS[0]:
        assert isinstance(found, FormatError)
        return
    assert isinstance(found, list), found
    for i in range(7):
        if ENDS[i] <= size:
            assert found[i] == SAMPLES[i], i
        else:
            assert isinstance(found[i], FormatError), i
    # The last one ends with the file: known limit of the format, so only its checksum can tell.
    if size < ENDS[6]:
        assert isinstance(found[7], FormatError)
    elif check:
        assert isinstance(found[7], ChecksumError)
    else:
        assert found[7] == SAMPLES[7][: size - ENDS[6]]


@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_every_length(tmp_path, mode, counted):
    with Damaged(tmp_path / "a.ffr", PLAIN) as file:
        for size in file.cuts():
            check_cut(damage.read(file.path, mode), size, mode.check)
            counted.add("truncations")
        assert damage.read(file.path, mode) == SAMPLES


@pytest.mark.parametrize("mode", OPENING_MODES, ids=repr)
def test_every_length_with_an_extension_block(tmp_path, mode, counted):
    """The block records the file's size, which closes the format's hole at the last sample."""
    with Damaged(tmp_path / "a.ffr", EXTENDED) as file:
        for size in file.cuts():
            assert isinstance(damage.read(file.path, mode), FormatError), size
            counted.add("truncations")
        assert damage.read(file.path, mode) == SAMPLES


@pytest.mark.parametrize("io", IO_MODES)
def test_sectors_of_a_larger_file(tmp_path, io, counted):
    """At sectors and around them, where direct reads end short."""
    samples = builders.records([1000] * 64)
    data = ffr_twin.build(samples)
    with Damaged(tmp_path / "a.ffr", data) as file:
        for size in file.cuts(size + delta for size in range(1024, len(data), 512) for delta in (-1, 0, 1)):
            with FileReader(file.path, io=io, on_error="skip") as reader:
                whole = max(0, (size - 780) // 1000)
                assert builders.unpack(reader.read_packed(range(64))) == samples[:whole], size
            counted.add("truncations")


@pytest.mark.parametrize("io", COPYING_MODES)
def test_under_an_open_reader(tmp_path, io, counted):
    """What is cut off is missed, the rest is read, nothing is killed; views of a mapping promise no such thing (G9)."""
    samples = builders.records([1000] * 64)
    data = ffr_twin.build(samples)
    with Damaged(tmp_path / "a.ffr", data) as file, FileReader(file.path, io=io, on_error="skip") as reader:
        for size in file.cuts(range(780, len(data), 499)):
            whole = (size - 780) // 1000
            assert builders.unpack(reader.read_packed(range(64))) == samples[:whole], size
            counted.add("truncations")
        assert os.path.getsize(file.path) == len(data)
        assert builders.read_all(reader) == samples
