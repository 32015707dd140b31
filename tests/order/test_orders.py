"""Orders: which sample is where, for ever; what they refuse; through JSON and back."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_twin import Network, block_order, derive

from ffrecord import order as orders
from ffrecord.errors import ArgumentError, ArgumentTypeError, SampleIndexError
from ffrecord.order import Block, Order, Placed, Random, Sequential, Weighted, sample_seeds
from ffrecord.order.keys import key_of

SMALL = Block(block_size=4, window=3, lanes=2)
ALL = [Sequential(), Random(), Block(), SMALL]
SIZES = st.integers(1, 40)
blocks = st.builds(Block, block_size=SIZES, window=st.integers(1, 8), lanes=st.integers(1, 12))
seeds, epochs = st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 63) - 1)


def whole(order, n, seed=0, epoch=0):
    return order.indices(range(order.length(n)), n, seed, epoch).tolist()


def number(purpose):
    return int.from_bytes(purpose.encode(), "little")


# Which sample is where


@given(st.integers(0, 500), seeds, epochs)
def test_random_as_the_twin(n, seed, epoch):
    twin = Network(n, derive(number("random-1"), n, seed, epoch))
    assert whole(Random(), n, seed, epoch) == [twin(position) for position in range(n)]


@given(blocks, st.integers(0, 700), seeds, epochs)
def test_block_as_the_twin(block, n, seed, epoch):
    shape = (block.block_size, block.window, block.lanes)
    key = derive(number("block-1"), n, seed, epoch, *shape)
    assert whole(block, n, seed, epoch) == block_order(n, *shape, key)


@pytest.mark.parametrize("order", ALL, ids=str)
@pytest.mark.parametrize("n", [*range(14), 255, 256, 257, 20_000])
def test_every_sample_once(order, n):
    assert sorted(whole(order, n, 5, 6)) == list(range(n))


@given(st.sampled_from(ALL), st.integers(1, 1 << 62), st.data())
def test_seek_equals_walk(order, n, data):
    positions = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
    together = order.indices(positions, n, 1, 2).tolist()
    assert together == [order.indices([position], n, 1, 2)[0] for position in positions]
    assert all(0 <= index < n for index in together)


@pytest.mark.parametrize("order", [Random(), Block(block_size=8), SMALL], ids=str)
def test_other_seeds_and_epochs_give_other_orders(order):
    found = [
        tuple(whole(order, 1000, seed, epoch)) for seed in (0, 1, (1 << 64) - 1) for epoch in (0, 1, (1 << 63) - 1)
    ]
    assert len(set(found)) == 9


def test_sequential():
    assert whole(Sequential(), 5, 1, 2) == [0, 1, 2, 3, 4]


def test_positions_are_not_changed():
    positions = np.arange(100)
    for order in ALL:
        order.indices(positions, 100, 0, 0)
    assert positions.tolist() == list(range(100))


# Blocks read runs of neighbours


def blocks_at_once(block, n, positions, seed):
    """How many blocks are begun and not yet done with at the worst moment of reading these positions."""
    numbers = block.indices(positions, n, seed, 0) // block.block_size
    first = {number: i for i, number in reversed(list(enumerate(numbers)))}
    last = {number: i for i, number in enumerate(numbers)}
    change = np.zeros(len(numbers) + 1, np.int64)
    np.add.at(change, list(first.values()), 1)
    np.add.at(change, [i + 1 for i in last.values()], -1)
    return int(change.cumsum().max())


@given(blocks, st.integers(1, 2000), seeds)
def test_at_most_window_blocks_and_two_in_a_window(block, n, seed):
    size, found = block.block_size * block.window, np.array(whole(block, n, seed))
    for lane in range(min(block.lanes, n)):
        of_lane = found[lane :: block.lanes] // block.block_size
        for start in range(0, len(of_lane), size):
            numbers = set(of_lane[start : start + size].tolist())
            short = n % block.block_size and n // block.block_size in numbers
            assert len(numbers) <= block.window + 1 + bool(short)


@pytest.mark.parametrize("world_size, rank", [(1, 0), (2, 1), (4, 0), (4, 3)])
@pytest.mark.parametrize("start", [0, 1, 777])
def test_a_rank_reads_its_own_lanes(world_size, rank, start):
    block, n = Block(block_size=16, window=4, lanes=4), 16 * 4 * 4 * 20 + 5
    positions = range(start + rank, n, world_size)
    own = block.lanes // world_size
    assert blocks_at_once(block, n, positions, 3) <= own * (block.window + 2)


def test_ranks_share_only_the_blocks_at_the_ends_of_lanes():
    block, n = Block(block_size=16, window=4, lanes=4), 16 * 4 * 4 * 20 + 5
    read = [set((block.indices(range(rank, n, 4), n, 3, 0) // 16).tolist()) for rank in range(4)]
    assert sum(map(len, read)) <= len(set.union(*read)) + 3


def test_a_window_of_everything_is_a_shuffle_of_all():
    found = whole(Block(block_size=1000, window=1), 1000)
    assert np.abs(np.array(found) - np.arange(1000)).mean() > 250


# For ever


LAST = (1 << 64) - 1, (1 << 63) - 1
GOLDEN = [
    (Random(), 10, 0, 0, [9, 6, 8, 7, 2, 5, 4]),
    (Random(), 1000, 1, 2, [398, 526, 891, 527, 15, 908, 506]),
    (Random(), 70_000, 3, 4, [26850, 24212, 26567, 65198, 49236, 27312, 3320]),
    (Random(), 10**6, 0, 0, [914215, 739730, 304489, 339011, 199690, 748312, 602555]),
    (Random(), 10**9, LAST[0], 5, [92507342, 13105671, 469219846, 317335877, 735213887, 230092500, 650930910]),
    (
        *(Random(), (1 << 32) + 12345, 42, 7),
        [2503314167, 904545410, 2505799637, 2498839686, 302887789, 2845863819, 721996483],
    ),
    (
        *(Random(), 1 << 62, 42, LAST[1]),
        [
            3152588941101289611,
            2657792098120274606,
            1007796264791990316,
            2410483892500585239,
            4192924723908336219,
            1302233032952727878,
            2538108251267368557,
        ],
    ),
    (SMALL, 30, 0, 0, [17, 23, 26, 27, 21, 18, 15]),
    (SMALL, 1000, 1, 2, [569, 824, 397, 742, 318, 678, 390]),
    (SMALL, 70_001, 3, 4, [5404, 31226, 40356, 25578, 17554, 64229, 8667]),
    (
        *(SMALL, (1 << 32) + 12345, 42, 7),
        [835952615, 1405106673, 1684575995, 2314296890, 3765387001, 538567873, 1405106672],
    ),
    (Block(), 10**6, 0, 0, [56690, 301158, 98370, 225322, 508404, 741329, 899484]),
    (
        *(Block(), 1 << 62, 42, LAST[1]),
        [
            920202371966658415,
            3694748624518099533,
            3994635001225970635,
            2155362541195750740,
            3566775401705910132,
            4260856051547346969,
            207815455828766260,
        ],
    ),
]


@pytest.mark.parametrize("order, n, seed, epoch, expected", GOLDEN)
def test_golden(order, n, seed, epoch, expected):
    """These never change: states of runs name the order and trust it."""
    positions = [0, 1, 2, n // 3, n // 2, n - 2, n - 1]
    assert order.indices(positions, n, seed, epoch).tolist() == expected


@pytest.mark.parametrize(
    "seed, epoch, expected",
    [
        (0, 0, [41330305890421836, 5282419892835018798, 16605158805848553951]),
        (42, 7, [5194737329329331550, 6479301810914951455, 16149876956224215415]),
        (*LAST, [4540815688495828318, 236220110896375407, 3392945533212890590]),
    ],
)
def test_golden_seeds_of_samples(seed, epoch, expected):
    assert sample_seeds(seed, epoch, [0, 1, 1 << 40]).tolist() == expected


# Seeds of samples


@given(seeds, epochs, st.lists(st.integers(0, (1 << 63) - 1), max_size=5))
def test_sample_seeds_as_the_twin(seed, epoch, positions):
    found = sample_seeds(seed, epoch, positions)
    assert found.dtype == np.uint64
    assert found.tolist() == [derive(number("samples"), seed, epoch, position) for position in positions]


def test_sample_seeds_differ():
    found = [sample_seeds(seed, epoch, np.arange(1000)) for seed in range(5) for epoch in range(5)]
    assert len(np.unique(found)) == 25_000


def test_purposes_have_at_most_8_letters():
    assert key_of("random-1") == derive(number("random-1"))
    with pytest.raises(OverflowError):
        key_of("nine-long")


# Through JSON


@pytest.mark.parametrize("order", ALL, ids=str)
def test_there_and_back(order):
    stored = json.loads(json.dumps(order.to_builtins()))
    assert stored["name"] == order.name
    assert orders.from_builtins(stored) == order
    assert pickle.loads(pickle.dumps(order)) == order


def test_builtins_are_what_they_were():
    assert Random().to_builtins() == {"name": "random-1"}
    assert SMALL.to_builtins() == {"name": "block-1", "block_size": 4, "window": 3, "lanes": 2}


@pytest.mark.parametrize(
    "wrong, message",
    [
        (None, "expected a dict with a name"),
        ({}, "expected a dict with a name"),
        ({"name": "random-9"}, "'random-9', expected one of block-1, .*random-1, sequential-1"),
        ({"name": ["random-1"]}, "expected one of"),
        ({"name": "random-1", "more": 1}, "has .*more"),
        ({"name": "block-1", "block_size": 4, "window": 3}, "expected .*lanes"),
        ({"name": "block-1", "block_size": 4.5, "window": 3, "lanes": 1}, "block_size"),
        ({"name": "block-1", "block_size": 4, "window": 0, "lanes": 1}, "window is 0"),
    ],
)
def test_builtins_of_no_order(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        orders.from_builtins(wrong)


def test_parse():
    assert [orders.parse(word) for word in ("sequential", "random", "block")] == [Sequential(), Random(), Block()]
    assert orders.parse(SMALL) is SMALL


def test_parse_refuses():
    with pytest.raises(ArgumentError, match=r"'shuffled', expected one of block, .*random, sequential"):
        orders.parse("shuffled")
    with pytest.raises(ArgumentTypeError, match="order is True, expected a str or an Order"):
        orders.parse(True)


# Bad input


@pytest.mark.parametrize("order", ALL, ids=str)
@pytest.mark.parametrize("n, wrong", [(0, 0), (1, 1), (2, -1), (10, 10), (10, 1 << 62), (1 << 62, 1 << 62)])
def test_out_of_range(order, n, wrong):
    with pytest.raises(SampleIndexError, match=f"position is {wrong}, expected 0 <= position < {n}"):
        order.indices([0] * (n > 0) + [wrong], n, 0, 0)


@pytest.mark.parametrize(
    "n, seed, epoch, message",
    [
        (-1, 0, 0, "n is -1"),
        ((1 << 62) + 1, 0, 0, f"n is {(1 << 62) + 1}, expected 0 <= n < {(1 << 62) + 1}"),
        (10, -1, 0, "seed is -1"),
        (10, 1 << 64, 0, f"seed is {1 << 64}, expected 0 <= seed < {1 << 64}"),
        (10, 0, -1, "epoch is -1"),
        (10, 0, 1 << 63, f"epoch is {1 << 63}, expected 0 <= epoch < {1 << 63}"),
    ],
)
@pytest.mark.parametrize("order", ALL, ids=str)
def test_numbers_out_of_range(order, n, seed, epoch, message):
    with pytest.raises(ArgumentError, match=message):
        order.indices([0], n, seed, epoch)


@pytest.mark.parametrize("n, seed, epoch", [("10", 0, 0), (10.0, 0, 0), (10, 0.5, 0), (10, 0, None)])
def test_no_numbers(n, seed, epoch):
    with pytest.raises(ArgumentTypeError):
        Random().indices([0], n, seed, epoch)


@pytest.mark.parametrize(
    "wrong", [3, [0.5], [[1]], [[1], [1, 2]], ["a"], [1 << 70], np.zeros(2, bool), np.float64([1, 2])]
)
def test_no_positions(wrong):
    with pytest.raises(ArgumentTypeError, match=r"positions is .*, expected int64"):
        Random().indices(wrong, 10, 0, 0)
    with pytest.raises(ArgumentTypeError, match=r"positions is .*, expected int64"):
        sample_seeds(0, 0, wrong)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64, ">i8"])
def test_positions_of_any_kind_of_int(dtype):
    positions = np.arange(10).astype(dtype)[::-2]
    assert Random().indices(positions, 10, 0, 0).tolist() == whole(Random(), 10)[::-2]


def test_positions_beyond_64_bits():
    for call in (lambda wrong: Random().indices(wrong, 10, 0, 0), lambda wrong: sample_seeds(0, 0, wrong)):
        with pytest.raises(SampleIndexError, match=str(1 << 63)):
            call(np.array([1 << 63], np.uint64))


def test_sample_seeds_refuse():
    for arguments in ((-1, 0, [0]), (1 << 64, 0, [0]), (0, -1, [0]), (0, 1 << 63, [0])):
        with pytest.raises(ArgumentError):
            sample_seeds(*arguments)
    with pytest.raises(SampleIndexError, match="-1"):
        sample_seeds(0, 0, [0, -1])


@pytest.mark.parametrize(
    "arguments", [{"block_size": 0}, {"window": 0}, {"lanes": 0}, {"lanes": (1 << 31) + 1}, {"window": 1 << 60}]
)
def test_blocks_out_of_range(arguments):
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        Block(**arguments)


def test_blocks_of_no_number():
    with pytest.raises(ArgumentTypeError, match=r"window is float .*, expected an int"):
        Block(window=2.0)
    assert Block(np.int64(4)) == Block(4)
    assert type(Block(np.int64(4)).block_size) is int


@pytest.mark.parametrize("block", [Block(1 << 62, 1), Block(1, 1 << 62), Block(1 << 31, 1 << 31, 1 << 31)], ids=str)
def test_blocks_larger_than_the_dataset(block):
    assert sorted(whole(block, 1000)) == list(range(1000))
    assert 0 <= block.indices([(1 << 62) - 1], 1 << 62, 0, 0)[0] < 1 << 62


@pytest.mark.parametrize(
    "order",
    [Block(4, 3), Block(4, 3, lanes=2), Placed(3, Block(2, 4)), Placed(2, Block(4, 2, lanes=3))],
    ids=["plain", "lanes", "placed", "placed lanes"],
)
def test_windows_begin_at_multiples(order: Order) -> None:
    """In each stand most samples with their neighbours, but not if it began elsewhere."""
    n, length = 5000, order.window_length
    found = order.indices(np.arange(n), n, 0, 0)

    def together(first: int) -> float:
        windows = [set(found[start : start + length].tolist()) for start in range(first, n, length)]
        return sum(sample + 1 in window for window in windows for sample in window) / n

    assert together(0) > 0.45 and together(0) > 1.2 * together(length // 2)


@pytest.mark.parametrize("order", [Sequential(), Random(), Placed(3), Weighted([1, 2, 3])], ids=lambda o: o.name)
def test_orders_without_windows(order: Order) -> None:
    assert order.window_length == 0
