"""What a reader is given → the files it reads."""

import os
from pathlib import Path

import builders
import ffr_twin
import pytest

from ffrecord.errors import FormatError
from ffrecord.format import manifest
from ffrecord.reading import paths
from ffrecord.sources import files

MANIFEST_CRC = int.from_bytes(ffr_twin.build([b"x"])[:4], "little")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("9.ffr", "10.ffr", "b.ffr", "A.ffr", ".dot.ffr", "notes.txt", ".9.ffr.abc.part"):
        builders.write(tmp_path / name, ffr_twin.build([b"x"]))
    return tmp_path


SORTED = [".dot.ffr", "10.ffr", "9.ffr", "A.ffr", "b.ffr"]


@pytest.mark.parametrize("as_type", [str, Path])
@pytest.mark.parametrize("slash", ["", "/"])
def test_directory_in_string_order_with_dot_files(directory, as_type, slash):
    found = paths.expand(as_type(str(directory) + slash))
    assert [os.path.basename(path) for path in found.files] == SORTED
    assert found.shards == [None] * len(SORTED)


def test_relative_directory_with_a_slash(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    assert paths.expand(directory.name + "/").files == [f"{directory.name}/{name}" for name in SORTED]


def test_a_directory_may_end_in_the_suffix(tmp_path):
    """The directory test comes before the suffix test."""
    (tmp_path / "data.ffr").mkdir()
    path = builders.write(tmp_path / "data.ffr" / "a.ffr", ffr_twin.build([]))
    assert paths.expand(tmp_path / "data.ffr").files == [path]


def test_directory_is_not_searched_below(directory):
    (directory / "below").mkdir()
    builders.write(directory / "below" / "c.ffr", ffr_twin.build([]))
    assert len(paths.expand(directory).files) == len(SORTED)


@pytest.mark.parametrize("collection", [list, tuple])
def test_several_files_keep_order_and_repeats(directory, collection):
    given = [directory / "b.ffr", str(directory / "9.ffr"), directory / "b.ffr"]
    assert paths.expand(collection(given)).files == [str(each) for each in given]


def test_glob_pattern(directory):
    assert paths.expand(f"{directory}/[0-9]*.ffr").files == [f"{directory}/10.ffr", f"{directory}/9.ffr"]


def test_a_file_named_like_a_pattern(tmp_path):
    path = builders.write(tmp_path / "a[1].ffr", ffr_twin.build([]))
    builders.write(tmp_path / "a1.ffr", ffr_twin.build([]))
    assert paths.expand(path).files == [path]


def test_dataset_json_names_the_shards(directory):
    """The directory is exactly what it lists; fuller tests are in test_manifest.py."""
    shards = [manifest.Shard(name, 1, 25, MANIFEST_CRC) for name in ("b.ffr", "9.ffr")]
    manifest.save(str(directory), manifest.build(shards))
    found = paths.expand(directory)
    assert [os.path.basename(path) for path in found.files] == ["b.ffr", "9.ffr"]
    assert found.shards == shards


def test_damaged_dataset_json(directory):
    (directory / "dataset.json").write_text("{")
    with pytest.raises(FormatError):
        paths.expand(directory)


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"a.ffr"


@pytest.mark.parametrize(
    "wrong", [b"a.ffr", 3, None, 1.5, {"a.ffr"}, BytesPath(), ["a.ffr", 3], [["a.ffr"]], (b"a.ffr",)]
)
def test_wrong_types(wrong):
    with pytest.raises(TypeError, match=r"fname(\[\d\])? is .*, expected str(, | or )os\.PathLike(, list or tuple)?$"):
        paths.expand(wrong)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("missing.ffr", FileNotFoundError, "missing.ffr does not exist"),
        ("missing/a.ffr", FileNotFoundError, "a.ffr does not exist"),
        ("nul\0.ffr", ValueError, "without null characters"),
        ("dangling.ffr", FileNotFoundError, "dangling.ffr does not exist"),
        ("notes.txt", ValueError, "notes.txt does not end with .ffr"),
        ("upper.FFR", ValueError, "upper.FFR does not end with .ffr"),
        ("fifo.ffr", ValueError, "fifo.ffr is not a file"),
        ("zero.ffr", ValueError, "zero.ffr is not a file"),
        ("empty", ValueError, "At least one .ffr file as input"),
        ("none*.ffr", ValueError, "At least one .ffr file as input"),
    ],
)
def test_refused(directory, name, kind, message):
    (directory / "dangling.ffr").symlink_to(directory / "nowhere")
    (directory / "upper.FFR").touch()
    os.mkfifo(directory / "fifo.ffr")
    (directory / "zero.ffr").symlink_to("/dev/zero")
    (directory / "empty").mkdir()
    with pytest.raises(kind, match=message) as caught:
        paths.expand(f"{directory}/{name}")
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("nothing", [[], ()])
def test_nothing_to_open(nothing):
    with pytest.raises(ValueError, match=r"At least one \.ffr file as input") as caught:
        paths.expand(nothing)
    assert isinstance(caught.value, AssertionError)


def test_directories_and_patterns_inside_a_list(directory, tmp_path):
    """In their places; what dataset.json says goes with its files."""
    other = tmp_path / "other"
    other.mkdir()
    builders.write(other / "1.ffr", ffr_twin.build([b"x"]))
    builders.write(other / "2.ffr", ffr_twin.build([b"x"]))
    shards = [manifest.Shard("2.ffr", 1, 25, MANIFEST_CRC)]
    manifest.save(str(other), manifest.build(shards))
    found = paths.expand([directory / "b.ffr", other, f"{directory}/[0-9]*.ffr", f"{directory}/", str(other)])
    names = ["b.ffr", "2.ffr", "10.ffr", "9.ffr", *SORTED, "2.ffr"]
    assert [os.path.basename(path) for path in found.files] == names
    assert found.shards == [None, *shards, *[None] * (2 + len(SORTED)), *shards]


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [
        ("empty", IsADirectoryError, "empty is not a file"),
        ("none*.ffr", FileNotFoundError, r"none\*\.ffr does not exist"),
        ("below/", IsADirectoryError, r"below/c\.ffr is not a file"),
    ],
)
def test_an_item_of_a_list_that_has_no_files(directory, item, kind, message):
    (directory / "empty").mkdir()
    (directory / "below" / "c.ffr").mkdir(parents=True)
    with pytest.raises(kind, match=message) as caught:
        paths.expand([directory / "b.ffr", f"{directory}/{item}"])
    assert isinstance(caught.value, AssertionError)


def test_a_subdirectory_with_the_suffix(directory):
    (directory / "c.ffr").mkdir()
    with pytest.raises(IsADirectoryError, match=r"c\.ffr is not a file"):
        paths.expand(directory)


def test_a_symlink_to_a_file_is_a_file(directory):
    (directory / "link.ffr").symlink_to("b.ffr")
    assert paths.expand(directory / "link.ffr").files == [f"{directory}/link.ffr"]


def test_a_pattern_that_finds_directories(tmp_path):
    for name in ("j1", "j2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dataset.json").touch()
    told = r"found the directory .*j1; pass the list sorted\(glob\.glob\('.*j\*'\)\)"
    for find in (paths.expand, lambda pattern: files.expand(pattern, (".zip",))):
        with pytest.raises(IsADirectoryError, match=told):
            find(str(tmp_path / "j*"))
    with pytest.raises(ValueError, match=r"dataset\.json lists the shards of a dataset; pass '.*j1'"):
        paths.expand(str(tmp_path / "j1" / "*"))


def test_an_item_of_a_list_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"^fname\[1\] is None, expected str or os\.PathLike$"):
        paths.expand([str(tmp_path), None])
    with pytest.raises(ValueError, match=r"^fname is str '', expected a path$"):
        paths.expand("")
