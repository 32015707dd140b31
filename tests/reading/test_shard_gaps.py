"""Copies that are not whole: shards missing between others, without a dataset.json; and shards that were cut."""

import os
import re
from pathlib import Path

import builders
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import FormatError


def shards(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for name in names:
        builders.write_samples(directory / name, [b"a", b"b"])
    return directory


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0, 1, 2), None),
        ((3, 4), None),  # the first shards may be elsewhere
        ((0, 2), "lacks PART_00001.ffr between its shards"),
        ((0, 2, 4), "lacks PART_00001.ffr, PART_00003.ffr between its shards"),
        ((1, 10**6), "PART_00006.ffr and 999993 more between its shards"),
    ],
)
@pytest.mark.parametrize("opened", [FileReader, ffrecord.open])
def test_a_directory(tmp_path: Path, caplog, opened, numbers, said) -> None:
    path = shards(tmp_path / "d", *(f"PART_{number:05d}.ffr" for number in numbers))
    for given in (path, f"{path}/", path.as_uri(), [path]):
        caplog.clear()
        with opened(given) as reader:
            assert len(reader) == 2 * len(numbers)
        assert len(caplog.messages) == (said is not None)
        assert all(said in each and each.startswith(f"{path}: ") for each in caplog.messages)


def test_several_directories(tmp_path: Path, caplog) -> None:
    whole = shards(tmp_path / "whole", "PART_00000.ffr", "PART_00001.ffr")
    gap = shards(tmp_path / "gap", "PART_00000.ffr", "PART_00002.ffr")
    for given, count in (([whole, whole], 8), ([whole, whole / "PART_00000.ffr"], 6)):
        with FileReader(given) as reader:
            assert len(reader) == count
    assert caplog.messages == []
    FileReader([whole, gap, gap, gap / "PART_00000.ffr"]).close()
    assert [each.partition(":")[0] for each in caplog.messages] == [str(gap)]


def test_whoever_chooses_files_leaves_some_out(tmp_path: Path, caplog) -> None:
    path = shards(tmp_path / "d", "PART_00000.ffr", "PART_00002.ffr")
    for given in ([path / "PART_00000.ffr", path / "PART_00002.ffr"], path / "*.ffr"):
        FileReader(given).close()
    assert caplog.messages == []


def test_other_names_are_not_counted(tmp_path: Path, caplog) -> None:
    path = shards(tmp_path / "d", "PART_00000.ffr", "run_00007.ffr", "run_00009.ffr", "PART_x.ffr")
    os.symlink(path, tmp_path / "link")
    FileReader(tmp_path / "link").close()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("change", "said"),
    [(-3, "was cut: it has {} of {} bytes; copy it again"), (1, "has 1 byte more than the {1} that were written")],
)
def test_a_listed_shard_of_another_size(tmp_path: Path, change: int, said: str) -> None:
    DatasetWriter(tmp_path / "d", samples_per_shard=3, num_workers=0).from_indexed_dataset([b"sample"] * 3)
    path = tmp_path / "d" / "PART_00000.ffr"
    size = path.stat().st_size
    os.truncate(path, size + change)
    with pytest.raises(FormatError, match=f"^{re.escape(f'{path} {said.format(size + change, size)}')}"):
        FileReader(tmp_path / "d")
