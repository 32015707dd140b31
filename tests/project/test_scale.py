"""docs/scale.md shows what benchmarks/scale.py prints, and that is what its models say."""

import dataclasses
import importlib
import re
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from documents import ROOT

BENCHMARKS = ROOT / "benchmarks"
NAMES = ("scale", "scale_world", "scale_opening", "scale_reading", "scale_caching", "scale_waiting")


@pytest.fixture(scope="module")
def program():
    """The modules of the program, which are imported from its directory."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in NAMES:
            del sys.modules[name]


@pytest.fixture
def small(program):
    """Four nodes of two ranks."""
    return program.scale_world.World(samples=20_000, shards=40, nodes=4, ranks=2, batch=10, small=50)


# The page


def test_the_page_shows_what_is_printed(program):
    world = program.scale_world.World()
    page = (ROOT / "docs" / "scale.md").read_text()
    for title, table in program.scale.sections(world).items():
        assert f"\n\n{table}\n\n" in page, f"the table of {title} is another one: python benchmarks/scale.py"
    most = program.scale_opening.most_shards(world) // 1000 * 1000
    assert page.count(f"{most:,} shards") == 2


def test_numbers_of_the_page_that_stand_in_sentences(program):
    world, page = program.scale_world.World(), (ROOT / "docs" / "scale.md").read_text()
    tables = int(world.tables_memory / (12 * world.shard_samples))
    assert f"the {tables} tables that fit" in page
    assert f"{world.world_size * world.batch:,} requests" in page
    assert world.samples * 12 == 120e9 and "all of them: 120 GB" in page


# The program


def test_own_numbers(program, capsys):
    own = {"samples": "2e4", "shards": 40, "nodes": 4, "ranks": 2, "batch": 10, "small": 50, "seed": 3}
    arguments = [f"--{name}={value}" for name, value in own.items()]
    program.scale.main(arguments)
    printed = capsys.readouterr().out
    program.scale.main(arguments)
    assert capsys.readouterr().out == printed
    assert re.findall("## (.*)", printed)[0] == "Assumptions"
    assert "| samples | 20,000 |" in printed and "1 / 4 of the dataset" in printed
    program.scale.main([*arguments[:-1], "--seed=4"])
    assert capsys.readouterr().out != printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", "1e3"], "1000 samples are less than two steps of 8000 ranks"),
        (["--nodes", "0"], "nodes is 0, expected more than 0"),
        (["--shards", "1.5"], "'1.5' is no whole number"),
        (["--shards", "4000000", "--nodes", "8"], "dataset.json"),
        (["--node-gbit", "fast"], "invalid float value"),
    ],
)
def test_wrong_numbers(program, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit:
        program.scale.main(arguments)
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_shards_have_different_sizes_and_all_samples(program, small):
    sizes = np.diff(small.ends(20_000), prepend=0)
    assert sizes.sum() == 20_000 and len(sizes) == 40
    assert 1.1 < sizes.max() / sizes.min() < 4 / 3 + 0.01
    chances = program.scale_world.chances(1, 2, 10_000)
    assert chances.min() >= 0 and chances.max() < 1 and chances.mean() == pytest.approx(0.5, abs=0.02)


# Its models, against plain ones


def test_a_batch_asks_for_what_its_samples_are_in(program, small):
    """Of a placed node by the list of its samples."""
    placed = program.scale_reading.ways(small)[1]
    shard_of = np.repeat(np.arange(40), np.diff(small.ends(20_000), prepend=0))
    cursor = placed.cursor(small, 20_000, small.world_size // 2 + small.ranks // 2, small.batch)
    cursor.set_position(small.steps // 2 * small.world_size * small.batch)
    steps = [step.indices for step in cursor.steps()]
    later = steps[len(steps) // 2 :]
    found = program.scale_reading.asked(small, placed)
    assert found.shards == pytest.approx(np.mean([len(set(shard_of[step])) for step in later]))
    assert found.tables == 0
    assert small.batch * 0.8 < found.requests <= small.batch
    assert set(shard_of[np.concatenate(steps)]) <= set(range(20, 31))
    assert program.scale_reading.shards_of_node(small, placed) in (10.0, 10.25, 10.5, 10.75, 11.0)


def test_neighbours_are_one_request(program, small):
    """Records of a kilobyte are fetched with what lies between."""
    tiny = dataclasses.replace(small, sample_bytes=1000)
    assert program.scale_reading.asked(tiny, program.scale_reading.ways(tiny)[1]).requests < small.batch


def test_tables_that_are_held(program):
    from collections import OrderedDict

    held, missed = OrderedDict(), program.scale_reading._missed
    assert [missed(held, np.array(shards), 2) for shards in ([1, 1, 2], [2], [3, 2], [1], [2, 3])] == [2, 0, 1, 1, 1]


@pytest.mark.parametrize("placed", [False, True])
def test_a_node_reads_its_samples(program, small, placed):
    way = program.scale_reading.Way("", program.scale_reading.Random(), placed)
    epochs = [program.scale_caching.read_by_node(small, way, epoch) for epoch in range(2)]
    assert [len(set(samples)) for samples in epochs] == [500, 500]
    assert (set(epochs[0]) == set(epochs[1]) == set(range(1000, 1500))) is placed
    assert epochs[0] != epochs[1]


def test_caches(program):
    """Of three shards of two samples, by hand."""
    epochs = [([0, 2, 1, 4], [0, 1, 0, 2]), ([0, 1, 2, 3], [0, 0, 1, 1])]
    keeping = program.scale_caching.Keeping(6, 3)
    assert [keeping.epoch(*each) for each in epochs] == [0, 3]
    replacing = program.scale_caching.Replacing(6, 3)
    # 4 makes shard 1 go, with its one sample. Later 0 and 1 are there, 2 makes shard 2 go, and 3 shard 0.
    assert [replacing.epoch(*each) for each in epochs] == [0, 2]


def test_cache_hits_are_as_the_formulas(program):
    world = program.scale_world.World(samples=10**6, shards=100, nodes=10, ranks=2, batch=10, small=200)
    rows = {(row[0], row[1].split(" of ")[0]): row[2:] for row in program.scale_caching.rows(world)}
    for part in (0.25, 0.5, 1):
        hits = [float(cell.rstrip(" %")) for cell in rows["random, placed", f"{part:g} / 10"]]
        assert hits[:4] == pytest.approx([0, 100 * part, 100 * part, 100 * part], abs=0.1)
        assert part == 1 or hits[4] < 100 * part
    for name, most in (("1 / 10", 0.1), (f"all, {program.scale_world.size(10**6 * 110_000)}", 1)):
        hits = [float(cell.rstrip(" %")) / 100 for cell in rows["random", name][:4]]
        assert hits == pytest.approx([min(most, 1 - 0.9**epoch) for epoch in range(4)], abs=0.03)


def test_shares_that_nodes_keep(program, small):
    """By lists of samples."""

    def of(nodes: int, slices: int, node: int) -> set[int]:
        cuts = np.array_split(np.arange(small.samples), slices)
        return set(np.concatenate(cuts[node::nodes]).tolist())

    rows = program.scale_caching.moved(small)
    for (nodes, slices), row in zip([(3, 3), (5, 5), (2, 2), (2, 4)], rows, strict=True):
        own = [of(nodes, slices, node) for node in range(nodes)]
        kept = [len(each & of(4, 4, node)) / len(each) if node < 4 else 0 for node, each in enumerate(own)]
        assert row == [str(nodes), str(slices), program.scale_world.share(statistics.mean(kept))]


def test_times_of_requests(program):
    """The quantiles of what is assumed: so many slow ones, the median, the spread."""
    world = dataclasses.replace(program.scale_world.World(), slow_share=0.02)
    chances = (np.arange(5000) + 0.5) / 5000
    times = np.array([program.scale_waiting.request_ms(world, chance) for chance in chances.tolist()])
    assert (times == world.slow_ms).mean() == pytest.approx(0.02)
    usual = times[times < world.slow_ms]
    assert np.median(usual) == pytest.approx(world.latency_ms, rel=0.01)
    assert np.log(usual).std() == pytest.approx(world.spread, rel=0.01)


def test_the_slowest_of_many_is_drawn_at_once(program, small):
    """As if each of the requests of a step had been drawn."""
    world = dataclasses.replace(small, slow_share=0.002)
    at_once = program.scale_waiting.slowest_ms(world, 1.0)
    draws = program.scale_world.chances(9, 9, 1000 * 80).reshape(1000, 80).max(axis=1)
    each = [program.scale_waiting.request_ms(world, chance) for chance in draws.tolist()]
    slow = [np.mean(np.array(times) == world.slow_ms) for times in (at_once, each)]
    assert slow == pytest.approx([1 - 0.998**80] * 2, abs=0.04)
    assert np.median(at_once) == pytest.approx(np.median(each), rel=0.05)


@pytest.mark.parametrize(
    ("slowest", "transfer", "ahead", "seconds"),
    [
        ([0, 0, 0, 0], 0, 1, [0, 250, 500, 750]),
        ([100, 100, 100, 100], 0, 1, [100, 350, 600, 850]),  # asked for as the step before begins
        ([100, 400, 100, 100], 0, 1, [100, 500, 750, 1000]),
        ([1000, 1000, 1000, 1000], 0, 2, [1000, 1250, 2000, 2250]),
        ([0, 0, 0, 0], 500, 2, [500, 1000, 1500, 2000]),  # bytes of one batch after those of the other
    ],
)
def test_steps_wait(program, slowest, transfer, ahead, seconds):
    found = program.scale_waiting.speed(program.scale_world.World(), slowest, transfer, ahead)
    assert found == pytest.approx(750 / (seconds[-1] - seconds[0]))


def test_files_are_not_left_behind(program, small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert program.scale_opening.document(small, 10) > 1000
    assert list(Path(tmp_path).iterdir()) == []
