"""Indexes with a right checksum that are none of their format: made anew, whoever wrote them."""

import gzip
import os
import tarfile
import zipfile
from pathlib import Path

import lmdb_builders
import numpy as np
import pytest
import tars

import ffrecord
from ffrecord.sources import index_file

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"
FORMATS = {
    "beton": (SEEDS / "mixed.beton").read_bytes(),
    "tfrecord": (SEEDS / "examples.tfrecord").read_bytes(),
    "tfrecord, gzip": gzip.compress((SEEDS / "examples.tfrecord").read_bytes()),
    "recordio": (SEEDS / "a_snappy.recordio").read_bytes(),
}
MEMBERS = [(f"d/{i}.txt", b"content" * i) for i in range(9)]


def made(path: Path, format: str) -> Path:
    if format == "lmdb":
        lmdb_builders.write(path, [(b"k%d" % i, b"value" * i) for i in range(20)], subdir=False)
    elif format == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in [("d/", b""), *MEMBERS]:
                archive.writestr(name, data)
    elif format == "tar":
        with tarfile.open(path, "w") as archive:
            tars.add(archive, "d", kind=tarfile.DIRTYPE)
            for name, data in MEMBERS:
                tars.add(archive, name, data)
    else:
        path.write_bytes(FORMATS[format])
    return path


def kept(path: Path) -> tuple[str, str, dict]:
    """(path of the index of a file, what it is of, its arrays)."""
    (place,) = (str(each) for each in path.parent.iterdir() if each.suffix == index_file.SUFFIX)
    format = os.path.basename(place)[len(path.name) + 1 : -len(index_file.SUFFIX)]
    found = index_file.cached_index(str(path), format, lambda: pytest.fail("no index is kept"), True)
    return place, format, {name: np.array(array) for name, array in found.items()}


def read(path: Path) -> list[bytes]:
    with ffrecord.open(path, index_cache=True) as reader:
        return [record.tobytes() for record in reader]


def changes(arrays: dict):
    """The arrays, each in turn left out, of another dtype, longer, or with numbers that cannot be."""
    for name, array in arrays.items():
        yield {each: arrays[each] for each in arrays if each != name}
        yield {**arrays, name: array.astype(np.float32)}
        yield {**arrays, name: np.append(array, array[-1:] if len(array) else np.zeros(1, array.dtype))}


@pytest.mark.parametrize("format", [*FORMATS, "lmdb", "tar", "zip"])
def test_an_index_of_other_arrays_is_made_anew(tmp_path, format):
    path = made(tmp_path / "data", format)
    expected = read(path)
    place, kind, arrays = kept(path)
    for changed in changes(arrays):
        index_file._save(place, index_file._describe(kind, os.stat(path), changed), changed)
        assert read(path) == expected
        assert {name: array.tolist() for name, array in kept(path)[2].items()} == {
            name: array.tolist() for name, array in arrays.items()
        }


@pytest.mark.parametrize("format", ["tfrecord", "tfrecord, gzip"])
@pytest.mark.parametrize("size", [-1, 1 << 40, (1 << 63) - 1])
def test_nothing_is_allocated_by_an_index_of_tfrecord(tmp_path, format, size):
    path = made(tmp_path / "data", format)
    expected = read(path)
    place, kind, arrays = kept(path)
    arrays["sizes"][1] = size
    index_file._save(place, index_file._describe(kind, os.stat(path), arrays), arrays)
    assert read(path) == expected
