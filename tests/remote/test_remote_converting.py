"""Conversion from and to URLs, and what the command says of them."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from servers import Nginx, Storage

import ffrecord
from ffrecord import FileReader
from ffrecord.cli import main


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "notes.zip"
    with zipfile.ZipFile(path, "w") as made:
        for number in range(200):
            made.writestr(f"{number:03}.txt", b"%d" % number * 40)
    return path


def contents(fname: Any, **options: Any) -> list[tuple[str, bytes]]:
    with FileReader(fname, **options) as reader:
        return [(sample["key"], bytes(sample["data"])) for sample in reader.samples(range(len(reader)))]


def test_to_a_bucket_and_back(storage: Storage, archive: Path, tmp_path: Path) -> None:
    url, options = storage.url("converted"), {"storage_options": storage.storage_options}
    summary = ffrecord.convert(
        archive, url, num_workers=2, samples_per_shard=70, verify=True, staging=tmp_path / "staging", **options
    )
    assert (summary.samples, summary.shards) == (200, 3)
    expected = [(f"{number:03}.txt", b"%d" % number * 40) for number in range(200)]
    assert contents(url, **options) == expected

    back = tmp_path / "back"
    ffrecord.convert(url, back, num_workers=2, verify=True, **options)
    assert contents(back) == expected


def test_more_is_added_to_a_bucket(storage: Storage, archive: Path) -> None:
    url, options = storage.url("added"), {"storage_options": storage.storage_options}
    ffrecord.convert(archive, url, num_workers=0, **options)
    ffrecord.convert(archive, url, num_workers=0, mode="append", verify=True, **options)
    assert len(contents(url, **options)) == 400


@pytest.mark.parametrize("name", ["set", "set/PART_00000.ffr"])
def test_info_of_a_url(name: str, numbers_served: Nginx, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json", f"{numbers_served.url}/{name}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["info", "--json", f"{numbers_served.root}/{name}"]) == 0
    local = json.loads(capsys.readouterr().out)
    for key in ("samples", "files", "bytes", "schema", "writer"):
        assert found[key] == local[key], key
    with FileReader(numbers_served.root / name) as reader:
        assert found["fingerprint"] == reader.fingerprint()
        assert found["bytes"] == sum(reader.file_sizes) == sum(Path(path).stat().st_size for path in reader.fnames)
