"""Fork a writer and kill it: at every call that changes a disk, or at random times. disk_calls.c is preloaded there."""

import contextlib
import ctypes
import json
import logging
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from crash_case import Case
from crash_cases import cases
from disk_calls import Action, Calls, Victim

MOST = 2000  # calls: many times what any of these needs
PATIENCE = 10.0  # seconds for workers of a killed writer to end
PR_SET_CHILD_SUBREAPER = 36


class Ended(NamedTuple):
    """How a writer did: whether a kill befell it, and the last that it said."""

    died: bool
    said: int


class Killer:
    """Runs writers in forks that are killed."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._said = mmap.mmap(-1, 8)
        # Workers of a killed writer become our children, so that we see them end.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, case: Case) -> int:
        """A process, leader of a group, that does the work of `case`."""
        self._said[:] = bytes(8)
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.setpgid(0, 0)
                self.calls.arm()
                case.work(self._say)
                code = 0
            except BaseException:
                code = 4
                with open(self._trace(case), "w") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(code)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)
        return child

    def _say(self, number: int) -> None:
        self._said[:] = number.to_bytes(8, "little")

    @staticmethod
    def _trace(case: Case) -> Path:
        return case.place.with_name("traceback")

    def ended(self, child: int, case: Case, *, worker: bool = False) -> Ended:
        """Once it has; `worker`: one of its workers may have been killed, which must be an error."""
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 4 and not worker:
            raise AssertionError(self._trace(case).read_text())
        assert status in (0, -9) or (worker and status == 4), status
        return Ended(status != 0, int.from_bytes(self._said[:8], "little"))

    @staticmethod
    def gone(group: int) -> None:
        """Wait for every process of a group to end; none may stay."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found, _ = os.waitpid(-group, os.WNOHANG)
            except ChildProcessError:
                return
            if not found:
                assert time.monotonic() < deadline, f"an orphan of {group} stays"
                time.sleep(0.001)


def at_every_call(killer: Killer, case: Case, step: int, actions: int) -> int:
    """Kill at call 1, 1 + step, ... until there is none; how many kills there were. Of workers and parent in turns."""
    kills = 0
    for action in (Action.KILL_BEFORE, Action.KILL_AFTER)[:actions]:
        for call in range(1, MOST, step):
            victim = Victim(call // step % 3) if case.parallel else Victim.SELF
            case.fresh()
            killer.calls.plan(call, action, victim=victim)
            child = killer.start(case)
            ended = killer.ended(child, case, worker=case.parallel)
            kills += killer.calls.fired
            try:
                case.check(ended.said)
            except BaseException:
                print(f"killed at call {call} ({action.name}, {victim.name})", file=sys.stderr)
                raise
            killer.gone(child)
            if not killer.calls.fired:
                assert not ended.died and call > step, "there were no calls"
                break
        else:
            raise AssertionError(f"more than {MOST} calls")
    return kills


def workers_of(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def at_random(killer: Killer, case: Case, count: int, clock: random.Random) -> int:
    """Kill at any time, the writer, a worker, or all of them, until that befell `count` of them."""
    killer.calls.plan()
    seconds, kills = undisturbed(killer, case), 0
    for _ in range(20 * count):
        if kills >= count:
            break
        case.fresh()
        child = killer.start(case)
        time.sleep(clock.random() * seconds)
        victim = clock.choice(list(Victim)) if case.parallel else Victim.FIRST
        workers = workers_of(child) if victim is Victim.SELF else []
        with contextlib.suppress(ProcessLookupError):
            if victim is Victim.ALL:
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(clock.choice(workers) if workers else child, signal.SIGKILL)
        ended = killer.ended(child, case, worker=bool(workers))
        # So that five of six writers are killed before they end, however busy the machine is meanwhile.
        kills += ended.died
        seconds *= 1.01 if ended.died else 0.95
        case.check(ended.said)
        killer.gone(child)
    assert kills >= count, f"{kills} of {count} kills found somebody to kill"
    return kills


def undisturbed(killer: Killer, case: Case) -> float:
    """Seconds that the work takes, which it must do."""
    case.fresh()
    began = time.monotonic()
    child = killer.start(case)
    ended = killer.ended(child, case)
    seconds = time.monotonic() - began
    assert not ended.died
    case.check(ended.said)
    killer.gone(child)
    return seconds


def main(root: str, how: str, given: str) -> None:
    """Kill writers, and print as JSON how many kills there were in each case.

    Args:
        root: an empty directory to do it in.
        how: "calls" or "random".
        given: as JSON: the cases, their kills if those are at random, and numbers for that.
    """
    logging.getLogger("ffrecord").setLevel(logging.ERROR)  # or each write says that it goes on
    killer, found, numbers = Killer(Calls()), Counter[str](), json.loads(given)
    made, clock = cases(Path(root)), random.Random(numbers.get("seed"))
    for name in numbers["cases"]:
        try:
            if how == "calls":
                found[name] += at_every_call(killer, made[name](), numbers["step"], numbers["actions"])
            else:
                found[name] += at_random(killer, made[name](), numbers["cases"][name], clock)
        except BaseException:
            print(f"case {name!r}", file=sys.stderr)
            raise
    print(json.dumps(found))
