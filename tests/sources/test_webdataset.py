"""WebDataset's archives, against the package itself."""

import contextlib
import io
import os
import pickle
import re
import tarfile

import numpy as np
import pytest
import tars
import webdataset
from braceexpand import braceexpand
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from webdataset.autodecode import basichandlers, imagehandler
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander

from ffrecord.errors import FFRecordError, FormatError, TruncatedError
from ffrecord.sources.names import Names
from ffrecord.sources.tar._tar import split_names
from ffrecord.sources.tar.stream import iter_samples
from ffrecord.sources.tar.webdataset import WebDatasetReader
from ffrecord.sources.tar.webdataset_fields import decode_field
from ffrecord.system.braces import expand_braces

OWN = ("__url__", "__local_path__")


def plain(samples):
    """Samples with bytes for arrays, and without what webdataset adds."""
    return [
        {
            name: value if isinstance(value, str | bytes) else value.tobytes()
            for name, value in each.items()
            if name not in OWN
        }
        for each in samples
    ]


def theirs(pattern):
    """By what its pipelines are made of: they leave closing files to the garbage collector, which warns."""
    with contextlib.ExitStack() as files:
        sources = [{"url": path, "stream": files.enter_context(open(path, "rb"))} for path in braceexpand(pattern)]
        return plain(group_by_keys(tar_file_expander(sources)))


def ours(source, **options):
    with WebDatasetReader(source, **options) as reader:
        return plain(reader.samples(range(len(reader))))


@pytest.fixture
def path(tmp_path):
    """As webdataset writes it."""
    path = str(tmp_path / "a.tar")
    with webdataset.TarWriter(path) as writer:
        for i in range(20):
            writer.write(
                {"__key__": f"d/{i:04d}", "txt": f"t{i}", "cls": i, "json": {"a": [i]}, "seg.npy": np.arange(i)}
            )
    return path


def test_what_webdataset_writes(path):
    found = ours(path)
    assert found == theirs(path) and len(found) == 20
    with WebDatasetReader(path, decode=True) as reader:
        assert reader.keys()[3] == "d/0003"
        sample = reader.sample(3)
        assert list(sample) == ["__key__", "cls", "json", "seg.npy", "txt"]
        assert (sample["cls"], sample["json"], sample["txt"]) == (3, {"a": [3]}, "t3")
        assert sample["seg.npy"].tolist() == [0, 1, 2]


parts = st.text(st.sampled_from("ab._/\n"), max_size=8)


@given(
    st.lists(st.tuples(parts, st.sampled_from(["", ".jpg", ".seg.PNG", ".cls", "/x.txt"]))),
    st.sampled_from(list(tars.FORMATS)),
)
def test_samples_are_those_of_webdataset(tmp_path, names, form):
    """Also of names that nobody would give: both group them alike, or both refuse."""
    files = [(head + tail, f"{i}".encode()) for i, (head, tail) in enumerate(names)]
    path = tars.archive(tmp_path / "a.tar", files, form)
    try:
        expected = theirs(path)
    except ValueError as error:
        assert "duplicate file name" in str(error)
        with pytest.raises(FormatError, match="twice"):
            ours(path)
        return
    assert ours(path) == expected


@given(st.text(st.sampled_from("a./_\n"), max_size=12))
def test_keys_are_those_of_webdataset(name):
    names = Names.of([name])
    dots, _ = split_names(names.blob, names.offsets)
    meta = re.match(r"__[^/]*__($|/)", name)
    assert (name[: dots[0]] if dots[0] >= 0 else None) == (None if meta else base_plus_ext(name)[0])


def test_records_are_archives(path):
    """With an end behind it, the record of a sample is an archive of its members."""
    with WebDatasetReader(path) as reader:
        for record in (reader.read_one(0), reader.read_one(19)):
            with tarfile.open(fileobj=io.BytesIO(record.tobytes() + tars.END)) as tar:
                assert [name.partition(".")[2] for name in tar.getnames()] == ["cls", "json", "seg.npy", "txt"]
        # They are all of the archive but its end.
        whole = b"".join(record.tobytes() for record in reader)
    with open(path, "rb") as file:
        assert file.read().rstrip(b"\0") == whole.rstrip(b"\0")


def test_members_of_no_sample(tmp_path):
    """Links, directories, names without dots and metadata do not part a sample."""
    path = tars.write(
        tmp_path / "a.tar",
        tars.member(b"__meta__/1.json", b"-"),
        tars.member(b"1.cls", b"1"),
        tars.member(b"README", b"-" * 600),
        tars.header(b"1.link", 0, b"2", b"1.cls"),
        tars.header(b"1.hard", 0, b"1", b"1.cls"),
        tars.header(b"2.d", 0, b"5"),
        tars.member(b"1.jpg", b"j"),
        tars.member(b"2.cls", b"2"),
        tars.member(b"1.cls", b"again"),
    )
    expected = [
        {"__key__": "1", "cls": b"1", "jpg": b"j"},
        {"__key__": "2", "cls": b"2"},
        {"__key__": "1", "cls": b"again"},
    ]
    assert ours(path) == expected == theirs(path)
    with WebDatasetReader(path) as reader:
        assert reader.keys() == ["1", "2", "1"] and reader.keys().find("1") == 2
    assert ours(tars.archive(tmp_path / "none.tar", [("README", b"")])) == []


def test_something_else_inside_of_samples(tmp_path):
    """Records are only what is of the sample, however much lies between."""
    between = tars.member(b"README", b"-" * 100_000) + tars.header(b"d/", kind=b"5")
    paths = []
    for number in range(2):
        parts = [
            tars.member(b"%d/%d.%c" % (number, i, field), b"%d%c" % (i, field)) for i in range(3) for field in b"ab"
        ]
        data = parts[0] + between + parts[1] + between + b"".join(parts[2:5]) + between + parts[5] + tars.END
        paths.append(tmp_path / f"{number}.tar")
        paths[-1].write_bytes(data)
    wanted = [[f"{n}/{i}", b"%da" % i, b"%db" % i] for n in range(2) for i in range(3)]
    for way in ("auto", "pread", "mmap"):
        with WebDatasetReader(paths, io=way) as reader:
            samples = reader.samples([5, 0, 3, 1, 2, 4, 0, -1])
            given = [[each["__key__"], each["a"].tobytes(), each["b"].tobytes()] for each in samples]
            assert given == [wanted[i] for i in (5, 0, 3, 1, 2, 4, 0, 5)]
            data, offsets = reader.read_packed(range(6))
            assert np.diff(offsets).tolist() == [2048] * 6 == reader._sizes(np.arange(6)).tolist()
            assert [len(each) for each in reader] == [2048] * 6
            for i, (key, _, _) in enumerate(wanted):
                with tarfile.open(fileobj=io.BytesIO(bytes(data[2048 * i :][:2048]) + tars.END)) as archive:
                    assert archive.getnames() == [f"{key}.a", f"{key}.b"]
            assert reader.stats().bytes == 14 * 2048 + 6 * 2048
            with pickle.loads(pickle.dumps(reader)) as other:
                assert other.samples([3])[0]["b"].tobytes() == b"0b"
            with pytest.raises(IndexError):
                reader.read([6])
    with WebDatasetReader(paths[:1]) as reader:
        os.truncate(paths[0], 1024)
        with pytest.raises(TruncatedError, match=r"Sample 0: .*0\.tar: sample '0/0'"):
            reader.read([0])


def test_ends_without_zeros(tmp_path):
    path = tars.write(tmp_path / "a.tar", tars.member(b"1.cls", b"1"), tars.header(b"2.cls", 3), b"222")
    assert [each["cls"] for each in ours(path)] == [b"1", b"222"]


def test_a_field_twice(tmp_path):
    path = tars.archive(tmp_path / "a.tar", [("0.cls", b"0"), ("1.jpg", b"1"), ("1.cls", b"2"), ("1.JPG", b"3")])
    with WebDatasetReader(path) as reader:
        assert plain(reader.samples([0])) == [{"__key__": "0", "cls": b"0"}]
        message = r"a\.tar: sample 1, '1' at offset \d+: field 'jpg' occurs twice: as '1\.jpg' and as '1\.JPG'"
        with pytest.raises(FormatError, match=message):
            reader.sample(1)
    with pytest.raises(FormatError, match="'__key__' occurs twice: as the key"):
        ours(tars.archive(tmp_path / "b.tar", [("0.__key__", b"0")]))


# Several archives


def test_shards(tmp_path):
    for i in range(3):
        tars.archive(
            tmp_path / f"s-{i:03d}.tar",
            [(f"{i}{k}.{field}", f"{i}{k}".encode()) for k in range(4) for field in ("a", "b")],
        )
    pattern = str(tmp_path / "s-{000..002}.tar")
    expected = theirs(pattern)
    assert len(expected) == 12
    for source in (pattern, [pattern], tmp_path, str(tmp_path / "s-*.tar"), expand_braces(pattern)):
        assert ours(source) == expected
    with WebDatasetReader(pattern) as reader:
        assert reader.keys()[5] == "11" and reader.locate(5) == (str(tmp_path / "s-001.tar"), 1)
        assert plain(reader.samples([11, 0, -5])) == [expected[i] for i in (11, 0, 7)]
    # A name with braces that is there is that file; samples do not go on in the next archive.
    odd = tars.archive(tmp_path / "{a,b}.tar", [("1.cls", b"1")])
    assert ours([odd, odd]) == 2 * [{"__key__": "1", "cls": b"1"}]


# Decoding


def decoded(field, data):
    return decode_field(field, np.frombuffer(data, np.uint8))


def npy(array, **more):
    out = io.BytesIO()
    np.save(out, array, **more)
    return out.getvalue()


def test_decoders():
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    assert decoded("txt", "é".encode()) == "é" and decoded("a.text", b"") == ""
    assert decoded("cls", b"12\n") == 12 and decoded("id", b"-3") == -3
    assert decoded("json", b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(3, "<u2"),
        np.zeros((0, 4)),
    ):
        found = decoded("npy", npy(array))
        assert found.dtype == array.dtype and np.array_equal(found, array) and found.flags.writeable
    pixels = np.random.default_rng(1).integers(0, 256, (8, 9, 3), np.uint8)
    jpeg = simplejpeg.encode_jpeg(pixels, 95)
    assert np.array_equal(decoded("jpg", jpeg), simplejpeg.decode_jpeg(jpeg))
    out = io.BytesIO()
    Image.fromarray(pixels[:, :, 0]).save(out, "PNG")
    assert np.array_equal(decoded("seg.png", out.getvalue()), np.repeat(pixels[:, :, :1], 3, 2))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(kind, mode) for kind in ("PNG", "TIFF", "WEBP", "BMP", "GIF") for mode in ("1", "L", "P", "RGB", "RGBA", "I;16")
     if not (kind in ("WEBP", "BMP", "GIF") and mode == "I;16")],
)  # fmt: skip
def test_images_are_those_of_webdataset(kind, mode):
    """Whatever suffix they have: the content tells the format."""
    pixels = np.random.default_rng(1).integers(0, 256, (8, 9, 3), np.uint8)
    image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 2) if mode == "I;16" else Image.fromarray(pixels)
    out = io.BytesIO()
    (image if mode == "I;16" else image.convert(mode)).save(out, kind)
    for field in ("png", "a.jpg", "jpeg", "webp", "bmp", "gif"):
        found = decoded(field, out.getvalue())
        assert found.flags.writeable and found.shape == (8, 9, 3)
        assert np.array_equal(found, imagehandler("rgb8")(field, out.getvalue()))
    assert decoded("tif", out.getvalue()).tobytes() == out.getvalue()


class Trap:
    def __reduce__(self):
        return pytest.fail, ("something was executed",)


def test_nothing_is_executed():
    for field in ("pkl", "pickle", "pyd", "pth", "ten", "npz", "unknown", ""):
        data = pickle.dumps(Trap())
        assert decoded(field, data).tobytes() == data
    with pytest.raises(FormatError, match="Python objects"):
        decoded("npy", npy(np.array([Trap()]), allow_pickle=True))


LIES = npy(np.zeros(4)).replace(b"(4,), }        ", b"(99999999999,)}")


def described(text):
    """An array of that description."""
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()


BAD = {
    "txt": b"\xff",
    "cls": b"one",
    "index": b"9" * 5000,
    "json": b"{",
    "jsn": b"[" * 100_000,
    "npy": b"\x93NUMPY\1\0\xff\xff",
    "a.npy": LIES,
    "b.npy": npy(np.zeros(4))[:-1],
    "c.npy": b"\x93NUMPY\3\0" + npy(np.zeros(4))[8:],
    "d.npy": b"",
    **{
        f"{i}.npy": described(text)
        for i, text in enumerate(["{'descr': (", "  x\n y", "-" * 20_000 + "1", "[" * 3000, "\0"])
    },
    "jpg": b"\xff\xd8\xff" + bytes(50),
    "png": b"\x89PNG\r\n\x1a\n" + bytes(50),
    "webp": b"RIFF\x0c\0\0\0WEBPVP8L" + bytes(50),
    "gif": b"text",
    "a.png": b"\0RGB" + bytes(50),
}


@pytest.mark.parametrize("field", BAD)
def test_bad_values(tmp_path, field):
    with pytest.raises(FormatError, match=re.escape(f"field {field!r}")):
        decoded(field, BAD[field])
    path = tars.archive(tmp_path / "a.tar", [(f"key.{field}", BAD[field])])
    with WebDatasetReader(path, decode=True) as reader, pytest.raises(FormatError, match=r"a\.tar: sample 0, 'key'"):
        reader.sample(0)


def test_values_are_those_of_webdataset(path):
    with WebDatasetReader(path, decode=True) as reader:
        for mine, their in zip(reader.samples(range(20)), theirs(path), strict=True):
            for field in ("json", "cls", "txt", "seg.npy"):
                assert np.array_equal(mine[field], basichandlers(field, their[field]))


# A store


def test_store(path):
    with WebDatasetReader(path, io="pread", decode=True) as reader:
        assert reader.format == "webdataset" and reader.checksum is None and len(reader) == 20
        again = pickle.loads(pickle.dumps(reader))
        assert again.keys() == reader.keys() and again.sample(5)["cls"] == 5 and again.io == "pread"
        assert [len(batch) for batch in reader.iter_batches([[0, 1], [2]])] == [2, 1]
    with pytest.raises(ValueError, match="WebDatasetReader has been closed"):
        reader.sample(0)


def test_cut_archives(tmp_path):
    path = tars.write(tmp_path / "cut.tar", tars.member(b"1.cls", b"1"), tars.header(b"2.cls", 600), bytes(512))
    with pytest.raises(TruncatedError):
        WebDatasetReader(path)
    with WebDatasetReader(path, on_error="skip") as reader:
        assert reader.keys() == ["1", "2"]
        assert plain(reader.samples([1, 0])) == [{"__key__": "1", "cls": b"1"}] and reader.skipped == 1
        with pytest.raises(FFRecordError, match="sample '2'"):
            reader.read_one(1)
    with (
        WebDatasetReader(path, on_error=lambda error: b"") as reader,
        pytest.raises(FormatError, match=r"0 bytes, expected at least \d+ for its members"),
    ):
        reader.samples([1])


def test_index_is_shared_with_members(tmp_path, path):
    expected = ours(path)
    assert ours(path, index_cache=True) == expected
    assert len(list(tmp_path.glob("*.ffindex"))) == 1
    assert ours(path, index_cache=True) == expected


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a", "b/c", "d.txt"], "2 files are left out, such as 'a': the last part of a name needs a dot"),
        (["d.txt", "__info__", "x.y/e"], "1 file is left out, such as 'x.y/e'"),
        (["a"], "1 file is left out, such as 'a'"),
        (["__info__/a", "__meta__.json", "d.txt"], None),
        (["d.txt"], None),
    ],
)
def test_files_without_fields_are_told(tmp_path, caplog, names, told):
    """A WebDataset of nothing else was empty, in silence."""
    path = tars.write(tmp_path / "a.tar", *(tars.member(name.encode(), b"1") for name in names), bytes(1024))
    with WebDatasetReader(path) as reader:
        count = len(reader)
    streamed = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert len(list(iter_samples(path))) == count
    for lines in (streamed, [record.getMessage() for record in caplog.records]):
        assert [told in line for line in lines] == [True] if told else lines == []
