"""Folders of images, against a walk over them."""

import os
import pickle
import textwrap

import children
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ffrecord
from ffrecord.errors import FFRecordError, FormatError
from ffrecord.sources import _files
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.sources.names import Names
from ffrecord.sources.registry import IMAGES


def make(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return str(root)


def twin(directory):
    """What torchvision's ImageFolder lists: (classes, [(path below `directory`, label)])."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for root, _, fnames in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for fname in sorted(fnames):
                if fname.lower().endswith(IMAGES):
                    samples.append((os.path.relpath(os.path.join(root, fname), directory), label))
    return classes, samples


FILES = {
    "cat/2.jpg": b"two",
    "cat/10.JPEG": b"ten",
    "cat/notes.txt": b"-",
    "cat/b/1.png": b"one",
    "cat/b-c/1.webp": b"dash",
    "cat/.hidden.jpg": b"hidden",
    "dog/x y.tiff": b"",
    "dog/é.bmp": b"x" * 70_000,
    "dog/b/c/d.ppm": b"deep",
    "beside.jpg": b"of no class",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images" / "empty").mkdir(parents=True)
    return make(tmp_path / "images", FILES)


def test_as_torchvision(folder):
    classes, samples = twin(folder)
    with ImageFolderReader(folder) as reader:
        assert reader.classes == classes == ["cat", "dog", "empty"]
        assert reader.class_to_idx == {"cat": 0, "dog": 1, "empty": 2}
        assert reader.keys() == [name for name, _ in samples]
        assert reader.labels.dtype == np.int64 and reader.labels.tolist() == [label for _, label in samples]
        assert [record.tobytes() for record in reader] == [FILES[name] for name, _ in samples]
        assert len(reader) == 8 and reader.format == "image folder" and reader.checksum is None
        sample = reader.sample(2)
        assert (sample["image"].tobytes(), sample["label"]) == (FILES[reader.keys()[2]], 0)


words = st.text(st.sampled_from("aB.-é"), min_size=1, max_size=3).filter(lambda word: set(word) != {"."})
paths = st.lists(
    st.tuples(st.lists(words, max_size=3), words, st.sampled_from([".jpg", ".PNG", ".txt", ""])), max_size=12
)


@settings(max_examples=25)
@given(paths)
def test_any_tree(tmp_path_factory, listed):
    root = tmp_path_factory.mktemp("tree")
    for above, name, suffix in listed:
        try:
            make(root, {"/".join([*above, name + suffix]): name.encode()})
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            continue  # a file where a directory would be
    classes, samples = twin(root)
    if (
        classes
        and not samples
        and any(path.is_file() and path.name.lower().endswith(IMAGES) for path in root.iterdir())
    ):
        with pytest.raises(FormatError, match="lie beside directories that have none"):
            ImageFolderReader(root)
        return
    with ImageFolderReader(root) as reader:
        assert reader.classes == classes
        if classes:
            assert list(zip(reader.keys(), reader.labels.tolist(), strict=True)) == samples
        for name, record in zip(reader.keys(), reader, strict=True):
            assert record.tobytes() == (root / name).read_bytes()


def test_without_classes(tmp_path, folder):
    flat = make(tmp_path / "flat", {"b.jpg": b"b", "a.png": b"a", "c.txt": b"-"})
    with ImageFolderReader(flat) as reader:
        assert reader.keys() == ["a.png", "b.jpg"] and reader.labels is None and reader.classes == []
        assert reader.sample(1)["image"].tobytes() == b"b" and set(reader.sample(1)) == {"image"}
    with pytest.raises(ValueError, match="expected one for each class"):
        ImageFolderReader(flat, labels=True)
    with ImageFolderReader(folder, labels=False) as reader:
        assert len(reader) == 9 and reader.keys()[0] == "beside.jpg" and reader.labels is None
    with ImageFolderReader(make(tmp_path / "none", {"a.txt": b""})) as reader:
        assert len(reader) == 0 and list(reader) == [] and reader.keys() == []


def test_extensions(folder):
    with ImageFolderReader(folder, extensions=[".TXT"]) as reader:
        assert reader.keys() == ["cat/notes.txt"]
        assert pickle.loads(pickle.dumps(reader)).keys() == ["cat/notes.txt"]
    for bad, error in (([""], ValueError), (["a/b"], ValueError), ([1], TypeError), (["x" * 300], ValueError)):
        with pytest.raises(error):
            ImageFolderReader(folder, extensions=bad)
    with ImageFolderReader(folder, extensions=[]) as reader:
        assert len(reader) == 0


def test_batches(tmp_path):
    """More files than are open at once, of sizes with memory of their own and without, empty ones among them."""
    sizes = [(i * 7919) % 1000 if i % 20 else i * 400 for i in range(400)]
    files = {f"{i % 3}/{i:03d}.jpg": os.urandom(size) for i, size in enumerate(sizes)}
    with ImageFolderReader(make(tmp_path / "many", files)) as reader:
        names = list(reader.keys())
        order = np.random.default_rng(1).integers(-400, 400, 900)
        records = reader.read(order)
        assert [record.tobytes() for record in records] == [files[names[i]] for i in order]
        before = [record.copy() for record in records]
        for record in records[::2]:
            record[:] = 0
        assert all(np.array_equal(record, old) for record, old in zip(records[1::2], before[1::2], strict=True))
        data, offsets = reader.read_packed(order[:50])
        assert data.tobytes() == b"".join(files[names[i]] for i in order[:50]) and len(offsets) == 51
        assert sum(len(batch) for batch in reader.iter_batches([range(100), range(300, 400)])) == 200


# Files that are not as they were


def test_files_that_fail(folder):
    with ImageFolderReader(folder) as reader:
        for number, spoil in enumerate((vanish, become_directory, become_fifo, become_dangling)):
            path = os.path.join(folder, reader.keys()[number])
            spoil(path)
            error = (FileNotFoundError, IsADirectoryError, FormatError, FileNotFoundError)[number]
            with pytest.raises(error, match=f"Sample {number}: .*{os.path.basename(path)}") as caught:
                reader.read([7, number, 6])
            assert path in str(caught.value)
            with pytest.raises(error):
                reader.read_one(number)
    with ImageFolderReader(folder, on_error="skip") as reader:
        good = [record.tobytes() for record in reader.read(range(len(reader)))]
        # What is a directory now is not listed; the FIFO and the dangling link are.
        assert reader.skipped == 2 and len(good) == len(reader) - 2


def vanish(path):
    os.unlink(path)


def become_directory(path):
    os.unlink(path)
    os.mkdir(path)


def become_fifo(path):
    os.unlink(path)
    os.mkfifo(path)


def become_dangling(path):
    os.unlink(path)
    os.symlink("nowhere", path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read(folder):
    os.chmod(os.path.join(folder, "cat/2.jpg"), 0)
    with ImageFolderReader(folder) as reader, pytest.raises(PermissionError, match=r"2\.jpg"):
        reader.read(range(len(reader)))


def test_files_written_to_while_they_are_read(folder, preloadable):
    """A library makes the size look other than it is, as it does in the moment between two looks."""
    library = preloadable("file_sizes.c")
    for shift, message in (
        ("100", "TruncatedError: .* has 3 bytes, but had 103 when"),
        ("-2", "FormatError: .* it had 1 bytes, then 3"),
    ):
        children.run(
            textwrap.dedent(
                f"""
                import logging, os, re
                logging.disable()  # of its class without pictures
                from ffrecord.sources.images.image_folder import ImageFolderReader
                reader = ImageFolderReader({folder!r})
                os.environ["FFR_TEST_SHIFT"] = {shift!r}
                try:
                    reader.read_one(reader.keys().find("cat/b/1.png"))
                except Exception as error:
                    found = f"{{type(error).__name__}}: {{error}}"
                assert re.search({message!r}, found), found
                """
            ),
            LD_PRELOAD=str(library),
        )


def test_links(tmp_path, folder):
    os.symlink(os.path.join(folder, "dog"), os.path.join(folder, "wolf"))
    os.symlink("2.jpg", os.path.join(folder, "cat", "3.jpg"))
    with ImageFolderReader(folder) as reader:
        assert reader.classes == ["cat", "dog", "empty", "wolf"]
        assert list(reader.keys()) == [name for name, _ in twin(folder)[1]]
        assert reader.read_one(reader.keys().find("cat/3.jpg")).tobytes() == b"two"
        assert reader.read_one(reader.keys().find("wolf/b/c/d.ppm")).tobytes() == b"deep"
    os.symlink("..", os.path.join(folder, "cat", "round"))
    with pytest.raises(FormatError, match="inside itself by a link"):
        ImageFolderReader(folder)
    deep = tmp_path / "deep"
    make(deep, {"/".join(["d"] * 70) + "/x.jpg": b""})
    with pytest.raises(FormatError, match="64 levels deep"):
        ImageFolderReader(deep)


def test_odd_names(tmp_path):
    root = os.fsencode(make(tmp_path / "odd", {"c/a.jpg": b"1"}))
    for name in (b"c/\xff\xfe.jpg", b"c/new\nline.jpg", b"c/" + b"n" * 251 + b".jpg"):
        with open(os.path.join(root, name), "wb") as file:
            file.write(name[:5])
    with ImageFolderReader(os.fsdecode(root)) as reader:
        assert os.fsencode(reader.keys()[-1]) == b"c/\xff\xfe.jpg"
        assert sorted(record.tobytes() for record in reader) == sorted([b"1", b"c/\xff\xfe.", b"c/new", b"c/nnn"])


def test_what_is_no_folder(tmp_path, folder):
    with pytest.raises(FileNotFoundError):
        ImageFolderReader(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        ImageFolderReader(os.path.join(folder, "beside.jpg"))
    with pytest.raises(ValueError, match="2 directories, expected one"):
        ImageFolderReader([folder, folder])
    with pytest.raises(TypeError):
        ImageFolderReader(3)
    with pytest.raises(TypeError, match=r"labels is str .*, expected True, False or None"):
        ImageFolderReader(folder, labels="x")
    with pytest.raises(ValueError, match="io is"):
        ImageFolderReader(folder, io="fast")
    with ImageFolderReader([folder]) as reader:
        assert len(reader) == 8


# A store


def test_store(tmp_path, folder, nothing_leaks):
    with ImageFolderReader(folder) as reader:
        path, number = reader.locate(0)
        assert os.path.exists(path) and number == 0 and reader.fnames == [folder]
        with pytest.raises(IndexError, match="8 >= 8"):
            reader.read([0, 8])
        again = pickle.loads(pickle.dumps(reader))
        assert again.keys() == reader.keys() and again.fingerprint() == reader.fingerprint()
        state = pickle.dumps(reader)
        make(tmp_path / "images", {"cat/new.jpg": b"new"})
        with pytest.raises(FFRecordError, match="differ"):
            pickle.loads(state)
    with pytest.raises(ValueError, match="ImageFolderReader has been closed"):
        reader.read_one(0)


def test_names_with_a_nul():
    names = Names.of(["a\0b"])
    _, failures = _files.read_files(-1, names.blob, names.offsets, np.array([0]))
    assert [(place, what) for place, what, *_ in failures] == [(0, "failed")]


def test_a_directory_that_cannot_be_listed(tmp_path):
    with pytest.raises(FileNotFoundError):
        _files.list_directory(os.fsencode(tmp_path / "none"), b"", (b".jpg",))
    with pytest.raises(NotADirectoryError):
        (tmp_path / "file").write_bytes(b"")
        _files.list_directory(os.fsencode(tmp_path / "file"), b"", (b".jpg",))


def test_an_extension_that_is_no_text(folder):
    with pytest.raises(TypeError, match=r"^extensions\[1\] is int 5, expected str$"):
        ImageFolderReader(folder, extensions=[".txt", 5])


@pytest.mark.parametrize(("names", "said"), [([], ""), ([".ipynb_checkpoints"], "'.ipynb_checkpoints'")])
def test_classes_without_pictures_are_logged(tmp_path, caplog, names, said):
    for name in ("cat", *names):
        (tmp_path / name).mkdir()
    (tmp_path / "cat" / "0.png").write_bytes(b"x")
    with ImageFolderReader(tmp_path) as reader, pickle.loads(pickle.dumps(reader)):  # which says it only once
        assert (reader.classes, reader.labels.tolist()) == ([*names, "cat"], [len(names)])  # as in torchvision
    assert caplog.messages == ([f"{tmp_path}: classes without pictures: {said}"] if said else [])


@pytest.mark.parametrize("names", [["src/main.py"], [".git/config"], ["a/b/c.txt", "d/e"]])
def test_pictures_beside_directories_without_any_are_refused(tmp_path, names):
    """They would be a dataset of no samples; torchvision refuses such a folder, too."""
    make(tmp_path, dict.fromkeys(["0.png", "1.jpg", *names], b"x"))
    said = r": its pictures \(2\) lie beside directories that have none and would be its classes: '"
    for read in (
        lambda: ImageFolderReader(tmp_path),
        lambda: ImageFolderReader(tmp_path, labels=True),
        lambda: ffrecord.open(tmp_path, format="image folder"),
        lambda: ffrecord.convert(tmp_path, tmp_path.with_name("out"), format="image folder", num_workers=0),
    ):
        with pytest.raises(FormatError, match=said):
            read()
    assert not tmp_path.with_name("out").exists()
    with ImageFolderReader(tmp_path, labels=False) as reader:
        assert list(reader.keys()) == ["0.png", "1.jpg"]


def test_pictures_beside_classes_are_logged(tmp_path, caplog):
    make(tmp_path, dict.fromkeys(["0.png", "1.jpg", "notes.txt", "cat/2.png"], b"x"))
    with ImageFolderReader(tmp_path) as reader, pickle.loads(pickle.dumps(reader)):  # which says it only once
        assert list(reader.keys()) == ["cat/2.png"]
    assert caplog.messages == [f"{tmp_path}: pictures beside the classes, which are left out: 2"]


def test_of_many_classes_without_pictures_some_are_logged(tmp_path, caplog):
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
    with ImageFolderReader(tmp_path):
        assert caplog.messages == [f"{tmp_path}: classes without pictures: 'a', 'b', 'c', 'd', 'e' and 3 more"]
