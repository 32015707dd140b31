"""The commands that make things: write, convert, export, merge, pack, unpack, recover."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import children
import numpy as np
import pytest
from cli_runs import COMMAND, run, run_in_terminal
from numbered import done, labels, written

import ffrecord
from ffrecord import DatasetWriter, FileReader, FormatError, convert
from ffrecord.cli.writing_options import size_of
from ffrecord.dataset_writer.progress import Bar
from ffrecord.fields import schema_of


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


def damaged(dataset, path, *indices):
    """A copy in which these samples do not match their checksums."""
    shutil.copytree(dataset, path)
    with ffrecord.FileReader(path) as reader:
        for index in indices:
            name, local = reader.locate(index)
            with open(name, "r+b") as file:
                file.seek(reader.get_offsets(reader.fnames.index(name))[local])
                first = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([first[0] ^ 1]))
    return path


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("name", ["convert", "merge", "shuffle"])
def test_the_good_part_of_a_damaged_dataset(dataset, tmp_path, name, jobs):
    source = damaged(dataset, tmp_path / "damaged", 0, 8, 9)
    out = ["--out", tmp_path / "out"] if name == "merge" else [tmp_path / "out"]
    none = run(name, source, *out, "-j", jobs)
    assert (none.code, none.out, "use --max-skipped N to leave out" in none.err) == (3, "", True)
    few = run(name, source, *out, "--max-skipped", "2", "-j", jobs)
    assert (few.code, few.out, "--max-skipped is 2;" in few.err) == (3, "", True)
    assert not (tmp_path / "out").exists()
    ran = run(name, source, *out, "--max-skipped", "3", "-j", jobs, "--json", "--restart")
    assert ran.code == 1
    facts = json.loads(ran.out)
    assert (facts["samples"], facts["skipped"]) == (17, 3)
    assert sorted(labels(tmp_path / "out")) == sorted({*range(20)} - {0, 8, 9})
    assert all(f"Sample {index}: checksum" in ran.err for index in (0, 8, 9))


def test_to_compare_all_and_to_skip_some(dataset, tmp_path):
    ran = run("convert", dataset, tmp_path / "out", "--verify", "--max-skipped", "3")
    assert (ran.code, ran.out) == (2, "")
    assert "pass only one of them" in ran.err
    assert run("merge", dataset, "--out", tmp_path / "out", "--max-skipped", "-1").code == 2


def test_merge_of_other_columns(dataset, tmp_path):
    DatasetWriter(tmp_path / "other", num_workers=1, progress=False).from_indexed_dataset([{"y": 1}])
    ran = run("merge", dataset, tmp_path / "other", "--out", tmp_path / "both")
    assert (ran.code, ran.out) == (3, "")
    assert f"schema differs from that of {dataset}/PART_00000.ffr: column 'y' is IntField" in ran.err
    assert not (tmp_path / "both").exists()


def test_merge_of_columns_in_another_order(tmp_path):
    """Both orders are shown, and what to do helps."""
    for name, row in (("one", {"k": 0, "x": 1, "y": 2.5}), ("two", {"k": 0, "y": 3.5, "x": 4})):
        DatasetWriter(tmp_path / name, num_workers=0, progress=False).from_indexed_dataset([row])
    ran = run("merge", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both")
    assert (ran.code, ran.out) == (3, "")
    words = "the same columns in another order, from column 1 on 'y', 'x', there 'x', 'y'; ffrecord.convert gives"
    assert f"two/PART_00000.ffr: its schema differs from that of {tmp_path}/one/PART_00000.ffr: {words}" in ran.err
    shards = [tmp_path / name / "PART_00000.ffr" for name in ("one", "two")]
    with FileReader(shards) as reader, pytest.raises(FormatError, match=words):
        reader.extension  # noqa: B018
    with FileReader(tmp_path / "one") as reader:
        convert(tmp_path / "two", tmp_path / "three", fields=schema_of(reader), num_workers=0, progress=False)
    assert run("merge", tmp_path / "one", tmp_path / "three", "--out", tmp_path / "both").code == 0


def test_merge_of_other_formats(dataset, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one", "1")
    ran = run("merge", dataset, tmp_path / "a.zip", "--out", tmp_path / "both")
    assert (ran.code, "a.zip is zip" in ran.err) == (2, True)


def test_nothing_to_write(tmp_path):
    (tmp_path / "empty").mkdir()
    ran = run("write", tmp_path / "empty", tmp_path / "out")
    assert (ran.code, ran.out, (tmp_path / "out").exists()) == (3, "", False)


def test_convert_and_export(dataset, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("one.txt", "two.txt"):
            archive.writestr(name, name * 3)
    assert done("convert", tmp_path / "a.zip", tmp_path / "out", "--verify")["verified"] is True
    with ffrecord.FileReader(tmp_path / "out") as reader:
        assert [sample["key"] for sample in reader.samples([0, 1])] == ["one.txt", "two.txt"]
    ran = run("export", tmp_path / "out", tmp_path / "b.zip", "--verify")
    assert (ran.code, f"{tmp_path / 'b.zip'}: 2 samples, 42 B, 1 shard, verified; " in ran.out) == (0, True)
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


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("wrong", ["cut", "empty", "text", "pickled", "changed", "unclosed", "no array"])
def test_what_is_no_file_of_arrays_is_said_in_our_words(tmp_path, wrong, suffix):
    path = tmp_path / f"a{suffix}"
    array = np.array([{}] * 99, object) if wrong == "pickled" else np.arange(99)
    np.save(path, array) if suffix == ".npy" else np.savez(path, array)
    data, at = path.read_bytes(), {".npy": 9, ".npz": 140}[suffix]  # in the header of the array
    changed = {"cut": data[:-9], "empty": b"", "text": b"nothing", "changed": data[:at] + b"!" + data[at + 1 :]}
    path.write_bytes(changed.get(wrong, data.replace(b"}", b" ") if wrong == "unclosed" else data))
    if wrong == "no array":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "nothing")
    ran = run("write", path, tmp_path / "out")
    said = f"{path}: it is damaged, or not a .npy or .npz file of numbers or text; Python objects cannot be read"
    assert (ran.code, ran.out, ran.err) == (3, "", f"ffrecord write: {said}\n")


def test_a_file_of_arrays_that_is_not_there_is_told(tmp_path):
    ran = run("write", tmp_path / "no.npy", tmp_path / "out")
    assert (ran.code, ran.err) == (3, f"ffrecord write: {tmp_path}/no.npy: No such file or directory\n")


def test_export_to_what_no_suffix_says(dataset, tmp_path):
    ran = run("export", dataset, tmp_path / "a.xyz")
    assert (ran.code, f"{tmp_path}/a.xyz: suffix is '.xyz', expected one of .zip, .tar" in ran.err) == (2, True)
    assert "; or use --to" in ran.err


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
    assert (ran.code, "--max-size" in ran.err, (tmp_path / "no").exists()) == (3, True, False)
    ran = run("unpack", tmp_path / "a.ffr", tmp_path / "no", "--only", "nobody")
    assert (ran.code, ran.err.startswith("ffrecord unpack: --only nobody: ")) == (2, True)


def test_bars(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in "abc":
        (tmp_path / "folder" / name).write_text(name)
    commands = {
        "packing": ["pack", tmp_path / "folder", tmp_path / "a.ffr"],
        "unpacking": ["unpack", tmp_path / "a.ffr", tmp_path / "out"],
        "shards": ["ls", tmp_path / "a.ffr", "--shards"],
    }
    for label, command in commands.items():
        ran = run_in_terminal(*command)
        assert (ran.code, f"{label}: " in ran.out) == (0, True)
    (tmp_path / "out" / "a").unlink()
    ran = run_in_terminal("pack", tmp_path / "out", tmp_path / "b.ffr", "--quiet")
    assert (ran.code, "packing" in ran.out) == (0, False)


def test_a_bar_gets_to_its_end():
    with Bar(total=None, file=io.StringIO()) as bar:
        bar.reach(1, 3)
        assert (bar.n, bar.total) == (1, 3)
        bar.reach(3, 3)
        assert (bar.n, bar.total) == (3, 3)
    with Bar(total=None, disable=True) as bar:
        bar.reach(1, 3)


def waiting(*arguments):
    """A command that has begun to write, and waits."""
    program = """
import sys, time
from ffrecord.folders import folder_pack
from ffrecord.cli import main
from ffrecord.conversion import exporter

def wait(*_):
    print("begun", flush=True)
    time.sleep(60)

folder_pack._write_files = exporter.write_parts = wait
main(sys.argv[1:])
"""
    child = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    return child


@pytest.mark.parametrize(("name", "suffix"), [("pack", ".ffr"), ("export", ".zip")])
def test_what_a_killed_one_has_left_is_named(dataset, tmp_path, name, suffix):
    command = [name, dataset, tmp_path / f"out{suffix}"]
    with waiting(*command) as child:
        (part,) = tmp_path.glob(".out.*.part")
        ran = run(*command)
        child.kill()
    assert (ran.code, ran.err) == (0, "")
    (tmp_path / f"out{suffix}").unlink()
    ran = run(*command)
    said = f"ffrecord {name}: {part} was left by a process that was killed, and can be removed\n"
    assert (ran.code, ran.err, part.exists()) == (0, said, True)


def test_what_can_be_recovered_is_not_named(tmp_path):
    (tmp_path / "folder").mkdir()
    program = (
        "import os, sys, ffrecord; w = ffrecord.FileWriter(sys.argv[1]); w.write_one(b'1'); w.flush(); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a.ffr"], check=False)
    assert [*tmp_path.glob(".a.*.part")]
    assert run("pack", tmp_path / "folder", tmp_path / "a.ffr").err == ""
    assert ffrecord.recover(tmp_path / "a.ffr", replace=True).samples == 1


def test_recover(tmp_path):
    code = """
import os, signal, sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1])
for i in range(10):
    writer.write_one(bytes([i]) * int(sys.argv[2]))
writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert children.finished(code, tmp_path / "a.ffr", 100).returncode == -signal.SIGKILL
    assert done("recover", tmp_path / "a.ffr")["samples"] == 10
    with ffrecord.FileReader(tmp_path / "a.ffr") as reader:
        assert reader.read_one(9).tobytes() == b"\t" * 100
    assert run("recover", tmp_path / "a.ffr").code == 3
    assert children.finished(code, tmp_path / "a.ffr", 101).returncode == -signal.SIGKILL
    ran = run("recover", "a.ffr", cwd=tmp_path)
    assert (ran.code, "use --replace to replace" in ran.err) == (3, True)
    assert run("recover", "a.ffr", "--replace", cwd=tmp_path) == (0, "a.ffr: 10 samples, 1.01 kB\n", "")


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
        while not (tmp_path / ".out.part").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().startswith("ffrecord write: interrupted")
    finally:
        process.stderr.close()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500", 500),
        ("1.5k", 1500),
        ("2Ki", 2048),
        ("1GB", 10**9),
        ("3MiB", 3 << 20),
        ("1TB", 10**12),
        ("5 gb", 5 * 10**9),
    ],
)
def test_sizes_as_people_write_them(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "x", "5X", "-", "k", "inf", "1e400", "nan"])
def test_no_sizes(tmp_path, text):
    ran = run("convert", tmp_path, tmp_path / "out", f"--shard-size={text}")
    assert (ran.code, "expected bytes, such as 500M" in ran.err) == (2, True)
