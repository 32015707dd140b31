"""`dataset_writer.tasks`: samples of datasets that give several at once, asked ahead by a thread or not."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ffrecord.dataset_writer.messages import IndexTask
from ffrecord.dataset_writer.tasks import AT_ONCE, FEW, TaskOpener
from ffrecord.processes import failure_messages, heartbeats
from ffrecord.processes.heartbeats import Beat, Heart


class Squares:
    """Of which some cannot be had; notes what it was asked, and by which thread."""

    def __init__(self, bad: Sequence[int] = (), most: int | None = None, *, ahead: bool = True) -> None:
        self.bad, self.may_be_asked_ahead = set(bad), ahead
        self.asked: list[list[int]] = []
        self.threads: set[int] = set()
        if most is not None:
            self.samples_at_once = lambda indices: most if most else 1 // 0

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.asked.append(indices)
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> int:
        self.threads.add(threading.get_ident())
        if index in self.bad:
            raise KeyError(index)
        return index * index


def had(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """What a run gives, None for what it cannot."""
    run = TaskOpener(dataset, heart=Heart()).open(IndexTask(7, np.array(indices, np.int64).tobytes()))
    found: list[Any] = []
    for index in run.indices:
        try:
            found.append(run.get(index))
        except KeyError:
            found.append(None)
    return found


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("count", [0, 1, FEW - 1, AT_ONCE, AT_ONCE + FEW - 1, AT_ONCE + FEW, 5 * AT_ONCE + 3])
@pytest.mark.parametrize("most", [None, FEW, AT_ONCE, 0])
def test_every_sample_in_order(count: int, most: int | None, ahead: bool) -> None:
    indices = np.random.default_rng(count).permutation(1000)[:count].tolist()
    assert had(Squares(most=most, ahead=ahead), indices) == [index * index for index in indices]


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("most", [None, 10, 0])
def test_only_what_fails_is_missing(most: int | None, ahead: bool) -> None:
    bad = [0, 5, 70, 199]
    found = had(Squares(bad, most, ahead=ahead), range(200))
    assert found == [None if index in bad else index * index for index in range(200)]


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE - 1])
def test_equal_shares(count: int) -> None:
    dataset = Squares()
    had(dataset, range(count))
    sizes = [len(asked) for asked in dataset.asked]
    assert len(sizes) == -(-count // AT_ONCE)
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1


def test_one_thread_asks() -> None:
    dataset = Squares(bad=[3, 90])
    had(dataset, range(200))
    assert len(dataset.threads) == 1
    assert dataset.threads != {threading.get_ident()}
    dataset = Squares(bad=[3, 90], ahead=False)
    had(dataset, range(200))
    assert dataset.threads == {threading.get_ident()}


def test_no_thread_asks_in_the_process_of_the_user() -> None:
    dataset = Squares()
    run = TaskOpener(dataset).open(IndexTask(0, np.arange(100).tobytes()))
    assert [run.get(index) for index in run.indices] == [index * index for index in range(100)]
    assert dataset.threads == {threading.get_ident()}


def test_what_is_asked_ahead_is_told() -> None:
    heart, told = Heart(), []

    class Telling(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            told.append(heart.beat().ahead)
            return super().__getitems__(indices)

    run = TaskOpener(Telling(), heart=heart).open(IndexTask(0, np.arange(3 * AT_ONCE).tobytes()))
    assert [run.get(index) for index in run.indices] == [index * index for index in range(3 * AT_ONCE)]
    assert told == [0, AT_ONCE, 2 * AT_ONCE]
    assert heart.beat().ahead is None
    heart.note_fetch(0)
    assert "at sample 0, while samples from 0 on were read ahead" in str(
        failure_messages.death_error(
            "worker 0", Beat(heartbeats.SAMPLE, 0, 1, 0, heart.beat().ahead), 1, lambda beat: beat.sample
        )
    )


def test_the_next_are_asked_for_before_they_are_wanted() -> None:
    dataset = Squares()
    run = TaskOpener(dataset, heart=Heart()).open(IndexTask(0, np.arange(3 * AT_ONCE).tobytes()))
    assert run.get(next(iter(run.indices))) == 0
    for _ in range(1000):
        if len(dataset.asked) == 2:
            break
        threading.Event().wait(0.01)
    assert dataset.asked == [[*range(AT_ONCE)], [*range(AT_ONCE, 2 * AT_ONCE)]]
