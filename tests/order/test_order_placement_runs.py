"""Runs on nodes that come and go: what all ranks yield is the epoch, whichever way it is cut into slices.

The twin knows no positions: it has the samples left of an epoch on a pile, and deals them to turns.
"""

import json
import tracemalloc
from dataclasses import dataclass
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import ArgumentError
from ffrecord.order import Block, Cursor, Identity, Mixture, Order, Placed, Placement, Random, Sequential
from ffrecord.order.split import POLICIES


@dataclass(frozen=True)
class Cluster:
    """What may change with every start; `nodes` of 0 are ranks without placement, as many as `each`."""

    nodes: int
    each: int
    policy: str
    batch_size: int

    @property
    def world_size(self) -> int:
        return max(1, self.nodes) * self.each

    def placement(self, rank: int) -> Placement | None:
        return Placement.of(rank, self.world_size, self.nodes) if self.nodes else None

    def turn(self, rank: int) -> int:
        return rank % self.each * self.nodes + rank // self.each if self.nodes else rank

    def order(self, within: Order) -> Order:
        return Placed(self.nodes, within) if self.nodes else within

    def cursors(self, samples: int, within: Order, seed: int, state: dict | None) -> list[Cursor]:
        made = []
        for rank in range(self.world_size):
            cursor = Cursor(
                Identity(samples),
                order=within,
                seed=seed,
                batch_size=self.batch_size,
                rank=rank,
                world_size=self.world_size,
                policy=self.policy,
                placement=self.placement(rank),
            )
            if state is not None:
                cursor.load_state_dict(json.loads(json.dumps(state)))
            made.append(cursor)
        return made


CLUSTERS = st.builds(Cluster, st.integers(0, 4), st.integers(1, 3), st.sampled_from(POLICIES), st.integers(1, 5))
WITHIN = st.sampled_from([Random(), Sequential(), Block(3, 2)])


def pile_of(order: Order, samples: int, seed: int, epoch: int) -> list[int]:
    return order.indices(range(samples), samples, seed, epoch).tolist()


def hands_of(cluster: Cluster, pile: list[int]) -> list[list[list[int]]]:
    """For each rank its batches of what is left on the pile, dealt to the turns; padding left out."""
    world_size = cluster.world_size
    cards = pile[: len(pile) - len(pile) % world_size] if cluster.policy == "drop" else pile
    hands = [cards[cluster.turn(rank) :: world_size] for rank in range(world_size)]
    size = cluster.batch_size
    return [[hand[at : at + size] for at in range(0, len(hand), size)] for hand in hands]


def yields(cursors: list[Cursor], steps: int | None) -> tuple[list[list[list[int]]], dict]:
    """For each rank the batches it yields in so many steps, None for all, padding left out; and turn 0's state."""
    found: list[list[list[int]]] = []
    for cursor in cursors:
        batches = []
        for step in cursor.begin():
            if len(batches) == steps:
                break
            assert cursor.yielded(step)
            batches.append(step.indices[: len(step.indices) - step.padding].tolist())
        found.append(batches)
    first = min(cursors, key=lambda cursor: cursor.split.turn)
    return found, first.state_dict()


STARTS = st.lists(st.tuples(CLUSTERS, st.integers(0, 4)), max_size=4)


@given(st.integers(12, 70), WITHIN, st.integers(0, 9), STARTS)
def test_however_nodes_come_and_go(samples, within, seed, starts):
    """An epoch goes on in the slices it began with, whoever reads them, and every sample of it comes once."""
    state: dict | None = None
    began: Order = within
    pile: list[int] = []
    for cluster, steps in [*starts, (Cluster(2, 1, "uneven", 3), None)]:
        if state is None or state["position"] == 0:  # nothing of the epoch was seen yet
            began = cluster.order(within)
            pile = pile_of(began, samples, seed, 0)
        expected = [hand[:steps] for hand in hands_of(cluster, pile)]
        cursors = cluster.cursors(samples, within, seed, state)
        found, state = yields(cursors, steps)
        assert [[batch for batch in batches if batch] for batches in found] == expected
        taken = set(chain(*chain(*expected)))
        assert len(taken) == sum(map(len, chain(*expected)))
        assert taken == set(pile[: len(taken)])
        pile = pile[len(taken) :]
        if state["position"] == samples:
            assert not pile or (cluster.policy == "drop" and len(pile) < cluster.world_size)
            break
        assert state["position"] == samples - len(pile)
        assert state["order"] == (began if state["position"] else cluster.order(within)).to_builtins()
    assert state["position"] == samples
    for rank, cursor in enumerate(cursors):
        assert cursor.finished()
        assert cursor.state_dict()["order"] == cluster.order(within).to_builtins()
        second = pile_of(cluster.order(within), samples, seed, 1)
        assert next(cursor.steps()).indices[0] == second[cluster.turn(rank)]


@pytest.mark.parametrize("n", [10**10, 1 << 40])
def test_a_node_reads_its_slice_in_every_epoch(n):
    """Of a thousand nodes of eight ranks, wherever in whichever epoch, and whatever the ranks have in common."""
    nodes, each, batch_size = 1000, 8, 64
    world_size = nodes * each
    seen: set[int] = set()
    for rank in (8 * 123, 8 * 123 + 7, 7999):
        cursor = Cursor(
            Identity(n),
            seed=1,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            placement=Placement.of(rank, world_size, nodes),
        )
        first, stop = cursor.order.bounds(n, rank // each)
        for epoch in (0, 5):
            cursor.set_epoch(epoch)
            for position in (0, n // 2 // (batch_size * world_size) * batch_size * world_size):
                cursor.set_position(position)
                step = cursor.steps()[3]
                assert first <= step.indices.min() and step.indices.max() < stop
                if epoch == 0:
                    assert not seen & set(step.indices.tolist())
                    seen |= set(step.indices.tolist())


def test_going_on_takes_no_memory_and_no_time_at_any_scale():
    n, world_size = 10**10, 8000
    cursor = Cursor(
        Identity(n), batch_size=512, rank=4242, world_size=world_size, placement=Placement.of(4242, world_size, 1000)
    )
    cursor.set_position(n // 100 * 99)
    state = cursor.state_dict()
    assert len(json.dumps(state)) < 300
    tracemalloc.start()
    try:
        again = Cursor(
            Identity(n), batch_size=512, rank=1, world_size=world_size, placement=Placement.of(1, world_size, 1000)
        )
        again.load_state_dict(state)
        assert len(again.steps()[0].indices) == 512
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# States


def stopped(order: str | Order, placement: Placement | None, world_size: int = 1) -> dict:
    cursor = Cursor(Identity(100), order=order, seed=3, batch_size=10, world_size=world_size, placement=placement)
    assert cursor.yielded(next(cursor.steps()))
    return cursor.state_dict()


def test_placement_may_begin_and_end_within_an_epoch():
    """Each is finished as it began; only orders of other kinds are refused."""
    one, two = Placement(1, 0, 0), Placement(2, 0, 0)
    for then, now in ((None, one), (one, None)):
        cursor = Cursor(Identity(100), order="random", batch_size=100, placement=now)
        cursor.load_state_dict(stopped("random", then))
        order = Random() if then is None else Placed(1)
        assert next(cursor.steps()).indices.tolist() == pile_of(order, 100, 3, 0)[10:]
        assert cursor.state_dict() == stopped("random", then)
    for state in (stopped("block", one), stopped("sequential", None), stopped(Placed(4, "block"), two, 2)):
        with pytest.raises(ArgumentError, match=r"state belongs to another order: .* in the state, .*placed-1.* here"):
            Cursor(Identity(100), order="random", placement=one).load_state_dict(state)


def test_a_state_in_slices_that_cannot_be():
    state = stopped("random", Placement(1, 0, 0))
    for wrong in ({"slices": 0}, {"slices": "two"}, {"pieces": 1}):
        with pytest.raises(ArgumentError, match=r"slices|pieces"):
            Cursor(Identity(100)).load_state_dict({**state, "order": {**state["order"], **wrong}})


def test_appended_shards_and_other_nodes_at_once():
    """The epoch is over the samples of then, in the slices of then."""
    grown = Identity(120, 2, "both", lambda shards: "one" if shards == 1 else "both")
    before = Cursor(Identity(100, 1, "one"), seed=3, batch_size=10, world_size=4, placement=Placement(4, 0, 0))
    assert before.yielded(next(before.steps()))
    now = Cursor(grown, seed=3, batch_size=200, world_size=2, placement=Placement(2, 1, 0))
    now.load_state_dict(before.state_dict(), "finish")
    assert next(now.steps()).indices.tolist() == pile_of(Placed(4), 100, 3, 0)[40:][1::2]
    assert now.state_dict() == before.state_dict()
    now.finished()
    assert next(now.steps()).indices.tolist() == pile_of(Placed(2), 120, 3, 1)[1::2]


def test_more_slices_than_nodes_stay_theirs():
    """Four slices on four nodes, then on two: the order is the same, so nothing has to be finished in another."""
    state = stopped(Placed(4), Placement(4, 0, 0), 4)
    for node in range(2):
        cursor = Cursor(
            Identity(100), order=Placed(4), batch_size=100, rank=node, world_size=2, placement=Placement(2, node, 0)
        )
        cursor.load_state_dict(state)
        assert {sample // 25 % 2 for sample in next(cursor.steps()).indices.tolist()} == {node}


def test_ranks_that_turn_out_otherwise():
    """As where torch.distributed is initialised after the sampler was made."""
    cursor = Cursor(Identity(40), seed=3, batch_size=5)
    cursor.share(3, 4, Placement(2, 1, 1))
    assert next(cursor.steps()).indices.tolist() == pile_of(Placed(2), 40, 3, 0)[3::4][:5]
    assert cursor.yielded(next(cursor.steps()))
    cursor.share(0, 1, None)
    assert next(cursor.steps()).indices.tolist() == pile_of(Placed(2), 40, 3, 0)[20:25]
    cursor.finished()
    assert next(cursor.steps()).indices.tolist() == pile_of(Random(), 40, 3, 1)[:5]


def test_a_mixture_has_no_placement():
    with pytest.raises(ArgumentError, match="a mixture cannot be cut into slices"):
        Cursor(Identity(10), order=Mixture([4, 6]), placement=Placement(1, 0, 0))
