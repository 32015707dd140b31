"""Orders in slices, and whose positions are whose where nodes have slices, against twins that cut and deal lists."""

import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from order_twin import Network, derive

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order import Block, Mixture, Order, Placed, Placement, Random, Sequential, Split, from_builtins
from ffrecord.order.split import POLICIES

SEEDS, EPOCHS = st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 63) - 1)
WITHIN = st.sampled_from([Random(), Sequential(), Block(3, 2), Block(2, 3, lanes=2)])
NAME = int.from_bytes(b"placed-1", "little")
BEYOND = (10**10, 1 << 40, (1 << 62) - 1, 1 << 62)


def cut(n: int, slices: int) -> list[list[int]]:
    """As numpy cuts: the first ones are longer."""
    return [each.tolist() for each in np.array_split(np.arange(n), slices)]


def twin(n: int, slices: int, within: Order, seed: int, epoch: int) -> list[int]:
    """Every slice is shuffled by itself, then one of each is dealt in turn."""
    piles = []
    for number, samples in enumerate(cut(n, slices)):
        places = within.indices(range(len(samples)), len(samples), derive(NAME, seed, number), epoch)
        piles.append([samples[place] for place in places])
    return [piles[position % slices].pop(0) for position in range(n)]


def whole(order: Order, n: int, seed: int = 0, epoch: int = 0) -> list[int]:
    return order.indices(range(n), n, seed, epoch).tolist()


# The order


@given(st.integers(0, 90), st.integers(1, 100), WITHIN, SEEDS, EPOCHS)
@example(10, 3, Random(), 0, 0)
def test_as_the_twin(n, slices, within, seed, epoch):
    expected = twin(n, slices, within, seed, epoch)
    assert whole(Placed(slices, within), n, seed, epoch) == expected
    assert sorted(expected) == list(range(n))


def test_a_slice_is_the_permutation_of_the_page():
    """Down to the network, with nothing of ours in between."""
    n, slices, seed, epoch = 1000, 7, 5, 6
    found = whole(Placed(slices), n, seed, epoch)
    for number, samples in enumerate(cut(n, slices)):
        key = derive(int.from_bytes(b"random-1", "little"), len(samples), derive(NAME, seed, number), epoch)
        network = Network(len(samples), key)
        assert found[number::slices] == [samples[network(i)] for i in range(len(samples))]


@given(st.integers(1, 200), st.integers(1, 40))
def test_bounds_are_where_slices_are_cut(n, slices):
    bounds = [Placed(slices).bounds(n, number) for number in range(slices)]
    assert [list(range(*each)) for each in bounds] == cut(n, slices)


@pytest.mark.parametrize("n", BEYOND)
@pytest.mark.parametrize("slices", [3, 1000, (1 << 31) - 1])
@given(data=st.data())
def test_any_place_of_any_number_of_samples(n, slices, data):
    """Seeking equals walking, and every position is of the slice it is promised to."""
    order = Placed(slices)
    positions = [*data.draw(st.lists(st.integers(0, n - 1), max_size=8)), 0, n - 1]
    together = order.indices(positions, n, 1, 2).tolist()
    assert together == [order.indices([position], n, 1, 2)[0] for position in positions]
    for position, sample in zip(positions, together, strict=True):
        first, stop = order.bounds(n, position % slices)
        assert first <= sample < stop <= n


@pytest.mark.parametrize("order", [Random(), Block(), Placed(1000), Placed(1000, "block")], ids=str)
@pytest.mark.parametrize("n", [10**10, 1 << 40])
def test_none_comes_twice_in_very_large_epochs(order, n):
    """Of 50,000 positions in a row, from the start and up to the end."""
    for first in (0, n - 50_000):
        found = order.indices(np.arange(first, first + 50_000), n, 7, 1)
        assert len(np.unique(found)) == 50_000
        assert found.min() >= 0 and found.max() < n
    # They come from everywhere but in a block order, which has 64 blocks at a time in each lane.
    if not isinstance(order, Block):
        assert len(np.unique(found // (n // 1000 + 1))) == 1000


def test_other_seeds_epochs_and_slices_are_shuffled_otherwise():
    n = 3000
    orders = {tuple(whole(Placed(3), n, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4
    found = np.array(whole(Placed(3), n)).reshape(-1, 3) % 1000
    same = [(found[:, i] == found[:, j]).mean() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert max(same) < 0.01


@pytest.mark.parametrize(
    ("n", "seed", "epoch", "expected"),
    [
        (10, 0, 0, [1, 4, 8, 7, 9, 3]),
        (10**10, 42, 7, [409322094, 4432341254, 9251107433, 7637654550, 7678639894, 815614961]),
    ],
)
def test_golden(n, seed, epoch, expected):
    """These never change: states of runs name the order and trust it."""
    assert Placed(3).indices([0, 1, 2, n // 2, n - 2, n - 1], n, seed, epoch).tolist() == expected


def test_through_json():
    for order in (Placed(8), Placed(8, Block(4, 2)), Placed(1, "sequential")):
        assert from_builtins(json.loads(json.dumps(order.to_builtins()))) == order
        assert pickle.loads(pickle.dumps(order)) == order
    assert Placed(8).to_builtins() == {"name": "placed-1", "slices": 8, "within": {"name": "random-1"}}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ArgumentError, "slices is 0, expected 1 <= slices < 2147483648"),
        ((1 << 31,), ArgumentError, "slices is 2147483648"),
        ((2.5,), ArgumentTypeError, "slices is float .*, expected an int"),
        ((2, "shuffled"), ArgumentError, "order is 'shuffled', expected one of"),
        ((2, Placed(2)), ArgumentError, "in slices already|into slices already"),
        ((2, Mixture([3, 4])), ArgumentError, "a mixture cannot be cut into slices"),
        ((2, {"name": "random-2"}), ArgumentError, "order is 'random-2', expected one of"),
    ],
)
def test_no_such_order(arguments, error, message):
    with pytest.raises(error, match=message):
        Placed(*arguments)


def test_no_such_slice():
    for number in (-1, 3):
        with pytest.raises(ArgumentError, match=f"number is {number}, expected 0 <= number < 3"):
            Placed(3).bounds(10, number)


# Whose positions are whose


@pytest.mark.parametrize("policy", POLICIES)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 100), st.integers(0, 100))
def test_ranks_of_a_node_have_its_positions(policy, nodes, each, rounds, more):
    """From any step on: all that are no padding, each once, and as many for each rank as without placement."""
    world_size = nodes * each
    position = rounds * world_size
    length = position + more
    taken = []
    for rank in range(world_size):
        split = Split(rank, world_size, policy, Placement.of(rank, world_size, nodes))
        positions, padding = split.positions(length, position, 0, split.count(length, position))
        real = positions[: len(positions) - padding].tolist()
        assert all(at % nodes == rank // each for at in real)
        taken += real
        if policy != "uneven":
            assert len(positions) == Split(rank, world_size, policy).count(length, position)
    assert len(set(taken)) == len(taken)
    left = set(range(position, length)) - set(taken)
    assert not left if policy != "drop" else len(left) == more % world_size


@given(st.integers(1, 40), st.integers(1, 40))
def test_turns_are_a_permutation(nodes, each):
    world_size = nodes * each
    assert {Placement.of(rank, world_size, nodes).turn(world_size) for rank in range(world_size)} == {
        *range(world_size)
    }
    # Whichever way ranks are numbered, such as one on each node first.
    dealt = [Placement(nodes, rank % nodes, rank // nodes) for rank in range(world_size)]
    assert [placement.turn(world_size) for placement in dealt] == list(range(world_size))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Placement.of(0, 10, 4), "world_size is 10, expected a multiple of 4"),
        (lambda: Placement.of(0, 2, 4), "world_size is 2, expected a multiple of 4"),
        (lambda: Placement.of(0, 10, 0), "nodes is 0, expected 1 <= nodes"),
        (lambda: Placement(4, 4, 0), "node is 4, expected 0 <= node < 4"),
        (lambda: Placement(4, 0, -1), "local is -1, expected 0 <= local"),
        (lambda: Split(0, 8, "drop", Placement(4, 0, 2)), "local is 2, expected 0 <= local < 2"),
        (lambda: Split(0, 9, "drop", Placement(4, 0, 0)), "world_size is 9, expected a multiple of 4"),
        (lambda: Placement(4, 0, 0).order(Placed(6)), "the order has 6 slices, expected a multiple of 4"),
        (lambda: Placement(4, 0, 0).order(Mixture([3])), "a mixture cannot be cut into slices"),
    ],
)
def test_no_such_placement(make, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        make()


def test_the_order_of_a_placement():
    placement = Placement(4, 1, 0)
    assert placement.order(Block(4, 2)) == Placed(4, Block(4, 2))
    assert placement.order(Placed(12)) == Placed(12)
