"""What a shuffle must look like: each check gives how many standard deviations a source is from a true one.

A source is a function (n, seed, epoch) → the order of that epoch, int64 [n]. Checks take fixed seeds, so their answers
never change; what they are worth is shown by shuffles that are not true and that they find.
"""

import math
from collections.abc import Callable

import numpy as np

Source = Callable[[int, int, int], np.ndarray]


def chi_square(observed, expected) -> float:
    """Standard deviations above what chance gives (Wilson and Hilferty's cube root)."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    assert math.isclose(observed.sum(), expected.sum(), rel_tol=1e-9)
    freedom = observed.size - 1
    spread = 2 / (9 * freedom)
    return float((((((observed - expected) ** 2 / expected).sum() / freedom) ** (1 / 3)) - 1 + spread) / spread**0.5)


def even(values, cells: int) -> float:
    """That of values in [0, cells) from a uniform distribution."""
    return chi_square(np.bincount(values, minlength=cells), np.full(cells, len(values) / cells))


def ranks(orders: np.ndarray) -> np.ndarray:
    """The number of each permutation among all of its length."""
    found = np.zeros(len(orders), np.int64)
    n = orders.shape[1]
    for i in range(n):
        found = found * (n - i) + (orders[:, i + 1 :] < orders[:, i : i + 1]).sum(1)
    return found


# Over all permutations


def all_permutations(n: int, count: int) -> Callable[[Source], float]:
    """Every permutation of a few as often as any other."""

    def check(source: Source) -> float:
        orders = np.array([source(n, seed, 0) for seed in range(count)])
        return even(ranks(orders), math.factorial(n))

    return check


def pairs(source: Source) -> float:
    """Where two neighbours go, over seeds."""
    orders = np.array([source(20, seed, 0)[7:9] for seed in range(8_000)])
    cells = orders[:, 0] * 19 + orders[:, 1] - (orders[:, 1] > orders[:, 0])
    return even(cells, 380)


def quadruples(source: Source) -> float:
    """How the corners of a rectangle that our networks work on follow each other, over seeds."""
    orders = np.array([source(100, seed, 0)[[0, 1, 10, 11]] for seed in range(8_000)])
    return even(ranks(orders), 24)


def places(source: Source) -> float:
    """Where one sample goes, over epochs."""
    n = 97
    found = [source(n, 3, epoch)[[0, 48, 96]] for epoch in range(5_000)]
    return max((even(of_one, n) for of_one in np.array(found).T), key=abs)


# Within one order


def distances(source: Source) -> float:
    """How far apart the samples of neighbouring positions are: |d| has the probability 2 (n - |d|) / (n (n - 1))."""
    n, cells = 100_000, 100
    apart = np.abs(np.diff(source(n, 11, 0)))
    edges = np.arange(cells + 1) * (n // cells) + 1
    below = [(2 * n * (edge - 1) - edge * (edge - 1)) / (n * (n - 1)) for edge in edges]
    return chi_square(np.histogram(apart, edges)[0], np.diff(below) * (n - 1))


def neighbours(source: Source) -> float:
    """How many neighbours stay neighbours: 2 (n - 1) / n of an order, as good as independent."""
    n, count = 10_000, 100
    kept = sum(int((np.abs(np.diff(source(n, seed, 0))) == 1).sum()) for seed in range(count))
    expected = count * 2 * (n - 1) / n
    return (kept - expected) / expected**0.5


def hundredths(source: Source) -> float:
    """How many of each hundredth of the samples are in each hundredth of the positions."""
    n, cells = 100_000, 100
    both = source(n, 5, 0) // (n // cells) * cells + np.arange(n) // (n // cells)
    return chi_square(np.bincount(both, minlength=cells**2), np.full(cells**2, n / cells**2))


# Of one order to the next


def fixed_points(change: Callable[[int], tuple[int, int]]) -> Callable[[Source], float]:
    """How many samples keep their position from (0, 0) to `change(i)`, of all such pairs: one of an order."""

    def check(source: Source) -> float:
        n, count = 1000, 1000
        first = source(n, 0, 0)
        kept = sum(int((source(n, *change(i)) == first).sum()) for i in range(count))
        return (kept - count) / count**0.5

    return check


def correlation(change: tuple[int, int]) -> Callable[[Source], float]:
    """Whether samples that come late in one order do so in another."""

    def check(source: Source) -> float:
        n = 100_000
        found = np.corrcoef(source(n, 0, 0), source(n, *change))[0, 1]
        return float(found * (n - 1) ** 0.5)

    return check


CHECKS: dict[str, Callable[[Source], float]] = {
    **{f"all permutations of {n}": all_permutations(n, max(2000, 12 * math.factorial(n))) for n in (2, 3, 4, 5, 6)},
    "pairs": pairs,
    "quadruples": quadruples,
    "places": places,
    "distances": distances,
    "neighbours": neighbours,
    "hundredths": hundredths,
    "fixed points from epoch to epoch": fixed_points(lambda i: (0, i + 1)),
    "fixed points from seed to seed": fixed_points(lambda i: (i + 1, 0)),
    "fixed points from bit to bit": fixed_points(lambda i: (1 << i % 64, 1 << i // 64)),
    "correlation of epochs": correlation((0, 1)),
    "correlation of seeds": correlation((1, 0)),
    "correlation of seed and epoch": correlation((1, 1)),
}
