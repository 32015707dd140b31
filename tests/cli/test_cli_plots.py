"""The figures of `stats` and `bench`: what is in them, and that nothing in them meets or is cut off."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from cli_runs import run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from ffrecord import DatasetWriter
from ffrecord.cli import measure, plots
from ffrecord.cli.measure import Measurement
from ffrecord.cli.record_sizes import BINS_MOST, Sizes, choose_edges

NAME = "a_dataset_of_a_rather_long_name_with_much_to_say"


def sizes_of(kept):
    kept = np.sort(np.array(kept, np.int64))
    edges = choose_edges(kept)
    assert len(edges) <= BINS_MOST + 1
    return Sizes(len(kept), int(kept.sum()), kept, 1, edges)


def way(name, samples_per_second, size, limit, milliseconds):
    quantiles = np.geomspace(milliseconds / 3, milliseconds * 30, 101) / 1e3
    latencies = {f"{at} %": float(quantiles[at]) for at in (50, 90, 99)}
    return Measurement(
        name, samples_per_second, samples_per_second * size, 64 * size, limit, latencies, list(quantiles)
    )


RANDOM = np.random.default_rng(0)
DISTRIBUTIONS = {
    "lognormal": RANDOM.lognormal(9, 2, 5000),
    "narrow": 3096 + RANDOM.integers(0, 3, 1000),
    "equal": [196_608] * 1000,
    "one": [5],
    "zeros": [0] * 10,
    "two": [10, 10_000_000],
    "normal": RANDOM.normal(110_000, 20_000, 5000),
    "many zeros": [0] * 500 + [*range(500)],
    "huge": RANDOM.lognormal(20, 1, 300),
}
WAYS = {
    "fast": [way("cached", 2e5, 12e3, 8.8e9, 0.2), way("cold", 6e4, 12e3, 7.8e8, 3), way("loader", 9e4, 12e3, None, 1)],
    "slow": [way("cached", 3, 5e8, 8.8e9, 2000)],
    "tiny": [way("cached", 2e6, 4, 1e10, 0.01), way("loader", 100, 4, None, 300)],
    "at the limit": [way("cold", 2000, 1e6, 2e9, 30)],
}  # fmt: skip
SWEPT = [way("sizes", 4e9 / (size + 4000), size, 1e10, 1) for size in measure.SWEPT]


@pytest.fixture
def drawn(monkeypatch):
    """The figure that was to be saved."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda made, path: kept.append(made))
    return kept


def texts_of(figure):
    """What is written in a figure → where, in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = [figure._suptitle]
    for axes in figure.axes:
        found += [axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
        for axis in (axes.xaxis, axes.yaxis):
            found += [tick.label1 for tick in axis._update_ticks() if tick.label1.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in found if text.get_text()]
    return boxes, figure.bbox


def check(figure):
    boxes, whole = texts_of(figure)
    for number, (text, box) in enumerate(boxes):
        assert whole.x0 <= box.x0 <= box.x1 <= whole.x1, f"{text!r} is cut off"
        assert whole.y0 <= box.y0 <= box.y1 <= whole.y1, f"{text!r} is cut off"
        for other, its in boxes[number + 1 :]:
            apart = box.x1 <= its.x0 or its.x1 <= box.x0 or box.y1 <= its.y0 or its.y1 <= box.y0
            assert apart, f"{text!r} meets {other!r}"
    return [text for text, _ in boxes]


def said_in(path):
    return {text for each in ET.parse(path).iter("{http://www.w3.org/2000/svg}text") for text in each.itertext()}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_of_sizes(drawn, name):
    plots.plot_sizes(sizes_of(DISTRIBUTIONS[name]), f"some/where/{NAME}", "a.png")
    (figure,) = drawn
    said = check(figure)
    assert figure.get_figwidth() == plots.WIDTH
    labels = [text for text in said if text.endswith("B") and text[0].isdigit()]
    assert len(labels) == len(set(labels)) > 0


def test_bars_hold_every_record():
    for kept in DISTRIBUTIONS.values():
        found = sizes_of(kept)
        edges, _ = plots.choose_bins(found)
        assert np.histogram(np.maximum(found.kept, edges[0]), edges)[0].sum() == found.count


def test_bars_of_an_estimate_hold_every_record_and_say_so(drawn):
    kept = np.sort(np.concatenate([RANDOM.lognormal(9, 1, 5000).astype(np.int64), [0, 10**9]]))
    plots.plot_sizes(Sizes(100_000, int(kept.sum()) * 20, kept, 20, choose_edges(kept)), NAME, "a.png")
    assert "size of a record, of one in 20" in check(drawn[0])
    (bars,) = (patch for patch in drawn[0].axes[0].patches if hasattr(patch, "get_data"))
    heights = bars.get_data().values
    assert (heights.sum(), heights[0], heights[-1]) == (100_000, 1, 1)


def test_sizes_that_are_spread_evenly_look_so():
    for count in (51, 119, 1000):
        found = sizes_of([*range(5000, 5000 + count)] * 3)
        edges, logarithmic = plots.choose_bins(found)
        bars = np.histogram(found.kept, edges)[0]
        assert not logarithmic and bars.min() >= 0.95 * bars.max()


@pytest.mark.parametrize("size", [2, 784])
def test_a_single_size_is_in_the_middle(size):
    edges, _ = plots.choose_bins(sizes_of([size] * 10))
    assert edges[0] + edges[-1] == 2 * size


def test_the_legend_is_not_among_the_lines(drawn):
    plots.plot_measured(WAYS["fast"], NAME, "a.svg")
    (figure,) = drawn
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[-1]
    assert axes.get_legend().get_window_extent().y0 >= axes.bbox.y1 - 2


def test_no_records(drawn):
    plots.plot_sizes(sizes_of([]), NAME, "a.png")
    check(drawn[0])


@pytest.mark.parametrize("swept", [[], SWEPT], ids=["alone", "swept"])
@pytest.mark.parametrize("name", WAYS)
def test_speeds(drawn, name, swept):
    plots.plot_measured(WAYS[name], NAME, "a.svg", swept)
    said = check(drawn[0])
    assert ("this dataset" in said) == bool(swept)
    assert {"bytes per second", "time of a batch, ms", "limit of this machine", "99 %"} <= set(said)
    assert {each.way for each in WAYS[name]} <= set(said)


@pytest.mark.parametrize("name", WAYS)
def test_where_the_dataset_is_among_sizes_is_drawn(tmp_path, name):
    """Text beyond the ends of its axis would be in the figure, but nowhere in what is saved."""
    plots.plot_measured(WAYS[name], NAME, str(tmp_path / "a.svg"), SWEPT)
    assert "this dataset" in said_in(tmp_path / "a.svg")


def test_no_text_is_on_the_line_of_the_limit():
    for bar, limit in [(0.05, 0.1), (0.5, 1), (0.6, 0.05), (0.3, 0.6), (0.9, 0.2), (1, 0.4), (0.4, 0.5), (0.2, 1)]:
        start, inside = plots._place_text(bar, limit)
        assert start >= limit or start + plots.TEXT <= limit
        assert start + plots.TEXT <= (bar if inside else 1.06)


def test_sizes_alone(drawn):
    plots.plot_measured([], NAME, "a.svg", SWEPT)
    assert "size of a sample" in check(drawn[0])


def test_bench_saves_them(tmp_path):
    samples = [{"x": np.full(5000, i, np.float32), "label": i} for i in range(300)]
    DatasetWriter(tmp_path / "train", num_workers=0, progress=False).from_indexed_dataset(samples)
    path = tmp_path / "bench.svg"
    path.write_text("of last week")
    ran = run("bench", tmp_path / "train", "--only", "cached", "--only", "sizes", "--seconds", "0.05", "--plot", path)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[:2] for line in ran.out.splitlines()][-7:][0] == ["1", "kB"]
    said = said_in(path)
    assert {"train", "cached", "this dataset", "limit of this machine", "1 MB", "99 %"} <= said


@pytest.mark.parametrize("name", ["bench", "stats", "view"])
def test_help_says_what_is_replaced(name):
    assert "an existing file is replaced" in " ".join(run(name, "--help").out.split())


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_kinds_of_files(tmp_path, suffix):
    path = tmp_path / f"sizes.{suffix}"
    plots.plot_sizes(sizes_of([1, 2, 3]), "a", str(path))
    data = path.read_bytes()
    assert data.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    if suffix == "png":
        with Image.open(path) as image:
            assert image.width == round(plots.WIDTH * plots.DPI)
            assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_an_svg_fits_light_pages_and_dark_ones(tmp_path):
    plots.plot_sizes(sizes_of([1, 2, 2, 3]), NAME, str(tmp_path / "a.svg"))
    text = (tmp_path / "a.svg").read_text()
    assert "fill: #ffffff" not in text and "#000000" not in text
    assert f"fill: {plots.INK}" in text and "prefers-color-scheme: dark" in text and plots.LIGHT_INK in text
    root = ET.parse(tmp_path / "a.svg").getroot()
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert texts and all(plots.INK in each.attrib["style"] for each in texts)
