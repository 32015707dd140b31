"""How many rounds a network needs, computed and not sampled: its distance from a true shuffle if its hashes were true.

The distance is of total variation: the most by which the probability of anything can differ.
"""

import math
from itertools import permutations, product

import numpy as np
import pytest
from order_twin import Network, rounds_of

from ffrecord.kernels import _permutation


def rectangle(n: int) -> tuple[int, int]:
    network = Network(n, 0)
    return network.a, network.b


def of_pairs(n: int, rounds: int) -> float:
    """The distance of where two samples go, for the worst two.

    A round makes the difference in one half uniform if the other halves differ, and leaves it if not.
    """
    a, b = rectangle(n)
    true = np.full((a, b), 1 / (a * b - 1))
    true[0, 0] = 0
    worst = 0.0
    for start in ((1, 0), (0, 1), (1, 1)):
        found = np.zeros((a, b))
        found[start] = 1
        for i in range(rounds):
            if i % 2 == 0:
                found[:, 1:] = found[:, 1:].mean(axis=0, keepdims=True)
            else:
                found[1:, :] = found[1:, :].mean(axis=1, keepdims=True)
        worst = max(worst, 0.5 * np.abs(found - true).sum())
    return worst


def steps(a: int, b: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """All that a round can do to the cells of a rectangle: to the left half, to the right half."""
    cells = np.arange(a * b)
    left, right = cells // b, cells % b
    lefts = [(left + np.array(added)[right]) % a * b + right for added in product(range(a), repeat=b)]
    rights = [left * b + (right + np.array(added)[left]) % b for added in product(range(b), repeat=a)]
    return lefts, rights


def walked(cells: np.ndarray, n: int) -> tuple[int, ...]:
    """What a permutation of cells leaves of [0, n)."""
    found = []
    for x in cells[:n].tolist():
        while x >= n:
            x = int(cells[x])
        found.append(x)
    return tuple(found)


def of_all(n: int, rounds: int) -> float:
    """The distance of the whole permutation."""
    a, b = rectangle(n)
    known = np.array(list(permutations(range(a * b))))
    weights = (a * b) ** np.arange(a * b)[::-1]
    by_code = np.argsort(known @ weights)
    codes = (known @ weights)[by_code]
    after = [[by_code[np.searchsorted(codes, step[known] @ weights)] for step in half] for half in steps(a, b)]
    found = np.zeros(len(known))
    found[0] = 1
    for i in range(rounds):
        found = np.mean([found[np.argsort(places)] for places in after[i % 2]], axis=0)
    numbers: dict[tuple[int, ...], int] = {}
    ends = [numbers.setdefault(walked(cells, n), len(numbers)) for cells in known]
    return 0.5 * float(np.abs(np.bincount(ends, found, math.factorial(n)) - 1 / math.factorial(n)).sum())


@pytest.mark.parametrize("n", [1, 2, 15, 16, 255, 256, 65535, 65536, 1 << 62])
def test_the_rule(n):
    assert _permutation.rounds(n) == rounds_of(n)
    assert _permutation.rounds(n) * math.log2(n) >= 128 or n < 4


@pytest.mark.parametrize("n", [4, 10, 15, 16, 60, 255, 256, 3000, 65535, 65536, 10**6])
def test_pairs_go_anywhere(n):
    assert of_pairs(n, rounds_of(n)) < 1e-7
    assert of_pairs(n, 4) > 1e-4


@pytest.mark.parametrize("n, distance", [(2, 0), (3, 1e-15), (4, 1e-15)])
def test_all_permutations_of_few(n, distance):
    assert of_all(n, rounds_of(n)) <= distance + 1e-15
    assert n == 2 or of_all(n, 8) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("n, distance", [(5, 1.4e-8), (6, 3.3e-8), (7, 5.1e-8), (8, 1.4e-7)])
def test_all_permutations_of_some(n, distance):
    """The last of these figures is in docs/ordering.md."""
    assert of_all(n, rounds_of(n)) == pytest.approx(distance, rel=0.05)
