"""Mixtures: shares, evenness, every sample once before any comes again; against a twin that draws one by one."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.order import Block, Mixture, Random, Sequential, from_builtins, mixture, sample_seeds
from ffrecord.order.keys import key_of
from ffrecord.order.mixture import PERIOD


def drawn(order: Mixture, count: int, seed: int = 0) -> list[int]:
    """The first so many draws of all epochs together."""
    n = sum(order.sizes)
    length = order.length(n)
    epochs = [order.indices(np.arange(length), n, seed, epoch) for epoch in range(-(-count // length))]
    return np.concatenate(epochs)[:count].tolist()


def datasets_of(order: Mixture, samples: list[int]) -> list[int]:
    return np.searchsorted(np.cumsum(order.sizes), samples, side="right").tolist()


# The twin


def circle(slots: list[int], key: int) -> list[int]:
    """The dataset of each slot."""
    chances = iter((sample_seeds(key, 0, range(sum(slots))) >> np.uint64(11)).tolist())
    places = [((k + next(chances) / 2**53) / count, i) for i, count in enumerate(slots) for k in range(count)]
    return [i for _, i in sorted(places, key=lambda place: place[0])]


def one_by_one(order: Mixture, slots: list[int], seed: int) -> Iterator[int]:
    """Every draw for ever: around the circle, and counting how often each dataset had its turn."""
    key = key_of("mixture", seed, 0)
    around = circle(slots, key)
    turns = [0] * len(slots)
    cycle = 0
    while True:
        entry = int(sample_seeds(key, 1, [cycle])[0]) % len(around)
        for i in around[entry:] + around[:entry]:
            size = order.sizes[i]
            epoch, position = divmod(turns[i], size)
            turns[i] += 1
            own = order.within.indices([position], size, key_of("mixture", seed, i + 1), epoch)
            yield sum(order.sizes[:i]) + int(own[0])
        cycle += 1


sizes_and_weights = st.lists(
    st.tuples(st.integers(1, 30), st.one_of(st.just(0.0), st.floats(1e-3, 1e3), st.integers(1, 5))),
    min_size=1,
    max_size=6,
).filter(lambda pairs: any(weight for _, weight in pairs))


@given(
    pairs=sizes_and_weights,
    within=st.sampled_from([Sequential(), Random(), Block(4, 2)]),
    length=st.none() | st.integers(1, 50),
    seed=st.integers(0, 2**64 - 1),
)
def test_as_drawn_one_by_one(pairs, within, length, seed):
    sizes, weights = zip(*pairs, strict=True)
    with mock.patch.object(mixture, "PERIOD", 64), mock.patch.object(mixture, "SLOTS_LEAST", 1):
        order = Mixture(sizes, weights, within, length)
        slots = [round(share * 64) for share in order.shares]
        expected = one_by_one(order, slots, seed)
        assert drawn(order, 200, seed) == [next(expected) for _ in range(200)]


@given(data=st.data(), pairs=sizes_and_weights)
def test_seeks(data, pairs):
    """Any positions, in any order, as the whole epoch has them."""
    sizes, weights = zip(*pairs, strict=True)
    order = Mixture(sizes, weights, epoch_length=300_000)
    positions = np.array(data.draw(st.lists(st.integers(0, 299_999), max_size=20)), np.int64)
    epoch = data.draw(st.integers(0, 2**40))
    found = order.indices(positions, sum(sizes), 5, epoch)
    singly = [int(order.indices([position], sum(sizes), 5, epoch)[0]) for position in positions]
    assert found.tolist() == singly


# What it promises


@pytest.mark.parametrize("weights", [None, [3, 1, 0.5], [1, 1e-9, 1], [0, 2, 1]])
@pytest.mark.parametrize("length", [None, 10, 1000])
def test_every_sample_once_before_any_comes_again(weights, length):
    order = Mixture([20, 7, 50], weights, epoch_length=length)
    seen = drawn(order, 5000)
    if weights is None:
        assert [sorted(seen[at : at + 77]) for at in range(0, 4900, 77)] == [list(range(77))] * 64
        return
    for i, (size, start) in enumerate(zip(order.sizes, (0, 20, 27), strict=True)):
        own = [sample - start for sample in seen if start <= sample < start + size]
        rounds = [own[at : at + size] for at in range(0, len(own), size)]
        assert [sorted(each) for each in rounds[:-1]] == [list(range(size))] * (len(rounds) - 1)
        assert all(len(set(each)) == len(each) for each in rounds)
        assert len({str(each) for each in rounds}) >= 0.9 * len(rounds)  # each in an order of its own
        assert bool(own) is (order.shares[i] * 5000 > 1)


def test_in_sequence_within():
    order = Mixture([5, 100], [1, 1], within="sequential")
    seen = drawn(order, 1000)
    assert [sample for sample in seen if sample < 5] == [i % 5 for i in range(sum(sample < 5 for sample in seen))]


def test_without_weights_it_is_the_concatenation():
    """An epoch has every sample once, in the order that one dataset of all would have."""
    order = Mixture([4, 0, 6])
    for epoch in (0, 1, 2**63 - 1):
        assert order.indices(range(10), 10, 3, epoch).tolist() == Random().indices(range(10), 10, 3, epoch).tolist()
    assert order.shares == [0.4, 0.0, 0.6]
    assert Mixture([4, 6], within="sequential").indices(range(10), 10, 0, 7).tolist() == list(range(10))


@given(pairs=sizes_and_weights, seed=st.integers(0, 2**64 - 1), start=st.integers(0, 10**6), count=st.integers(1, 400))
def test_any_stretch_of_draws_has_the_shares(pairs, seed, start, count):
    """Each k-th part of the circle has one of a dataset's k slots, so stretches are off by a few draws at most."""
    sizes, weights = zip(*pairs, strict=True)
    order = Mixture(sizes, weights, epoch_length=10**7)
    found = Counter(datasets_of(order, order.indices(np.arange(start, start + count), sum(sizes), seed, 0).tolist()))
    for i, share in enumerate(order.shares):
        assert abs(found[i] - share * count) <= 4 * (1 + len(sizes) * share)


def test_ranks_fall_into_no_rhythm():
    """Two datasets of the same weight, two ranks: both see both."""
    order = Mixture([10**6, 10**6], [1, 1])
    for stride in (2, 4, 8):
        seen = order.indices(np.arange(0, 10**6, stride), 2 * 10**6, 0, 0)
        share = float((seen < 10**6).mean())
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(len(seen))


def test_cycles_begin_at_different_places():
    order = Mixture([10**6, 10**6], [1, 1], epoch_length=PERIOD)
    cycles = [order.indices(np.arange(PERIOD), 2 * 10**6, 0, epoch) < 10**6 for epoch in range(4)]
    assert [int(each.sum()) for each in cycles] == [PERIOD // 2] * 4
    agree = [float((a == b).mean()) for i, a in enumerate(cycles) for b in cycles[:i]]
    assert all(0.4 < each < 0.6 for each in agree)


def test_a_seed_of_its_own_for_each_dataset():
    order = Mixture([50, 50], [1, 1])
    seen = drawn(order, 400)
    first = [sample for sample in seen if sample < 50][:50]
    second = [sample - 50 for sample in seen if sample >= 50][:50]
    assert first != second
    assert drawn(order, 400, seed=1) != seen


# For ever


def test_golden():
    """The order that states are saved with: it never changes under this name."""
    order = Mixture([10, 3, 200], [5, 1, 4], epoch_length=1000)
    assert order.name == "mixture-1"
    assert order.indices([0, 1, 2, 3, 4, 997, 998, 999], 213, 0, 0).tolist() == GOLDEN[0]
    assert order.indices([0, 1, 2, 3, 4, 997, 998, 999], 213, 2**64 - 1, 10**15).tolist() == GOLDEN[1]


GOLDEN = [[120, 12, 138, 5, 9, 0, 65, 3], [58, 3, 12, 212, 2, 113, 9, 10]]


def test_the_furthest_epoch():
    order = Mixture([10, 30], [1, 1], epoch_length=1 << 40)
    last = (1 << 22) - 1
    assert set(order.indices([0, (1 << 40) - 1], 40, 0, last).tolist()) <= set(range(40))
    with pytest.raises(
        ValueError, match=f"epoch {last + 2} of 1099511627776 draws begins at draw .*, expected at most {1 << 62}"
    ):
        order.indices([0], 40, 0, last + 2)


# Shares


@given(pairs=sizes_and_weights)
def test_shares_are_close_to_the_weights(pairs):
    sizes, weights = zip(*pairs, strict=True)
    shares = Mixture(sizes, weights).shares
    total = sum(Fraction(weight) for weight in weights)
    assert sum(map(Fraction, shares)) == 1
    for share, weight in zip(shares, weights, strict=True):
        exact = Fraction(weight) / total
        # Those whose weight is less than a slot take at most one slot each from the others.
        assert abs(Fraction(share) - exact) <= Fraction(1 + len(sizes), PERIOD)
        assert (share > 0) is (weight > 0)


@pytest.mark.parametrize(
    ("weights", "slots"),
    [
        ([1, 1, 1], [21846, 21845, 21845]),
        ([1e300, 1e-300], [65535, 1]),
        ([5e-324, 5e-324], [32768, 32768]),
        ([1, 0, 3], [16384, 0, 49152]),
        ([1e9, 1, 1, 1e9], [32767, 1, 1, 32767]),
        ([7], [65536]),
    ],
)
def test_slots(weights, slots):
    order = Mixture([1] * len(weights), weights)
    assert [share * PERIOD for share in order.shares] == slots


def test_very_many_datasets_have_slots_enough():
    order = Mixture([1] * 10_000, [1.0] * 9_999 + [1e9])
    assert min(order.shares) > 0
    assert math.isclose(sum(order.shares), 1)
    seen = Counter(datasets_of(order, order.indices(range(1000), 10_000, 0, 0).tolist()))
    assert seen[9_999] > 900


# As data, and wrong arguments


@pytest.mark.parametrize(
    "order",
    [
        Mixture([3, 4]),
        Mixture((3, 4), (1, 0.1), Block(5, 6, lanes=7), 100),
        Mixture(np.array([3, 4]), np.array([1, 2], np.float32), "sequential", np.int32(9)),
    ],
)
def test_through_json(order):
    builtins = json.loads(json.dumps(order.to_builtins()))
    again = from_builtins(builtins)
    assert again == order
    assert hash(again) == hash(order)
    assert again.to_builtins() == order.to_builtins() == builtins
    assert drawn(again, 50) == drawn(order, 50)


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [3, -4]},
        {"sizes": 7},
        {"sizes": [3, 4.5]},
        {"weights": [1, -1]},
        {"weights": ["1", "2"]},
        {"within": {"name": "unknown"}},
        {"within": None},
        {"epoch_length": 0},
        {"more": 1},
    ],
)
def test_wrong_data(change):
    with pytest.raises((ValueError, TypeError)):
        from_builtins({**Mixture([3, 4]).to_builtins(), **change})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), ValueError, r"sum\(sizes\) is 0, expected 1 <= "),
        (([0, 0],), ValueError, r"sum\(sizes\) is 0"),
        (([1 << 62, 1],), ValueError, r"sum\(sizes\) is 4611686018427387905"),
        (([3, -1],), ValueError, r"sizes\[1\] is -1, expected 0 <= "),
        (([3, 1.5],), TypeError, r"sizes\[1\] is float .*, expected an int"),
        ((7,), TypeError, "sizes is int .*, expected a collection of numbers"),
        (("34",), TypeError, "sizes is str .*, expected a collection of numbers"),
        (([3, 4], [1]), ValueError, "weights has 1 numbers, expected 2"),
        (([3, 4], [0, 0.0]), ValueError, "all 2 weights are 0, expected at least one > 0"),
        (([3, 4], [1, -0.5]), ValueError, r"weights\[1\] is -0.5, expected finite and >= 0"),
        (([3, 4], [math.nan, 1]), ValueError, r"weights\[0\] is nan, expected finite"),
        (([3, 4], [math.inf, 1]), ValueError, r"weights\[0\] is inf, expected finite"),
        (([3, 4], [10**400, 1]), ValueError, r"weights\[0\] is inf, expected finite"),
        (([3, 4], [1, "2"]), TypeError, r"weights\[1\] is str .*, expected a number"),
        (([3, 4], [1, None]), TypeError, r"weights\[1\] is None.*, expected a number"),
        (([3, 0], [1, 1]), ValueError, r"weights\[1\] is 1.0 for a dataset of 0 samples, expected 0"),
        (([3, 4], None, Mixture([7])), ValueError, "within is a mixture"),
        (([3, 4], None, "alphabetic"), ValueError, "order is 'alphabetic', expected one of"),
        (([3, 4], None, "random", 0), ValueError, "epoch_length is 0, expected 1 <="),
        (([3, 4], None, "random", 1.5), TypeError, "epoch_length is float 1.5, expected an int"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Mixture(*arguments)


def test_of_other_samples_than_there_are():
    with pytest.raises(ValueError, match="mixture has 7 samples in 2 datasets, the data has 8"):
        Mixture([3, 4]).length(8)
