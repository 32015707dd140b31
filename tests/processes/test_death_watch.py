"""The death watch: the end of a worker interrupts the code of the user in the parent, and nothing else."""

import os
import signal
import threading
import time

import children
import pytest
from test_worker_pool import at_17, crew_of, echo, kill_me

from ffrecord.errors import WorkerError
from ffrecord.processes.death_watch import DeathWatch


def test_an_alarm_rings_only_where_it_is_armed() -> None:
    with crew_of(at_17, act=kill_me) as crew, DeathWatch(crew.sentinels) as alarm:
        time.sleep(0.3)
        with pytest.raises(WorkerError, match="was ended by SIGKILL at sample 17"), alarm.interruptible(crew):
            raise AssertionError("it has rung before")
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL


def test_an_alarm_leaves_the_signals_of_others_to_them() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGURG, lambda signum, frame: seen.append(signum))
    try:
        with crew_of(echo) as crew, DeathWatch(crew.sentinels) as alarm, alarm.interruptible(crew):
            signal.raise_signal(signal.SIGURG)
    finally:
        signal.signal(signal.SIGURG, before)
    assert seen == [signal.SIGURG]


def test_an_alarm_rings_until_it_is_heard() -> None:
    with crew_of(at_17, act=kill_me) as crew, DeathWatch(crew.sentinels) as alarm:
        ring = signal.getsignal(signal.SIGURG)
        rung: list[object] = []
        assert callable(ring)
        signal.signal(signal.SIGURG, lambda *which: ring(*which) if len(rung) == 3 else rung.append(which))
        started = time.monotonic()
        with pytest.raises(WorkerError, match="was ended by SIGKILL at sample 17"), alarm.interruptible(crew):
            time.sleep(20 * children.PATIENCE)
    assert len(rung) == 3 and time.monotonic() - started < 5 * children.PATIENCE
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL


def test_an_alarm_is_turned_off_though_a_child_of_the_iterable_lives_on() -> None:
    with crew_of(echo, 2) as crew:
        with DeathWatch(crew.sentinels):
            child = os.fork()
            if child == 0:
                time.sleep(20)
                os._exit(0)
        assert "ffrecord-death-watch" not in [thread.name for thread in threading.enumerate()]
        assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_an_alarm_lets_exceptions_of_others_pass() -> None:
    with crew_of(echo) as crew, DeathWatch(crew.sentinels) as alarm:
        with pytest.raises(KeyError), alarm.interruptible(crew):
            raise KeyError("theirs")
        with alarm.interruptible(crew):
            pass


def test_an_alarm_in_another_thread_never_rings() -> None:
    seen: list[int] = []

    def run() -> None:
        with crew_of(at_17, act=kill_me) as crew, DeathWatch(crew.sentinels) as alarm, alarm.interruptible(crew):
            time.sleep(0.3)
            seen.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert seen == [1]
