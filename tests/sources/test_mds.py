"""Reading MDS datasets: the golden one, and those of a slow twin, compared with what went in."""

import decimal
import errno
import hashlib
import json
import os
import pickle
import shutil
import signal
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import children
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mds_twin import COMPRESS, encoded, write_mds
from same_samples import assert_samples, same

from ffrecord.errors import ArgumentError, ChecksumError, FormatError, MissingFileError
from ffrecord.fields.images.jpeg_codec import compress
from ffrecord.sources.mds.encodings import SCALARS, encoding
from ffrecord.sources.mds.reader import MDSReader
from ffrecord.system import filesystems

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"

COLUMNS = {
    "count": "int",
    "half": "float16",
    "word": "uint16",
    "text": "str",
    "blob": "bytes",
    "meta": "json",
    "any": "ndarray",
    "rows": "ndarray:int32",
    "fixed": "ndarray:float64:2,3",
}


def sample(i: int) -> dict:
    return {
        "count": i - 2,
        "half": np.float16(i / 4),
        "word": np.uint16(i * 1000),
        "text": f"é{i}" * (i % 3),
        "blob": bytes([i]) * (i * 7 % 11),
        "meta": {"i": [i, None]},
        "any": np.arange(i + 1, dtype="uint8").reshape(1, -1),
        "rows": np.arange(2 * (i % 4 + 1), dtype="int32").reshape(2, -1),
        "fixed": np.full((2, 3), i / 3),
    }


SAMPLES = [sample(i) for i in range(11)]


@pytest.fixture
def directory(tmp_path):
    return write_mds(tmp_path / "data", COLUMNS, SAMPLES)


@pytest.fixture
def packed(tmp_path):
    return write_mds(tmp_path / "packed", COLUMNS, SAMPLES, compression="zstd:7", hashes=("sha1", "md5"))


# What is in it


def test_shards_that_the_index_does_not_list(tmp_path, caplog):
    """Two directories were put together, and their indexes were not merged."""
    path = write_mds(tmp_path / "data", COLUMNS, SAMPLES)
    with MDSReader(path) as reader:
        n = len(reader)
    assert not caplog.records
    (Path(path) / "shard.90000.mds").write_bytes(b"of another index")
    (Path(path) / "notes.mds.txt").write_text("no shard")
    with MDSReader(path) as reader:
        assert len(reader) == n
    assert "1 shard is not in its index.json, such as shard.90000.mds, and not read" in caplog.text


def test_a_directory_that_cannot_be_listed(tmp_path, monkeypatch):
    """Its files may be read, as somebody may enter a directory without listing it."""
    path = write_mds(tmp_path / "data", COLUMNS, SAMPLES)

    def refused(directory):
        raise PermissionError(errno.EACCES, "refused", directory)

    monkeypatch.setattr(filesystems, "list_names", refused)
    with MDSReader(path) as reader:
        assert len(reader) == len(SAMPLES)


def test_golden_dataset_of_streaming():
    manifest = json.loads((SEEDS / "manifest.json").read_text())["mds"]
    with MDSReader(SEEDS / "mds") as reader:
        assert len(reader) == manifest["n"] == 20
        found = [
            {"x_sha256": hashlib.sha256(each["x"]).hexdigest(), "y": each["y"], "t": each["t"]}
            for each in reader.samples(range(20))
        ]
        assert found == manifest["samples"]


def test_columns_in_their_order(directory):
    with MDSReader(directory) as reader:
        assert list(reader.sample(0)) == sorted(COLUMNS)
        assert_samples(reader.samples(range(-11, 0)), SAMPLES)
        assert reader.locate(7) == (str(directory / "shard.00002.mds"), 1)


def test_index_json_itself_and_several_directories(directory, tmp_path):
    other = write_mds(tmp_path / "other", {"different": "str"}, [{"different": "a"}, {"different": "b"}])
    with MDSReader([directory / "index.json", other]) as reader:
        assert len(reader) == 13
        assert reader.samples([12, 0])[0] == {"different": "b"}
        with pytest.raises(ArgumentError, match="different columns"):
            reader.columns([0, 12])
        assert reader.columns([11, 12]) == {"different": ["a", "b"]}


def test_a_skippable_frame_before_a_shard(packed):
    index = json.loads((packed / "index.json").read_text())
    for shard in index["shards"]:
        path = packed / shard["zip_data"]["basename"]
        path.write_bytes(b"\x50\x2a\x4d\x18\x02\0\0\0ab" + path.read_bytes())
        shard["zip_data"]["bytes"] += 10
    (packed / "index.json").write_text(json.dumps(index))
    with MDSReader(packed) as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)


def test_no_shards(tmp_path):
    (tmp_path / "index.json").write_text('{"version": 2, "shards": []}')
    for source in (tmp_path, [tmp_path, tmp_path / "index.json"]):
        with MDSReader(source) as reader:
            assert len(reader) == 0 and reader.samples([]) == [] and reader.columns([]) == {}
            assert len(pickle.loads(pickle.dumps(reader))) == 0
            with pytest.raises(IndexError):
                reader.sample(0)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_columns_as_arrays(tmp_path, compression):
    with MDSReader(write_mds(tmp_path / "a", COLUMNS, SAMPLES, compression=compression)) as reader:
        found = reader.columns([10, 0, 3, 10])
        expected = [SAMPLES[i] for i in (10, 0, 3, 10)]
        for name in ("count", "half", "word", "fixed"):
            wanted = np.array([each[name] for each in expected])
            assert found[name].dtype == wanted.dtype and np.array_equal(found[name], wanted)
        for name in ("text", "blob", "meta"):
            assert found[name] == [each[name] for each in expected]
        assert all(same(one, each["any"]) for one, each in zip(found["any"], expected, strict=True))
        assert reader.columns([])["fixed"].shape == (0, 2, 3)


def test_columns_wanted_only(directory):
    with MDSReader(directory, columns=["text", "count"]) as reader:
        assert list(reader.sample(3)) == ["text", "count"]
        assert list(reader.columns([3])) == ["text", "count"]
    with pytest.raises(ArgumentError, match="columns are"):
        MDSReader(directory, columns=["nothing"])


PICTURE = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
JPEG = compress(PICTURE, 90)


def image_bytes(mode: str, array: np.ndarray) -> bytes:
    height, width = array.shape[:2]
    return np.array([width, height, len(mode)], "<u4").tobytes() + mode.encode() + array.tobytes()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, dtype.type(3), dtype.type(3)) for name, dtype in SCALARS.items()),
        ("int", -(2**63), -(2**63)),
        ("str_int", 10**40, 10**40),
        ("str_float", -0.1, -0.1),
        ("str_decimal", decimal.Decimal("1.10"), decimal.Decimal("1.10")),
        ("pil", image_bytes("RGB", PICTURE), PICTURE),
        ("pil", image_bytes("L", PICTURE[:, :, 0].copy()), PICTURE[:, :, 0]),
        ("pil", image_bytes("F", np.ones((2, 3), "<f4")), np.ones((2, 3), "f4")),
        ("pil", image_bytes("I;16B", np.full((2, 3), 258, ">u2")), np.full((2, 3), 258, "u2")),
        ("jpeg", JPEG, JPEG),
        ("png", b"any", b"any"),
        ("list[jpeg]", [JPEG, b"", b"b"], [JPEG, b"", b"b"]),
        ("list[png]", [], []),
        ("jpeg_array", [JPEG, b"a"], [JPEG, b"a"]),
        ("jpegarray", [b"a"], [b"a"]),
        ("ndarray:uint8", np.ones((3, 1, 300), "u1"), np.ones((3, 1, 300), "u1")),
        ("ndarray", np.ones(70_000, "f2"), np.ones(70_000, "f2")),
    ],
)
def test_encodings(name, value, expected):
    each = encoding(name, images=False, allow_pickle=False)
    assert same(each.decode(memoryview(encoded(name, value))), expected)


def test_bits_of_a_black_and_white_image():
    pixels = np.random.default_rng(1).integers(0, 2, (3, 11)).astype(bool)
    data = np.array([11, 3, 1], "<u4").tobytes() + b"1" + np.packbits(pixels, axis=1).tobytes()
    assert same(encoding("pil", False, False).decode(memoryview(data)), pixels)


def test_images_are_decoded_on_request(tmp_path):
    image = pytest.importorskip("PIL.Image")
    columns = {"photo": "jpeg", "photos": "list[jpeg]", "chart": "png"}
    palette = image.fromarray(PICTURE).convert("P", palette=image.Palette.ADAPTIVE)
    palette.save(tmp_path / "chart.png")
    chart = (tmp_path / "chart.png").read_bytes()
    write_mds(tmp_path / "a", columns, [{"photo": JPEG, "photos": [JPEG, JPEG], "chart": chart}])
    with MDSReader(tmp_path / "a", decode=True) as reader:
        found = reader.sample(0)
    assert found["photo"].shape == PICTURE.shape and len(found["photos"]) == 2
    assert np.array_equal(found["chart"], np.array(palette.convert("RGB")))


def test_pickles_are_not_run_unless_allowed(tmp_path):
    columns, data = {"p": "pkl", "n": "int"}, pickle.dumps({"a": 1})
    write_mds(tmp_path / "a", columns, [{"p": data, "n": 5}])
    with MDSReader(tmp_path / "a") as reader:
        with pytest.raises(FormatError, match=r"Sample 0: .*column 'p': a pickle of \d+ bytes may run any code"):
            reader.samples([0])
        with pytest.raises(FormatError, match="may run any code"):
            reader.columns([0])
    with MDSReader(tmp_path / "a", columns=["n"]) as reader:
        assert reader.sample(0) == {"n": 5}
    with MDSReader(tmp_path / "a", allow_pickle=True) as reader:
        assert reader.sample(0)["p"] == {"a": 1}
    write_mds(tmp_path / "b", columns, [{"p": b"cnowhere\nx\n.", "n": 5}])
    with MDSReader(tmp_path / "b", allow_pickle=True) as reader, pytest.raises(FormatError, match="cannot be loaded"):
        reader.sample(0)


arrays = st.builds(
    lambda dtype, shape: np.zeros(shape, dtype), st.sampled_from(["uint8", "int64", "float16"]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)  # fmt: skip
kinds = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "str": st.text(max_size=9),
    "bytes": st.binary(max_size=30),
    "json": st.recursive(st.none() | st.text(max_size=4) | st.integers(), lambda inner: st.lists(inner, max_size=2)),
    "uint8": st.integers(0, 255).map(np.uint8),
    "ndarray": arrays,
    "ndarray:int16:2": st.integers(-9, 9).map(lambda i: np.full(2, i, "int16")),
    "list[jpeg]": st.lists(st.binary(max_size=5), max_size=3),
}


COMPRESSIONS = [None, "gz", *(["zstd"] if find_spec("zstandard") else [])]


@st.composite
def datasets(draw):
    columns = {
        f"c{i}": kind for i, kind in enumerate(draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=5)))
    }
    row = st.fixed_dictionaries({name: kinds[kind] for name, kind in columns.items()})
    return (
        columns,
        draw(st.lists(row, min_size=1, max_size=7)),
        draw(st.sampled_from(COMPRESSIONS)),
    )


@settings(max_examples=30, deadline=None)
@given(dataset=datasets())
def test_any_dataset_of_the_twin_is_read(tmp_path_factory, dataset):
    columns, samples, compression = dataset
    directory = write_mds(tmp_path_factory.mktemp("mds") / "a", columns, samples, compression=compression)
    with MDSReader(directory) as reader:
        assert_samples(reader.samples(range(len(samples))), samples)
        found = reader.columns(range(len(samples)))
        for name in columns:
            for one, sample_ in zip(found[name], samples, strict=True):
                value = sample_[name]
                assert np.array_equal(one, value) if isinstance(value, np.ndarray) else one == value


# Compressed shards


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_compressed_shards(tmp_path, compression):
    write_mds(tmp_path / "a", COLUMNS, SAMPLES, compression=compression)
    with MDSReader(tmp_path / "a") as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)
        assert [bytes(one) for one in reader.read([3, 3])] == [bytes(one) for one in reader.read_range(3, 4)] * 2


def test_records_are_the_same_compressed_or_not(directory, packed):
    with MDSReader(directory) as one, MDSReader(packed) as other:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_each_shard_is_decompressed_once_and_leaves_nothing(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    import ffrecord.sources.mds.unpacked as module

    calls = []
    monkeypatch.setattr(
        module, "unpack", lambda *given, real=module.unpack: (calls.append(given[0].path), real(*given))
    )
    with MDSReader(packed) as reader:
        before = sorted(os.listdir(tmp_path))
        reader.read([0, 1, 5])
        reader.read([2, 0])
        assert len(calls) == 2
        assert sorted(os.listdir(tmp_path)) == before


def test_the_shard_used_longest_ago_goes_first(packed, monkeypatch):
    import ffrecord.sources.mds.unpacked as module

    calls = []
    monkeypatch.setattr(
        module, "unpack", lambda *given, real=module.unpack: (calls.append(given[0].path[-14:-9]), real(*given))
    )
    descriptors = len(children.open_files(collect=True))
    with MDSReader(packed, cache_bytes=1) as reader:
        for index in (0, 1, 4, 3, 0):
            assert reader.sample(index)["count"] == index - 2
        assert len(calls) == 3
        assert len(children.open_files()) <= descriptors + 2
    with MDSReader(packed, cache_bytes=10**9) as reader:
        for index in (0, 4, 0, 4):
            reader.read([index])
    assert len(calls) == 5
    assert len(children.open_files()) == descriptors


def test_a_directory_for_them_is_shared_and_kept(packed, tmp_path):
    with MDSReader(packed, cache_dir=tmp_path / "kept") as reader:
        reader.read(range(11))
    kept = sorted((tmp_path / "kept").iterdir())
    assert len(kept) == 4
    times = [each.stat().st_mtime_ns for each in kept]
    with MDSReader(packed, cache_dir=tmp_path / "kept") as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)
    assert [each.stat().st_mtime_ns for each in kept] == times
    kept[0].write_bytes(b"short")
    with MDSReader(packed, cache_dir=tmp_path / "kept") as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)


@pytest.mark.parametrize("planted", ["stranger's", "link", "writable by all"])
def test_what_a_stranger_has_put_into_the_cache_is_not_read(packed, tmp_path, planted):
    """Nothing in it tells whether it is right; nor is anything written through it."""
    with MDSReader(packed, cache_dir=tmp_path / "kept") as reader:
        reader.read(range(11))
    kept, precious = min((tmp_path / "kept").iterdir()), tmp_path / "precious"
    forged = bytes(kept.stat().st_size)
    if planted == "link":
        precious.write_bytes(forged)
        kept.unlink()
        kept.symlink_to(precious)
    else:
        kept.write_bytes(forged)
    if planted == "writable by all":
        kept.chmod(0o666)
    if planted == "stranger's":
        if os.geteuid():
            pytest.skip("only root can give a file to another user")
        os.chown(kept, 65534, 65534)
    with MDSReader(packed, cache_dir=tmp_path / "kept") as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)
    if planted == "stranger's":
        assert kept.read_bytes() == forged and kept.stat().st_uid == 65534
    elif planted == "link":
        assert precious.read_bytes() == forged and not kept.is_symlink()


def test_a_shard_that_is_there_decompressed_is_read_in_place(packed, directory):
    for each in directory.glob("*.mds"):
        shutil.copy(each, packed)
    for each in packed.glob("*.zstd"):
        each.unlink()
    with MDSReader(packed) as reader:
        assert_samples(reader.samples(range(11)), SAMPLES)


def test_hashes_are_compared_on_request(tmp_path):
    for compression in (None, "gz"):
        directory = write_mds(
            tmp_path / f"{compression}", COLUMNS, SAMPLES, compression=compression, hashes=("sha1", "md5")
        )
        with MDSReader(directory, validate_hash="sha1") as reader:
            reader.read(range(11))
        with (
            pytest.raises(FormatError, match="no 'sha256' hash of this file, only"),
            MDSReader(directory, validate_hash="sha256") as r,
        ):
            r.read([0])
        index = json.loads((directory / "index.json").read_text())
        index["shards"][1]["raw_data"]["hashes"]["md5"] = "0" * 32
        (directory / "index.json").write_text(json.dumps(index))
        message = "shard.00001.mds.*: md5 .*, stored 0000"
        with pytest.raises(ChecksumError, match=message), MDSReader(directory, validate_hash="md5") as reader:
            reader.read([4])


# What it is as a store


@pytest.mark.parametrize("io", ["pread", "auto", "direct", "mmap"])
def test_ways_to_read(directory, packed, io):
    for path in (directory, packed):
        with MDSReader(path, io=io) as reader:
            assert_samples(reader.samples([5, 2, 5]), [SAMPLES[i] for i in (5, 2, 5)])
            assert [len(batch) for batch in reader.iter_batches([[1, 2], [3]])] == [2, 1]
            assert (reader.format, reader.checksum, reader.io) == ("mds", None, io)


def test_pickles_with_its_options(directory, packed):
    for path in (directory, packed):
        with MDSReader(path, columns=["count"]) as reader:
            copy = pickle.loads(pickle.dumps(reader))
            assert copy.samples([4]) == [{"count": 2}]
            assert copy.fingerprint() == reader.fingerprint()
            copy.close()


def test_closed(directory, packed):
    for path in (directory, packed):
        reader = MDSReader(path)
        reader.read([0])
        reader.close()
        reader.close()
        with pytest.raises(ValueError, match="closed"):
            reader.read([0])


def test_threads_and_forks(packed):
    with MDSReader(packed) as reader:
        wrong = []

        def work(seed: int) -> None:
            for index in np.random.default_rng(seed).integers(0, 11, 40).tolist():
                if reader.sample(index)["count"] != index - 2:
                    wrong.append(index)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        child = os.fork()
        if child == 0:
            os._exit(0 if [each["count"] for each in reader.samples(range(11))] == list(range(-2, 9)) else 1)
        for thread in threads:
            thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert wrong == []


def test_closing_in_a_child_of_a_process_that_was_reading(packed):
    """A thread that only the parent has held the lock when the process was forked."""
    with MDSReader(packed) as reader:
        reader.read([0])
        with reader._unpacked._lock:
            child = os.fork()
            if child == 0:
                signal.alarm(5)
                reader.close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_missing_files_are_named(directory, tmp_path):
    with pytest.raises(MissingFileError, match=r"index\.json does not exist"):
        MDSReader(tmp_path)
    (directory / "shard.00001.mds").unlink()
    with pytest.raises(MissingFileError, match=r"shard\.00001\.mds does not exist, but the index lists it"):
        MDSReader(directory)
