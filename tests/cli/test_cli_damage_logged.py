"""A warning of damage in the log makes the exit code 1: scripts do not read warnings."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from cli_runs import run

from ffrecord import FileWriter
from ffrecord.sources import TFRecordWriter

BLOCKS = 4 * 512  # two members of a header and a block of data each


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("0", "1", "2"):
            member = tarfile.TarInfo(name)
            member.size = 100
            tar.addfile(member, io.BytesIO(bytes(100)))
    return path


@pytest.mark.parametrize("command", ["verify", "info", "convert", "stats"])
def test_a_tar_cut_between_two_members(archive: Path, tmp_path: Path, command: str) -> None:
    more = [tmp_path / "out"] if command == "convert" else []
    assert run(command, archive, *more).code == 0
    archive.write_bytes(archive.read_bytes()[:BLOCKS])
    more = [tmp_path / "other"] if command == "convert" else []
    ran = run(command, archive, *more)
    assert ran.code == 1
    said = f"{archive}: 2 members in {BLOCKS} bytes, but no zeros at its end: the archive may have been cut"
    assert said in ran.err
    if command == "verify":
        assert (f"bad: {said}" in ran.out, ran.out.endswith(": 1 bad\n")) == (True, True)
        (bad,) = json.loads(run("verify", "--json", archive).out)["bad"]
        assert (bad["file"], bad["index"], bad["error"].startswith(said)) == (str(archive), None, True)


@pytest.mark.parametrize("name", ["x-0000{}-of-00003.tfrecord", "PART_0000{}.ffr"])
def test_a_missing_shard(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    for i in range(3):
        with (TFRecordWriter if "tfrecord" in name else FileWriter)(directory / name.format(i)) as writer:
            writer.write_packed(b"sample", [0, 6])
    assert run("convert", directory, tmp_path / "whole").code == 0
    (directory / name.format(1)).unlink()
    ran = run("convert", directory, tmp_path / "rest")
    assert (ran.code, f"{directory}: " in ran.err) == (1, True)


def test_data_behind_the_end(archive: Path) -> None:
    archive.write_bytes(2 * archive.read_bytes())
    ran = run("verify", archive)
    assert (ran.code, "is left out" in ran.err) == (1, True)


def test_a_failure_stays_one(archive: Path, tmp_path: Path) -> None:
    """Cut in a member, which cannot be read on."""
    archive.write_bytes(archive.read_bytes()[: BLOCKS - 500])
    assert run("verify", archive).code == 3
