"""Runs of the command: each is its own process, timed from outside, with its answer checked."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from harness import WrongAnswerError

COMMAND = [sys.executable, "-m", "ffrecord"]


class Ran(NamedTuple):
    """The time and the output of a process.

    Attributes:
        seconds: time from before its start to after its end.
        facts: its output, JSON.
    """

    seconds: float
    code: int
    facts: Any


def timed_process(command: list[str], cpu: int | None = None) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a process; return seconds and output. cpu: the only CPU that it may use."""
    pin = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=pin)
    return time.perf_counter() - start, done


def run(*arguments: object, cpu: int | None = None) -> Ran:
    """Run a command with --json.

    Raises:
        WrongAnswerError: it failed.
    """
    seconds, done = timed_process([*COMMAND, *map(str, arguments), "--json"], cpu)
    if done.returncode not in (0, 1):
        raise WrongAnswerError(f"{arguments[0]}: exit code {done.returncode}: {done.stderr}")
    return Ran(seconds, done.returncode, json.loads(done.stdout))


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Return a context in which this thread, and the processes it starts, run on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def expect(facts: Any, **wanted: object) -> None:
    """Compare some of the facts.

    Raises:
        WrongAnswerError: a value differs.
    """
    for name, value in wanted.items():
        if facts[name] != value:
            raise WrongAnswerError(f"{name} is {facts[name]!r}, expected {value!r}")


def checked(take: Callable[[], float]) -> Callable[[], None]:
    """Return a `Contestant.check` for a run that checks its answer each time."""

    def check() -> None:
        take()

    return check
