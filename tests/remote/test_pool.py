"""Threads that wait for answers: whatever happens to them, nobody waits for ever."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import children
import pytest

from ffrecord.errors import ClosedError
from ffrecord.remote import pool as module
from ffrecord.remote.pool import Pool, pause

SOON = 20.0  # seconds; requests to a server that is silent take longer, with all their tries


@pytest.fixture
def silent() -> Iterator[str]:
    """URL of a server that takes requests, and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def ran(pool: Pool, count: int) -> int:
    """How many of so many tasks were run."""
    done: list[int] = []
    pool.run([lambda i=i: done.append(i) for i in range(count)])  # type: ignore[misc]
    return len(set(done))


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_threads_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Of the system that lets a process have few."""
    begin, left = threading.Thread.start, iter(range(allowed))

    def start(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        begin(thread)

    pool = Pool(8)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert ran(pool, 20) == 20
        assert ran(pool, 20) == 20
        assert len(pool._threads) == allowed
    assert ran(pool, 20) == 20
    assert (len(pool._threads), pool._unfinished) == (8, 0)
    pool.end(time.monotonic() + SOON)


def test_a_task_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, done = Pool(2), threading.Event()

    def fail() -> None:
        raise ValueError("nobody hears of it")

    assert pool.begin(fail) and pool.begin(done.set)
    assert done.wait(SOON)
    assert ran(pool, 5) == 5
    # A thread notes the end of a task after its result is there.
    assert children.wait_until(lambda: (pool._unfinished, pool._rounds) == (0, set()), SOON)
    pool.end(time.monotonic() + SOON)
    alone = Pool(2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail_to_start)
        assert not alone.begin(done.clear)
    assert done.is_set() and (alone._unfinished, alone._rounds) == (0, set())


def fail_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_task_that_is_given_up() -> None:
    """It ends while it waits before another try, and does not begin if it has not begun."""
    pool, owner, begun, stopped, done = Pool(1), object(), threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        while not pause(0.01):
            pass
        stopped.set()

    assert pool.begin(wait, owner) and pool.begin(done.set, owner)
    assert begun.wait(SOON)
    pool.give_up(owner)
    assert stopped.wait(SOON)
    assert ran(pool, 3) == 3
    assert not done.is_set() and pool._rounds == set()
    pool.end(time.monotonic() + SOON)


def test_what_is_interrupted_while_it_is_given_is_not_counted() -> None:
    class Interrupted(SimpleQueue):  # type: ignore[type-arg]
        def put(self, *args: Any) -> None:
            if next(moments, False):
                raise KeyboardInterrupt
            super().put(*args)

    pool, moments = Pool(2), iter([False, True])
    pool._queue = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ran(pool, 5)
    assert ran(pool, 5) == 5
    deadline = time.monotonic() + SOON  # for what was given before the interruption
    while pool._unfinished and time.monotonic() < deadline:
        time.sleep(0.001)
    assert (pool._unfinished, pool._rounds) == (0, set())
    pool.end(time.monotonic() + SOON)


def test_what_is_given_up_is_not_waited_for_nor_tried_again() -> None:
    pool, owner, begun, tries = Pool(1), object(), threading.Event(), []
    over = threading.Event()

    def stuck() -> None:
        begun.set()
        while not pause(0.01):
            tries.append(1)
        over.set()

    def give_up() -> None:
        begun.wait(SOON)
        pool.give_up(object())  # somebody else
        time.sleep(0.1)
        assert not over.is_set()
        pool.give_up(owner)

    other = threading.Thread(target=give_up)
    other.start()
    with pytest.raises(ClosedError):
        pool.run([stuck, lambda: None], owner)
    other.join()
    assert over.wait(SOON)
    assert tries
    assert ran(pool, 3) == 3  # by the thread that was stuck
    assert not pause(0)
    pool.end(time.monotonic() + SOON)


def test_what_does_not_end_is_not_waited_for_at_the_end() -> None:
    pool, stop = Pool(2), threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            pool.run([lambda: stop.wait(SOON), lambda: stop.wait(SOON), lambda: None])
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while pool._unfinished < 3:
        time.sleep(0.001)
    begun = time.monotonic()
    pool.end(begun + 0.1)
    thread.join(SOON)
    assert time.monotonic() - begun < SOON / 2 * children.PATIENCE
    assert [str(error) for error in raised] == ["the interpreter is ending, so nothing more is read"]
    stop.set()


READING = """
import sys
from ffrecord import FileReader
from ffrecord.remote import opening
from ffrecord.remote.shard import RemoteShard
from ffrecord.remote.tables import ShardFacts
def opened(self):
    self.shards = [RemoteShard(self.storage, "a", ShardFacts(9, 999, 1), check=True)]
opening._Opening.open = opened  # its dataset.json came; now the server is silent
with FileReader(sys.argv[1]) as reader:
    if sys.argv[2] == "read":
        print("reads", flush=True)
        reader.read([1])
    else:
        batches = reader.iter_batches([[1], [2], [3]], 2)
        print("reads", flush=True)
        next(batches)
"""


@pytest.mark.parametrize("way", ["read", "ahead"])
def test_ctrl_c_while_a_server_is_silent(silent: str, way: str) -> None:
    with children.started(READING, silent, way) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "reads\n", child.stderr.read()
        time.sleep(1)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60 * children.PATIENCE)[1]
        assert time.monotonic() - begun < SOON * children.PATIENCE
    assert "KeyboardInterrupt" in said
    assert child.returncode in (-signal.SIGINT, 130)


def test_a_process_has_one_pool_of_a_size() -> None:
    assert module.pool(5) is module.pool(5) is not module.pool(6)
