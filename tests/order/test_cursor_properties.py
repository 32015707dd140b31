"""Whatever is chosen and wherever a run is stopped, what the ranks yield together is the epoch, in the order promised.

The twin knows no positions: it has the samples left of an epoch on a pile, and deals them out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.order import Block, Cursor, Identity, Mixture, Order, Random, Sequential, Step
from ffrecord.order.split import POLICIES


@dataclass(frozen=True)
class Data:
    """What does not change in a run."""

    samples: int
    order: Order
    seed: int
    filter: list[int] | None

    @property
    def ordered(self) -> int:
        return self.samples if self.filter is None else len(self.filter)

    def pile(self, epoch: int) -> list[int]:
        """The samples of an epoch, in order."""
        positions = np.arange(self.order.length(self.ordered))
        found = self.order.indices(positions, self.ordered, self.seed, epoch).tolist()
        return found if self.filter is None else [self.filter[i] for i in found]


@dataclass(frozen=True)
class Shape:
    """What may change with every start, and how many steps pass before the next; None to the end of the epoch."""

    world_size: int
    policy: str
    batch_size: int
    drop_last: bool
    steps: int | None

    def cursors(self, data: Data, state: dict | None) -> list[Cursor]:
        made = [
            Cursor(
                Identity(data.samples),
                order=data.order,
                seed=data.seed,
                batch_size=self.batch_size,
                drop_last=self.drop_last,
                rank=rank,
                world_size=self.world_size,
                policy=self.policy,
                indices=data.filter,
            )
            for rank in range(self.world_size)
        ]
        for cursor in made if state else ():
            cursor.load_state_dict(json.loads(json.dumps(state)))
        return made


Batch = list[tuple[int, bool]]  # (sample, is it padding)


def dealt(pile: list[int], whole: list[int], shape: Shape) -> list[list[Batch]]:
    """For each rank its batches of what is left on the pile, dealt like cards."""
    cards = [(sample, False) for sample in pile]
    over = len(cards) % shape.world_size
    if shape.policy == "drop":
        cards = cards[: len(cards) - over]
    elif shape.policy == "pad" and over:
        cards += [(whole[i % len(whole)], True) for i in range(shape.world_size - over)]
    hands = [cards[rank :: shape.world_size] for rank in range(shape.world_size)]
    cut = [[hand[at : at + shape.batch_size] for at in range(0, len(hand), shape.batch_size)] for hand in hands]
    return [[batch for batch in hand if len(batch) == shape.batch_size or not shape.drop_last] for hand in cut]


def batch_of(step: Step) -> Batch:
    k = len(step.indices)
    return [(sample, i >= k - step.padding) for i, sample in enumerate(step.indices.tolist())]


@st.composite
def datas(draw: st.DrawFn) -> Data:
    samples = draw(st.integers(1, 60))
    filtered = draw(st.none() | st.lists(st.integers(0, samples - 1), min_size=1, max_size=60))
    ordered = len(filtered) if filtered else samples
    first = draw(st.integers(0, ordered))
    mixture = Mixture(
        [first, ordered - first],
        draw(st.none() | st.just([2.0 * (first > 0), 1.0 * (first < ordered)])),
        epoch_length=draw(st.none() | st.integers(1, 80)),
    )
    order = draw(st.sampled_from([Sequential(), Random(), Block(3, 2), Block(4, 2, lanes=2), mixture]))
    return Data(samples, order, draw(st.integers(0, 2**64 - 1)), filtered)


@st.composite
def shapes(draw: st.DrawFn, length: int) -> Shape:
    policy, drop_last = draw(st.sampled_from(POLICIES)), draw(st.booleans())
    # A run that could never yield anything is refused: there is a test for that elsewhere.
    most = length if policy == "drop" or drop_last else length + 5
    world_size = draw(st.integers(1, min(most, 7)))
    batch_size = draw(st.integers(1, max(1, length // world_size) if drop_last else 12))
    return Shape(world_size, policy, batch_size, drop_last, draw(st.none() | st.integers(0, 4)))


def loop(cursors: list[Cursor], steps: int | None, ahead: bool) -> tuple[list[list[Batch]], dict | None]:
    """What each rank yields in so many steps, and the state then; None if the loops ended."""
    runs = [cursor.begin() for cursor in cursors]
    plans: list[Iterator[Step]] = [iter(list(run)) if ahead else run for run in runs]
    found: list[list[Batch]] = [[] for _ in cursors]
    state = cursors[0].state_dict()
    for _ in range(max(map(len, runs)) if steps is None else steps):
        states = []
        for cursor, plan, batches in zip(cursors, plans, found, strict=True):
            step = next(plan, None)
            if step is not None:
                assert cursor.yielded(step)
                batches.append(batch_of(step))
                states.append(cursor.state_dict())
        # Every rank that has this batch knows the same place.
        assert all(each == states[0] for each in states)
        state = states[0] if states else state
    if steps is None:
        assert all(cursor.finished(run) for cursor, run in zip(cursors, runs, strict=True))
        assert len({(cursor.epoch, cursor.position) for cursor in cursors}) == 1
        return found, None
    return found, state


@given(data=datas(), epoch=st.integers(0, 3), ahead=st.booleans(), draw=st.data())
def test_however_a_run_is_cut_and_shared_out(data, epoch, ahead, draw):
    length = data.order.length(data.ordered)
    whole = data.pile(epoch)
    pile, seen, dropped = list(whole), [], []
    state = {**Cursor(Identity(data.samples), order=data.order, seed=data.seed, indices=data.filter).state_dict()}
    state["epoch"] = epoch
    for number in range(6):
        shape = draw.draw(shapes(length))
        if number == 5:
            shape = Shape(shape.world_size, shape.policy, shape.batch_size, shape.drop_last, None)
        cursors = shape.cursors(data, state)
        expected = dealt(pile, whole, shape)
        taken = [hand[: shape.steps] for hand in expected]
        found, state = loop(cursors, shape.steps, ahead)
        assert found == taken
        real = [sample for hand in found for batch in hand for sample, padding in batch if not padding]
        seen += real
        over = not any(len(hand) > len(got) for hand, got in zip(expected, found, strict=True))
        if state is None or (over and any(found)):
            # What nobody gets counts as done.
            left = without(pile, real)
            dropped += left
            assert not left or shape.policy == "drop" or shape.drop_last
            if state is not None:
                assert state["position"] == length
            break
        assert state["epoch"] == epoch
        # What is behind is exactly the first samples of the pile.
        assert sorted(real) == sorted(pile[: len(real)])
        pile = pile[len(real) :]
        assert state["position"] == length - len(pile)
    assert sorted(seen + dropped) == sorted(whole)


def without(pile: list[int], taken: list[int]) -> list[int]:
    left = list(pile)
    for sample in taken:
        left.remove(sample)
    return left


@given(data=datas(), draw=st.data())
def test_saved_and_loaded_at_every_step_twice_over(data, draw):
    """Against one run without interruption, over two epochs."""
    shape = draw.draw(shapes(data.order.length(data.ordered)))
    uninterrupted = shape.cursors(data, None)
    expected = [[], []]
    for epoch in range(2):
        expected[epoch], _ = loop(uninterrupted, None, ahead=False)
    state = shape.cursors(data, None)[0].state_dict()
    for epoch in range(2):
        found: list[list[Batch]] = [[] for _ in range(shape.world_size)]
        for _ in range(max(map(len, expected[epoch]))):
            for _ in range(2):
                cursors = shape.cursors(data, state)
                state = cursors[0].state_dict()
            batches, state = loop(cursors, 1, ahead=True)
            for rank, got in zip(found, batches, strict=True):
                rank += got
        # The last state was taken inside the loop. It says that the epoch is finished, so the next one comes.
        cursors = shape.cursors(data, state)
        assert [(cursor.epoch, cursor.position) for cursor in cursors] == [(epoch + 1, 0)] * len(cursors)
        assert found == expected[epoch]


@given(data=datas(), workers=st.integers(1, 4), draw=st.data())
def test_workers_take_whole_batches_in_turn(data, workers, draw):
    """Each plans its own steps by itself; put together again they are the run."""
    shape = draw.draw(shapes(data.order.length(data.ordered)))
    for cursor, other in zip(shape.cursors(data, None), shape.cursors(data, None), strict=True):
        run = other.steps()
        of_worker = [[batch_of(run[j]) for j in range(k, len(run), workers)] for k in range(workers)]
        assert [batch_of(step) for step in cursor.steps()] == [of_worker[j % workers].pop(0) for j in range(len(run))]
