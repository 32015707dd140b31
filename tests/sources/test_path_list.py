"""Lists of paths and labels."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import FFRecordError, FormatError
from ffrecord.sources.images.path_list import PathListReader


@pytest.fixture
def root(tmp_path):
    for name in ("a.jpg", "b c.jpg", "d,e.jpg", "é.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def write(path, text):
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return str(path)


def test_text(root):
    path = write(root / "list.txt", "a.jpg 0\n\nb c.jpg   12\r\n  é.jpg\t-3  \nd,e.jpg 1")
    with PathListReader(path, root=root) as reader:
        assert reader.keys() == ["a.jpg", "b c.jpg", "é.jpg", "d,e.jpg"]
        assert reader.labels.dtype == np.int64 and reader.labels.tolist() == [0, 12, -3, 1]
        assert [record.tobytes().decode() for record in reader] == list(reader.keys())
        sample = reader.sample(1)
        assert (sample["image"].tobytes(), sample["label"]) == (b"b c.jpg", 12)
        assert reader.format == "path list" and reader.fnames == [path] and reader.locate(1)[0] == str(root / "b c.jpg")


def test_table(root):
    text = '\ufeffpath,label\na.jpg,cat\n"d,e.jpg",big dog\nd,e.jpg, 7 \n\nb c.jpg,x\n'
    with PathListReader(write(root / "list.CSV", text), root=root) as reader:
        assert reader.keys() == ["a.jpg", "d,e.jpg", "d,e.jpg", "b c.jpg"]
        assert reader.labels == ["cat", "big dog", "7", "x"]
        assert [sample["label"] for sample in reader.samples([1, 0, -1])] == ["big dog", "cat", "x"]


def test_without_labels(root):
    for name, text in (("a.txt", "b c.jpg\na.jpg\n"), ("a.csv", "file\nb c.jpg\na.jpg\n")):
        with PathListReader(write(root / name, text), root=root, labels=False) as reader:
            assert reader.keys() == ["b c.jpg", "a.jpg"] and reader.labels is None
            assert set(reader.sample(0)) == {"image"}
            assert pickle.loads(pickle.dumps(reader)).keys() == reader.keys()


def test_several_lists(root):
    first, second = write(root / "1.txt", "a.jpg 1\n"), write(root / "2.txt", "é.jpg 2\n")
    with PathListReader([first, Path(second)], root=root) as reader:
        assert (
            reader.keys() == ["a.jpg", "é.jpg"]
            and reader.labels.tolist() == [1, 2]
            and reader.fnames == [first, second]
        )


def test_what_lists_itself(root):
    pairs = [(root / "a.jpg", 1), ["b c.jpg", np.int64(2)]]
    for source in (pairs, iter(pairs), tuple(pairs)):
        with PathListReader(source, root=root) as reader:
            assert reader.keys() == [str(root / "a.jpg"), "b c.jpg"] and reader.labels.tolist() == [1, 2]
            again = pickle.loads(pickle.dumps(reader))
            assert again.keys() == reader.keys() and again.labels.tolist() == [1, 2]
            assert again.read_one(1).tobytes() == b"b c.jpg"
    with PathListReader(["a.jpg", "b c.jpg"], root=root) as reader:
        assert reader.labels is None and len(pickle.loads(pickle.dumps(reader))) == 2
    with PathListReader([("a.jpg", "x"), ("é.jpg", 1)], root=root) as reader:
        assert reader.labels == ["x", "1"]
    with PathListReader([]) as reader:
        assert len(reader) == 0


def test_relative_to_the_working_directory(root, monkeypatch):
    monkeypatch.chdir(root)
    with PathListReader(write(root / "list.txt", "a.jpg 0\n")) as reader:
        state = pickle.dumps(reader)
        assert reader.read_one(0).tobytes() == b"a.jpg"
    monkeypatch.chdir("/")
    with pickle.loads(state) as again:
        assert again.read_one(0).tobytes() == b"a.jpg"


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\0"), min_size=1
)


@given(st.lists(st.tuples(names.map(str.strip).filter(bool), st.integers(-(10**17), 10**17))))
def test_any_path(tmp_path, pairs):
    text = "".join(f"{name} {label}\n" for name, label in pairs)
    path = write(tmp_path / "any.txt", text.encode())
    with PathListReader(path) as reader:
        assert list(reader.keys()) == [name for name, _ in pairs]
        assert (reader.labels is None) == (not pairs)
        assert reader.labels is None or reader.labels.tolist() == [label for _, label in pairs]


REFUSED = {
    "no label": ("x.txt", "a.jpg 1\nb.jpg\n", "line 2 is 'b.jpg', expected a path and a label"),
    "no label in a table": ("x.csv", "a.jpg,1\nb.jpg\n", "line 2 is 'b.jpg'"),
    "no path in a table": ("x.csv", ",1\n", "line 1 is ',1'"),
    "no UTF-8": ("x.txt", b"a.jpg 1\n\xff.jpg 2\n", "byte 0xff at offset 8"),
    "a quote without end": ("x.csv", '"a.jpg,1\n', "line 1"),
    "too long a cell": ("x.csv", "a" * 200_000 + ",1\n", "line 1: field larger"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    name, text, message = REFUSED[case]
    with pytest.raises(FormatError, match=message):
        PathListReader(write(tmp_path / name, text))


def test_wrong_arguments(root):
    with pytest.raises(FileNotFoundError):
        PathListReader(root / "none.txt")
    with pytest.raises(NotADirectoryError):
        PathListReader([], root=root / "a.jpg")
    with pytest.raises(ValueError, match=r"^source is str '', expected a path$"):
        PathListReader("", root=root)
    with pytest.raises(ValueError, match="1 of 2 paths have no label"):
        PathListReader(["a.jpg", ("b.jpg", 1)])
    with pytest.raises(TypeError, match=r"labels is str .*, expected True or False"):
        PathListReader(["a.jpg"], labels="x")
    for bad in ([3], [("a.jpg", 1.5)], [("a.jpg", True)], [("a.jpg", 1, 2)], [(b"a.jpg", 1)]):
        with pytest.raises(TypeError):
            PathListReader(bad)


def test_missing_files_are_errors_when_they_are_read(root):
    with PathListReader(write(root / "list.txt", "a.jpg 0\ngone.jpg 1\n"), root=root) as reader:
        with pytest.raises(FileNotFoundError, match=r"Sample 1: .*gone\.jpg"):
            reader.read([0, 1])
        state = pickle.dumps(reader)
    write(root / "list.txt", "a.jpg 1\n")
    with pytest.raises(FFRecordError, match="differ"):
        pickle.loads(state)
    with PathListReader([("x\0y", 1)], on_error="skip") as reader:
        assert reader.samples([0]) == [] and reader.skipped == 1
    assert os.path.exists(root / "a.jpg")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["1", "2", "0.5"], "1 of 3 labels are not whole numbers, so all are text; the first is '0.5' of 2.jpg"),
        (["1", "2", "3"], None),
        (["cat", "dog", "3"], None),  # most are names: nobody meant numbers
    ],
)
def test_a_few_labels_that_are_no_numbers_are_logged(tmp_path, caplog, labels, said):
    path = write(tmp_path / "a.txt", "".join(f"{i}.jpg {label}\n" for i, label in enumerate(labels)))
    with PathListReader(path) as reader, pickle.loads(pickle.dumps(reader)):  # which says it only once
        assert list(reader.labels) == ([1, 2, 3] if labels[0] == "1" and said is None else labels)
    assert caplog.messages == ([] if said is None else [said])


def test_a_missing_file_names_the_line(root):
    lists = [write(root / "first.txt", "a.jpg 1\n"), write(root / "second.csv", "label,name\n1,a.jpg\n")]
    with PathListReader(lists, root=root) as reader:
        told = r"Sample 1: .*second\.csv: line 1: no file 'label': .*; a line is path,label: "
        with pytest.raises(FileNotFoundError, match=told):
            reader.read([1])
        write(root / "second.csv", "a.jpg,1\n")
        with pytest.raises(FileNotFoundError, match=told):  # the line that it had when it was read
            reader.read([1])
    generic = r"Sample 0: .*/b\.jpg: reading it failed: "
    with PathListReader([("b.jpg", 1)], root=root) as reader, pytest.raises(FileNotFoundError, match=generic):
        reader.read([0])
    with PathListReader(lists[1], root=root) as reader:
        assert len(reader.read([0])) == 1
    with PathListReader(write(root / "head.csv", "id,filename,label\n\n1,a.jpg,2\n"), root=root) as reader:
        with pytest.raises(FileNotFoundError, match=r"line 1: no file 'id,filename': .*; is it a header"):
            reader.read([0])
        with pytest.raises(FileNotFoundError, match=r"line 3: no file '1,a\.jpg': .*path,label: "):
            reader.read([1])
