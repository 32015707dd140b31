"""Workers that are asked for numbered parts: each is asked for once, and every answer comes."""

import multiprocessing
import time

import msgspec
import pytest

from ffrecord.errors import WorkerError
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, map_parts, receive_parts, run_pool
from ffrecord.processes.process import Link


def square(link: Link, heart: Heart, *, refused: int = -1) -> None:
    for number in receive_parts(link, heart):
        if number == refused:
            raise ValueError(f"no {number}")
        time.sleep(0.001 * (number % 3))
        link.send(msgspec.msgpack.encode(number * number))


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_every_part_is_answered_once(ahead: int, count: int) -> None:
    crew = WorkerPool(square, {}, 2)
    found = run_pool(
        crew, lambda: [msgspec.msgpack.decode(message) for message in map_parts(crew, range(count), ahead)]
    )
    assert sorted(found) == [number * number for number in range(count)]
    assert multiprocessing.active_children() == []


def test_a_part_that_fails() -> None:
    crew = WorkerPool(square, {"refused": 7}, 2)
    with pytest.raises(WorkerError, match="no 7"):
        run_pool(crew, lambda: list(map_parts(crew, range(30))))
    assert multiprocessing.active_children() == []


def test_no_more_than_a_few_are_taken_ahead() -> None:
    """Parts may come from anything that gives them one by one."""
    taken = []

    def numbers():
        for number in range(30):
            taken.append(number)
            yield number

    crew = WorkerPool(square, {}, 2)

    def use() -> None:
        for given, _ in enumerate(map_parts(crew, numbers(), 2), 1):
            assert len(taken) <= given + 4

    run_pool(crew, use)
    assert taken == list(range(30))
