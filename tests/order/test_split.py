"""Which positions are whose, against a twin that deals them out one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.order.split import POLICIES, Split

ORDER = [7, 2, 9, 0, 5, 1, 8, 3, 6, 4]
EVERYBODY = pytest.mark.parametrize("policy", POLICIES)


def dealt(length: int, position: int, world_size: int, policy: str) -> list[list[tuple[int, bool]]]:
    """For each rank (position, is it padding): dealt like cards, one to each rank in turn."""
    cards = [(at, False) for at in range(position, length)]
    over = len(cards) % world_size
    if policy == "drop":
        cards = cards[: len(cards) - over]
    elif policy == "pad" and over:
        cards += [((length + i) % length, True) for i in range(world_size - over)]
    return [cards[rank::world_size] for rank in range(world_size)]


def share(split: Split, length: int, position: int) -> list[tuple[int, bool]]:
    count = split.count(length, position)
    positions, padding = split.positions(length, position, 0, count)
    assert (str(positions.dtype), len(positions)) == ("int64", count)
    return [(at, i >= count - padding) for i, at in enumerate(positions.tolist())]


def shares(length: int, position: int, world_size: int, policy: str) -> list[list[tuple[int, bool]]]:
    return [share(Split(rank, world_size, policy), length, position) for rank in range(world_size)]


def in_words(dealt_out: list[list[tuple[int, bool]]]) -> list[str]:
    return [" ".join(f"({ORDER[at]})" if pad else f"{ORDER[at]}" for at, pad in of_rank) for of_rank in dealt_out]


# The table of docs/ordering.md.
EXAMPLE = [
    (2, "drop", 0, ["7 9 5 8 6", "2 0 1 3 4"]),
    (2, "pad", 0, ["7 9 5 8 6", "2 0 1 3 4"]),
    (2, "uneven", 0, ["7 9 5 8 6", "2 0 1 3 4"]),
    (3, "drop", 0, ["7 0 8", "2 5 3", "9 1 6"]),
    (3, "pad", 0, ["7 0 8 4", "2 5 3 (7)", "9 1 6 (2)"]),
    (3, "uneven", 0, ["7 0 8 4", "2 5 3", "9 1 6"]),
    (3, "drop", 4, ["5 3", "1 6", "8 4"]),
    (3, "pad", 4, ["5 3", "1 6", "8 4"]),
    (3, "uneven", 4, ["5 3", "1 6", "8 4"]),
]


@pytest.mark.parametrize(("world_size", "policy", "position", "expected"), EXAMPLE)
def test_the_worked_example(world_size, policy, position, expected):
    assert in_words(shares(10, position, world_size, policy)) == expected


@EVERYBODY
@given(length=st.integers(1, 40), world_size=st.integers(1, 50), part=st.floats(0, 1))
def test_as_dealt_one_by_one(policy, length, world_size, part):
    position = round(part * length)
    assert shares(length, position, world_size, policy) == dealt(length, position, world_size, policy)


@EVERYBODY
@given(
    length=st.integers(1, 60),
    world_size=st.integers(1, 70),
    position=st.integers(0, 60),
    cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    data=st.data(),
)
def test_a_part_is_cut_from_the_whole(policy, length, world_size, position, cuts, data):
    split = Split(data.draw(st.integers(0, world_size - 1)), world_size, policy)
    position = min(position, length)
    whole = share(split, length, position)
    start, stop = sorted(min(cut, len(whole)) for cut in cuts)
    positions, padding = split.positions(length, position, start, stop)
    assert positions.tolist() == [at for at, _ in whole[start:stop]]
    assert padding == sum(pad for _, pad in whole[start:stop])


@EVERYBODY
@given(length=st.integers(1, 1000), world_size=st.integers(1, 40), part=st.floats(0, 1))
def test_the_first_rank_has_most(policy, length, world_size, part):
    position = round(part * length)
    counts = [Split(rank, world_size, policy).count(length, position) for rank in range(world_size)]
    assert {Split(rank, world_size, policy).most(length, position) for rank in range(world_size)} == {counts[0]}
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= (policy == "uneven")


@EVERYBODY
def test_the_longest_epoch(policy):
    """No number on the way leaves 64 bits."""
    length, world_size = 1 << 62, (1 << 31) - 1
    split = Split(world_size - 1, world_size, policy)
    count = split.count(length)
    positions, padding = split.positions(length, 0, count - 2, count)
    expected = [(world_size - 1 + s * world_size) for s in (count - 2, count - 1)]
    assert positions.tolist() == [at % length for at in expected]
    assert padding == sum(at >= length for at in expected) == (policy == "pad")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 0), ValueError, "world_size is 0, expected 1 <= world_size"),
        ((0, -2), ValueError, "world_size is -2"),
        ((3, 3), ValueError, "rank is 3, expected 0 <= rank < 3"),
        ((-1, 3), ValueError, "rank is -1"),
        ((0, 1, "ragged"), ValueError, "policy is 'ragged', expected one of drop, pad, uneven"),
        ((0, 2.0), TypeError, "world_size is float .*, expected an int"),
        ((None, 2), TypeError, "rank is None.*, expected an int"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Split(*arguments)
