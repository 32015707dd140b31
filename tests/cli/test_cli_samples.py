"""`ffrecord ls`, `head` and `get`: what is in a dataset, in words, as JSON and as bytes."""

import argparse
import io
import json
import os
import shutil
import subprocess
import zipfile

import builders
import numpy as np
import pytest
from cli_runs import COMMAND, run, run_in_terminal
from every_format import FORMATS, GOLDEN, SEEDS

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.cli.commands import ls
from ffrecord.cli.format_values import format_value, to_json_value
from ffrecord.cli.terminal.output import Output
from ffrecord.fields import LabelField, Schema
from ffrecord.reading.record_reader import RecordReader

SAMPLES = [
    {"x": np.arange(3, dtype=np.float32) + i, "label": i % 5, "text": f"sample {i}", "blob": bytes(i)}
    for i in range(25)
]
JPEG = b"\xff\xd8\xff\xe0" + bytes(2000)
MEMBERS = {"a/one.txt": b"first", "a/two.bin": bytes(range(256)), "3": b""}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("samples") / "train"
    DatasetWriter(path, samples_per_shard=10, num_workers=1, progress=False).from_indexed_dataset(SAMPLES)
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("samples") / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, data in MEMBERS.items():
            file.writestr(name, data)
    return path


def test_head_in_words(dataset):
    ran = run("head", dataset, "-n", "2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "[0]",
        "  x      float32 [3] [0., 1., 2.]",
        "  label  0",
        "  text   'sample 0'",
        "  blob   0 B",
        "[1]",
        "  x      float32 [3] [1., 2., 3.]",
        "  label  1",
        "  text   'sample 1'",
        "  blob   1 B, 00",
    ]


@pytest.fixture
def photos(tmp_path):
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(JPEG)
    return tmp_path / "photos"


def test_files_have_their_names_and_classes(photos):
    ran = run("head", photos)
    assert ran.out.splitlines()[-4:] == ["[2]", "  key    'dog/1.jpg'", "  image  JPEG, 2 kB", "  label  dog (1)"]
    image = {"kind": "JPEG", "bytes": 2004, "begins": JPEG[:16].hex()}
    told = [{"index": 2, "key": "dog/1.jpg", "image": image, "label": 1}]
    assert json.loads(run("get", photos, "dog/1.jpg", "--json").out) == told


def test_files_are_counted(photos):
    (told,) = json.loads(run("ls", photos, "--shards", "--json").out)
    assert told == {"file": str(photos), "samples": 3, "bytes": 3 * len(JPEG), "wrong": None}


def test_numbers_of_classes_have_names(tmp_path):
    schema = Schema.of({"label": LabelField(["cat", "dog"]), "other": LabelField(["no", "yes"])})
    samples = [{"label": 1, "other": 0}]
    DatasetWriter(tmp_path / "a", schema, num_workers=0, progress=False).from_indexed_dataset(samples)
    assert run("head", tmp_path / "a").out.splitlines() == ["[0]", "  label  dog (1)", "  other  no (0)"]


def test_head_is_ten_or_all(dataset, archive):
    assert len(json.loads(run("head", dataset, "--json").out)) == 10
    assert len(json.loads(run("head", archive, "--json").out)) == 3
    assert run("head", dataset, "-n", "0") == (0, "", "")
    assert run("head", dataset, "-n", "-1").code == 2


def test_get_by_index(dataset):
    found = json.loads(run("get", dataset, "--json", "-1", "3", "7:9", ":1").out)
    assert [each["index"] for each in found] == [24, 3, 7, 8, 0]
    assert [each["text"] for each in found] == [SAMPLES[i]["text"] for i in (24, 3, 7, 8, 0)]
    assert found[0]["x"]["values"] == SAMPLES[24]["x"].tolist()


@pytest.mark.parametrize(
    ("wanted", "indices"), [("-3:-1", [22, 23]), ("-3:", [22, 23, 24]), ("-25:2", [0, 1]), ("-1:3", [])]
)
def test_get_from_the_end(dataset, wanted, indices):
    for arguments in ([wanted, "--json"], ["--json", wanted]):
        ran = run("get", dataset, *arguments)
        assert (ran.code, ran.err, [each["index"] for each in json.loads(ran.out)]) == (0, "", indices)


def test_get_with_a_step(dataset):
    ran = run("get", dataset, "-9:-1:2")
    assert (ran.code, "'-9:-1:2' is not an index, such as 0, -1 or 3:7 (no steps)" in ran.err) == (2, True)
    assert run("get", dataset, "-x").code == 2


def test_get_by_name(archive):
    ran = run("get", archive, "a/one.txt")
    assert ran.out.splitlines() == ["[0]", "  key   'a/one.txt'", "  data  5 B of text, 'first'"]
    # What looks like an index is one.
    assert json.loads(run("get", archive, "1", "--json").out)[0]["key"] == "a/two.bin"


@pytest.mark.parametrize("wanted", ["3", "99", "-26", "nobody", "a/"])
def test_get_what_is_not_there(archive, wanted):
    ran = run("get", archive, wanted)
    assert (ran.code, ran.out) == (2, "")
    assert wanted in ran.err


def test_bytes_as_they_are(archive):
    done = subprocess.run([*COMMAND, "get", archive, "a/two.bin", "0", "--raw"], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (MEMBERS["a/two.bin"] + MEMBERS["a/one.txt"], b"")


def test_a_damaged_sample_is_shown_as_such(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [b"a" * 50, b"b" * 50])
    with open(path, "r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    ran = run("head", path, "--json")
    assert ran.code == 1
    good, bad = json.loads(ran.out)
    assert good["data"]["shape"] == [50]
    assert "checksum" in bad["error"].lower()


@pytest.mark.parametrize("name", ["index", "error", "columns"])
def test_columns_of_our_names_are_told_from_ours(tmp_path, name):
    samples = [{name: 7 + i, "x": i} for i in range(2)]
    DatasetWriter(tmp_path / "a", num_workers=1, progress=False).from_indexed_dataset(samples)
    (file,) = (tmp_path / "a").glob("*.ffr")
    with open(file, "r+b") as damaged:
        damaged.seek(-1, 2)
        damaged.write(b"!")
    good, bad = json.loads(run("get", tmp_path / "a", "0", "1", "--json").out)
    assert good == {"index": 0, "columns": {name: 7, "x": 0}}
    assert [*bad] == ["index", "error"]
    assert bad["index"] == 1


def test_a_column_called_error_is_shown_as_any_other(tmp_path):
    DatasetWriter(tmp_path / "a", num_workers=1, progress=False).from_indexed_dataset([{"error": "none"}])
    assert run("head", tmp_path / "a").out.splitlines() == ["[0]", "  error  'none'"]


def test_ls(archive, dataset):
    assert run("ls", archive).out.splitlines() == [
        "0             5  a/one.txt",
        "1           256  a/two.bin",
        "2             0  3",
    ]
    assert json.loads(run("ls", archive, "--json").out)[1] == {"index": 1, "bytes": 256, "name": "a/two.bin"}
    rows = json.loads(run("ls", dataset, "--shards", "--json").out)
    assert [row["samples"] for row in rows] == [10, 10, 5]


def test_ls_keeps_no_list_of_all(dataset, monkeypatch):
    said = io.StringIO()
    out = Output(json=True, stream=said)

    def records(rest):
        for index in range(3):
            yield {"index": index}
            assert f'"index": {index}' in said.getvalue()

    monkeypatch.setattr(ls, "list_records", records)
    assert ls.run(argparse.Namespace(source=str(dataset), format=None, shards=False, command="ls"), out) == 0
    assert said.getvalue() == '[{"index": 0}, {"index": 1}, {"index": 2}]\n'


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("items", [[], [1], [{"a": [1, 2], "b": float("inf")}, {}, "\n", [[]]]])
def test_items_are_the_document_that_their_list_is(items, tty, monkeypatch):
    monkeypatch.setattr(Output, "tty", tty)
    said = [io.StringIO() for _ in range(2)]
    Output(stream=said[0]).items(iter(items))
    Output(stream=said[1]).data(items)
    assert said[0].getvalue() == said[1].getvalue()


@pytest.mark.parametrize("name", [*FORMATS, *SEEDS])
def test_shards_have_what_is_located_in_them(tmp_path, name):
    if name in FORMATS:
        _, make, options = FORMATS[name]
        path = make(tmp_path)
    else:
        _, file, options, _ = SEEDS[name]
        path = GOLDEN / file
    with ffrecord.open(path, **options) as store:
        wanted = {}
        for index, size in enumerate(store.record_sizes(range(store.n)).tolist()):
            path, _ = store.locate(index)
            path = path if path in store.fnames else store.fnames[0]  # the folder of images, or the list of them
            count, total = wanted.get(path, (0, 0))
            wanted[path] = count + 1, total + size
        assert [*ls.list_shards(store, Output(quiet=True))] == [(path, *found) for path, found in wanted.items()]


def test_shards_of_tables_are_not_asked_sample_by_sample(dataset, monkeypatch):
    monkeypatch.setattr(RecordReader, "locate", None)
    monkeypatch.setattr(ls, "SIZES_AT_ONCE", 4)
    with ffrecord.open(dataset) as store:
        assert [count for _, count, _ in ls.list_shards(store, Output(quiet=True))] == [10, 10, 5]


@pytest.fixture
def torn(dataset, tmp_path):
    """A dataset of which the second of three shards is missing."""
    path = shutil.copytree(dataset, tmp_path / "torn")
    sorted(path.glob("*.ffr"))[1].unlink()
    return path


def test_of_a_torn_dataset_what_is_there_is_shown(torn):
    assert [each["text"] for each in json.loads(run("head", torn, "-n", "2", "--json").out)] == ["sample 0", "sample 1"]
    ran = run("get", torn, "-1", "9:12", "--json")
    found = json.loads(ran.out)
    assert (ran.code, [each["index"] for each in found]) == (1, [24, 9, 10, 11])
    assert [each.get("text") for each in found] == ["sample 24", "sample 9", None, None]
    assert found[2]["error"] == f"Sample 10 is missing: {sorted(torn.glob('*.ffr'))[0].name[:-5]}1.ffr is missing"
    assert run("get", torn, "24", "--raw").code == 0
    assert run("get", torn, "10", "--raw").code == 3
    assert run("get", torn, "25").code == 2


def test_ls_of_a_torn_dataset(torn):
    ran = run("ls", torn, "--shards", "--json")
    rows = json.loads(ran.out)
    assert (ran.code, [row["samples"] for row in rows]) == (1, [10, 10, 5])
    assert [row["wrong"] and row["wrong"][-10:] for row in rows] == [None, "is missing", None]
    ran = run("ls", torn)
    assert (ran.code, ran.err.count("\n"), "about the other 15 of 25 samples" in ran.err) == (1, 1, True)
    assert [int(line.split()[0]) for line in ran.out.splitlines()] == [*range(10), *range(20, 25)]


@pytest.mark.parametrize("missing", [False, True])
def test_other_shards_than_the_listed_ones_are_not_shown(dataset, tmp_path, missing):
    path = shutil.copytree(dataset, tmp_path / "mixed")
    first, second, _ = sorted(path.glob("*.ffr"))
    shutil.copy(first, second)  # as many samples, and of the same size
    if missing:
        first.unlink()
    ran = run("get", path, "10", "20", "--json")
    other, good = json.loads(ran.out)
    assert (ran.code, ran.err, good["text"]) == (1, "", "sample 20")
    assert other["error"].startswith(f"Sample 10 is missing: {second} is ")
    assert "not the shard that dataset.json lists" in other["error"]
    ran = run("head", path, "-n", "21", "--json")
    assert [each.get("text") for each in json.loads(ran.out)] == [
        *(None if missing else f"sample {i}" for i in range(10)),
        *[None] * 10,
        "sample 20",
    ]
    rows = json.loads(run("ls", path, "--shards", "--json").out)
    assert [bool(row["wrong"]) for row in rows] == [missing, True, False]
    assert [int(line.split()[0]) for line in run("ls", path).out.splitlines()] == [
        *([] if missing else range(10)),
        *range(20, 25),
    ]
    stats = run("stats", path, "--json")
    assert (stats.code, len(json.loads(stats.out)["wrong"])) == (1, 1 + missing)


def test_nothing_is_left(torn):
    for path in torn.glob("*.ffr"):
        path.unlink()
    for command in ("head", "ls", "stats", "view"):
        ran = run(command, torn)
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)


def test_ls_stops_when_nobody_reads_on(dataset):
    script = '"$@" ls "$0" | head -n 1; exit "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", script, dataset, *COMMAND], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(" 0 ")
    assert (done.returncode in (0, 141), done.stderr) == (True, "")


def test_lines_end_with_the_terminal(dataset):
    ran = run_in_terminal("head", dataset, "-n", "1", columns=24)
    assert max(map(len, ran.out.splitlines())) == 24


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (JPEG, "JPEG, 2 kB"),
        (b"\x89PNG\r\n\x1a\n", "PNG, 8 B"),
        (np.zeros((4, 5), np.uint8), "uint8 [4, 5], 0 to 0, mean 0"),
        (np.array([], np.int64), "int64 [0] []"),
        (np.array(["a", "b"] * 9), "<U1 [18]"),
        (b"\0" * 40, "40 B, 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 …"),
        ("x" * 100, "'" + "x" * 59 + "…'"),
        ([1, {"a": None}], "0: 1, 1: a: None"),
        (None, "None"),
    ],
)
def test_values_in_words(value, words):
    assert format_value(value) == words


@pytest.mark.parametrize("make", [bytes, bytearray, lambda data: np.frombuffer(data, np.uint8)])
def test_image_files_as_json(make):
    assert to_json_value(make(JPEG)) == {"kind": "JPEG", "bytes": 2004, "begins": JPEG[:16].hex()}


def test_values_as_json():
    value = {"a": np.arange(100), "b": np.float32(1.5), "c": (b"xy", {1}), "d": float("nan")}
    assert json.loads(json.dumps(to_json_value(value)["a"])) == {
        "dtype": "int64",
        "shape": [100],
        "min": 0,
        "max": 99,
        "mean": 49.5,
    }
    assert to_json_value(value)["b"] == 1.5
    assert to_json_value(value)["c"] == [{"bytes": 2, "begins": "7879"}, "{1}"]


def test_what_was_cut_off_has_no_size(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(100)] * 20)
    os.truncate(path, os.path.getsize(path) - 450)
    assert [each["bytes"] for each in json.loads(run("ls", path, "--json").out)] == [100] * 15 + [None] * 5
    assert run("ls", path).out.splitlines()[14:16] == ["14           100", "15             -"]
