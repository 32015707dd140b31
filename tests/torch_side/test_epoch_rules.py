"""Which batches the next loop has, whatever was done before: every loader against a slow, obvious twin.

docs/states.md has the rules in words.
"""

import json
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_builders import WORKERS_ANYWHERE, Ints

from ffrecord.torch import BatchSampler, DataLoader, Loader, Sampler

pytestmark = WORKERS_ANYWHERE

BATCH, BATCHES = 4, 6  # of 23 samples


@dataclass
class Twin:
    """A place in words: an epoch, how many of its batches are done, and how that came about."""

    epoch: int = 0
    done: int = 0
    how: str = "loaded"  # or "left" by a loop, "pinned" by set_epoch, "again"

    def start(self) -> tuple[int, int]:
        """Where the next loop begins."""
        if self.how == "again":
            return self.epoch, 0
        if self.how == "left" or (self.how == "loaded" and self.done == BATCHES):
            return self.epoch + 1, 0
        return self.epoch, self.done

    def loop(self, count: int) -> list[tuple[int, int]]:
        """(epoch, number) of the batches of a loop that is left after so many, or ends."""
        if not count:
            return []
        epoch, done = self.start()
        found = [(epoch, number) for number in range(done, BATCHES)][:count]
        if len(found) < count:
            self.epoch, self.done, self.how = epoch + 1, 0, "loaded"
        else:
            self.epoch, self.done, self.how = epoch, done + count, "left"
        return found

    def save(self) -> tuple[int, int]:
        return self.epoch, 0 if self.how == "again" else self.done

    def load(self, state: tuple[int, int]) -> None:
        (self.epoch, self.done), self.how = state, "loaded"

    def tell(self, epoch: int) -> None:
        """As trainers do."""
        if epoch == self.epoch and self.how in ("left", "again"):
            self.how = "again"
        else:
            self.pin(epoch)

    def pin(self, epoch: int) -> None:
        """As `Loader.set_epoch` does."""
        self.done = self.done if epoch == self.epoch and self.how != "again" else 0
        self.epoch, self.how = epoch, "pinned"


epochs = st.integers(0, 2)
counts = st.sampled_from([0, 1, 2, BATCHES - 1, BATCHES, BATCHES + 1])
steps = st.one_of(
    st.tuples(st.just("loop"), counts),
    st.tuples(st.just("tell"), epochs),
    st.tuples(st.just("loop told late"), epochs, counts),
    st.just(("save",)),
    st.tuples(st.just("load"), st.integers(0, 3)),
    st.tuples(st.just("load elsewhere"), st.integers(0, 3)),
)


@cache
def orders_of(path: str) -> list[list[list[int]]]:
    """What the batches of each epoch are."""
    dataset = Ints(path)
    return [[dataset[indices] for indices in BatchSampler(23, BATCH, seed=5, epoch=epoch)] for epoch in range(60)]


def make(kind: str, path: str, workers: int = 0) -> tuple[Any, Any]:
    """A loader, and the object that a trainer tells its epochs."""
    if kind == "Loader":
        loader = Loader(path, BATCH, seed=5, transform=bytes, num_threads=1)
        return loader, loader.sampler
    dataset = Ints(path)
    options: dict[str, Any] = {"num_workers": workers, "skippable": False}
    if kind == "persistent":
        options["persistent_workers"] = True
    if kind == "BatchSampler":
        batches = BatchSampler(dataset, BATCH, seed=5)
        return DataLoader(dataset, batch_sampler=batches, **options), batches.sampler
    sampler = Sampler(dataset, seed=5)
    return DataLoader(dataset, BATCH, sampler=sampler, **options), sampler


def check(kind: str, path: str, plan: list[Any], workers: int = 0) -> None:
    orders = orders_of(path)
    (loader, told), twin = make(kind, path, workers), Twin()
    states = [(loader.state_dict(), twin.save())]

    def take(iterator: Any, count: int) -> None:
        found = list(map(values_of, islice(iterator, count)))
        assert found == [orders[epoch][number] for epoch, number in twin.loop(count)], plan

    for name, *arguments in plan:
        if name == "loop":
            take(iter(loader), arguments[0])
        elif name == "tell":
            told.set_epoch(arguments[0])
            twin.tell(arguments[0])
        elif name == "loop told late":
            iterator = iter(loader)
            told.set_epoch(arguments[0])
            twin.tell(arguments[0])
            take(iterator, arguments[1])
        elif name == "save":
            states.append((json.loads(json.dumps(loader.state_dict())), twin.save()))
        else:
            if name == "load elsewhere":
                (loader, told), twin = make(kind, path, workers), Twin()
            state, place = states[arguments[0] % len(states)]
            loader.load_state_dict(state)
            twin.load(place)
        state = loader.state_dict()
        assert (state["epoch"], -(-state["position"] // BATCH)) in (twin.save(), twin.start()), plan


def values_of(batch: Any) -> list[int]:
    if isinstance(batch, list):
        return [int.from_bytes(value, "little", signed=True) for value in batch]
    return batch.tolist()


@pytest.mark.parametrize("kind", ["Loader", "Sampler", "BatchSampler"])
@settings(max_examples=60, deadline=None)
@given(plan=st.lists(steps, max_size=10))
def test_every_loader_goes_by_the_rules(path: str, kind: str, plan: list[Any]):
    check(kind, path, plan)


FINISHED = [("loop", BATCHES), ("save",), ("load elsewhere", 1)]
PLANS = [
    [*FINISHED, ("loop", 2), ("loop", 7)],
    [*FINISHED, ("loop", 0), ("loop", 2)],
    [*FINISHED, ("loop told late", 1, 7)],
    [*FINISHED, ("loop told late", 0, 7), ("loop", 1)],
    [*FINISHED, ("tell", 0), ("tell", 1), ("loop", 7)],
    [("loop", 3), ("save",), ("load elsewhere", 1), ("loop", 0), ("loop told late", 0, 2), ("loop", 1)],
    [("loop", 3), ("save",), ("load elsewhere", 1), ("loop told late", 1, 7), ("loop", 7)],
    [("loop", 5), ("save",), ("load elsewhere", 1), ("loop", 0), ("loop", 0), ("loop", 7), ("loop", 1)],
    [("tell", 0), ("loop", 2), ("tell", 0), ("loop", 7), ("tell", 0), ("loop", 0), ("loop", 7)],
]


@pytest.mark.parametrize("kind", ["Sampler", "BatchSampler", "persistent"])
@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_workers_read_ahead(path: str, kind: str, plan: list[Any]):
    """They begin when the iterator is made, before a trainer has said which epoch that is of."""
    check(kind, path, plan, workers=2)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Sampler", "BatchSampler", "persistent"])
@settings(max_examples=100, deadline=None)
@given(plan=st.lists(steps, max_size=6))
def test_any_plan_with_workers(path: str, kind: str, plan: list[Any]):
    check(kind, path, plan, workers=1)


@settings(max_examples=50, deadline=None)
@given(plan=st.lists(st.one_of(st.tuples(st.sampled_from(["loop"]), counts), st.tuples(st.just("pin"), epochs))))
def test_set_epoch_of_the_loader_keeps_its_place(path: str, plan: list[Any]):
    orders = orders_of(path)
    (loader, _), twin = make("Loader", path), Twin()
    for name, number in plan[:20]:
        if name == "pin":
            loader.set_epoch(number)
            twin.pin(number)
            continue
        found = list(map(values_of, islice(iter(loader), number)))
        assert found == [orders[epoch][k] for epoch, k in twin.loop(number)]
