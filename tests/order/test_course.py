"""A course goes through the epochs as a slow, obvious twin says, wherever and however often it is stopped."""

import gc
import json
import pickle
import tracemalloc
import zlib
from itertools import chain

import numpy as np
import pytest

from ffrecord import FileReader, FileWriter
from ffrecord.order import Block, Course, Identity, Mixture, identity_of

TEN = Identity(10)


def taken(course: Course) -> list[list[int]]:
    """Indices of the batches of one loop that runs to its end."""
    run = course.begin()
    found = [step.indices.tolist() for step in run if course.yielded(step)]
    assert course.finished(run)
    return found


def place(course: Course) -> tuple[int, int]:
    return course.epoch, course.position


# Epochs


def test_epochs_follow_each_other():
    course = Course(TEN, seed=7, batch_size=4)
    epochs = [taken(course) for _ in range(3)]
    assert [sorted(chain(*batches)) for batches in epochs] == [list(range(10))] * 3
    assert len({str(batches) for batches in epochs}) == 3
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2]
    assert place(course) == (3, 0)
    assert epochs[1:] == [taken(Course(TEN, seed=7, batch_size=4, epoch=epoch)) for epoch in (1, 2)]
    assert taken(Course(TEN, seed=8, batch_size=4)) != epochs[0]


def test_steps_say_what_they_are():
    course = Course(TEN, order="sequential", batch_size=2, world_size=2, rank=1, policy="pad")
    steps = list(course.steps())
    assert [step.positions.tolist() for step in steps] == [[1, 3], [5, 7], [9]]
    assert [step.indices.tolist() for step in steps] == [[1, 3], [5, 7], [9]]
    assert [(step.padding, step.last, step.after, step.epoch) for step in steps] == [
        (0, False, 4, 0),
        (0, False, 8, 0),
        (0, True, 10, 0),
    ]
    assert all(array.dtype == np.int64 for step in steps for array in (step.positions, step.indices))


def test_padding_is_counted_from_the_end():
    course = Course(Identity(4), order="sequential", batch_size=2, world_size=3, rank=2, policy="pad")
    assert [(step.indices.tolist(), step.padding) for step in course.steps()] == [([2, 1], 1)]
    alone = Course(Identity(2), order="sequential", batch_size=3, world_size=5, rank=4, policy="pad")
    assert [(step.indices.tolist(), step.padding) for step in alone.steps()] == [([0], 1)]


def test_arrays_of_a_step_are_its_own():
    for order in ("sequential", "random", "block"):
        run = Course(TEN, order=order, batch_size=10).steps()
        step, again = run[0], run[0]
        step.indices[:] = -1
        step.positions[:] = -1
        assert run[0].indices.tolist() == again.indices.tolist()
        assert again.positions.tolist() == list(range(10))


def test_any_step_at_once():
    run = Course(Identity(100), batch_size=7, world_size=3, rank=1, policy="uneven").steps()
    assert [run[j].indices.tolist() for j in range(len(run))] == [step.indices.tolist() for step in run]
    for j in (-1, len(run)):
        with pytest.raises(IndexError, match=rf"step is {j}, expected 0 <= step < {len(run)}"):
            run[j]


def test_drop_last():
    course = Course(TEN, batch_size=4, drop_last=True)
    steps = list(course.steps())
    assert [len(step.indices) for step in steps] == [4, 4]
    assert (steps[-1].last, steps[-1].after) == (True, 10)
    course.set_position(8)
    assert (len(course), taken(course), place(course)) == (0, [], (1, 0))


def test_length_is_what_is_left():
    course = Course(TEN, batch_size=3, world_size=2)
    lengths = [len(course)]
    for step in course.steps():
        course.yielded(step)
        lengths.append(len(course))
    assert lengths == [2, 1, 0] and course.whole == 2
    assert course.length == 10


# Planned ahead, given up, begun again


def test_planning_ahead_moves_nothing():
    course = Course(TEN, batch_size=2)
    steps = list(course.steps())
    assert place(course) == (0, 0)
    course.yielded(steps[0])
    assert place(course) == (0, 2)
    left = Course(TEN, batch_size=2)
    left.load_state_dict(course.state_dict())
    assert taken(left) == [step.indices.tolist() for step in steps[1:]]


def test_a_loop_given_up_is_followed_by_the_next_epoch():
    course = Course(TEN, batch_size=2)
    first = course.begin()
    course.yielded(next(first))
    assert [next(course.begin()).epoch, place(course)] == [1, (1, 0)]


def test_a_loop_not_begun_is_not_given_up():
    course = Course(TEN, batch_size=2)
    course.set_position(4)
    for _ in range(3):
        run = course.begin()
        next(run)  # planned, not yielded
    assert place(course) == (0, 4)
    assert len(run) == 3


@pytest.mark.parametrize(
    "again",
    [
        lambda course: course.load_state_dict(course.state_dict()),
        lambda course: course.set_epoch(course.epoch),
        lambda course: course.set_position(course.position),
    ],
    ids=["load_state_dict", "set_epoch", "set_position"],
)
def test_a_loop_given_up_goes_on_where_that_is_asked_for(again):
    course = Course(TEN, batch_size=2)
    course.yielded(next(course.begin()))
    again(course)
    assert next(course.begin()).positions.tolist() == [2, 3]
    assert place(course) == (0, 2)


def test_set_epoch():
    course = Course(TEN, batch_size=2)
    course.set_position(6)
    course.set_epoch(0)
    assert place(course) == (0, 6)
    course.set_epoch(np.int64(5))
    assert place(course) == (5, 0)
    course.set_epoch(0)
    assert place(course) == (0, 0)


def test_set_epoch_of_the_epoch_itself_leaves_its_loop_alone():
    course = Course(TEN, batch_size=2)
    run = course.begin()
    course.yielded(next(run))
    course.set_epoch(0)
    assert course.yielded(next(run))
    assert place(course) == (0, 4)


@pytest.mark.parametrize(
    ("disturb", "expected"),
    [
        (lambda course: course.load_state_dict({**course.state_dict(), "epoch": 3, "position": 6}), (3, 6)),
        (lambda course: course.set_epoch(2), (2, 0)),
        (lambda course: course.set_position(8), (0, 8)),
        (lambda course: course.steps(), (0, 2)),
        (lambda course: course.begin(), (1, 0)),
        (lambda course: course.finished(), (1, 0)),
    ],
    ids=["load_state_dict", "set_epoch", "set_position", "steps", "begin", "finished"],
)
def test_an_old_iterator_moves_nothing(disturb, expected):
    course = Course(TEN, batch_size=2)
    old = course.begin()
    course.yielded(next(old))
    disturb(course)
    assert not course.yielded(next(old))
    assert not course.finished(old)
    assert place(course) == expected


def test_a_batch_may_be_left_out():
    course = Course(TEN, batch_size=2)
    steps = list(course.steps())
    course.yielded(steps[0])
    course.yielded(steps[2])
    assert place(course) == (0, 6)


# States


def test_a_state_is_small_and_independent():
    course = Course(Identity(10**9, 500, "ab" * 32), seed=2**64 - 1, batch_size=256, world_size=8)
    course.set_epoch(2**63 - 2)
    course.set_position(10**9 - 1)
    state = course.state_dict()
    assert len(json.dumps(state)) < 300
    state["epoch"] = 0
    assert course.state_dict()["epoch"] == 2**63 - 2


def test_saved_with_the_last_batch():
    """In the loop it is (epoch, length), after it the next epoch. Loaded, both mean that the epoch is finished."""
    course, other = Course(TEN, batch_size=5), Course(TEN, batch_size=5)
    run = course.begin()
    for step in run:
        course.yielded(step)
    assert place(course) == (0, 10)
    other.load_state_dict(course.state_dict())
    assert (place(other), len(other), other.state_dict()) == ((1, 0), 2, course.state_dict())
    assert taken(other) == taken(Course(TEN, batch_size=5, epoch=1))
    other.load_state_dict(course.state_dict())
    other.set_epoch(0)  # what is left of it
    assert (place(other), len(other), taken(other), place(other)) == ((0, 10), 0, [], (1, 0))
    course.finished(run)
    other.load_state_dict(course.state_dict())
    assert (place(other), len(taken(other))) == ((1, 0), 2)


def test_the_state_wins_over_seed_and_epoch():
    course, other = Course(TEN, seed=1, batch_size=3), Course(TEN, seed=2, epoch=9, batch_size=3)
    course.yielded(next(course.begin()))
    other.load_state_dict(course.state_dict())
    assert (other.seed, *place(other)) == (1, 0, 3)
    assert taken(other) == taken(course_at(course.state_dict()))


def course_at(state: dict) -> Course:
    course = Course(TEN, batch_size=3)
    course.load_state_dict(state)
    return course


def test_a_state_goes_between_all_shapes_of_a_run():
    """A change of ranks, policy, batch size and drop_last is no change of the order."""
    course = Course(TEN, order="sequential", batch_size=2, world_size=2)
    course.yielded(next(course.begin()))
    other = Course(TEN, order="sequential", batch_size=1, world_size=3, rank=2, policy="pad", drop_last=True)
    other.load_state_dict(course.state_dict())
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
    state = Course(TEN).state_dict()
    course = Course(options.pop("identity", TEN), **options)
    course.set_epoch(5)
    course.set_position(3)
    with pytest.raises(ValueError, match=f"state belongs to .*{message}"):
        course.load_state_dict(state)
    assert place(course) == (5, 3)


def test_filters_are_told_apart():
    state = Course(TEN, indices=[1, 2, 3]).state_dict()
    with pytest.raises(ValueError, match=r"another filter: indices of CRC-32 0x\w+ in the state, indices of"):
        Course(TEN, indices=[1, 2, 4]).load_state_dict(state)
    Course(TEN, indices=np.array([1, -8, 3], np.int8)).load_state_dict(state)


GIVEN = r"expected the dict that state_dict\(\) returned"
STATE = Course(TEN).state_dict()


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
    course = Course(TEN, epoch=4)
    with pytest.raises(ValueError, match=words):
        course.load_state_dict(state)
    assert place(course) == (4, 0)


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


def course_of(shards: list[str], **options) -> Course:
    with FileReader(shards) as reader:
        identity = identity_of(reader)
    return Course(identity, **{"order": "random", "batch_size": 4, "seed": 3} | options)


def test_appended_shards_wait_for_the_next_epoch(shards):
    begun = course_of(shards[:2])
    begun.yielded(next(begun.begin()))
    course = course_of(shards)
    with pytest.raises(
        ValueError, match="shards were appended to the dataset: 9 samples then, 13 now; 2 shards then, 3"
    ):
        course.load_state_dict(begun.state_dict())
    course.load_state_dict(begun.state_dict(), appended="finish")
    # A state of the finishing epoch is still one of the dataset it began with.
    again = course_of(shards)
    again.load_state_dict(course.state_dict(), appended="finish")
    for each in (course, again):
        assert (each.length, len(each)) == (9, 2)
        assert taken(each) == [step.indices.tolist() for step in begun.steps()]
        assert sorted(chain(*taken(each))) == list(range(13))
        assert each.state_dict()["dataset"]["samples"] == 13


@pytest.mark.parametrize(
    "leave", [lambda course: course.set_epoch(1), lambda course: course.finished()], ids=["set_epoch", "finished"]
)
def test_another_epoch_has_the_appended_shards(shards, leave):
    begun, course = course_of(shards[:2]), course_of(shards)
    begun.yielded(next(begun.begin()))
    course.load_state_dict(begun.state_dict(), appended="finish")
    course.set_position(8)
    course.set_epoch(0)
    assert course.length == 9
    leave(course)
    assert course.length == 13


def test_an_epoch_not_begun_has_the_appended_shards(shards):
    course = course_of(shards)
    course.load_state_dict(course_of(shards[:2], epoch=4).state_dict(), appended="finish")
    assert (place(course), course.length) == ((4, 0), 13)
    begun = course_of(shards[:2])
    list(map(begun.yielded, begun.begin()))
    course.load_state_dict(begun.state_dict(), appended="finish")
    assert (place(course), course.length) == ((1, 0), 13)
    assert sorted(chain(*taken(course))) == list(range(13))


@pytest.mark.parametrize(("before", "now"), [([0, 1], [1, 0, 2]), ([0, 1, 2], [0, 1]), ([1], [0, 1])])
def test_anything_but_appending_is_refused(shards, before, now):
    begun, course = course_of([shards[i] for i in before], batch_size=1), course_of([shards[i] for i in now])
    begun.yielded(next(begun.begin()))
    with pytest.raises(ValueError, match="another dataset"):
        course.load_state_dict(begun.state_dict(), appended="finish")


def test_wrong_choice_about_appended_shards():
    course = Course(TEN)
    with pytest.raises(ValueError, match="appended is 'ignore', expected 'refuse' or 'finish'"):
        course.load_state_dict(course.state_dict(), appended="ignore")


# Filters


def test_a_filter_is_what_the_order_runs_over():
    course = Course(TEN, order="sequential", indices=[3, 3, -1, 0], batch_size=3)
    assert taken(course) == [[3, 3, 9], [0]]
    shuffled = Course(TEN, indices=np.array([2, 5, 7]), batch_size=3)
    assert [sorted(taken(shuffled)[0]) for _ in range(5)] == [[2, 5, 7]] * 5


def test_a_mapped_filter_stays_mapped(tmp_path):
    np.save(tmp_path / "filter.npy", np.arange(0, 1 << 20, 3))
    mapped = np.load(tmp_path / "filter.npy", mmap_mode="r")
    tracemalloc.start()
    course = Course(Identity(1 << 20), indices=mapped, batch_size=16)
    state = course.state_dict()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.shares_memory(course.indices, mapped)
    assert most < mapped.nbytes / 20
    assert state["indices"] == Course(Identity(1 << 20), indices=np.array(mapped)).state_dict()["indices"]


def test_the_crc_of_a_filter():
    """Of its int64 bytes, in whatever type it was given."""
    expected = zlib.crc32(np.array([1, 9, 4], "<i8").tobytes())
    for indices in ([1, 9, 4], (1, -1, 4), np.array([1, 9, 4], np.uint8), iter([1, 9, 4])):
        assert Course(TEN, indices=indices).state_dict()["indices"] == expected


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
        Course(options.pop("identity", TEN), **options)


def test_a_batch_larger_than_the_share_of_a_rank_is_short():
    assert taken(Course(TEN, order="sequential", batch_size=100, world_size=3)) == [[0, 3, 6]]
    more_ranks = Course(TEN, batch_size=100, world_size=11, rank=10, policy="uneven")
    assert taken(more_ranks) == []


@pytest.mark.parametrize(("position", "error"), [(-1, ValueError), (11, ValueError), (1.0, TypeError)])
def test_wrong_positions(position, error):
    course = Course(TEN)
    with pytest.raises(error, match=r"position is -?\d+, expected 0 <= position < 11|position is .*, expected an int"):
        course.set_position(position)


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
    state = Course(identity, order=order, batch_size=256).state_dict()

    def first_step(position: int):
        def go() -> object:
            course = Course(identity, order=order, batch_size=256, world_size=4)
            course.load_state_dict({**state, "position": position})
            return next(course.begin()), course

        return go

    first_step(0)()
    start, late = allocated(first_step(0)), allocated(first_step(99 * 10**10))
    assert max(*start, *late) < 32 << 10
    assert abs(start[0] - late[0]) < 1024
    assert abs(start[1] - late[1]) < 1024


def test_pickles(shards):
    course = course_of(shards)
    course.yielded(next(course.begin()))
    copy = pickle.loads(pickle.dumps(course))
    assert copy.state_dict() == course.state_dict()
    assert next(copy.steps()).indices.tolist() == next(course.steps()).indices.tolist()


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("position", [0, 7])
def test_samples_of_a_window(rank: int, position: int) -> None:
    """By their numbers in a run, which end where the window ends."""
    blocks = Block(4, 3)
    course = Course(Identity(100), order=blocks, batch_size=5, rank=rank, world_size=3, seed=1, policy="uneven")
    course.set_position(position)
    run = course.steps()
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
