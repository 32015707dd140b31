"""T7 (guarantee G3): one wrong bit is found at open or on its sample only, in every mode; without checks, no crash."""

from collections.abc import Iterable

import builders
import damage
import pytest
from builders import BLOCK_START
from damage import ENDS, EXTENDED, MODES, OPENING_MODES, PAYLOAD, PLAIN, SAMPLES, Damaged, Mode, Outcome
from figures import Counted

from ffrecord import ChecksumError, FFRecordError, FileReader, FormatError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
CHECKED = [mode for mode in MODES if mode.check]
UNCHECKED = [mode for mode in MODES if not mode.check]


def bits(start: int, stop: int, mode: Mode, step: int) -> Iterable[int]:
    """Bits of the bytes [start, stop); everyday all in two modes only: all in every mode take a minute."""
    all_of_them = mode.way == "batch" and mode.io in ("auto", "mmap")
    return range(8 * start, 8 * stop, 1 if all_of_them else step)


def outcomes(file: Damaged, where: Iterable[int], mode: Mode, counted: Counted) -> Iterable[tuple[int, Outcome]]:
    """Each bit, and what becomes of the file with it inverted."""
    for bit in where:
        with file.flipped(bit) as path:
            yield bit, damage.read(path, mode)
        counted.add("bit flips")


every_step = pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])


@every_step
@pytest.mark.parametrize("mode", [mode for mode in OPENING_MODES if mode.check], ids=repr)
def test_every_bit_of_the_header(tmp_path, mode, step, counted):
    with Damaged(tmp_path / "a.ffr", PLAIN) as file:
        for bit, found in outcomes(file, bits(0, ENDS[0], mode, step), mode, counted):
            assert isinstance(found, ChecksumError | FormatError), bit


@every_step
@pytest.mark.parametrize("mode", CHECKED, ids=repr)
def test_every_bit_of_the_samples(tmp_path, mode, step, counted):
    with Damaged(tmp_path / "a.ffr", PLAIN) as file:
        for bit, found in outcomes(file, bits(ENDS[0], len(PLAIN), mode, step), mode, counted):
            assert isinstance(found, list), bit
            damaged = next(i for i, end in enumerate(ENDS) if bit // 8 < end)
            assert isinstance(found[damaged], ChecksumError), bit
            assert found[:damaged] + found[damaged + 1 :] == SAMPLES[:damaged] + SAMPLES[damaged + 1 :], bit


@every_step
@pytest.mark.parametrize("mode", UNCHECKED, ids=repr)
def test_every_bit_without_checks(tmp_path, mode, step, counted):
    """Bytes or a documented error; where there are bytes, their number fits in the file."""
    with Damaged(tmp_path / "a.ffr", PLAIN) as file:
        for bit, found in outcomes(file, bits(0, len(PLAIN), mode, step), mode, counted):
            if isinstance(found, list):
                assert all(isinstance(each, Exception) or len(each) <= len(PLAIN) for each in found), bit
            else:
                assert isinstance(found, FormatError), bit


@pytest.mark.parametrize("mode", OPENING_MODES, ids=repr)
def test_every_bit_of_the_extension_block(tmp_path, mode, counted):
    """It has a checksum of its own, which is always compared; zeros of reserved space only with checks on."""
    reserved = BLOCK_START + 40 + len(PAYLOAD)
    with Damaged(tmp_path / "a.ffr", EXTENDED) as file:
        where = bits(BLOCK_START, reserved + (50 if mode.check else 0), mode, 9)
        for bit, found in outcomes(file, where, mode, counted):
            assert isinstance(found, ChecksumError | FormatError), bit


@pytest.mark.parametrize("io", builders.IO_MODES)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_every_bit_of_the_tables_under_an_open_reader(tmp_path, io, check, counted):
    """The tables are a mapping, so a change is seen: each span is looked at again when it is used."""
    with Damaged(tmp_path / "a.ffr", PLAIN) as file, FileReader(file.path, check, io=io) as reader:
        for bit in range(8 * 12, 8 * ENDS[0]):
            with file.flipped(bit):
                for i, sample in enumerate(SAMPLES):
                    try:
                        found = reader.read([i])[0].tobytes()
                    except FFRecordError:
                        continue
                    assert found == sample if check else len(found) <= len(PLAIN), (bit, i)
            counted.add("bit flips")
        assert builders.read_all(reader) == SAMPLES
