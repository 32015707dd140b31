"""Draws by weight: as often as the weights say, each by itself, the same for ever."""

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_twin import derive

from ffrecord import order as orders
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order import Cursor, Identity, Mixture, Placed, Weighted, balance_classes
from ffrecord.order.weighted import make_aliases

WEIGHTS = st.lists(st.sampled_from([0, 1, 2, 3, 7.5, 1e-6, 1e6]), min_size=1, max_size=40).filter(any)
PURPOSE = int.from_bytes(b"weights", "little")


def twin(weights, position, seed, epoch):
    """The draw by Python's own numbers: a place, and the rest of the hash against what its sample keeps."""
    kept, aliases = make_aliases(np.array(weights, np.float64))
    n = len(weights)
    place, rest = divmod(derive(PURPOSE, seed, epoch, position) * n, 1 << 64)
    keeps = int(Fraction(min(kept[place], 1 - 2.0**-53)) * (1 << 64))
    return place if rest < keeps else int(aliases[place])


@given(WEIGHTS, st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 62))
def test_as_the_twin(weights, seed, epoch):
    order = Weighted(weights, epoch_length=50)
    found = order.indices(range(50), len(weights), seed, epoch).tolist()
    assert found == [twin(weights, position, seed, epoch) for position in range(50)]
    assert all(weights[index] > 0 for index in found)


@given(WEIGHTS)
def test_tables_say_what_the_weights_say(weights):
    """Summed over all places, each sample has its share."""
    array = np.array(weights, np.float64)
    kept, aliases = make_aliases(array)
    shares = kept.copy()
    np.add.at(shares, aliases, 1 - kept)
    assert np.allclose(shares, array * len(array) / array.sum(), rtol=1e-9, atol=1e-9)
    assert (kept >= 0).all() and (kept <= 1).all() and (shares[array == 0] == 0).all()


@pytest.mark.parametrize("exponent", [-1074, -1070, -1023, 0, 900, 1022])
def test_weights_of_any_size(exponent):
    """Sums of the largest numbers are infinite, and quotients of the smallest. Only the ratios of weights count."""
    small = np.array([3, 0, 1, 2, 2])
    kept, aliases = make_aliases(np.ldexp(small.astype(np.float64), exponent - 2 * (exponent > 0)))
    for found, expected in zip((kept, aliases), make_aliases(small.astype(np.float64)), strict=True):
        assert np.array_equal(found, expected)
    assert set(Weighted([1e308, 1e308, 0, 1e308], epoch_length=99).indices(range(99), 4, 0, 0).tolist()) == {0, 1, 3}


@pytest.mark.parametrize("count", [1, 2, 10, 1000])
def test_frequencies(count):
    """As numpy's own draws with the same probabilities: by chi-square, below its 1 - 1e-6 quantile or so."""
    weights = np.random.default_rng(count).random(count) ** 2
    draws = 200_000
    found = Weighted(weights, epoch_length=draws).indices(np.arange(draws), count, 3, 4)
    expected = draws * weights / weights.sum()
    often = expected > 10
    square = (((np.bincount(found, minlength=count) - expected) ** 2)[often] / expected[often]).sum()
    assert square < often.sum() + 5 * np.sqrt(2 * often.sum()) + 10
    drawn = np.random.default_rng(0).choice(count, draws, p=weights / weights.sum())
    assert abs(found.mean() - drawn.mean()) <= 6 * drawn.std() * np.sqrt(2 / draws) + 1e-12


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e308])
def test_units_at_the_ends_of_floats(unit):
    """Sums of such weights are infinite, or too small to divide by. A weight of 0 is never drawn."""
    order, plain = (Weighted([one, one, 0, one], epoch_length=100) for one in (unit, 1.0))
    assert order.indices(range(100), 4, 0, 0).tolist() == plain.indices(range(100), 4, 0, 0).tolist()


def test_draws_stay_the_same():
    """States rely on these numbers."""
    order = Weighted([1, 2, 3, 4, 0, 5], epoch_length=16)
    assert order.indices(range(16), 6, 7, 8).tolist() == [5, 3, 3, 5, 1, 3, 2, 0, 0, 1, 5, 3, 5, 5, 2, 3]


def test_other_epochs_and_seeds_have_other_draws():
    order = Weighted(np.ones(1000))
    found = {tuple(order.indices(range(1000), 1000, seed, epoch).tolist()) for seed in (0, 1) for epoch in (0, 1)}
    assert len(found) == 4


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_goes_on_anywhere(ranks):
    """On any ranks the epoch is the same, from any place."""

    def cursor(rank, size):
        return Cursor(Identity(10), order=Weighted(range(10)), seed=1, rank=rank, world_size=size, policy="uneven")

    whole = np.concatenate([step.indices for step in cursor(0, 1).steps()])
    first = cursor(0, 1)
    steps = first.steps()
    for _ in range(4):
        first.yielded(next(steps))
    state = json.loads(json.dumps(first.state_dict()))
    parts = [cursor(rank, ranks) for rank in range(ranks)]
    found = {}
    for part in parts:
        part.load_state_dict(state)
        for step in part.steps():
            found |= dict(zip(step.positions.tolist(), step.indices.tolist(), strict=True))
    assert [found[position] for position in range(4, 10)] == whole[4:].tolist()


def test_state_knows_the_weights():
    state = Cursor(Identity(3), order=Weighted([1, 2, 3])).state_dict()
    assert len(json.dumps(state)) < 400
    Cursor(Identity(3), order=Weighted((1.0, 2, 3))).load_state_dict(state)
    with pytest.raises(ArgumentError, match="the state belongs to another order"):
        Cursor(Identity(3), order=Weighted([1, 2, 4])).load_state_dict(state)
    with pytest.raises(ArgumentError, match="weighted-1"):
        orders.from_builtins(state["order"])


def test_orders_are_equal_by_their_weights():
    assert Weighted([1, 2]) == Weighted(np.float32([1, 2])) != Weighted([1, 3])
    assert Weighted([1, 2]) != Weighted([1, 2], epoch_length=2) and len({Weighted([1, 2]), Weighted([1, 2])}) == 1
    copy = pickle.loads(pickle.dumps(Weighted([1, 2, 3])))
    assert copy == Weighted([1, 2, 3]) and repr(copy) == "Weighted(3 weights, epoch_length=None)"
    assert copy.indices(range(3), 3, 0, 0).tolist() == Weighted([1, 2, 3]).indices(range(3), 3, 0, 0).tolist()


def test_weights_are_copied():
    weights = np.ones(3)
    order = Weighted(weights)
    weights[0] = 9
    assert order.weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([], ArgumentError, "0 weights, expected one for each sample"),
        ([0, 0], ArgumentError, "all 2 weights are 0, expected at least one > 0"),
        ([1, -1], ArgumentError, r"weights\[1\] is -1.0, expected finite and >= 0"),
        ([1, float("nan")], ArgumentError, r"weights\[1\] is nan"),
        ([float("inf")], ArgumentError, r"weights\[0\] is inf"),
        ("123", ArgumentTypeError, "weights is str .*, expected a number for each sample"),
        (5, ArgumentTypeError, "weights is int .*, expected a number for each sample"),
        ({0: 1}, ArgumentTypeError, "weights is a dict.*, expected a number for each sample"),
        ([[1, 2]], ArgumentTypeError, r"weights is a float64 array of shape \(1, 2\), expected a number for each"),
        (["a"], ArgumentTypeError, "weights is a list of 1, expected numbers"),
        (["1"], ArgumentTypeError, "weights is a list of 1, expected numbers; an array of <U1"),
        ([1j], ArgumentTypeError, "weights is a list of 1, expected numbers; an array of complex128"),
        ([10**400], ArgumentTypeError, "weights is a list of 1, expected numbers; int too large"),
    ],
    ids=str,
)
def test_refused_weights(weights, error, message):
    with pytest.raises(error, match=message):
        Weighted(weights)


def test_refused():
    with pytest.raises(ArgumentError, match="epoch_length is 0"):
        Weighted([1], epoch_length=0)
    with pytest.raises(ArgumentError, match="2 weights for 3 samples, expected one for each"):
        Cursor(Identity(3), order=Weighted([1, 2]))
    with pytest.raises(ArgumentError, match="a weighted order cannot be cut into slices"):
        Placed(2, Weighted([1, 2]))
    with pytest.raises(ArgumentError, match="within is weighted"):
        Mixture([2], within=Weighted([1, 2]))


def test_classes():
    labels = [3, 3, 3, 5, 3, -1, -1]
    weights = balance_classes(labels)
    assert {label: round(sum(weights[np.array(labels) == label]), 9) for label in labels} == {3: 1, 5: 1, -1: 1}
    assert balance_classes(np.array([True, False])).tolist() == [1, 1]
    for labels in ([0.5], ["a"], [[1]]):
        with pytest.raises(ArgumentTypeError, match=r"labels is .*, expected an int for each sample"):
            balance_classes(labels)
    with pytest.raises(ArgumentError, match="0 labels"):
        balance_classes(np.zeros(0, int))
