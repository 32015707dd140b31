"""Files written by ffrecord 1.4.0: read the same in every io mode, and written again byte for byte."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import builders
import ffr_twin
import pytest
from builders import GOLDEN, IO_MODES

from ffrecord import FileReader, FileWriter

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
PLAIN = [name for name, about in MANIFEST.items() if "sizes" in about]
FILES = sorted(path for path in GOLDEN.rglob("*.ffr"))
ALL_SHA256 = "e5a4fd04e379835fa4d4f4522fbe529d04a305ef4db2118306339dc0f8a3843f"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def opened(path: Path, **options: object) -> Iterator[FileReader]:
    """A reader that may say that a file is old."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*old version ffrecord file")
        reader = FileReader(path, **options)
    with reader:
        yield reader


def test_nobody_changed_them():
    together = hashlib.sha256()
    for path in FILES:
        together.update(path.relative_to(GOLDEN).as_posix().encode() + path.read_bytes())
    assert together.hexdigest() == ALL_SHA256


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("check_data", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_read(name, io, check_data):
    wanted = MANIFEST[name]
    with opened(GOLDEN / name, io=io, check_data=check_data) as reader:
        assert reader.n == wanted["n"]
        assert [sha256(sample.tobytes()) for sample in reader.read(range(reader.n))] == wanted["sha256"]
        assert [sha256(sample) for sample in builders.unpack(reader.read_packed(range(reader.n)))] == wanted["sha256"]
        assert [len(sample) for sample in reader] == wanted["sizes"]
        assert [sha256(reader.read_one(i).tobytes()) for i in range(-reader.n, 0)] == wanted["sha256"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_read_as_the_twin_does(path):
    with opened(path) as reader:
        assert builders.read_all(reader) == ffr_twin.parse(path.read_bytes())


@pytest.mark.parametrize("path", [path for path in FILES if "legacy" not in path.name], ids=lambda path: path.name)
def test_written_again(path, tmp_path):
    with opened(path) as reader:
        samples = reader.read(range(reader.n))
    with FileWriter(tmp_path / "a.ffr", len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)
    assert (tmp_path / "a.ffr").read_bytes() == path.read_bytes()


def test_the_order_of_parts_is_that_of_names():
    with opened(GOLDEN / "parts") as reader:
        assert [Path(name).name for name in reader.fnames] == sorted(MANIFEST["parts"]["files"])
        assert reader.n == 101


def test_the_old_file_warns_and_is_read():
    with pytest.warns(UserWarning, match=r"legacy_crc0\.ffr: warning: you are using an old version ffrecord file"):
        reader = FileReader(GOLDEN / "legacy_crc0.ffr")
    with reader:
        assert [sha256(sample.tobytes()) for sample in reader] == MANIFEST["legacy_crc0.ffr"]["sha256"]


# Two files small enough to be written out; ffrecord 1.4.0 reads and writes them so

NONE = bytes.fromhex("69df2265 0000000000000000")
FIVE = bytes.fromhex(
    """
    12eae7e3 0500000000000000
    00000000 1bdf05a5 5111e19d 3265234f 8ae12eca
    4800000000000000 4800000000000000 4900000000000000 4b00000000000000 4e00000000000000
    01 0202 030303 04040404
    """
)


@pytest.mark.parametrize(("data", "n"), [(NONE, 0), (FIVE, 5)], ids=["n = 0", "n = 5"])
def test_vectors(tmp_path, data, n):
    samples = [bytes([i]) * i for i in range(n)]
    assert ffr_twin.build(samples) == data
    with FileWriter(tmp_path / "a.ffr", n) as writer:
        for sample in samples:
            writer.write_one(sample)
    assert (tmp_path / "a.ffr").read_bytes() == data
    for io in IO_MODES:
        with FileReader(builders.write(tmp_path / "b.ffr", data), io=io) as reader:
            assert builders.read_all(reader) == samples
