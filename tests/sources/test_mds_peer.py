"""What MosaicML's own package writes is read, and its package reads what the twin of these tests writes.

`mosaicml-streaming` asks for packages that contradict ours: an older numpy, transformers, clients of clouds. Its format
is in `streaming.base.format`, which needs none of them: only that is imported, without the rest of the package.
"""

import decimal
import importlib
import importlib.machinery
import io
import json
import sys
import types
import warnings

import numpy as np
import pytest
from mds_twin import write_mds

from ffrecord.sources.mds.reader import MDSReader

image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def streaming():
    found = importlib.machinery.PathFinder.find_spec("streaming")
    if found is None or not found.submodule_search_locations:
        pytest.skip("mosaicml-streaming is not installed: pip install --no-deps mosaicml-streaming brotli zstd")
    for needed in ("brotli", "zstd"):
        pytest.importorskip(needed, reason=f"{needed} is not installed, which mosaicml-streaming imports")
    place = next(iter(found.submodule_search_locations))
    for name, path in (("streaming", place), ("streaming.base", f"{place}/base")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield importlib.import_module("streaming.base.format.mds")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "streaming"]:
            del sys.modules[name]


PICTURE = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)


def picture(mode: str, i: int = 0) -> object:
    return image.fromarray(np.roll(PICTURE, i)).convert(mode)


def coded(form: str, i: int) -> bytes:
    out = io.BytesIO()
    picture("RGB", i).save(out, form)
    return out.getvalue()


COLUMNS = {
    **{name: name for name in ("bytes", "str", "int", "json", "str_int", "str_float", "str_decimal", "pil")},
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("float16", "float32", "float64", "jpeg", "png", "list[pil]", "list[jpeg]", "list[png]")},
    "jpeg_array": "jpeg_array",
    "jpegarray": "jpegarray",
    "any": "ndarray",
    "kind": "ndarray:float16",
    "all": "ndarray:uint64:2,1,3",
}


def sample(i: int) -> dict:
    return {
        "bytes": bytes([i]) * i,
        "str": "é" * i,
        "int": -i,
        "json": {"i": [i, None]},
        "str_int": 10 ** (20 + i),
        "str_float": i / 3,
        "str_decimal": decimal.Decimal(i) / 8,
        "pil": picture("LA", i),
        **dict.fromkeys(("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"), i),
        **dict.fromkeys(("float16", "float32", "float64"), i / 2),
        "jpeg": coded("JPEG", i),
        "png": coded("PNG", i),
        "list[pil]": [picture("RGB", i), picture("1", i)],
        "list[jpeg]": [picture("RGB", i)] * (i % 3),
        "list[png]": [picture("L", i)],
        "jpeg_array": [coded("JPEG", i)],
        "jpegarray": [coded("JPEG", i), coded("JPEG", 0)],
        "any": np.full((1, i + 1), i, "int32"),
        "kind": np.full((i + 1, 300), i, "float16"),
        "all": np.full((2, 1, 3), i, "uint64"),
    }


SAMPLES = [sample(i) for i in range(9)]


def write(streaming, directory, compression=None, hashes=None):
    out = str(directory)
    with streaming.MDSWriter(
        columns=COLUMNS, out=out, compression=compression, hashes=hashes, size_limit=20_000
    ) as writer:
        for each in SAMPLES:
            writer.write(each)
    return directory


def peer_samples(streaming, directory) -> list[dict]:
    shards = json.loads((directory / "index.json").read_text())["shards"]
    readers = [streaming.MDSReader.from_json(str(directory), "", shard) for shard in shards]
    return [reader[i] for reader in readers for i in range(len(reader))]


def alike(ours: object, theirs: object) -> bool:
    """Whether ours is what their package gives: pixels for its images, or the bytes that it would have decoded."""
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(theirs, image.Image):
        return np.array_equal(
            np.array(image.open(io.BytesIO(ours))) if isinstance(ours, bytes) else ours, np.array(theirs)
        )
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    return type(ours) is type(theirs) and ours == theirs


def assert_alike(ours: list[dict], theirs: list[dict]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert set(one) == set(other)
        assert [name for name in one if not alike(one[name], other[name])] == []


def test_all_encodings_that_it_writes(streaming, tmp_path):
    write(streaming, tmp_path / "a")
    with MDSReader(tmp_path / "a") as reader:
        assert len(reader.fnames) > 1
        found = reader.samples(range(9))
        assert_alike(found, peer_samples(streaming, tmp_path / "a"))
        assert [each["jpeg"] for each in found] == [each["jpeg"] for each in SAMPLES]
        columns = reader.columns(range(9))
        assert all(np.array_equal(columns[name], [each[name] for each in found]) for name in ("int", "float16", "all"))


@pytest.mark.parametrize("compression", ["zstd", "zstd:19", "gz:1", "bz2", "br:3", "snappy"])
def test_all_compressions_that_it_writes(streaming, tmp_path, compression):
    expected = peer_samples(streaming, write(streaming, tmp_path / "plain"))
    write(streaming, tmp_path / "a", compression, ["sha1", "xxh64"])
    for algorithm in ("sha1", "xxh64"):
        with MDSReader(tmp_path / "a", validate_hash=algorithm) as reader:
            assert_alike(reader.samples(range(9)), expected)


def test_its_reader_reads_what_the_twin_writes(streaming, tmp_path):
    columns = {"a": "str", "b": "int", "c": "ndarray", "d": "ndarray:int8:2", "e": "jpeg_array", "f": "json"}
    samples = [
        {"a": "x" * i, "b": i, "c": np.full((2, 300), i), "d": np.full(2, i, "int8"), "e": [coded("JPEG", i)], "f": [i]}
        for i in range(5)
    ]
    directory = write_mds(tmp_path / "twin", columns, samples)
    with MDSReader(directory) as reader:
        ours = reader.samples(range(5))
    assert_alike(ours, peer_samples(streaming, directory))
