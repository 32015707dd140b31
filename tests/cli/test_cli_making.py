"""The commands that make things: write, convert, export, merge, split, shuffle, pack, unpack, recover."""

import json
import shutil
import signal
import subprocess
import time
import zipfile

import children
import numpy as np
import pytest
from cli_runs import COMMAND, run

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.cli.making import size_of
from ffrecord.cli.split import sizes
from ffrecord.errors import ArgumentError
from ffrecord.fields import schema_of


def written(path, start, stop):
    samples = [{"x": np.full(3, i, np.float32), "label": i} for i in range(start, stop)]
    DatasetWriter(path, samples_per_shard=7, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


def labels(path):
    with ffrecord.FileReader(path) as reader:
        return [sample["label"] for sample in reader.samples(range(reader.n))]


def done(*arguments, **more):
    ran = run(*arguments, "--json", **more)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return written(tmp_path_factory.mktemp("making") / "first", 0, 20)


def test_merge(dataset, tmp_path):
    second = written(tmp_path / "second", 20, 25)
    assert done("merge", dataset, second, "--out", tmp_path / "both", "-j", "1")["samples"] == 25
    assert labels(tmp_path / "both") == [*range(25)]
    with ffrecord.FileReader(tmp_path / "both") as both, ffrecord.FileReader(dataset) as first:
        assert schema_of(both) == schema_of(first)
        assert both.read_one(3).tobytes() == first.read_one(3).tobytes()


def test_merge_of_other_columns(dataset, tmp_path):
    DatasetWriter(tmp_path / "other", num_workers=1, progress=False).from_indexed_dataset([{"y": 1}])
    ran = run("merge", dataset, tmp_path / "other", "--out", tmp_path / "both")
    assert (ran.code, ran.out) == (3, "")
    assert "schema differs" in ran.err
    assert not (tmp_path / "both").exists()


def test_merge_of_other_formats(dataset, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one", "1")
    ran = run("merge", dataset, tmp_path / "a.zip", "--out", tmp_path / "both")
    assert (ran.code, "a.zip is zip" in ran.err) == (2, True)


def test_nothing_to_write(tmp_path):
    (tmp_path / "empty").mkdir()
    ran = run("write", tmp_path / "empty", tmp_path / "out")
    assert (ran.code, ran.out, (tmp_path / "out").exists()) == (3, "", False)


def test_shuffle(dataset, tmp_path):
    assert done("shuffle", dataset, tmp_path / "a", "--seed", "7", "-j", "1")["seed"] == 7
    done("shuffle", dataset, tmp_path / "b", "--seed", "7", "-j", "2")
    drawn = done("shuffle", dataset, tmp_path / "c")["seed"]
    assert 0 <= drawn < 2**32
    order = labels(tmp_path / "a")
    assert sorted(order) == [*range(20)] != order
    assert order == labels(tmp_path / "b")
    assert sorted(labels(tmp_path / "c")) == [*range(20)]


@pytest.mark.parametrize("seed", ["-1", "4294967296", "x"])
def test_wrong_seeds(dataset, tmp_path, seed):
    assert run("shuffle", dataset, tmp_path / "a", f"--seed={seed}").code == 2


def test_split_by_chance(dataset, tmp_path):
    train, val = tmp_path / "train", tmp_path / "val"
    parts = done("split", dataset, f"{train}=0.8", f"{val}=0.2")
    assert [part["samples"] for part in parts] == [16, 4]
    assert sorted(labels(train) + labels(val)) == [*range(20)]
    assert labels(val) == sorted(labels(val)) != [16, 17, 18, 19]


def test_split_in_order(dataset, tmp_path):
    done("split", dataset, f"{tmp_path}/a=5", f"{tmp_path}/b=rest", "--in-order")
    assert (labels(tmp_path / "a"), labels(tmp_path / "b")) == ([*range(5)], [*range(5, 20)])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["a=0.5", "b=0.4"], "ask for 18 samples"),
        (["a=25", "b=rest"], "ask for 25 samples"),
        (["a=rest", "b=rest"], "only one part"),
        (["a=0.5", "a=0.5"], "twice"),
        (["a=2.5"], "no share"),
        (["a"], "OUT=SHARE"),
        (["a=nan", "b=rest"], "no share"),
    ],
)
def test_wrong_parts(dataset, tmp_path, parts, words):
    ran = run("split", dataset, *(f"{tmp_path}/{part}" for part in parts))
    assert ran.code == 2
    assert words in ran.err
    assert [*tmp_path.iterdir()] == []


def test_sizes_of_parts():
    assert sizes([("a", 0.5), ("b", 0.5)], 5) == [2, 3]
    assert sizes([("a", 1 / 3), ("b", 1 / 3), ("c", 1 / 3)], 100) == [33, 33, 34]
    assert sizes([("a", 0.25), ("b", None), ("c", 3)], 8) == [2, 3, 3]
    with pytest.raises(ArgumentError):
        sizes([("a", 4)], 5)


def test_convert_and_export(dataset, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("one.txt", "two.txt"):
            archive.writestr(name, name * 3)
    assert done("convert", tmp_path / "a.zip", tmp_path / "out", "--verify")["verified"] is True
    with ffrecord.FileReader(tmp_path / "out") as reader:
        assert [sample["key"] for sample in reader.samples([0, 1])] == ["one.txt", "two.txt"]
    done("export", tmp_path / "out", tmp_path / "b.zip", "--verify")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.read("one.txt") == b"one.txt" * 3
    ran = run("convert", tmp_path / "a.zip", tmp_path / "out")
    assert (ran.code, "out" in ran.err) == (3, True)
    assert done("convert", tmp_path / "a.zip", tmp_path / "out", "--append")["samples"] == 2


def test_write_arrays(tmp_path):
    images, kinds = np.arange(60, dtype=np.uint8).reshape(5, 4, 3), np.arange(5)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "kinds.npy", kinds)
    np.savez(tmp_path / "both.npz", images=images, kinds=kinds)
    done("write", tmp_path / "images.npy", tmp_path / "kinds.npy", tmp_path / "a")
    done("write", tmp_path / "both.npz", tmp_path / "b")
    for name in "ab":
        with ffrecord.FileReader(tmp_path / name) as reader:
            sample = reader.sample(2)
        assert np.array_equal(sample["images"], images[2])
        assert sample["kinds"] == 2


@pytest.mark.parametrize("wrong", ["lengths", "pickled", "text", "several", "single"])
def test_wrong_arrays(tmp_path, wrong):
    np.save(tmp_path / "a.npy", np.arange(5))
    if wrong == "lengths":
        np.save(tmp_path / "b.npy", np.arange(6))
    elif wrong == "pickled":
        np.save(tmp_path / "b.npy", np.array([{}] * 5, object), allow_pickle=True)
    elif wrong == "text":
        (tmp_path / "b.npy").write_text("nothing")
    elif wrong == "single":
        np.save(tmp_path / "b.npy", np.array(5))
    else:
        (tmp_path / "b.txt").write_text("a 1")
    second = next(tmp_path.glob("b.*"))
    ran = run("write", tmp_path / "a.npy", second, tmp_path / "out")
    assert ran.code in (2, 3)
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert not (tmp_path / "out").exists()


def test_write_a_folder_and_a_list(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").write_bytes(b"\xff\xd8\xff" + name.encode())
    (tmp_path / "list.txt").write_text("photos/cat/1.jpg 0\nphotos/dog/1.jpg 1\n")
    for source, out in (("photos", "a"), ("list.txt", "b")):
        assert done("write", source, out, cwd=tmp_path)["samples"] == 2
        with ffrecord.FileReader(tmp_path / out) as reader:
            assert [sample["label"] for sample in reader.samples([0, 1])] == [0, 1]


def test_pack_and_unpack(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_text("a")
    (tmp_path / "folder" / "deep" / "b.txt").write_text("bb")
    assert done("pack", tmp_path / "folder", tmp_path / "a.ffr")["files"] == 2
    assert run("pack", tmp_path / "folder", tmp_path / "a.ffr").code == 3
    assert done("pack", tmp_path / "folder", tmp_path / "a.ffr", "--replace")["files"] == 2
    assert done("unpack", tmp_path / "a.ffr", tmp_path / "out") == {
        "path": str(tmp_path / "out"),
        "files": 2,
        "bytes": 3,
    }
    assert (tmp_path / "out" / "deep" / "b.txt").read_text() == "bb"
    done("unpack", tmp_path / "a.ffr", tmp_path / "one", "--only", "a.txt")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["a.txt"]
    ran = run("unpack", tmp_path / "a.ffr", tmp_path / "no", "--max-size", "2B")
    assert (ran.code, (tmp_path / "no").exists()) == (3, False)


def test_recover(tmp_path):
    code = """
import os, signal, sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1])
for i in range(10):
    writer.write_one(bytes([i]) * 100)
writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert children.finished(code, tmp_path / "a.ffr").returncode == -signal.SIGKILL
    assert done("recover", tmp_path / "a.ffr")["samples"] == 10
    with ffrecord.FileReader(tmp_path / "a.ffr") as reader:
        assert reader.read_one(9).tobytes() == b"\t" * 100
    assert run("recover", tmp_path / "a.ffr").code == 3


def test_what_a_worker_met_is_one_line(dataset, tmp_path):
    source = shutil.copytree(dataset, tmp_path / "damaged")
    with open(min(source.glob("*.ffr")), "r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    ran = run("shuffle", source, tmp_path / "out", "-j", "2")
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert "ChecksumError" in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


def test_ctrl_c_leaves_nothing_that_looks_whole(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2_000_000, 1), np.uint8))
    command = [*COMMAND, "write", tmp_path / "a.npy", tmp_path / "out", "--samples-per-shard", "1000000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(3)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().startswith("ffrecord write: interrupted")
    finally:
        process.stderr.close()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("1.5k", 1500), ("2Ki", 2048), ("1GB", 10**9), ("3MiB", 3 << 20)]
)
def test_sizes_as_people_write_them(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "x", "5X", "-", "k"])
def test_no_sizes(tmp_path, text):
    ran = run("convert", tmp_path, tmp_path / "out", f"--shard-size={text}")
    assert (ran.code, "no number of bytes" in ran.err) == (2, True)
