"""`_threads`: tasks for threads without the GIL, through its probe."""

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path

import children
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.kernels import _threads
from ffrecord.kernels._threads import Probe

FEWEST, MOST = [1, 3, 7, 15], [1, 5, 21, 85]  # tasks that run for one of each depth


def until(true: Callable[[], bool]) -> None:
    """Wait, at most 30 seconds."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, _threads.stats()
        time.sleep(0)


def end_threads() -> None:
    """Those that other tests left idle."""
    before = _threads.keep_idle(0)
    until(lambda: _threads.stats()["threads"] == 0)
    _threads.keep_idle(before)


@pytest.fixture
def no_threads() -> None:
    end_threads()


def submitted(n: int, threads: int, **more: int) -> Probe:
    probe = Probe(n, **more)
    for i in range(n):
        probe.submit(i, threads)
    return probe


@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 8, 100])
@pytest.mark.parametrize("microseconds", [0, 500])
def test_every_task_runs_once(threads, microseconds):
    before = _threads.stats()["done"]
    probe = submitted(100, threads, microseconds=microseconds)
    assert all(probe.finish(i) for i in range(100))
    assert [probe.count(i) for i in range(100)] == [1] * 100
    assert all(probe.is_done(i) and probe.finish(i) and probe.withdraw(i) for i in range(100))
    assert _threads.stats()["done"] - before == 100


@pytest.mark.parametrize("milliseconds", [0, 1, 10_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_nobody_has_to_finish_them(threads, milliseconds):
    """A wake-up that is lost leaves a task behind, one that meets the end of a thread's patience included."""
    end_threads()
    before = _threads.keep_idle(milliseconds)
    try:
        for turn in range(3000):
            n = 1 + turn % 10 // 9 * 4
            probe = submitted(n, threads)
            until(lambda n=n, probe=probe: all(probe.is_done(i) for i in range(n)))
    finally:
        _threads.keep_idle(before)


def test_first_in_first_out():
    children.run("""
from ffrecord.kernels._threads import Probe
probe = Probe(20, 2000)
for i in range(20):
    probe.submit(i, 1)
while not probe.is_done(19):
    done = [probe.is_done(i) for i in reversed(range(20))]
    assert done == sorted(done), done
""")


def test_threads_are_as_many_as_needed():
    """No more than tasks, than were asked for, than the limit; idle ones serve again."""
    children.run("""
from ffrecord.kernels._threads import Probe, stats
plan = [(1, 0, 0), (1, 4, 1), (1, 4, 1), (6, 3, 3), (50, 100, 32), (50, 8, 32)]
for n, threads, wanted in plan:
    probe = Probe(n, 200_000)
    for i in range(n):
        probe.submit(i, threads)
    assert stats()["threads"] == wanted, (n, threads, stats())
    for i in reversed(range(n)):
        assert probe.finish(i)
    while stats()["idle"] < wanted:
        pass
assert stats() == {"threads": 32, "idle": 32, "queued": 0, "done": 109}, stats()
""")


def test_threads_work_side_by_side():
    start = time.monotonic()
    probe = submitted(8, 32, microseconds=300_000 * children.PATIENCE)
    assert all(probe.finish(i) for i in range(8))
    assert time.monotonic() - start < 1.2 * children.PATIENCE


@pytest.mark.usefixtures("no_threads")
def test_finish_runs_what_nobody_began():
    probe = submitted(1, 0)
    assert not probe.is_done(0)
    assert probe.finish(0)
    assert probe.count(0) == 1


def test_withdraw():
    children.run("""
from ffrecord.kernels._threads import Probe, stats
probe = Probe(3, 200_000)
probe.submit(0, 1)
while stats()["queued"]:
    pass
probe.submit(1, 1)
assert (probe.withdraw(1), probe.count(1), stats()["queued"]) == (False, 0, 0)  # not begun
assert (probe.withdraw(0), probe.count(0)) == (True, 1)  # begun, and waited for
assert not (probe.finish(1) or probe.withdraw(1) or probe.is_done(1))  # it stays so
assert not (probe.finish(2) or probe.withdraw(2) or probe.is_done(2))  # never submitted
probe.submit(1, 1)
assert (probe.finish(1), probe.count(1), stats()["done"]) == (True, 1, 2)
""")


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 2))
def test_any_order(order, finished, threads):
    """The queue stays whole, whichever is taken off it."""
    probe = submitted(6, threads)
    for i in order:
        ran = probe.finish(i) if finished[i] else probe.withdraw(i)
        assert ran or not finished[i]
        assert probe.count(i) == ran == probe.is_done(i)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("threads", [0, 1, 2, 16])
def test_tasks_that_hand_out_tasks(threads, depth):
    for _ in range(20):
        probe = submitted(10, threads, microseconds=20, depth=depth)
        for i in range(10):
            assert probe.finish(i)
            assert FEWEST[depth] <= probe.count(i) <= MOST[depth]


def test_a_probe_may_be_dropped_at_any_time():
    for depth in (0, 1, 2):
        for _ in range(50):
            submitted(10, 3, microseconds=50, depth=depth)


def test_two_may_wait_for_the_same_task():
    probe = submitted(1, 4, microseconds=100_000)
    got = []
    waiting = [threading.Thread(target=lambda: got.append(probe.finish(0))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert (got, probe.count(0)) == ([True] * 4, 1)


def hustle(stop: threading.Event, wrong: list[object]) -> None:
    """Submit, finish and withdraw until told to stop."""
    while not stop.is_set():
        probe = submitted(6, 4, microseconds=10, depth=1)
        ran = [probe.finish(0), probe.withdraw(5), probe.finish(2), probe.withdraw(1), probe.withdraw(3)]
        counts = [probe.count(i) for i in (0, 5, 2, 1, 3)]  # nobody knows of task 4
        if [count > 0 for count in counts] != ran or max(counts) > MOST[1]:
            wrong.append((ran, counts))


def while_others_hustle(work: Callable[[], None]) -> None:
    """Run `work` in this thread."""
    stop, wrong = threading.Event(), []
    others = [threading.Thread(target=hustle, args=(stop, wrong)) for _ in range(3)]
    for thread in others:
        thread.start()
    try:
        work()
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert not wrong


def test_many_submitters():
    while_others_hustle(lambda: time.sleep(1))


def test_wrong_arguments():
    probe = Probe(2)
    for call in (lambda i: probe.submit(i, 1), probe.finish, probe.withdraw, probe.is_done, probe.count):
        for i in (-1, 2):
            with pytest.raises(IndexError, match=f"task is {i}, expected 0 <= i < 2"):
                call(i)
    with pytest.raises(ValueError, match="milliseconds is -1"):
        _threads.keep_idle(-1)


# Tasks that compute


def running() -> int:
    stats = _threads.stats()
    return stats["threads"] - stats["idle"]


@pytest.mark.usefixtures("no_threads")
def test_no_more_compute_at_once_than_they_say():
    probe = Probe(10, 20_000)
    for i in range(10):
        probe.submit(i, 8, 2)
    most = 0
    while not probe.is_done(9):
        most = max(most, running())
    assert most == 2
    assert all(probe.finish(i) for i in range(10))


@pytest.mark.usefixtures("no_threads")
def test_others_pass_those_that_wait_their_turn():
    probe = Probe(6, 100_000)
    for i in range(5):
        probe.submit(i, 8, 1)
    probe.submit(5, 8)
    until(lambda: probe.is_done(5))
    assert not probe.is_done(3)
    until(lambda: all(probe.is_done(i) for i in range(6)))


@pytest.mark.usefixtures("no_threads")
def test_who_waits_runs_them_whatever_else_runs():
    probe = Probe(4, 100_000)
    for i in range(4):
        probe.submit(i, 8, 1)
    assert probe.finish(3)
    assert not probe.is_done(2)
    assert all(map(probe.finish, range(4)))


@pytest.mark.usefixtures("no_threads")
def test_threads_that_are_not_needed_end_while_others_work():
    before = _threads.keep_idle(100)
    try:
        probe = submitted(8, 8, microseconds=50_000)
        assert all(map(probe.finish, range(8)))
        ahead = Probe(4, 2000)
        for i in range(4):
            ahead.submit(i, 4, 2)
        turns = 0

        def one_more() -> bool:
            nonlocal turns
            until(lambda: ahead.is_done(turns % 4))
            ahead.submit(turns % 4, 4, 2)
            turns += 1
            return _threads.stats()["threads"] == 2

        until(one_more)
        assert all(map(ahead.finish, range(4)))
    finally:
        _threads.keep_idle(before)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=20))
def test_nobody_has_to_finish_any_mixture(tasks):
    """Also of those that compute: none is forgotten when it may begin, whichever thread was in its way."""
    probe = Probe(len(tasks), 50)
    for i, (threads, beside) in enumerate(tasks):
        probe.submit(i, threads, beside)
    until(lambda: all(probe.is_done(i) for i in range(len(tasks))))


# Fork


def works() -> bool:
    """Whether a process that begins with nothing gets its threads."""
    clean = _threads.stats() == {"threads": 0, "idle": 0, "queued": 0, "done": 0}
    probe = submitted(20, 4, microseconds=100, depth=1)
    return clean and all(probe.finish(i) for i in range(20)) and 0 < _threads.stats()["threads"] <= 4


@pytest.mark.usefixtures("no_threads")
def test_a_fork_loses_what_is_not_done():
    done, probe = submitted(1, 1), submitted(4, 1, microseconds=300_000)
    assert done.finish(0)
    until(lambda: _threads.stats()["queued"] == 3)

    def child() -> bool:
        kept = done.finish(0) and done.withdraw(0) and done.is_done(0)
        lost = [call(i) for i in range(4) for call in (probe.is_done, probe.finish, probe.withdraw, probe.count)]
        first = works()
        probe.submit(3, 1)
        return kept and not any(lost) and first and probe.finish(3) and children.in_child(works) == 0

    assert children.in_child(child) == 0
    assert all(probe.finish(i) for i in range(4))
    assert [probe.count(i) for i in range(4)] == [1] * 4


def test_a_child_may_drop_what_it_lost():
    probes = [submitted(50, 2, microseconds=1000)]
    assert children.in_child(lambda: probes.clear() is None and works()) == 0
    assert all(probes[0].finish(i) for i in range(50))


@pytest.mark.parametrize("rounds", [20, pytest.param(300, marks=pytest.mark.long)])
def test_fork_while_tasks_run(rounds):
    def fork() -> None:
        assert [children.in_child(works) for _ in range(rounds)] == [0] * rounds

    while_others_hustle(fork)


CLONE = """
import ctypes, os, platform, sys
from ffrecord.kernels._threads import Probe, stats
from test_threads_pool import works
number = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
if number is None:
    sys.exit("no number of clone")
probe = Probe(4, 0, 30)  # without an end
libc = ctypes.PyDLL(None)
for i in range(4):
    probe.submit(i, 4)
for _ in range(60):
    child = libc.syscall(number, 17, 0, 0, 0, 0)  # SIGCHLD
    if child == 0:
        good = not (probe.is_done(0) or probe.finish(0) or probe.withdraw(3)) and works()
        os._exit(0 if good else 1)
    assert child > 0 and os.waitpid(child, 0)[1] == 0
assert stats()["queued"] > 0
os._exit(0)
"""


def test_a_child_made_without_handlers():
    """By the bare system call, with the lock held or not."""
    done = children.finished(CLONE)
    if "no number" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")


# Threads and the system


def test_idle_threads_end():
    children.run("""
import os, time
from ffrecord.kernels._threads import Probe, keep_idle, stats
assert len(os.listdir("/proc/self/task")) == 1
def run():
    probe = Probe(4, 200_000)
    for i in range(4):
        probe.submit(i, 4)
    assert all(map(probe.finish, range(4)))
run()
time.sleep(0.3)
assert stats()["idle"] == 4 and len(os.listdir("/proc/self/task")) == 5
for milliseconds, before in [(300, 1000), (0, 300)]:
    assert keep_idle(milliseconds) == before
    # A listing may miss some that are there while others end.
    while len(os.listdir("/proc/self/task")) > 1 or stats()["threads"]:
        pass
    assert stats()["threads"] == stats()["idle"] == 0
    run()
assert stats()["done"] == 12
""")


def test_threads_that_ended_leave_nothing():
    children.run("""
from pathlib import Path
from ffrecord.kernels._threads import Probe, keep_idle, stats
keep_idle(0)
sizes = []
for turn in range(600):
    probe = Probe(1)
    probe.submit(0, 1)
    while stats()["threads"]:
        pass
    if turn % 300 == 299:
        sizes.append(int(Path("/proc/self/statm").read_text().split()[0]) * 4096)
assert sizes[1] - sizes[0] < 16 << 20, sizes  # 300 stacks are 75 MiB
""")


def test_no_signal_is_for_them():
    children.run("""
import os, re, signal
from pathlib import Path
from ffrecord.kernels._threads import Probe
signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1])
probe = Probe(1)
probe.submit(0, 1)
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}
while not probe.is_done(0):
    pass
(thread,) = {*os.listdir("/proc/self/task")} - {str(os.getpid())}
mask = int(re.search(r"SigBlk:\\s*(\\w+)", Path(f"/proc/self/task/{thread}/status").read_text())[1], 16)
free = {number for number in signal.valid_signals() if not mask >> number - 1 & 1}
assert free == {signal.SIGKILL, signal.SIGSTOP, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}, free
""")


@children.limits_memory
def test_no_thread_is_to_be_had():
    children.run("""
import resource
from pathlib import Path
from ffrecord.kernels._threads import Probe, stats
probe = Probe(100, 0, 2)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 10), limits[1]))
for i in range(100):
    probe.submit(i, 8)
assert stats()["threads"] == stats()["idle"] == 0 and stats()["queued"] == 100, stats()
assert not probe.withdraw(50)
assert all(probe.finish(i) for i in range(100) if i != 50)
resource.setrlimit(resource.RLIMIT_AS, limits)
probe.submit(50, 8)
assert probe.finish(50) and stats()["threads"] > 0, stats()
""")


@pytest.mark.parametrize("microseconds", [0, 60_000_000], ids=["idle", "running"])
def test_a_process_ends_at_once(microseconds):
    start = time.monotonic()
    code = """
import ctypes, sys
from ffrecord.kernels._threads import Probe, stats
probe = Probe(5, int(sys.argv[1]))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(probe))  # its end would wait
for i in range(5):
    probe.submit(i, 2)
while stats()["queued"] > (3 if int(sys.argv[1]) else 0):
    pass
"""
    children.run(code, microseconds)
    assert time.monotonic() - start < 20


def compiled(source: str, directory: Path, *options: str) -> Path:
    """A library of this C code."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux" or os.environ.get("LD_PRELOAD"):
        pytest.skip("no C compiler, or something else is preloaded already")
    (directory / "source.c").write_text(source)
    path = directory / f"_threads{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [compiler, "-shared", "-fPIC", "-O1", "-g", *options, "-o", path, directory / "source.c"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"does not compile here: {done.stderr[-1000:]}")
    return path


def test_thread_local_storage_takes_all_of_the_stack(tmp_path):
    """glibc puts it there: a stack of the usual size is refused."""
    source = """static __thread char much[1 << 20] __attribute__((tls_model("initial-exec")));
char *touch(int i) { return &much[i]; }"""
    code = """
from ffrecord.kernels._threads import Probe, stats
probe = Probe(4, 1000, 2)
for i in range(4):
    probe.submit(i, 2)
assert stats()["threads"] == 2
assert all(map(probe.finish, range(4)))
"""
    children.run(code, LD_PRELOAD=str(compiled(source, tmp_path)))
