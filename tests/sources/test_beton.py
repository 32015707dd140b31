"""Reading .beton files: the golden one, and those of a slow twin, compared with what went in."""

import hashlib
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from beton_twin import beton
from hypothesis import given, settings
from hypothesis import strategies as st
from same_samples import assert_samples, same

from ffrecord.errors import ArgumentError, FormatError, MissingNamesError
from ffrecord.fields.images.jpeg_codec import compress, decompress
from ffrecord.sources.beton.layout import BetonField
from ffrecord.sources.beton.reader import BetonReader

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"


def sha256(data: object) -> str:
    return hashlib.sha256(data).hexdigest()


def picture(seed: int, height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def photograph(seed: int, height: int = 16, width: int = 24) -> tuple[bytes, int, int]:
    return compress(picture(seed, height, width), 90), width, height


ALL = {
    "number": "float",
    "label": "int",
    "raw": "image",
    "photo": "image",
    "blob": "bytes",
    "vector": ("array", "<i2", (3, 2)),
    "meta": "json",
    "tensor": ("tensor", "<f4", (4,)),
}


def sample(i: int) -> dict:
    chance = np.random.default_rng(i)
    return {
        "number": i / 7,
        "label": i - 3,
        "raw": picture(i, 2 + i % 3),
        "photo": photograph(i) if i % 4 else picture(i, 3, 3),
        "blob": chance.bytes(i * 5 % 64),
        "vector": chance.integers(-9, 9, (3, 2)).astype("<i2"),
        "meta": {"i": i, "name": f"sé {i}", "none": [None, {}]},
        "tensor": chance.random(4, "f4"),
    }


SAMPLES = [sample(i) for i in range(20)]


@pytest.fixture
def path(tmp_path):
    order = random.Random(3).sample(range(20), 20)
    (tmp_path / "all.beton").write_bytes(beton(ALL, SAMPLES, order=order))
    return tmp_path / "all.beton"


# What is in it


def test_golden_file_of_ffcv():
    manifest = json.loads((SEEDS / "manifest.json").read_text())["mixed.beton"]
    with BetonReader(SEEDS / "mixed.beton") as reader:
        assert len(reader) == manifest["n"] == 12
        assert list(reader.fields) == [name.removesuffix("(raw)") for name in manifest["fields"]]
        for found, expected in zip(reader.samples(range(12)), manifest["samples"], strict=True):
            assert (found["label"], found["score"], found["meta"]) == tuple(
                expected[name] for name in ("label", "score", "meta")
            )
            assert sha256(found["vec"]) == expected["vec_sha256"]
            assert sha256(found["blob"]) == expected["blob_sha256"]
            assert list(found["img"].shape) == expected["img_shape"]
            assert sha256(found["img"]) == expected["img_sha256"]


def test_all_fields_written_by_several_workers(path):
    with BetonReader(path) as reader:
        assert list(reader.sample(0)) == list(ALL)
        assert_samples(reader.samples(range(-20, 0)), SAMPLES)
        assert_samples([reader.sample(-1)], SAMPLES[-1:])


def test_records_are_what_pages_hold(tmp_path):
    samples = [{"photo": photograph(i), "label": i} for i in range(5)]
    (tmp_path / "a.beton").write_bytes(beton({"photo": "image", "label": "int"}, samples))
    with BetonReader(tmp_path / "a.beton") as reader:
        assert [bytes(record) for record in reader.read(range(5))] == [each["photo"][0] for each in samples]
        data, offsets = reader.read_packed([4, 0])
        assert bytes(data[offsets[1] :]) == samples[0]["photo"][0]
        assert reader.metadata([3, 1])["label"].tolist() == [3, 1]


def test_images_are_decoded_on_request(path):
    with BetonReader(path, decode=True, columns=["photo"]) as reader:
        for found, expected in zip(reader.samples(range(20)), SAMPLES, strict=True):
            photo = expected["photo"]
            decoded = decompress(photo[0], grey=False) if isinstance(photo, tuple) else photo
            assert np.array_equal(found["photo"], decoded)


def test_columns(path):
    with BetonReader(path) as reader:
        found = reader.columns([7, 0, -1, 7])
        expected = [SAMPLES[i] for i in (7, 0, 19, 7)]
        for name in ("number", "label", "vector", "tensor"):
            assert np.array_equal(found[name], np.array([each[name] for each in expected]))
            assert found[name].flags.c_contiguous and found[name].flags.writeable
        assert found["blob"] == [each["blob"] for each in expected]
        assert found["meta"] == [each["meta"] for each in expected]
        assert reader.columns([3, 6])["raw"].shape == (2, 2, 7, 3)
        assert [each.shape for each in reader.columns([3, 4])["raw"]] == [(2, 7, 3), (3, 7, 3)]
        empty = reader.columns([])
        assert empty["vector"].shape == (0, 3, 2) and empty["blob"] == []


def test_columns_wanted_only(path):
    with BetonReader(path, columns=["meta", "label"]) as reader:
        assert list(reader.sample(3)) == ["meta", "label"]
        assert list(reader.columns([3])) == ["meta", "label"]
    for wrong in (["nothing"], ["label", "label"]):
        with pytest.raises(ArgumentError, match="columns are"):
            BetonReader(path, columns=wrong)


@pytest.mark.parametrize("n", [0, 3])
def test_numbers_alone_have_no_pages(tmp_path, n):
    samples = [{"a": i, "b": i / 2} for i in range(n)]
    (tmp_path / "a.beton").write_bytes(beton({"a": "int", "b": "float"}, samples))
    with BetonReader(tmp_path / "a.beton") as reader:
        assert len(reader) == n
        assert_samples(reader.samples(range(n)), samples)
        assert [len(record) for record in reader.read(range(n))] == [0] * n
        assert reader.columns(range(n))["a"].tolist() == list(range(n))


def test_several_files_with_the_same_fields(tmp_path):
    for i in range(3):
        fields = {"blob": "bytes", "label": "int"}
        samples = [{"blob": bytes([i, j]) * j, "label": 10 * i + j} for j in range(i + 2)]
        (tmp_path / f"{i}.beton").write_bytes(beton(fields, samples, page_size=1024 << i))
    with BetonReader(tmp_path) as reader:
        assert len(reader) == 9
        labels = [0, 1, 10, 11, 12, 20, 21, 22, 23]
        assert [each["label"] for each in reader.samples(range(9))] == labels
        assert reader.columns([8, 0, 3])["blob"] == [b"\2\3" * 3, b"", b"\1\1"]
        assert reader.locate(4) == (str(tmp_path / "1.beton"), 2)
    (tmp_path / "3.beton").write_bytes(beton({"label": "int"}, [{"label": 1}]))
    with pytest.raises(ArgumentError, match="its fields differ"):
        BetonReader(tmp_path)


def test_a_class_of_the_users_own_needs_its_dtype(tmp_path):
    fields = {"label": "int", "own": "custom", "blob": "bytes"}
    samples = [{"label": i, "own": bytes([i, 1, 2]), "blob": b"x" * i} for i in range(4)]
    (tmp_path / "a.beton").write_bytes(beton(fields, samples))
    with pytest.raises(FormatError, match=r"field 'own' has a custom class.*custom=\{'own'"):
        BetonReader(tmp_path / "a.beton")
    with BetonReader(tmp_path / "a.beton", custom={"own": "V3"}) as reader:
        assert [each["blob"] for each in reader.samples(range(4))] == [each["blob"] for each in samples]
        assert [bytes(each["own"]) for each in reader.samples(range(4))] == [each["own"] for each in samples]
    with pytest.raises(ArgumentError, match="expected only fields of custom classes"):
        BetonReader(tmp_path / "a.beton", custom={"own": "V3", "label": "i8"})
    with pytest.raises(ArgumentError, match="expected a dtype of a fixed number of bytes"):
        BetonReader(tmp_path / "a.beton", custom={"own": object})


simple = st.sampled_from(["int", "float", "bytes", "json", "image", ("array", "<f8", (2,)), ("tensor", "|u1", (3, 1))])
values = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=40),
    "json": st.recursive(st.none() | st.text(max_size=4) | st.integers(), lambda inner: st.lists(inner, max_size=2)),
    "image": st.builds(picture, st.integers(0, 9), st.integers(1, 4), st.integers(1, 4))
    | st.builds(lambda data: (data, 3, 3), st.binary(min_size=1, max_size=9)),
    "array": st.integers(0, 9).map(lambda i: np.full((2,), i, "<f8")),
    "tensor": st.integers(0, 9).map(lambda i: np.full((3, 1), i, "|u1")),
}


@st.composite
def datasets(draw):
    kinds = draw(st.lists(simple, min_size=1, max_size=5))
    fields = {f"f{i}": kind for i, kind in enumerate(kinds)}
    row = st.fixed_dictionaries(
        {name: values[kind if isinstance(kind, str) else kind[0]] for name, kind in fields.items()}
    )
    samples = draw(st.lists(row, max_size=6))
    order = draw(st.permutations(range(len(samples))))
    return fields, samples, order, draw(st.sampled_from([1024, 4096]))


@settings(max_examples=30, deadline=None)
@given(dataset=datasets(), check=st.booleans())
def test_any_dataset_of_the_twin_is_read(tmp_path_factory, dataset, check):
    fields, samples, order, page_size = dataset
    path = tmp_path_factory.mktemp("beton") / "a.beton"
    path.write_bytes(beton(fields, samples, page_size, order))
    with BetonReader(path, check) as reader:
        assert_samples(reader.samples(range(len(samples))), samples)
        columns = reader.columns(range(len(samples)))
        for name in fields:
            assert all(
                same(found, each[name]) or found == each[name]
                for found, each in zip(columns[name], samples, strict=True)
            )


# What it is as a store


def test_it_says_that_nothing_guards_the_values(path):
    with BetonReader(path) as reader:
        assert (reader.format, reader.checksum) == ("beton", None)
        with pytest.raises(MissingNamesError, match="beton"):
            reader.keys()


@pytest.mark.parametrize("io", ["pread", "auto", "direct", "mmap"])
def test_ways_to_read(path, io):
    with BetonReader(path, io=io) as reader:
        assert_samples(reader.samples([5, 2, 5]), [SAMPLES[i] for i in (5, 2, 5)])
        batches = list(reader.iter_batches([[1, 2], [3]], packed=True))
        assert [len(offsets) - 1 for _, offsets in batches] == [2, 1]


def test_pickles_with_its_options(path):
    with BetonReader(path, columns=["label"], decode=True) as reader:
        copy = pickle.loads(pickle.dumps(reader))
        assert copy.samples([4]) == [{"label": 1}]
        assert copy.fingerprint() == reader.fingerprint()
        copy.close()


def test_fingerprint_sees_the_metadata(path, tmp_path):
    data = bytearray(path.read_bytes())
    data[24 + len(ALL) * 1041] ^= 1
    (tmp_path / "other.beton").write_bytes(data)
    with BetonReader(path) as one, BetonReader(tmp_path / "other.beton") as other:
        assert one.fingerprint() != other.fingerprint()


def test_what_was_found_is_kept(path, tmp_path):
    with BetonReader(path, index_cache=tmp_path / "kept") as reader:
        expected = reader.fingerprint()
    assert len(list((tmp_path / "kept").iterdir())) == 1
    with BetonReader(path, index_cache=tmp_path / "kept") as reader:
        assert reader.fingerprint() == expected
        assert_samples(reader.samples(range(20)), SAMPLES)


def test_samples_of_many_fields_take_time_for_each_field_once(tmp_path, monkeypatch):
    fields = {f"f{i}": "bytes" for i in range(300)}
    samples = [{name: name.encode() for name in fields}] * 2
    (tmp_path / "wide.beton").write_bytes(beton(fields, samples))
    compared = []
    monkeypatch.setattr(BetonField, "__eq__", lambda self, other: compared.append(self) or self is other)
    with BetonReader(tmp_path / "wide.beton") as reader:
        compared.clear()
        assert reader.samples([1]) == samples[1:] and reader.columns([0])["f299"] == [b"f299"]
    assert len(compared) <= len(fields)
