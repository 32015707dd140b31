"""benchmarks/order_quality.py, and the numbers that it prints."""

import json
import subprocess
import sys

import numpy as np
import pytest
from documents import ROOT
from quality_program import PROGRAM, quality

from ffrecord.errors import ArgumentError
from ffrecord.order import Block, Random, Sequential

N = 100_000


@pytest.mark.parametrize("source", [quality.true_shuffle, quality.of_order(Random())])
def test_of_a_true_shuffle(source):
    found = quality.measure(source, N, 100)
    assert found.displacement == pytest.approx(1, abs=0.01)
    assert found.effective_batch == pytest.approx(100, rel=0.1)
    assert found.together == pytest.approx(99 / (N - 1), rel=0.1)


def test_of_no_shuffle():
    found = quality.measure(quality.of_order(Sequential()), N, 100)
    assert found.displacement == 0
    assert found.effective_batch == pytest.approx(1, abs=0.01)
    assert found.together == pytest.approx((N - 1000) / (N - 1))


@pytest.mark.parametrize("block", [Block(16, 64), Block(64, 16), Block(128, 32, lanes=4)])
def test_of_blocks_is_as_the_page_says(block):
    """A batch of b is worth b / (1 + (b - 1) / (lanes * window)) samples: neighbours tell nothing new."""
    found = quality.measure(quality.of_order(block), N, 64)
    assert found.displacement == pytest.approx(1, abs=0.05)
    assert found.effective_batch == pytest.approx(64 / (1 + 63 / (block.lanes * block.window)), rel=0.1)
    assert found.together == pytest.approx(63 / (block.lanes * block.window * block.block_size), rel=0.1)


def test_of_a_shuffle_buffer():
    found = quality.measure(quality.shuffle_buffer(1000), N, 64)
    assert (found.displacement, found.effective_batch) == (pytest.approx(0.022, rel=0.1), pytest.approx(1, abs=0.1))


@pytest.mark.parametrize("size, n", [(1, 100), (7, 100), (100, 100), (1000, 100)])
def test_a_shuffle_buffer_gives_every_sample_once(size, n):
    given = quality.shuffle_buffer(size)(n, 3, 4)
    assert np.array_equal(np.sort(given), np.arange(n))
    assert all(sample <= position + size for position, sample in enumerate(given))


@pytest.mark.parametrize("n, batch_size, epochs", [(10, 6, 1), (100, 1, 1), (100, 10, 0), (1 << 29, 10, 1)])
def test_out_of_range(n, batch_size, epochs):
    with pytest.raises(ArgumentError):
        quality.measure(quality.true_shuffle, n, batch_size, epochs)


def test_batches_that_are_all_alike():
    """Without variance between them, a batch is worth more than any number."""
    found = quality.measure(lambda n, seed, epoch: np.array([0, 3, 1, 2]), 4, 2, 1)
    assert found.effective_batch == float("inf")


SMALL = ["--n", "20000", "--batch-size", "50", "--epochs", "1"]


def test_table(capsys):
    assert quality.main([*SMALL, "--block", "100,4", "--block", "50"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0].strip("| ") for row in rows[2:]] == [
        "a true shuffle",
        "random-1",
        "block-1 (block_size=100, window=4, lanes=1)",
        "block-1 (block_size=50, window=64, lanes=1)",
        "sequential-1",
        "a shuffle buffer of 10,000",
    ]
    assert {len(row) for row in rows if row[0] != "|---|---|---|---|"} == {4}


def test_json():
    command = [sys.executable, PROGRAM, *SMALL, "--json", "--seed", "3"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (found["n"], found["batch_size"], found["epochs"], found["seed"]) == (20_000, 50, 1, 3)
    assert found["orders"]["random-1"].keys() == {"displacement", "effective_batch", "together"}
    assert found["orders"]["sequential-1"]["displacement"] == 0


@pytest.mark.parametrize(
    "wrong", [["--n", "3"], ["--block", "a"], ["--block", "1,2,3,4"], ["--block", "0"], ["--seed", "-1"]]
)
def test_wrong_arguments(wrong, capsys):
    with pytest.raises(SystemExit) as exit:
        quality.main([*SMALL, *wrong])
    assert exit.value.code == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("number, said", [(1.02, "1.02"), (255.4, "255"), (129_004, "129,000"), (999.7, "1,000")])
def test_numbers_are_as_people_write_them(number, said):
    assert quality.three(number) == said


@pytest.mark.long
def test_the_table_of_the_page(capsys):
    assert quality.main([]) == 0
    assert capsys.readouterr().out in (ROOT / "docs" / "ordering.md").read_text()
