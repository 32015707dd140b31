"""`fingerprint` and `locate`: which samples a reader has, and where one of them is."""

import hashlib
import pickle
import struct

import builders
import ffr_twin
import numpy as np
import pytest

from ffrecord import FFRecordError, FileReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
PARTS = (builders.small(), [], builders.records([3, 4]))


def written(directory, parts=PARTS) -> list[str]:
    directory.mkdir(exist_ok=True)
    return [builders.write_samples(directory / f"{i}.ffr", part) for i, part in enumerate(parts)]


def fingerprint(names, *arguments) -> str:
    with FileReader(names) as reader:
        return reader.fingerprint(*arguments)


def test_as_documented(tmp_path):
    """States and pickles keep it, so it must never change."""
    names = written(tmp_path)
    numbers = b""
    for part in PARTS:
        data = ffr_twin.build(part)
        numbers += struct.pack("<3q", len(part), len(data), struct.unpack_from("<I", data)[0])
    assert fingerprint(names) == hashlib.sha256(numbers).hexdigest()
    assert fingerprint(names, 0) == hashlib.sha256(b"").hexdigest()


def test_the_same_bytes_elsewhere(tmp_path):
    names = written(tmp_path / "a")
    assert fingerprint(names) == fingerprint(written(tmp_path / "b")) == fingerprint(tmp_path / "a")
    with FileReader(names) as reader:
        before = reader.fingerprint()
    assert reader.fingerprint() == before  # closed


def test_of_the_first_files(tmp_path):
    names = written(tmp_path)
    several = [fingerprint(names, count) for count in range(4)]
    assert several == [several[0], *(fingerprint(names[:count]) for count in (1, 2, 3))]
    assert len(set(several)) == 4
    assert fingerprint(names, np.int64(2)) == several[2]


@pytest.mark.parametrize("count", [-1, 4])
def test_of_files_that_are_not_there(tmp_path, count):
    with pytest.raises(ValueError, match=f"shards is {count}, expected 0 to 3"):
        fingerprint(written(tmp_path), count)


def test_other_samples_sizes_or_orders(tmp_path):
    names = written(tmp_path / "a")
    other = [[*PARTS[0][:-1], bytes(len(PARTS[0][-1]))], PARTS[1], PARTS[2]]
    moved = [PARTS[0][:-1], [PARTS[0][-1]], PARTS[2]]
    several = [names, names[::-1], written(tmp_path / "b", other), written(tmp_path / "c", moved)]
    assert len({fingerprint(each) for each in several}) == 4


def test_pickles_notice_other_samples(tmp_path):
    names = written(tmp_path)
    with FileReader(names) as reader:
        pickled = pickle.dumps(reader)
    pickle.loads(pickled).close()
    builders.write_samples(tmp_path / "2.ffr", builders.records([3, 4], seed=1))
    with pytest.raises(FFRecordError, match="the files differ from those that this reader was pickled with"):
        pickle.loads(pickled)


def test_locate(tmp_path):
    names = written(tmp_path)
    with FileReader(names) as reader:
        places = [reader.locate(i) for i in range(reader.n)]
        assert places == [(names[0], i) for i in range(8)] + [(names[2], 0), (names[2], 1)]
        assert [reader.locate(np.int32(i - reader.n)) for i in range(reader.n)] == places
        for index in (reader.n, -reader.n - 1, 2**70):
            with pytest.raises(IndexError):
                reader.locate(index)
