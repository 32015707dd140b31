"""A list that threads work through gives what a loop gives."""

import signal
import threading
import time

import pytest

from ffrecord.system.threads import map_in_threads


@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize("threads", [1, 3, 200])
def test_gives_what_a_loop_gives(count: int, threads: int) -> None:
    def square(number: int) -> int:
        time.sleep(0.0001 * (number % 3))  # so that they end in another order
        return number * number

    assert map_in_threads(square, range(count), threads) == [square(number) for number in range(count)]


def test_no_more_threads_than_asked_for() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def look(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.001)
        with lock:
            now -= 1

    map_in_threads(look, range(50), 4)
    assert 1 <= most <= 4


def test_one_thing_needs_no_thread() -> None:
    assert map_in_threads(lambda _: threading.get_ident(), ["x"], 8) == [threading.get_ident()]


def test_the_first_failure_ends_it() -> None:
    done: list[int] = []

    def fail(number: int) -> None:
        time.sleep(0.001)
        if number % 2:
            raise ValueError(number)
        done.append(number)

    with pytest.raises(ValueError, match=r"^1$"):
        map_in_threads(fail, range(1000), 2)
    assert len(done) < 500  # calls that had not begun were dropped
    assert not [each for each in threading.enumerate() if each.name.startswith("ffrecord_")]


def test_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert map_in_threads(str, range(40), 4) == [str(i) for i in range(40)]


def test_an_interrupt_waits_for_calls_that_run() -> None:
    """Also if the caller's own calls are done, and it only waits."""
    main, running, begun = threading.main_thread(), set(), threading.Event()

    def run(number: int) -> None:
        running.add(number)
        if threading.current_thread() is main:
            assert begun.wait(60)
        else:
            begun.set()
            threading.Timer(0.1, signal.pthread_kill, [main.ident, signal.SIGINT]).start()
            time.sleep(0.4)
        running.remove(number)

    with pytest.raises(KeyboardInterrupt):
        map_in_threads(run, range(2), 2)
    assert not running
