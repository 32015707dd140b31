"""dataset.json: what is saved is loaded, and what contradicts itself is refused."""

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import FileReader, FileWriter
from ffrecord.errors import FormatError
from ffrecord.format import manifest
from ffrecord.format.manifest import Manifest, Shard

SHARDS = [Shard("PART_00000.ffr", 3, 100, 7), Shard("PART_00001.ffr", 2, 36, 2**32 - 1)]
SCHEMA = {"kind": "int", "nested": {"shape": [1, 2]}}


def saved(directory: Path, **changes: Any) -> Path:
    """A good manifest in `directory`, with some of its keys replaced."""
    good = json.loads(msgspec.json.encode(manifest.build(SHARDS, SCHEMA)))
    path = directory / manifest.NAME
    path.write_text(json.dumps(good | changes))
    return path


def shard(**changes: Any) -> dict[str, Any]:
    return {"name": "a.ffr", "samples": 1, "size": 30, "crc": 0} | changes


def test_saved_is_loaded(tmp_path: Path) -> None:
    built = manifest.build(SHARDS, SCHEMA, seed=5)
    manifest.save(str(tmp_path), built)
    assert manifest.load(str(tmp_path)) == built
    assert (built.version, built.samples, built.seed) == (1, 5, 5)
    assert os.listdir(tmp_path) == [manifest.NAME]


def test_bytes_of_a_manifest(tmp_path: Path) -> None:
    manifest.save(str(tmp_path), manifest.build(SHARDS[:1]))
    assert json.loads((tmp_path / manifest.NAME).read_bytes()) == {
        "version": 1,
        "samples": 3,
        "shards": [{"name": "PART_00000.ffr", "samples": 3, "size": 100, "crc": 7}],
        "fingerprint": hashlib.sha256(b"[[[3,100,7]],null]").hexdigest(),
    }


def test_none_without_one(tmp_path: Path) -> None:
    assert manifest.load(str(tmp_path)) is None


def test_save_replaces_an_older_one(tmp_path: Path) -> None:
    manifest.save(str(tmp_path), manifest.build(SHARDS))
    manifest.save(str(tmp_path), manifest.build(SHARDS[:1]))
    loaded = manifest.load(str(tmp_path))
    assert loaded is not None and loaded.samples == 3
    assert os.listdir(tmp_path) == [manifest.NAME]


def test_fingerprint_covers_counts_sizes_checksums_and_schema() -> None:
    several = [
        (SHARDS, None),
        (SHARDS, SCHEMA),
        (SHARDS[::-1], None),
        (SHARDS[:1], None),
        ([Shard("PART_00000.ffr", 2, 100, 7), Shard("PART_00001.ffr", 3, 36, 2**32 - 1)], None),
        ([Shard("PART_00000.ffr", 3, 101, 7), SHARDS[1]], None),
        ([Shard("PART_00000.ffr", 3, 100, 8), SHARDS[1]], None),
    ]
    assert len({manifest.fingerprint(*each) for each in several}) == len(several)


def test_fingerprint_ignores_names_and_key_order() -> None:
    renamed = [Shard("x.ffr", s.samples, s.size, s.crc) for s in SHARDS]
    assert manifest.fingerprint(renamed, {"a": 1, "b": 2}) == manifest.fingerprint(SHARDS, {"b": 2, "a": 1})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"version": 2}, "version 2, this release of ffrecord reads version 1"),
        ({"version": "1"}, "version"),
        ({"samples": 6}, "6 samples, but its shards have 5"),
        ({"samples": -1}, ">= 0"),
        ({"samples": 1e300}, "samples"),
        ({"fingerprint": "0" * 64}, "fingerprint is '0000"),
        ({"schema": None}, "fingerprint"),
        ({"schema": []}, "schema"),
        ({"shards": None}, "shards"),
        ({"shards": [shard(), shard()], "samples": 2}, "listed twice"),
        ({"shards": [shard(size=23)], "samples": 1}, "1 sample cannot fit in 23 bytes"),
        ({"shards": [shard(samples=-1)], "samples": -1}, ">= 0"),
        ({"shards": [shard(crc=2**32)], "samples": 1}, "crc"),
        ({"shards": [shard(size=2**70)], "samples": 1}, "size"),
        *(
            ({"shards": [shard(name=name)], "samples": 1}, "plain file name")
            for name in ["../a.ffr", "/a.ffr", "a/b.ffr", "a.txt", "", ".ffr", "a\0.ffr", ".."]
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = saved(tmp_path, **changes)
    with pytest.raises(FormatError) as caught:
        manifest.load(str(tmp_path))
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        *[b"", b"{", b'["version": 1]', b"null", b"\xff\xfe", b'{"version": 1}'],
        b'{"version": 1, "samples": NaN, "shards": []}',
        b"[" * 200_000,
        b'{"version": 1, "samples": 0, "shards": [], "schema": ' + b'{"a":' * 200_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_garbage_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(data)
    with pytest.raises(FormatError, match=manifest.NAME):
        manifest.load(str(tmp_path))


@pytest.mark.parametrize(
    "data", [b"{}", b'{"name": "imagenet", "samples": 3}', b' [["a.png", 3]]', b'{"version": "1.0"}']
)
def test_another_programs_file_of_that_name_is_none_of_ours(tmp_path: Path, data: bytes) -> None:
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"sample")
    (tmp_path / manifest.NAME).write_bytes(data)
    assert manifest.load(str(tmp_path)) is None
    with FileReader(tmp_path) as reader:
        assert len(reader) == 1


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_a_format_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    directory = tmp_path_factory.mktemp("any")
    (directory / manifest.NAME).write_bytes(data)
    try:
        found = manifest.load(str(directory))
    except FormatError:
        return
    assert found is None  # another program's: an object, or a list, of none of our keys
    json.loads(data)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with open(tmp_path / manifest.NAME, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match=f"{1 << 40} bytes, expected at most"):
        manifest.load(str(tmp_path))


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / manifest.NAME)
    with pytest.raises(FormatError, match="not a regular file"):
        manifest.load(str(tmp_path))


@pytest.mark.parametrize("kind", ["socket", "link", "long"])
def test_what_is_no_file_of_ours(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told as an error of this package that names the file."""
    monkeypatch.chdir(tmp_path)
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(manifest.NAME)
    else:
        os.symlink(manifest.NAME if kind == "link" else "x" * 300, manifest.NAME)
    with pytest.raises((FormatError, RuntimeError), match=r"dataset\.json is not a regular|dataset\.json could not be"):
        manifest.load(str(tmp_path))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).mkdir()
    with pytest.raises((FormatError, IsADirectoryError)):
        manifest.load(str(tmp_path))


def test_unknown_keys_of_later_writers_are_ignored(tmp_path: Path) -> None:
    saved(tmp_path, appended=3)
    loaded = manifest.load(str(tmp_path))
    assert loaded is not None and loaded.shards == SHARDS


def test_save_refuses_what_load_would(tmp_path: Path) -> None:
    good = manifest.build(SHARDS)
    with pytest.raises(FormatError, match="7 samples, but its shards have 5"):
        manifest.save(str(tmp_path), Manifest(1, 7, good.shards, None, good.fingerprint))
    assert os.listdir(tmp_path) == []
