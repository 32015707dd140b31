"""What it costs that nodes keep their slices, in the numbers of docs/ordering.md."""

import re

import numpy as np
import pytest
from documents import ROOT
from quality_program import quality

from ffrecord.errors import ArgumentError
from ffrecord.order import Placed, Random, Sequential

N, NODES, BATCH = 100_000, 8, 100
PLACED = quality.of_order(Placed(NODES))


def test_batches_of_a_rank_are_those_it_gets():
    """Measured here by means of the positions of one rank after the other."""
    found = quality.measure(PLACED, N, BATCH, epochs=1, ranks=NODES)
    order = PLACED(N, 0, 0)
    batches = [order[rank::NODES][start : start + BATCH] for rank in range(NODES) for start in range(0, 12_500, BATCH)]
    assert found.effective_batch == pytest.approx(
        np.var(np.arange(N)) / np.mean([(batch.mean() - (N - 1) / 2) ** 2 for batch in batches]) / (N - 1) * (N - BATCH)
    )
    together = sum(int((np.diff(np.sort(batch)) == 1).sum()) for batch in batches)
    assert found.together == pytest.approx(together / (N - 1))


def test_of_sorted_data_a_batch_of_a_node_says_next_to_nothing():
    """It is all of one slice: 1 / (1 - 1 / nodes**2) samples' worth, and a little for its own spread."""
    found = quality.measure(PLACED, N, BATCH, ranks=NODES)
    assert found.displacement == pytest.approx(1, abs=0.01)
    assert found.effective_batch == pytest.approx(1 / (1 - 1 / NODES**2), rel=0.01)
    assert found.together == pytest.approx(NODES * (BATCH - 1) / (N - 1), rel=0.1)


def test_of_sorted_data_a_batch_of_all_nodes_says_more_than_by_chance():
    """Equally many samples of each slice: nodes**2 times as much."""
    found = quality.measure(PLACED, N, BATCH * NODES)
    assert found.effective_batch == pytest.approx(BATCH * NODES * NODES**2, rel=0.3)
    assert quality.measure(quality.of_order(Random()), N, BATCH * NODES).effective_batch == pytest.approx(
        BATCH * NODES, rel=0.2
    )


@pytest.mark.parametrize("order", [Placed(NODES), Random(), Sequential()], ids=str)
def test_of_shuffled_data_every_order_is_as_good(order):
    found = quality.measure(quality.stored_shuffled(quality.of_order(order)), N, BATCH, ranks=NODES)
    assert found.effective_batch == pytest.approx(BATCH, rel=0.1)
    assert found.together == pytest.approx((BATCH - 1) / (N - 1), rel=0.2)
    assert found.displacement == pytest.approx(1, abs=0.01)


def test_out_of_range():
    for ranks in (0, 600):
        with pytest.raises(ArgumentError):
            quality.measure(quality.true_shuffle, N, BATCH, ranks=ranks)


def test_the_program(capsys):
    small = ["--n", "20000", "--batch-size", "50", "--epochs", "1"]
    assert quality.main([*small, "--slices", "4", "--ranks", "4", "--shuffled"]) == 0
    found = capsys.readouterr().out
    assert "| placed-1 (slices=4, within=random-1) |" in found and "block" not in found
    for wrong in (["--slices", "0"], ["--ranks", "1000"]):
        with pytest.raises(SystemExit):
            quality.main([*small, *wrong])
        assert "expected" in capsys.readouterr().err


@pytest.mark.long
def test_the_tables_of_the_page(capsys):
    page = (ROOT / "docs" / "ordering.md").read_text()
    shown = re.findall(r": `(--slices [^`]*)` \|", page)
    assert len(shown) == 3
    for arguments in shown:
        assert quality.main(arguments.split()) == 0
        (row,) = re.findall(r"\| placed-1 .* \|\n", capsys.readouterr().out)
        cells = row.strip("|\n ").split(" | ")[1:]
        assert f"`{arguments}` | {' | '.join(cells[1:])} |" in page
