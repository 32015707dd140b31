"""Random orders look like true shuffles, by checks that find shuffles which are not."""

import math

import numpy as np
import pytest
from order_twin import Network
from shuffle_checks import CHECKS, even, ranks

from ffrecord.kernels import _permutation
from ffrecord.order import Block, Random, sample_seeds

FAR = 4.0  # standard deviations


def ours(n, seed, epoch):
    return Random().indices(np.arange(n), n, seed, epoch)


def true(n, seed, epoch):
    """Fisher and Yates's."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def rounds(count):
    """Ours with fewer rounds."""

    def source(n, seed, epoch):
        return np.array([*map(Network(n, _permutation.derive(n, seed, epoch), count), range(n))])

    return source


def affine(n, seed, epoch):
    """i → a * i + b mod n, as in generators of the past."""
    random = np.random.default_rng([seed, epoch])
    a = next(a for a in random.integers(1, n, 100).tolist() if math.gcd(a, n) == 1)
    return (np.arange(n) * a + random.integers(n)) % n


def blocks(n, seed, epoch):
    return Block(block_size=4, window=2).indices(np.arange(n), n, seed, epoch)


def forgetful(n, seed, epoch):
    """A true shuffle that is the same in every epoch and for every fourth seed."""
    return true(n, seed % 4, 0)


def unsown(n, seed, epoch):
    """A true shuffle that is the same for every seed and epoch."""
    return true(n, 0, 0)


def biased(n, seed, epoch):
    """The well-known mistake: exchange each with any of all."""
    random = np.random.default_rng([seed, epoch])
    order = np.arange(n)
    for i, j in enumerate(random.integers(n, size=n).tolist()):
        order[i], order[j] = order[j], order[i]
    return order


NOT_TRUE = {
    "all permutations of 2": [rounds(1), forgetful],
    "all permutations of 3": [rounds(1), rounds(2), biased],
    "all permutations of 4": [rounds(2), rounds(3), rounds(4), affine, biased],
    "all permutations of 5": [rounds(4), rounds(6), affine],
    "all permutations of 6": [rounds(6)],
    "pairs": [blocks, biased],
    "quadruples": [blocks],
    "places": [blocks, biased],
    "distances": [rounds(1), rounds(2), affine, blocks],
    "neighbours": [affine, blocks],
    "hundredths": [rounds(1), rounds(2), affine, blocks],
    "fixed points from epoch to epoch": [forgetful],
    "fixed points from seed to seed": [forgetful],
    "fixed points from bit to bit": [forgetful],
    "correlation of epochs": [forgetful],
    "correlation of seeds": [unsown],
    "correlation of seed and epoch": [unsown],
}


@pytest.mark.parametrize("name", CHECKS)
def test_random_is_as_good_as_a_true_shuffle(name):
    assert abs(CHECKS[name](ours)) < FAR
    assert abs(CHECKS[name](true)) < FAR


@pytest.mark.parametrize("name", CHECKS)
def test_checks_find_shuffles_that_are_not_true(name):
    for source in NOT_TRUE[name]:
        assert abs(CHECKS[name](source)) > FAR, source


def test_far_beyond_32_bits():
    """A run of positions goes everywhere, high and low bits alike, and neither two of them nor two epochs together."""
    n, count, cells = 1 << 40, 200_000, 1000
    found = [Random().indices(np.arange(count), n, 0, epoch) for epoch in (0, 1)]
    for order in found:
        assert abs(even(order // (-(-n // cells)), cells)) < FAR
        assert abs(even(order % 1024, 1024)) < FAR
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1] * count**0.5) < FAR
    assert abs(np.corrcoef(*found)[0, 1] * count**0.5) < FAR


def test_windows_of_a_block_order_are_shuffled_each_by_itself():
    """Where each of five samples goes, over the windows of one order: all ways equally often."""
    block, n = Block(block_size=5, window=1), 5 * 20_000
    inside = block.indices(np.arange(n), n, 0, 0).reshape(-1, 5) % 5
    assert abs(even(ranks(inside), 120)) < FAR


def test_seeds_of_samples_are_uniform():
    for found in (sample_seeds(0, 0, np.arange(100_000)), sample_seeds(1, 7, np.arange(100_000))):
        for shift in (0, 24, 54):
            assert abs(even((found >> np.uint64(shift)).astype(np.int64) & 1023, 1024)) < FAR
    first, second = (sample_seeds(0, epoch, np.arange(100_000)).astype(float) for epoch in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1] * 100_000**0.5) < FAR
