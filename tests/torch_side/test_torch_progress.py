"""Saving and loading where a loader stands."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import data
from torch_builders import WORKERS_ANYWHERE, Ints, as_lists, seeded

from ffrecord.torch import DataLoader

pytestmark = WORKERS_ANYWHERE

EPOCHS, BATCHES, BATCH_SIZE = 3, 3, 10

Make = Callable[[int], Any]


def replacing(dataset: Any, generator: Any) -> Any:
    return data.RandomSampler(dataset, replacement=True, num_samples=25, generator=generator)


ORDERS: dict[str, Callable[[Any, int], dict[str, Any]]] = {
    "in order": lambda d, seed: {},
    "own generator": lambda d, seed: {"shuffle": True, "generator": seeded(seed)},
    "in order, own generator": lambda d, seed: {"generator": seeded(seed)},
    "default generator": lambda d, seed: {"shuffle": True},
    "default generator given": lambda d, seed: {"shuffle": True, "generator": torch.default_generator},
    "two generators": lambda d, seed: {"sampler": replacing(d, seeded(seed)), "generator": seeded(seed + 1)},
    "sampler's generator": lambda d, seed: {"sampler": replacing(d, seeded(seed))},
    "replacing, default generator": lambda d, seed: {"sampler": replacing(d, None)},
    "weighted": lambda d, seed: {"sampler": data.WeightedRandomSampler(range(23), 29)},
}


def maker(path: str, order: str, **options: Any) -> Make:
    """Makes the loader of a new run, whose generators begin elsewhere."""

    def make(seed: int) -> Any:
        torch.manual_seed(seed)
        dataset = Ints(path)
        return DataLoader(dataset, BATCH_SIZE, **ORDERS[order](dataset, seed), **options)

    return make


def train(loader: Any, count: int) -> list[tuple[list[int], float]]:
    """`count` batches over as many epochs as it takes, each with a number drawn from torch's default generator."""
    steps: list[tuple[list[int], float]] = []
    while len(steps) < count:
        for batch in loader:
            steps.append((batch.tolist(), torch.rand(()).item()))
            if len(steps) == count:
                break
    return steps


def saved(loader: Any) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


def same(order: str, steps: list[Any], expected: list[Any]) -> bool:
    """The numbers go on as well where the state has the generator they come from."""
    if "default" in order or order == "weighted":
        return steps == expected
    return [batch for batch, _ in steps] == [batch for batch, _ in expected]


def check_every_step(make: Make, order: str, then: tuple[int, ...], step: int = 1) -> None:
    """Save at every step, load in a new run, save again `then` steps later, load in another: as if never stopped."""
    total = EPOCHS * BATCHES
    expected = train(make(1), total)
    for first in range(0, total + 1, step):
        loader = make(1)
        assert same(order, train(loader, first), expected[:first])
        first_state = saved(loader)
        for more in then:
            middle = make(2)
            middle.load_state_dict(first_state)
            second = min(first + more, total)
            assert same(order, train(middle, second - first), expected[first:second])
            second_state = saved(middle)
            last = make(3)
            last.load_state_dict(second_state)
            assert same(order, train(last, total - second), expected[second:])


@pytest.mark.parametrize("order", ORDERS)
def test_every_step(path: str, order: str):
    check_every_step(maker(path, order), order, then=(0, 1, 2, 3, 5))


@pytest.mark.parametrize(
    ("order", "persistent"),
    [("in order", False), ("own generator", False), ("own generator", True), ("default generator", True)],
)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_steps_with_workers(path: str, order: str, persistent: bool, every: bool):
    """Every second or third step, as workers begin slowly; only the long run has every one."""
    make = maker(path, order, num_workers=2, persistent_workers=persistent)
    check_every_step(make, order, then=(2,), step=1 if every else 2 if persistent else 3)


@pytest.mark.parametrize("order", ["in order", "own generator", "two generators", "default generator"])
def test_the_number_of_workers_may_change(path: str, order: str):
    """Persistent ones too, although torch seeds those once and others in every epoch."""
    kinds: list[dict[str, Any]] = [{}, {"num_workers": 1, "persistent_workers": True}]
    for saving in kinds:
        expected = [batch for batch, _ in train(maker(path, order, **saving)(1), 2 * BATCHES)]
        for first, end in ((2, BATCHES), (4, 2 * BATCHES)):
            loader = maker(path, order, **saving)(1)
            train(loader, first)
            for loading in kinds:
                resumed = maker(path, order, **loading)(2)
                resumed.load_state_dict(saved(loader))
                assert as_lists(resumed) == expected[first:end]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_after_the_end_of_an_epoch(path: str, order: str, epochs: int):
    make = maker(path, order)
    loader = make(1)
    for _ in range(epochs):
        as_lists(loader)
    state = saved(loader)
    assert state["yielded"] == 0
    expected = train(loader, 2 * BATCHES)
    resumed = make(2)
    resumed.load_state_dict(state)
    assert len(resumed) == BATCHES
    assert same(order, train(resumed, 2 * BATCHES), expected)


def test_on_the_last_batch_the_epoch_is_finished(path: str):
    """The next loop is the next epoch, as in the loader that was not stopped."""
    make = maker(path, "own generator")
    loader = make(1)
    train(loader, BATCHES)
    state = saved(loader)
    resumed = make(2)
    resumed.load_state_dict(state)
    assert [as_lists(resumed), as_lists(resumed)] == [as_lists(loader), as_lists(loader)]


@pytest.mark.parametrize("order", ORDERS)
def test_a_loaded_state_is_the_state(path: str, order: str):
    loader = maker(path, order)(1)
    train(loader, 5)
    state, resumed = saved(loader), maker(path, order)(2)
    resumed.load_state_dict(state)
    assert saved(resumed) == state


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("persistent", [True, False])
def test_going_back_in_a_loader_in_use(path: str, order: str, persistent: bool):
    loader = maker(path, order, num_workers=int(persistent), persistent_workers=persistent)(1)
    states = [saved(loader)]
    steps = []
    for _ in range(2 * BATCHES):
        steps += train_on(loader, states)
    for at, state in enumerate(states):
        loader.load_state_dict(state)
        if at == 2 * BATCHES:
            continue  # the third epoch was not seen
        end = BATCHES if at < BATCHES else 2 * BATCHES
        assert as_lists(loader) == [batch for batch, _ in steps[at:end]]


def train_on(loader: Any, states: list[Any]) -> list[Any]:
    """An epoch, if fewer than two are done, saving at every batch."""
    if len(states) > 2 * BATCHES:
        return []
    steps = []
    for batch in loader:
        steps.append((batch.tolist(), torch.rand(()).item()))
        states.append(saved(loader))
    return steps


def test_an_iterator_in_use_goes_on_by_itself(path: str):
    loader = maker(path, "own generator")(1)
    iterator = iter(loader)
    first, state = next(iterator), saved(loader)
    loader.load_state_dict(state)
    assert len(as_lists(iterator)) == BATCHES - 1
    assert saved(loader) == state
    assert len(as_lists(loader)) == BATCHES - 1
    assert len(first) == BATCH_SIZE


def test_length_in_a_resumed_epoch(path: str):
    make = maker(path, "in order")
    loader = make(1)
    train(loader, 1)
    resumed = make(2)
    resumed.load_state_dict(saved(loader))
    iterator = iter(resumed)
    assert (len(resumed), len(iterator)) == (BATCHES, BATCHES - 1)  # trainers reckon with whole epochs
    assert len(as_lists(iterator)) == BATCHES - 1
    assert len(resumed) == BATCHES


# With what else there is


def test_with_set_step(path: str, values: list[int]):
    make = maker(path, "own generator")
    expected = [batch for batch, _ in train(make(1), 2 * BATCHES)]
    loader = make(1)
    loader.set_step(1)
    train(loader, 1)
    resumed = make(2)
    resumed.load_state_dict(saved(loader))
    assert as_lists(resumed) == expected[2:3]
    assert as_lists(resumed) == expected[4:6]
    assert len(resumed) == 2


def test_set_step_does_not_undo_a_loaded_state(path: str):
    loader = maker(path, "in order")(1)
    train(loader, 2)
    loader.load_state_dict(saved(loader))
    with pytest.raises(RuntimeError, match="set_step would undo load_state_dict"):
        loader.set_step(0)
    assert len(as_lists(loader)) == 1
    loader.set_step(0)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_not_skippable(path: str, values: list[int], batch_size: int | None):
    def make(seed: int) -> Any:
        generator = seeded(seed)
        dataset = Ints(path)
        return DataLoader(dataset, batch_size, shuffle=True, generator=generator, skippable=False, collate_fn=list)

    expected = [*make(1), *make(1)]
    loader = make(1)
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == expected[:3]
    resumed = make(2)
    resumed.load_state_dict(saved(loader))
    assert list(resumed) == expected[3 : len(expected) // 2]


def test_skipping_does_not_come_to_a_loader_that_cannot(path: str):
    loader = DataLoader(Ints(path), BATCH_SIZE)
    loader.set_step(2)
    with pytest.raises(ValueError, match=r"set_step\(2\), but this one is not skippable"):
        DataLoader(Ints(path), BATCH_SIZE, skippable=False).load_state_dict(saved(loader))


def test_what_was_skipped_is_not_read(path: str):
    make = maker(path, "own generator")
    loader = make(1)
    train(loader, 2)
    resumed = make(2)
    resumed.load_state_dict(saved(loader))
    assert len(as_lists(resumed)) == len(resumed.dataset.asked) == 1


def test_samplers_with_epochs_are_set_by_their_owner(path: str):
    def make() -> Any:
        dataset = Ints(path)
        return DataLoader(dataset, 2, sampler=data.DistributedSampler(dataset, 2, 1, seed=4))

    expected = []
    loader = make()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        expected.append(as_lists(loader))
    loader.sampler.set_epoch(1)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    resumed = make()
    resumed.load_state_dict(saved(loader))
    resumed.sampler.set_epoch(1)
    assert as_lists(resumed) == expected[1][4:]


class Unlucky(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        if 10 in indices:
            raise OSError("flaky")
        return super().process(indices, data)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failed_batch_is_tried_again_unless_passed(path: str, values: list[int], workers: int):
    loader = DataLoader(Unlucky(path), BATCH_SIZE, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    try:
        next(iterator)
    except OSError as error:
        assert "flaky" in str(error)
    assert loader.state_dict()["yielded"] == 1
    resumed = DataLoader(Ints(path), BATCH_SIZE)
    resumed.load_state_dict(saved(loader))
    assert as_lists(resumed) == [values[10:20], values[20:]]
    assert next(iterator).tolist() == values[20:]
    assert loader.state_dict()["yielded"] == 3


# The generators


def test_nothing_happens_before_iteration(path: str):
    loader = maker(path, "default generator")(1)
    train(loader, 2)
    state = saved(loader)
    resumed = maker(path, "default generator")(2)
    before = torch.get_rng_state()
    resumed.load_state_dict(state)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_resumed_epoch_in_order_draws_nothing_from_the_default_generator(path: str):
    """Its base seed had been drawn when the state was taken; the program may have put its generator back since."""
    loader = maker(path, "in order")(1)
    train(loader, 2)
    loader.load_state_dict(saved(loader))
    before = torch.get_rng_state()
    as_lists(loader)
    assert torch.equal(torch.get_rng_state(), before)


def test_size(tmp_path_factory: pytest.TempPathFactory, path: str):
    """It does not depend on the dataset."""
    sizes = {order: len(json.dumps(after(path, order))) for order in ORDERS}
    assert sizes["in order"] < 200
    assert max(sizes.values()) < 10_000


def after(path: str, order: str) -> Any:
    loader = maker(path, order)(1)
    train(loader, 1)
    return loader.state_dict()


# Refusals


def damaged(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda state: {**state, **changes}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged(version=2), "the state has version 2, this release of ffrecord reads version 1"),
        (lambda state: {}, "this is not the state of a DataLoader: it has no 'version', "),
        (lambda state: [], r"the state is a list of 0, expected the dict that state_dict\(\) returned"),
        (lambda state: None, "the state is None, expected the dict"),
        (json.dumps, r"the state is str .*, expected the dict that .* returned; json.loads makes it of text"),
        (damaged(more=1), "this is not the state of a DataLoader: it has 'more'; pass the dict"),
        (damaged(yielded=-1), r">= 0 - at `\$.yielded`"),
        (damaged(yielded="1"), r"got `str` - at `\$.yielded`"),
        (damaged(yielded=4), "at batch 4, but an epoch has 3"),
        (damaged(yielded=3, step=1), "at batch 4, but an epoch has 3"),
        (damaged(samples=24), "samples in the dataset: 24 in the state, 23 here"),
        (damaged(samples=None), "samples in the dataset: None in the state, 23 here"),
        (damaged(batches=4), "batches in an epoch: 4 in the state, 3 here"),
        (damaged(generators=[]), "generators: 0 in the state, 1 here"),
        (damaged(default="AAAA"), "not the state of a generator"),
        (damaged(generators=["AAAA"]), "not the state of a generator"),
        (damaged(generators=["?"]), "not the state of a generator"),
    ],
)
def test_no_such_state(path: str, damage: Any, message: str):
    loader = maker(path, "own generator")(1)
    train(loader, 1)
    before = saved(loader)
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match=message):
            loader.load_state_dict(damage(saved(loader)))
    assert saved(loader) == before


def test_another_way_to_shuffle(path: str):
    own, default = (maker(path, order)(1).state_dict() for order in ("own generator", "default generator"))
    with pytest.raises(ValueError, match="generators: 0 in the state, 1 here"):
        maker(path, "own generator")(1).load_state_dict(default)
    with pytest.raises(ValueError, match="generators: 1 in the state, 0 here"):
        maker(path, "default generator")(1).load_state_dict(own)
    with pytest.raises(ValueError, match="default generator: False in the state, True here"):
        maker(path, "default generator")(1).load_state_dict(maker(path, "in order")(1).state_dict())


class Endless:
    def __iter__(self) -> Any:
        return (i % 5 for i in range(10**9))


def test_samplers_without_length(path: str, values: list[int]):
    loader = DataLoader(Ints(path), 2, sampler=Endless())
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    state = saved(loader)
    assert state["batches"] is None
    resumed = DataLoader(Ints(path), 2, sampler=Endless())
    resumed.load_state_dict(state)
    assert next(iter(resumed)).tolist() == [values[4], values[0]]
