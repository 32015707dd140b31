"""The journal of a part file: its bytes, both ways."""

import os

import numpy as np
import pytest

from ffrecord import FormatError
from ffrecord.format import journal
from ffrecord.format.journal import Journal, JournalHeader, journal_name

HEADER = "89 46 46 52 6a 72 6e 0a  64 01 97 58  01 00 00 00  00 10 00 00 00 00 00 00  ff ff ff ff ff ff ff ff  "
HEADER += "05 00 00 00  01 00 00 00  61 2e 66 66 72  80"
SAMPLES = "a1 5e 17 5a  01 00 00 00  02 00 00 00 00 00 00 00  "
SAMPLES += "03 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  04 03 02 01  00 00 00 00"
PLACE = "6c 61 53 58  02 00 00 00  00 20 00 00 00 00 00 00"
ABOUT = JournalHeader("a.ffr", 4096, None, b"\x80")


def noted(part: str) -> Journal:
    made = Journal(part)
    made.note_samples(ABOUT, np.array([3, 0]), np.array([0x01020304, 0], np.uint32))
    made.note_place(8192)
    made.close()
    return made


def test_bytes(tmp_path):
    part = str(tmp_path / ".a.ffr.0.part")
    noted(part)
    assert journal_name(part) == str(tmp_path / ".a.ffr.0.journal")
    with open(journal_name(part), "rb") as file:
        assert file.read().hex(" ") == bytes.fromhex(HEADER + SAMPLES + PLACE).hex(" ")


def test_read_again(tmp_path):
    part = str(tmp_path / ".a.ffr.0.part")
    made = noted(part)
    assert (made.begun, made.count) == (True, 2)
    found = journal.read(part)
    assert (found.about, found.starts) == (ABOUT, [4096, 8192])
    assert (found.sizes.tolist(), found.checksums.tolist()) == ([3, 0], [0x01020304, 0])
    assert (found.sizes.dtype, found.checksums.dtype) == (np.int64, np.uint32)
    assert found.size == os.path.getsize(journal_name(part))


@pytest.mark.parametrize("n", [None, 0, 7, 2**40])
@pytest.mark.parametrize("payload", [None, b"", b"x" * 300])
def test_about(tmp_path, n, payload):
    """No block and an empty one are two things, and so are no number and 0."""
    part, about = str(tmp_path / "x.part"), JournalHeader("ü\udcff.ffr", 2**50, n, payload)
    made = Journal(part)
    made.note_samples(about, np.zeros(0, np.int64), np.zeros(0, np.uint32))
    made.close()
    found = journal.read(part)
    assert (found.about, len(found.sizes), len(found.checksums)) == (about, 0, 0)


def test_going_on_after_a_torn_entry(tmp_path):
    """What is noted next takes its place."""
    part = str(tmp_path / "x.part")
    noted(part)
    with open(journal_name(part), "ab") as file:
        file.write(bytes.fromhex(SAMPLES)[:-1])
    found = journal.read(part)
    more = Journal(part, found.size)
    more.note_place(1)
    more.close()
    again = journal.read(part)
    assert (again.starts, len(again.sizes)) == ([4096, 8192, 1], 2)


def test_removed_once_it_was_begun(tmp_path):
    part = str(tmp_path / "x.part")
    made = Journal(part)
    made.remove()
    noted(part)
    made.remove()  # not its own
    assert os.path.exists(journal_name(part))
    made.begun = True
    for _ in range(2):
        made.remove()
        assert not os.path.exists(journal_name(part))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"x", "is not a journal: it has 102 bytes"),
        (8, b"x", "cut or damaged"),
        (12, b"\x02", "journal has version 2, this release of ffrecord reads version 1"),
        (32, b"\xff\xff\xff\xff", "cut or damaged"),
        (36, b"\xfe\xff\xff\xff", "cut or damaged"),
        (40, b"b", "cut or damaged"),
    ],
)
def test_damaged_header(tmp_path, at, value, message):
    part = str(tmp_path / "x.part")
    noted(part)
    with open(journal_name(part), "r+b") as file:
        file.seek(at)
        file.write(value)
    with pytest.raises(FormatError, match=message) as caught:
        journal.read(part)
    assert journal_name(part) in str(caught.value)


@pytest.mark.parametrize(
    "field", [(4, b"\x03"), (8, b"\xff" * 8), (8, b"\xff" * 7 + b"\x7f"), (8, b"\x03"), (0, b"\0")]
)
def test_damaged_entry(tmp_path, field):
    """It ends the journal, whatever number it claims."""
    part = str(tmp_path / "x.part")
    noted(part)
    start = len(bytes.fromhex(HEADER))
    with open(journal_name(part), "r+b") as file:
        file.seek(start + field[0])
        file.write(field[1])
    found = journal.read(part)
    assert (len(found.sizes), found.starts, found.size) == (0, [4096], start)


def test_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        journal.read(str(tmp_path / "x.part"))
