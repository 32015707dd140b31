"""`ffrecord verify`: every bad record is named, whatever else is damaged; exit codes that scripts can use."""

import json
import os
import shutil
import tarfile
import zipfile

import builders
import numpy as np
import pytest
from cli_runs import run, run_in_terminal

from ffrecord import DatasetWriter, FileReader

N, SHARD = 300, 100


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("verify") / "train"
    samples = [{"x": np.full(500, i, np.int32)} for i in range(N)]
    DatasetWriter(path, samples_per_shard=SHARD, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


@pytest.fixture
def dataset(written, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(written, tmp_path / "train")


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def swap(one, other):
    one.rename(f"{one}.kept")
    other.rename(one)
    os.rename(f"{one}.kept", other)


def verify(*arguments):
    ran = run("verify", *arguments, "--json")
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


def test_whole(dataset):
    code, found = verify(dataset)
    assert (code, found["records"], found["files"], found["bad"]) == (0, N, 3, [])
    assert found["bytes"] == N * 2000
    said = run("verify", dataset)
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("every CRC-32 matches\n")


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_bad_record_is_named(dataset, jobs):
    shards = sorted(dataset.glob("*.ffr"))
    wanted = []
    for shard, index in ((0, 0), (0, 99), (1, 50), (2, 7), (2, 8)):
        with FileReader(shards[shard]) as reader:
            flip(shards[shard], int(reader.get_offsets(0)[index]) + 1000)
        wanted.append((str(shards[shard]), index))
    code, found = verify(dataset, "--jobs", jobs)
    assert code == 1
    assert [(each["file"], each["index"]) for each in found["bad"]] == wanted
    assert run("verify", dataset).out.count("bad: ") == len(wanted)


def test_a_shard_that_cannot_be_opened_does_not_hide_the_others(dataset):
    first, second, third = sorted(dataset.glob("*.ffr"))
    flip(first, 20)  # a table
    second.unlink()
    with FileReader(third) as reader:
        flip(third, int(reader.get_offsets(0)[42]))
    code, found = verify(dataset)
    assert code == 1
    assert [(each["file"], each["index"]) for each in found["bad"]] == [
        (str(first), None),
        (str(second), None),
        (str(third), 42),
    ]
    assert found["records"] == SHARD


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_shard_that_is_no_file(dataset, make):
    first = min(dataset.glob("*.ffr"))
    first.unlink()
    make(first)
    code, found = verify(dataset)
    assert (code, found["records"]) == (1, 2 * SHARD)
    assert [each["error"] for each in found["bad"]] == [f"{first} is not a file"]


def test_shards_of_another_dataset(dataset, tmp_path):
    first = min(dataset.glob("*.ffr"))
    builders.write_samples(first, [b"other"])
    code, found = verify(dataset)
    assert (code, [each["file"] for each in found["bad"]]) == (1, [str(first)])
    assert "not the shard that dataset.json lists" in found["bad"][0]["error"]
    assert found["records"] == 1 + 2 * SHARD


@pytest.mark.parametrize("missing", [False, True])
def test_every_shard_that_is_not_the_listed_one_is_named(dataset, missing):
    first, second, third = sorted(dataset.glob("*.ffr"))
    swap(first, second)
    wrong = [first, second]
    if missing:
        third.unlink()
        wrong.append(third)
    code, found = verify(dataset)
    assert code == 1
    assert [(each["file"], each["index"], each["sample"]) for each in found["bad"]] == [
        (str(path), None, None) for path in wrong
    ]
    assert ["dataset.json lists" in each["error"] for each in found["bad"]] == [path != third for path in wrong]
    assert run("verify", dataset).out.count("bad: ") == len(wrong)


def test_a_damaged_list_is_named_beside_damaged_shards(dataset):
    flip(dataset / "dataset.json", 0)
    assert [each["file"] for each in verify(dataset)[1]["bad"]] == [str(dataset)]
    first = min(dataset.glob("*.ffr"))
    flip(first, 20)
    assert [each["file"] for each in verify(dataset)[1]["bad"]] == [str(dataset), str(first)]
    (dataset / "dataset.json").unlink()
    assert [each["file"] for each in verify(dataset)[1]["bad"]] == [str(first)]


def test_a_damaged_list_of_no_shards_is_no_reason_to_verify_again(tmp_path):
    (tmp_path / "dataset.json").write_text("{")
    ran = run("verify", tmp_path)
    assert (ran.code, ran.err.count("\n"), "run `ffrecord verify` to check" in ran.err) == (3, 1, False)
    assert "run `ffrecord verify` to check" in run("info", tmp_path).err


def test_samples_keep_their_number_whatever_is_missing(dataset):
    first, second, third = sorted(dataset.glob("*.ffr"))
    with FileReader(third) as reader:
        flip(third, int(reader.get_offsets(0)[42]))
    bad = 2 * SHARD + 42
    whole = verify(dataset)[1]["bad"]
    first.unlink()
    _, found = verify(dataset)[1]["bad"]
    assert whole == [found]
    assert (found["index"], found["sample"]) == (42, bad)
    assert found["error"].startswith(f"Sample {bad}: checksum")
    (shown,) = json.loads(run("get", dataset, bad, "--json").out)
    assert shown["error"] == found["error"]
    assert run("get", dataset, bad, "--raw").err == f"ffrecord get: {found['error']}\n"
    assert json.loads(run("stats", dataset, "--json").out)["damaged"] == [{"index": bad, "error": found["error"]}]
    swap(second, third)
    # Which sample of the dataset it is nobody knows.
    *_, found = [each for each in verify(dataset)[1]["bad"] if each["index"] is not None]
    assert (found["file"], found["index"], found["sample"]) == (str(second), 42, None)
    assert found["error"].startswith("checksum")


def test_a_cut_file(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(1000)] * 5)
    os.truncate(path, os.path.getsize(path) - 1)
    code, found = verify(path)
    assert (code, [each["index"] for each in found["bad"]]) == (1, [4])


def test_other_formats(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one", b"1" * 100)
        archive.writestr("two", b"2" * 100)
    assert verify(tmp_path / "a.zip")[0] == 0
    flip(tmp_path / "a.zip", 60)
    code, found = verify(tmp_path / "a.zip")
    assert (code, [each["index"] for each in found["bad"]]) == (1, [0])
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(__file__, "this")
    ran = run("verify", tmp_path / "a.tar")
    assert (ran.code, "tar has no checksums" in ran.out) == (0, True)


def test_each_file_of_an_image_folder_is_counted(tmp_path):
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff\xd8\xff")
    assert "3 records in 3 files, " in run("verify", tmp_path).out


def test_an_empty_dataset(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [])
    code, found = verify(path)
    assert (code, found["records"], found["bad"]) == (0, 0, [])


def test_on_a_terminal_no_bar_is_left(dataset):
    ran = run_in_terminal("verify", dataset, columns=100)
    assert ran.code == 0
    assert ran.out.rstrip().endswith("every CRC-32 matches")


@pytest.mark.parametrize("jobs", ["0", "-1", "x", "1025"])
def test_wrong_jobs(dataset, jobs):
    assert run("verify", dataset, "--jobs", jobs).code == 2
