"""A cursor goes through the epochs as a slow, obvious twin says, wherever and however often it is stopped."""

import gc
import json
import pickle
import tracemalloc
import zlib
from itertools import chain

import numpy as np
import pytest

import ffrecord.order
from ffrecord import FileReader, FileWriter
from ffrecord.order import Block, Cursor, Identity, Mixture, identity_of

TEN = Identity(10)


def taken(cursor: Cursor) -> list[list[int]]:
    """Indices of the batches of one loop that runs to its end."""
    run = cursor.begin()
    found = [step.indices.tolist() for step in run if cursor.yielded(step)]
    assert cursor.finished(run)
    return found


def place(cursor: Cursor) -> tuple[int, int]:
    return cursor.epoch, cursor.position


# Epochs


def test_epochs_follow_each_other():
    cursor = Cursor(TEN, seed=7, batch_size=4)
    epochs = [taken(cursor) for _ in range(3)]
    assert [sorted(chain(*batches)) for batches in epochs] == [list(range(10))] * 3
    assert len({str(batches) for batches in epochs}) == 3
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2]
    assert place(cursor) == (3, 0)
    assert epochs[1:] == [taken(Cursor(TEN, seed=7, batch_size=4, epoch=epoch)) for epoch in (1, 2)]
    assert taken(Cursor(TEN, seed=8, batch_size=4)) != epochs[0]


def test_steps_say_what_they_are():
    cursor = Cursor(TEN, order="sequential", batch_size=2, world_size=2, rank=1, policy="pad")
    steps = list(cursor.steps())
    assert [step.positions.tolist() for step in steps] == [[1, 3], [5, 7], [9]]
    assert [step.indices.tolist() for step in steps] == [[1, 3], [5, 7], [9]]
    assert [(step.padding, step.last, step.after, step.epoch) for step in steps] == [
        (0, False, 4, 0),
        (0, False, 8, 0),
        (0, True, 10, 0),
    ]
    assert all(array.dtype == np.int64 for step in steps for array in (step.positions, step.indices))


def test_padding_is_counted_from_the_end():
    cursor = Cursor(Identity(4), order="sequential", batch_size=2, world_size=3, rank=2, policy="pad")
    assert [(step.indices.tolist(), step.padding) for step in cursor.steps()] == [([2, 1], 1)]
    alone = Cursor(Identity(2), order="sequential", batch_size=3, world_size=5, rank=4, policy="pad")
    assert [(step.indices.tolist(), step.padding) for step in alone.steps()] == [([0], 1)]


def test_arrays_of_a_step_are_its_own():
    for order in ("sequential", "random", "block"):
        run = Cursor(TEN, order=order, batch_size=10).steps()
        step, again = run[0], run[0]
        step.indices[:] = -1
        step.positions[:] = -1
        assert run[0].indices.tolist() == again.indices.tolist()
        assert again.positions.tolist() == list(range(10))


def test_any_step_at_once():
    run = Cursor(Identity(100), batch_size=7, world_size=3, rank=1, policy="uneven").steps()
    assert [run[j].indices.tolist() for j in range(len(run))] == [step.indices.tolist() for step in run]
    for j in (-1, len(run)):
        with pytest.raises(IndexError, match=rf"step is {j}, expected 0 <= step < {len(run)}"):
            run[j]


def test_drop_last():
    cursor = Cursor(TEN, batch_size=4, drop_last=True)
    steps = list(cursor.steps())
    assert [len(step.indices) for step in steps] == [4, 4]
    assert (steps[-1].last, steps[-1].after) == (True, 10)
    cursor.set_position(8)
    assert (len(cursor), taken(cursor), place(cursor)) == (0, [], (1, 0))


def test_length_is_what_is_left():
    cursor = Cursor(TEN, batch_size=3, world_size=2)
    lengths = [len(cursor)]
    for step in cursor.steps():
        cursor.yielded(step)
        lengths.append(len(cursor))
    assert lengths == [2, 1, 0] and cursor.whole == 2
    assert cursor.length == 10


# Planned ahead, given up, begun again


def test_planning_ahead_moves_nothing():
    cursor = Cursor(TEN, batch_size=2)
    steps = list(cursor.steps())
    assert place(cursor) == (0, 0)
    cursor.yielded(steps[0])
    assert place(cursor) == (0, 2)
    left = Cursor(TEN, batch_size=2)
    left.load_state_dict(cursor.state_dict())
    assert taken(left) == [step.indices.tolist() for step in steps[1:]]


def test_a_loop_given_up_is_followed_by_the_next_epoch():
    cursor = Cursor(TEN, batch_size=2)
    first = cursor.begin()
    cursor.yielded(next(first))
    assert [next(cursor.begin()).epoch, place(cursor)] == [1, (1, 0)]


def test_a_loop_not_begun_is_not_given_up():
    cursor = Cursor(TEN, batch_size=2)
    cursor.set_position(4)
    for _ in range(3):
        run = cursor.begin()
        next(run)  # planned, not yielded
    assert place(cursor) == (0, 4)
    assert len(run) == 3


@pytest.mark.parametrize(
    "again",
    [
        lambda cursor: cursor.load_state_dict(cursor.state_dict()),
        lambda cursor: cursor.set_epoch(cursor.epoch),
        lambda cursor: cursor.set_position(cursor.position),
    ],
    ids=["load_state_dict", "set_epoch", "set_position"],
)
def test_a_loop_given_up_goes_on_where_that_is_asked_for(again):
    cursor = Cursor(TEN, batch_size=2)
    cursor.yielded(next(cursor.begin()))
    again(cursor)
    assert next(cursor.begin()).positions.tolist() == [2, 3]
    assert place(cursor) == (0, 2)


def test_set_epoch():
    cursor = Cursor(TEN, batch_size=2)
    cursor.set_position(6)
    cursor.set_epoch(0)
    assert place(cursor) == (0, 6)
    cursor.set_epoch(np.int64(5))
    assert place(cursor) == (5, 0)
    cursor.set_epoch(0)
    assert place(cursor) == (0, 0)


def test_set_epoch_of_the_epoch_itself_leaves_its_loop_alone():
    cursor = Cursor(TEN, batch_size=2)
    run = cursor.begin()
    cursor.yielded(next(run))
    cursor.set_epoch(0)
    assert cursor.yielded(next(run))
    assert place(cursor) == (0, 4)


@pytest.mark.parametrize(
    ("disturb", "expected"),
    [
        (lambda cursor: cursor.load_state_dict({**cursor.state_dict(), "epoch": 3, "position": 6}), (3, 6)),
        (lambda cursor: cursor.set_epoch(2), (2, 0)),
        (lambda cursor: cursor.set_position(8), (0, 8)),
        (lambda cursor: cursor.steps(), (0, 2)),
        (lambda cursor: cursor.begin(), (1, 0)),
        (lambda cursor: cursor.finished(), (1, 0)),
    ],
    ids=["load_state_dict", "set_epoch", "set_position", "steps", "begin", "finished"],
)
def test_an_old_iterator_moves_nothing(disturb, expected):
    cursor = Cursor(TEN, batch_size=2)
    old = cursor.begin()
    cursor.yielded(next(old))
    disturb(cursor)
    assert not cursor.yielded(next(old))
    assert not cursor.finished(old)
    assert place(cursor) == expected


def test_a_batch_may_be_left_out():
    cursor = Cursor(TEN, batch_size=2)
    steps = list(cursor.steps())
    cursor.yielded(steps[0])
    cursor.yielded(steps[2])
    assert place(cursor) == (0, 6)


# States


def test_a_state_is_small_and_independent():
    cursor = Cursor(Identity(10**9, 500, "ab" * 32), seed=2**64 - 1, batch_size=256, world_size=8)
    cursor.set_epoch(2**63 - 2)
    cursor.set_position(10**9 - 1)
    state = cursor.state_dict()
    assert len(json.dumps(state)) < 300
    state["epoch"] = 0
    assert cursor.state_dict()["epoch"] == 2**63 - 2


def test_saved_with_the_last_batch():
    """In the loop it is (epoch, length), after it the next epoch. Loaded, both mean that the epoch is finished."""
    cursor, other = Cursor(TEN, batch_size=5), Cursor(TEN, batch_size=5)
    run = cursor.begin()
    for step in run:
        cursor.yielded(step)
    assert place(cursor) == (0, 10)
    other.load_state_dict(cursor.state_dict())
    assert (place(other), len(other), other.state_dict()) == ((1, 0), 2, cursor.state_dict())
    assert taken(other) == taken(Cursor(TEN, batch_size=5, epoch=1))
    other.load_state_dict(cursor.state_dict())
    other.set_epoch(0)  # what is left of it
    assert (place(other), len(other), taken(other), place(other)) == ((0, 10), 0, [], (1, 0))
    cursor.finished(run)
    other.load_state_dict(cursor.state_dict())
    assert (place(other), len(taken(other))) == ((1, 0), 2)


def test_the_state_wins_over_seed_and_epoch():
    cursor, other = Cursor(TEN, seed=1, batch_size=3), Cursor(TEN, seed=2, epoch=9, batch_size=3)
    cursor.yielded(next(cursor.begin()))
    other.load_state_dict(cursor.state_dict())
    assert (other.seed, *place(other)) == (1, 0, 3)
    assert taken(other) == taken(cursor_at(cursor.state_dict()))


def cursor_at(state: dict) -> Cursor:
    cursor = Cursor(TEN, batch_size=3)
    cursor.load_state_dict(state)
    return cursor


def test_a_state_goes_between_all_shapes_of_a_run():
    """A change of ranks, policy, batch size and drop_last is no change of the order."""
    cursor = Cursor(TEN, order="sequential", batch_size=2, world_size=2)
    cursor.yielded(next(cursor.begin()))
    other = Cursor(TEN, order="sequential", batch_size=1, world_size=3, rank=2, policy="pad", drop_last=True)
    other.load_state_dict(cursor.state_dict())
    assert taken(other) == [[6], [9]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "sequential"}, "another order: {'name': 'random-1'} in the state, {'name': 'sequential-1'} here"),
        ({"indices": range(10)}, "another filter: none in the state, indices of CRC-32 0x[0-9a-f]{8} here"),
        ({"identity": Identity(11)}, "another dataset: 10 samples then, 11 now"),
        ({"identity": Identity(10, 1)}, "another dataset: 0 shards then, 1 now"),
        ({"identity": Identity(10, 0, "ab")}, "other contents: fingerprint unknown then, ab now"),
    ],
)
def test_a_state_of_something_else_is_refused(options, message):
    state = Cursor(TEN).state_dict()
    cursor = Cursor(options.pop("identity", TEN), **options)
    cursor.set_epoch(5)
    cursor.set_position(3)
    with pytest.raises(ValueError, match=f"state belongs to .*{message}"):
        cursor.load_state_dict(state)
    assert place(cursor) == (5, 3)


def test_filters_are_told_apart():
    state = Cursor(TEN, indices=[1, 2, 3]).state_dict()
    with pytest.raises(ValueError, match=r"another filter: indices of CRC-32 0x\w+ in the state, indices of"):
        Cursor(TEN, indices=[1, 2, 4]).load_state_dict(state)
    Cursor(TEN, indices=np.array([1, -8, 3], np.int8)).load_state_dict(state)


GIVEN = r"expected the dict that state_dict\(\) returned"
STATE = Cursor(TEN).state_dict()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, f"the state is None, {GIVEN}$"),
        ([], f"the state is a list of 0, {GIVEN}$"),
        (json.dumps(STATE), f"the state is str '.*…, {GIVEN}; json.loads makes it of text$"),
        (b"{}", f"the state is a bytes of 2, {GIVEN}; json.loads makes it of text$"),
        (
            {},
            "this is not the state of an order: it has no 'version', 'order', 'dataset' and 4 more; pass the dict",
        ),
        (
            {**STATE, "sampler": 1, 7: 1},
            "this is not the state of an order: it has 'sampler', int 7; pass the dict",
        ),
        ({"version": 2}, "the state has version 2, this release of ffrecord reads version 1"),
        ({**STATE, "seed": "1"}, r"this is not the state of an order: .* at `\$.seed`"),
        ({**STATE, "position": 11}, "position 11, but its epoch has 10"),
    ],
)
def test_no_state(state, words):
    cursor = Cursor(TEN, epoch=4)
    with pytest.raises(ValueError, match=words):
        cursor.load_state_dict(state)
    assert place(cursor) == (4, 0)


# Appended shards


def write(path, first: int, count: int) -> str:
    with FileWriter(path, count) as writer:
        for i in range(first, first + count):
            writer.write_one(bytes([i]))
    return str(path)


@pytest.fixture
def shards(tmp_path):
    return [
        write(tmp_path / f"{name}.ffr", first, count) for name, first, count in (("a", 0, 6), ("b", 6, 3), ("c", 9, 4))
    ]


def cursor_of(shards: list[str], **options) -> Cursor:
    with FileReader(shards) as reader:
        identity = identity_of(reader)
    return Cursor(identity, **{"order": "random", "batch_size": 4, "seed": 3} | options)


def test_appended_shards_wait_for_the_next_epoch(shards):
    begun = cursor_of(shards[:2])
    begun.yielded(next(begun.begin()))
    cursor = cursor_of(shards)
    with pytest.raises(
        ValueError, match="shards were appended to the dataset: 9 samples then, 13 now; 2 shards then, 3"
    ):
        cursor.load_state_dict(begun.state_dict())
    cursor.load_state_dict(begun.state_dict(), appended="finish")
    # A state of the finishing epoch is still one of the dataset it began with.
    again = cursor_of(shards)
    again.load_state_dict(cursor.state_dict(), appended="finish")
    for each in (cursor, again):
        assert (each.length, len(each)) == (9, 2)
        assert taken(each) == [step.indices.tolist() for step in begun.steps()]
        assert sorted(chain(*taken(each))) == list(range(13))
        assert each.state_dict()["dataset"]["samples"] == 13


@pytest.mark.parametrize(
    "leave", [lambda cursor: cursor.set_epoch(1), lambda cursor: cursor.finished()], ids=["set_epoch", "finished"]
)
def test_another_epoch_has_the_appended_shards(shards, leave):
    begun, cursor = cursor_of(shards[:2]), cursor_of(shards)
    begun.yielded(next(begun.begin()))
    cursor.load_state_dict(begun.state_dict(), appended="finish")
    cursor.set_position(8)
    cursor.set_epoch(0)
    assert cursor.length == 9
    leave(cursor)
    assert cursor.length == 13


def test_an_epoch_not_begun_has_the_appended_shards(shards):
    cursor = cursor_of(shards)
    cursor.load_state_dict(cursor_of(shards[:2], epoch=4).state_dict(), appended="finish")
    assert (place(cursor), cursor.length) == ((4, 0), 13)
    begun = cursor_of(shards[:2])
    list(map(begun.yielded, begun.begin()))
    cursor.load_state_dict(begun.state_dict(), appended="finish")
    assert (place(cursor), cursor.length) == ((1, 0), 13)
    assert sorted(chain(*taken(cursor))) == list(range(13))


@pytest.mark.parametrize(("before", "now"), [([0, 1], [1, 0, 2]), ([0, 1, 2], [0, 1]), ([1], [0, 1])])
def test_anything_but_appending_is_refused(shards, before, now):
    begun, cursor = cursor_of([shards[i] for i in before], batch_size=1), cursor_of([shards[i] for i in now])
    begun.yielded(next(begun.begin()))
    with pytest.raises(ValueError, match="another dataset"):
        cursor.load_state_dict(begun.state_dict(), appended="finish")


def test_wrong_choice_about_appended_shards():
    cursor = Cursor(TEN)
    with pytest.raises(ValueError, match="appended is 'ignore', expected 'refuse' or 'finish'"):
        cursor.load_state_dict(cursor.state_dict(), appended="ignore")


# Filters


def test_a_filter_is_what_the_order_runs_over():
    cursor = Cursor(TEN, order="sequential", indices=[3, 3, -1, 0], batch_size=3)
    assert taken(cursor) == [[3, 3, 9], [0]]
    shuffled = Cursor(TEN, indices=np.array([2, 5, 7]), batch_size=3)
    assert [sorted(taken(shuffled)[0]) for _ in range(5)] == [[2, 5, 7]] * 5


def test_a_mapped_filter_stays_mapped(tmp_path):
    np.save(tmp_path / "filter.npy", np.arange(0, 1 << 20, 3))
    mapped = np.load(tmp_path / "filter.npy", mmap_mode="r")
    tracemalloc.start()
    cursor = Cursor(Identity(1 << 20), indices=mapped, batch_size=16)
    state = cursor.state_dict()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.shares_memory(cursor.indices, mapped)
    assert most < mapped.nbytes / 20
    assert state["indices"] == Cursor(Identity(1 << 20), indices=np.array(mapped)).state_dict()["indices"]


def test_the_crc_of_a_filter():
    """Of its int64 bytes, in whatever type it was given."""
    expected = zlib.crc32(np.array([1, 9, 4], "<i8").tobytes())
    for indices in ([1, 9, 4], (1, -1, 4), np.array([1, 9, 4], np.uint8), iter([1, 9, 4])):
        assert Cursor(TEN, indices=indices).state_dict()["indices"] == expected


# Wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"identity": Identity(0)}, ValueError, "dataset has 0 samples, expected at least 1"),
        ({"indices": []}, ValueError, "indices have 0 samples, expected at least 1"),
        ({"indices": [1, 10]}, IndexError, "10, expected -10 <= index < 10"),
        ({"indices": [-11, 3]}, IndexError, "-11, expected -10 <= index < 10"),
        ({"indices": [0.5]}, TypeError, "float"),
        ({"indices": 3}, TypeError, "collection of ints"),
        ({"batch_size": 0}, ValueError, "batch_size is 0, expected 1 or more"),
        ({"batch_size": 2**63}, ValueError, "batch_size is 9223372036854775808, expected at most"),
        ({"batch_size": 2.0}, TypeError, "batch_size is float .*, expected an int"),
        (
            {"batch_size": 11, "drop_last": True},
            ValueError,
            "each of 1 ranks gets 10 of 10 samples .*, expected at least 11; pass a smaller batch_size",
        ),
        (
            {"batch_size": 4, "world_size": 3, "drop_last": True},
            ValueError,
            "each of 3 ranks gets 3 of 10 samples .policy 'drop'., expected at least 4",
        ),
        (
            {"world_size": 11},
            ValueError,
            "each of 11 ranks gets 0 of 10 samples .policy 'drop'., expected at least 1",
        ),
        ({"world_size": 0}, ValueError, "world_size is 0"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank is 2, expected 0 <= rank < 2"),
        ({"policy": "even"}, ValueError, "policy is 'even'"),
        ({"order": "reverse"}, ValueError, "order is 'reverse', expected one of"),
        ({"order": 3}, TypeError, "order is int 3, expected a str or an Order"),
        ({"order": Mixture([4, 5])}, ValueError, "mixture has 9 samples in 2 datasets, the data has 10"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": 2**64}, ValueError, "seed is 18446744073709551616"),
        ({"epoch": -1}, ValueError, "epoch is -1"),
        ({"epoch": 2**63}, ValueError, "epoch is 9223372036854775808"),
        ({"epoch": None}, TypeError, "epoch is None.*, expected an int"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        Cursor(options.pop("identity", TEN), **options)


def test_a_batch_larger_than_the_share_of_a_rank_is_short():
    assert taken(Cursor(TEN, order="sequential", batch_size=100, world_size=3)) == [[0, 3, 6]]
    more_ranks = Cursor(TEN, batch_size=100, world_size=11, rank=10, policy="uneven")
    assert taken(more_ranks) == []


@pytest.mark.parametrize(("position", "error"), [(-1, ValueError), (11, ValueError), (1.0, TypeError)])
def test_wrong_positions(position, error):
    cursor = Cursor(TEN)
    with pytest.raises(error, match=r"position is -?\d+, expected 0 <= position < 11|position is .*, expected an int"):
        cursor.set_position(position)


# What it costs


def allocated(function) -> tuple[int, int]:
    """Bytes left by a call, and most allocated at once: the least of a few calls, as other threads allocate, too."""
    found = []
    for _ in range(5):
        gc.collect()
        tracemalloc.start()
        try:
            kept = function()
            found.append(tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()
        del kept
    left, most = zip(*found, strict=True)
    return min(left), min(most)


@pytest.mark.parametrize("order", ["sequential", "random", "block"])
def test_the_end_of_an_epoch_costs_what_its_start_does(order):
    """Nothing is walked over or kept for what is behind: both build the same few arrays of a batch."""
    identity = Identity(10**12)
    state = Cursor(identity, order=order, batch_size=256).state_dict()

    def first_step(position: int):
        def go() -> object:
            cursor = Cursor(identity, order=order, batch_size=256, world_size=4)
            cursor.load_state_dict({**state, "position": position})
            return next(cursor.begin()), cursor

        return go

    first_step(0)()
    start, late = allocated(first_step(0)), allocated(first_step(99 * 10**10))
    assert max(*start, *late) < 32 << 10
    assert abs(start[0] - late[0]) < 1024
    assert abs(start[1] - late[1]) < 1024


def test_pickles(shards):
    cursor = cursor_of(shards)
    cursor.yielded(next(cursor.begin()))
    copy = pickle.loads(pickle.dumps(cursor))
    assert copy.state_dict() == cursor.state_dict()
    assert next(copy.steps()).indices.tolist() == next(cursor.steps()).indices.tolist()


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("position", [0, 7])
def test_samples_of_a_window(rank: int, position: int) -> None:
    """By their numbers in a run, which end where the window ends."""
    blocks = Block(4, 3)
    cursor = Cursor(Identity(100), order=blocks, batch_size=5, rank=rank, world_size=3, seed=1, policy="uneven")
    cursor.set_position(position)
    run = cursor.steps()
    steps = list(run)
    samples = np.concatenate([step.indices for step in steps])
    positions = np.concatenate([step.positions for step in steps])
    assert run.done == len(steps) and run.count == len(samples)
    assert run.samples(np.arange(run.count)).tolist() == samples.tolist()
    assert run.samples(np.array([3, 4, 9])).tolist() == samples[[3, 4, 9]].tolist()
    windows = positions // blocks.window_length
    for start in range(run.count):
        stop = run.window_stop(start)
        assert (windows[start:stop] == windows[start]).all()
        assert stop == run.count or windows[stop] != windows[start]


def test_the_earlier_name() -> None:
    """Programs and pickles with it go on."""
    assert ffrecord.order.Course is Cursor
    assert pickle.loads(b"\x80\x04cffrecord.order.cursor\nCourse\n.") is Cursor
