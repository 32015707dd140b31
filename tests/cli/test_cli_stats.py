"""`ffrecord stats`: sizes and columns in numbers, and as a figure."""

import itertools
import json
import os
import shutil

import builders
import numpy as np
import pytest
from cli_runs import run, run_afresh, run_in_terminal

from ffrecord import DatasetWriter
from ffrecord.cli import column_facts, main, record_sizes
from ffrecord.cli.terminal.output import Output
from ffrecord.fields import LabelField, Schema, StrField

SAMPLES = [
    {
        "x": np.arange(i % 3 + 1, dtype=np.float32),
        "label": i % 5,
        "text": "ab" * (i % 2),
        "maybe": None if i % 4 else 1.5,
    }
    for i in range(40)
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "train"
    samples = [{name: value for name, value in sample.items() if name != "maybe"} for sample in SAMPLES]
    DatasetWriter(path, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


def test_facts(tmp_path):
    records = [bytes(size) for size in (0, 10, 10, 20, 1000)]
    path = builders.write_samples(tmp_path / "a.ffr", records)
    found = json.loads(run("stats", path, "--json").out)
    assert found["sizes"]["records"] == 5
    assert found["sizes"]["bytes"] == 1040
    assert found["sizes"]["percentiles"] == {
        name: np.percentile([len(each) for each in records], at) for name, at in record_sizes.PERCENTILES.items()
    }
    assert sum(found["sizes"]["histogram"]) == 5
    assert found["columns"]["data"]["samples"] == 5


def test_columns():
    found = column_facts.describe_columns(SAMPLES)
    assert found["label"] == {
        "kind": "int", "samples": 40, "min": 0.0, "max": 4.0, "mean": 2.0, "std": np.std([0, 1, 2, 3, 4] * 8),
        "distinct": 5, "frequent": {str(i): 8 for i in range(5)},
    }  # fmt: skip
    assert found["x"]["shapes"] == {"[1]": 14, "[2]": 13, "[3]": 13}
    assert (found["x"]["min"], found["x"]["max"]) == (0, 2)
    assert found["text"]["max characters"] == 2
    assert found["maybe"]["missing"] == 30


def test_columns_of_image_files():
    jpeg, png = b"\xff\xd8\xff" + bytes(97), b"\x89PNG\r\n\x1a\n" + bytes(42)
    found = column_facts.describe_columns(
        [{"a": np.frombuffer(each, np.uint8), "b": each} for each in (jpeg, png, jpeg)]
    )
    told = {"kind": "JPEG or PNG", "samples": 3, "min bytes": 50, "max bytes": 100, "mean bytes": 250 / 3}
    assert found == {"a": told, "b": told}


def test_columns_of_image_files_and_arrays():
    flat = np.arange(10, dtype=np.uint8)
    (found,) = column_facts.describe_columns([np.frombuffer(b"GIF8" + bytes(9), np.uint8), flat]).values()
    assert (found["kind"], found["shapes"], found["max"]) == ("GIF or array of uint8", {"[10]": 1}, 9)


def test_classes_have_names(tmp_path):
    names = [f"class {i}" for i in range(8)]
    schema = Schema.of({"label": LabelField(names), "word": StrField()})
    samples = [{"label": i % 8, "word": f"{'a' * 60}{i % 7}"} for i in range(32)]
    DatasetWriter(tmp_path / "a", schema, num_workers=0, progress=False).from_indexed_dataset(samples)
    assert json.loads(run("stats", tmp_path / "a", "--json").out)["columns"]["label"] == {
        "kind": "class", "samples": 32, "classes": 8, "distinct": 8, "frequent": dict.fromkeys(names[:5], 4),
    }  # fmt: skip
    said = run("stats", tmp_path / "a").out
    assert "  frequent         class 0: 4, class 1: 4, class 2: 4, class 3: 4, class 4: 4, and 3 more\n" in said
    assert f"  frequent         {'a' * 39}…: 5, " in said


def test_values_of_all_columns_stand_below_each_other(dataset):
    columns = json.loads(run("stats", dataset, "--json").out)["columns"]
    names = {f"  {name}" for facts in columns.values() for name in facts if name != "kind"}
    left = max(map(len, names)) + 2
    shown = [line for line in run("stats", dataset).out.splitlines() if line[:left].rstrip() in names]
    assert "  samples          40" in shown and "  mean characters  1" in shown
    assert len(shown) == sum(len(facts) - 1 for facts in columns.values())
    assert {len(line[left:]) - len(line[left:].lstrip()) for line in shown} == {0}


def test_columns_of_odd_values():
    found = column_facts.describe_columns(
        [{"a": np.float32("nan"), "b": b"12", "c": True}, {"a": 2.0, "b": b"", "c": False}, 7]
    )
    assert found["a"]["not finite"] == 1
    assert found["b"]["mean bytes"] == 1
    assert found["c"]["true"] == 1
    assert found["value"]["kind"] == "int"


def test_columns_of_arrays_that_are_not_finite():
    odd = np.array([np.nan, np.inf, -np.inf], np.float32)
    found = column_facts.describe_columns([{"a": odd, "b": np.append(odd, [1, 2])}, {"a": odd[:0], "b": np.arange(6)}])
    assert found["a"] == {"kind": "array of float32", "samples": 2, "shapes": {"[3]": 1, "[0]": 1}, "not finite": 3}
    assert [found["b"][name] for name in ("not finite", "min", "max", "mean")] == [3, 0, 5, 2]


@pytest.mark.parametrize(
    "given", [[], [5], [5, 5], [0, 1], [1, 2, 3, 200], [0, 10**9], [*range(13)], [10**6, 10**6 + 50]]
)
def test_bins_hold_every_size(given):
    edges = record_sizes.choose_edges(np.array(given, np.int64))
    assert edges == sorted(set(edges))
    assert len(edges) <= record_sizes.BINS_MOST + 1
    if given:
        assert edges[0] <= min(given) <= max(given) < edges[-1]


@pytest.mark.parametrize("values", [*range(1, 200), 1000, 10_007, 10**9 + 7])
def test_bins_are_of_the_same_width_and_full(values):
    """Or sizes that are spread evenly would look as if they were not."""
    for least, wanted, most in ((6, 12, 16), (12, 40, 120)):
        width, count = record_sizes.choose_bin_width(values, least, wanted, most)
        assert (count - 1) * width < values <= count * width
        assert min(values, least) - 1 <= count <= most
        if values > 200 or values <= most:
            assert count * width - values <= 0.05 * width
    edges = record_sizes.choose_edges(np.array([1000, 1000 + values - 1])) if values < 1000 else [0, 1]
    assert len({stop - start for start, stop in itertools.pairwise(edges)}) == 1


def test_bars_where_there_are_no_blocks(dataset):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = run_afresh("stats", dataset, env=environment)
    assert (ran.code, "\\u" in ran.out, "  ####" in ran.out) == (0, False, True)


class _Many:
    """A store of very many records, of 0 to 99 bytes, and of one of a million."""

    n = 400_000

    def record_sizes(self, indices):
        return np.where(indices == 123_478, 1_000_000, indices % 100)


def test_of_many_records_some_are_kept(monkeypatch):
    monkeypatch.setattr(record_sizes, "KEPT_MOST", 1 << 16)
    monkeypatch.setattr(record_sizes, "CHUNK", 1 << 14)
    found = record_sizes.collect_sizes(_Many(), Output(quiet=True))
    assert (found.count, found.total) == (_Many.n, _Many.n * 99 // 2 - 78 + 1_000_000)
    assert len(found.kept) < 66_000
    assert (found.kept[0], found.kept[-1]) == (0, 1_000_000)
    assert (sum(found.histogram), found.histogram[-1]) == (_Many.n, 1)
    assert found.counts([0, 50, 100, 1_000_001]) == pytest.approx([_Many.n / 2, _Many.n / 2, 1], rel=0.01)
    assert (found.facts()["histogram_of_every"], found.facts()["percentiles_of_every"]) == (found.step, found.step)
    assert found.estimated == "estimated from one in 7 records"


@pytest.mark.parametrize("given", [[7], [7, 9], [5] * 40, [*range(40)]])
@pytest.mark.parametrize("readable", [0, 1, 2, 40])
def test_an_estimate_has_as_many_records_as_there_are(monkeypatch, given, readable):
    class Damaged:
        n = 40

        def record_sizes(self, indices):
            return np.where(indices < readable, np.resize(given, 40)[indices], -1)

    monkeypatch.setattr(record_sizes, "KEPT_MOST", 8)
    found = record_sizes.collect_sizes(Damaged(), Output(quiet=True))
    assert (found.step, found.count, sum(found.histogram)) == (5, readable, readable)


def test_an_estimate_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(3)] * 99)
    monkeypatch.setattr(record_sizes, "KEPT_MOST", 20)
    assert main(["stats", str(path)]) == 0
    assert "bars and percentiles are estimated from one in 5 records\n" in capsys.readouterr().out
    assert main(["stats", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sizes"]
    assert (told["histogram_of_every"], told["histogram"]) == (5, [99])


def test_damaged_samples_are_counted(dataset, tmp_path):
    path = shutil.copytree(dataset, tmp_path / "damaged")
    file = min(path.glob("*.ffr"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    ran = run("stats", path, "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["looked_at"], [each["index"] for each in found["damaged"]]) == (1, 40, [39])
    assert found["columns"]["label"]["samples"] == 39
    ran = run("stats", path)
    assert (ran.code, "1 of 40 samples that were looked at cannot be read:" in ran.out) == (1, True)


def test_records_that_were_cut_off_have_no_size(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [b"", *(bytes(1000) for _ in range(7))])
    os.truncate(path, 4000)
    ran = run("stats", path, "--json", "--samples", "0")
    found = json.loads(ran.out)["sizes"]
    assert (ran.code, found["records"], found["without_size"], found["bytes"]) == (1, 4, 4, 3000)
    assert "\n4 more records cannot be read, or their file was cut" in run("stats", path).out


def test_in_words(dataset):
    ran = run("stats", dataset)
    assert (ran.code, ran.err) == (0, "")
    assert "40 records" in ran.out
    assert "█" in ran.out
    assert "label: int" in ran.out
    assert "  shapes           [1]: 14, [2]: 13, [3]: 13\n" in ran.out
    assert "  frequent         0: 8, 1: 8, 2: 8, 3: 8, 4: 8\n" in ran.out
    ran = run_in_terminal("stats", dataset, columns=40)
    assert ran.code == 0


def test_no_figure(dataset, tmp_path):
    ran = run("stats", dataset, "--plot", tmp_path / "a.txt")
    assert (ran.code, ran.err.count("\n"), "expected a file name that ends in" in ran.err) == (2, 1, True)


def test_an_empty_dataset(tmp_path):
    ran = run("stats", builders.write_samples(tmp_path / "a.ffr", []))
    assert (ran.code, ran.out) == (0, "0 records, 0 B\n")


def test_the_figure_follows_no_link(dataset, tmp_path):
    (tmp_path / "victim.svg").write_text("mine")
    before = {each.name for each in tmp_path.iterdir()}
    assert run("stats", dataset, "--plot", tmp_path / "sizes.svg", "--samples", "0").code == 0
    assert {each.name for each in tmp_path.iterdir()} == before | {"sizes.svg"}
    assert (tmp_path / "victim.svg").read_text() == "mine"
    assert run("stats", dataset, "--plot", tmp_path / "no" / "sizes.svg").code == 3
