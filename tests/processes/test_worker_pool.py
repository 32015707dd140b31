"""Worker processes: messages arrive, and every way to fail is noticed within a second and names the sample."""

import errno
import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import children
import pytest
from children import alive, wait_until

from ffrecord.errors import WorkerError
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, _exit_code, start_method_of
from ffrecord.processes.process import PACKET, Channel, Link, channel_pair
from ffrecord.processes.shared_memory import SharedMemory

METHODS = ["fork", "spawn", "forkserver"]


def echo(link: Link, heart: Heart, *, suffix: bytes = b"") -> None:
    while True:
        message = link.receive(wait=True)
        assert message is not None
        link.send(message + suffix)


def listen_late(link: Link, heart: Heart) -> None:
    time.sleep(0.5)
    while True:
        message = link.receive(wait=True)
        assert message is not None
        link.send(message[:4])


def at_17(link: Link, heart: Heart, *, act: Callable[[], Any]) -> None:
    """Act as the code of a user would, at sample 17."""
    heart.mark(heartbeats.SAMPLE, 17)
    act()


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(0)


def crash() -> None:
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def fail() -> None:
    raise KeyError("no such picture")


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail_unpicklably() -> None:
    raise Unpicklable(1, 2)


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that refuses assignments."""


def fail_frozen() -> None:
    raise Frozen


def call_exit() -> None:
    sys.exit(0)


def want_too_much() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    bytes(1 << 30)


def hang() -> None:
    time.sleep(60)


@contextmanager
def crew_of(work: Any, count: int = 1, **options: Any) -> Iterator[WorkerPool]:
    arguments = {name: options.pop(name) for name in list(options) if name not in {"start_method", "stuck_after"}}
    crew = WorkerPool(work, arguments, count, **options)
    try:
        crew.start()
        yield crew
    finally:
        crew.end()


def listen_all(crew: WorkerPool, count: int) -> list[tuple[int, bytes]]:
    messages: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 20
    while len(messages) < count:
        assert time.monotonic() < deadline
        messages += crew.listen()
    return messages


def failure_of(act: Callable[[], Any], **options: Any) -> tuple[WorkerError, float]:
    """What the parent raises, and how long after the worker began that is, in seconds."""
    with crew_of(at_17, act=act, **options) as crew, pytest.raises(WorkerError) as caught:
        started = time.monotonic()
        while time.monotonic() < started + 20:
            crew.listen()
    return caught.value, time.monotonic() - started


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No descriptor more, no process more than before."""
    # Else the first use of spawn or forkserver starts them, and they stay.
    forkserver.ensure_running()
    resource_tracker.ensure_running()
    before = descriptors()
    yield
    assert multiprocessing.active_children() == []
    # None more: connections that earlier tests used may be closed meanwhile.
    assert Counter(descriptors()) - Counter(before) == Counter()


def descriptors() -> list[str]:
    gc.collect()
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(name for name in names if not name.startswith("/proc/"))


def memory_files() -> int:
    """Return the number of open descriptors of memory; sockets of earlier tests may be closed at any time."""
    return sum(name.startswith("/memfd:") for name in descriptors())


@pytest.mark.parametrize("method", METHODS)
def test_messages_go_both_ways(method: str) -> None:
    with crew_of(echo, 2, suffix=b"!", start_method=method) as crew:
        crew.send(0, b"zero")
        crew.send(1, b"one")
        assert sorted(listen_all(crew, 2)) == [(0, b"zero!"), (1, b"one!")]
        crew.dismiss()


def test_messages_of_any_size() -> None:
    big = os.urandom(5 * PACKET)
    with crew_of(echo) as crew:
        for message in (b"", b"x", big[:PACKET], big[: PACKET + 1], big):
            crew.send(0, message)
            assert listen_all(crew, 1) == [(0, message)]


def test_the_parent_does_not_wait_for_a_worker_to_listen() -> None:
    with crew_of(listen_late) as crew:
        started = time.monotonic()
        for number in range(500):
            crew.send(0, number.to_bytes(4, "little") + bytes(4000))
        assert time.monotonic() - started < 0.3 * children.PATIENCE
        assert [int.from_bytes(message, "little") for _, message in listen_all(crew, 500)] == list(range(500))


@pytest.mark.parametrize(
    "act, words, code",
    [
        (kill_me, "was ended by SIGKILL at sample 17: probably out of memory", -9),
        (leave, "exited with code 0 at sample 17: its work was not done", 0),
        (crash, f"was ended by {children.CRASH.name} at sample 17", -children.CRASH),
        (fail, "failed at sample 17: KeyError: 'no such picture'", None),
        (fail_unpicklably, "failed at sample 17: test_worker_pool.Unpicklable: 1 and 2", None),
        (call_exit, "failed at sample 17: SystemExit: 0", None),
        (want_too_much, "failed at sample 17: MemoryError", None),
    ],
)
def test_failures_are_noticed_and_named(act: Callable[[], Any], words: str, code: int | None) -> None:
    error, seconds = failure_of(act)
    assert words in str(error)
    assert (error.index, error.exitcode) == (17, code)
    assert seconds < children.PATIENCE


def test_traceback_and_cause_reach_the_parent() -> None:
    error, _ = failure_of(fail)
    assert isinstance(error.__cause__, KeyError)
    assert "in fail\n    raise KeyError(" in str(error.__cause__.__cause__)
    error, _ = failure_of(fail_unpicklably)
    assert "in fail_unpicklably\n" in str(error.__cause__)


@pytest.mark.parametrize("act", [fail, fail_unpicklably, fail_frozen])
def test_the_message_is_one_line_and_python_prints_the_traceback_above(act: Callable[[], Any]) -> None:
    error, _ = failure_of(act)
    printed = "".join(traceback.format_exception(error))
    assert str(error).count("\n") == 0
    assert printed.count(f"in {act.__name__}\n") == 1
    assert printed.index(f"in {act.__name__}\n") < printed.index("failed at sample 17")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_failures_under_other_start_methods(method: str) -> None:
    error, _ = failure_of(kill_me, start_method=method)
    assert (error.index, error.exitcode) == (17, -signal.SIGKILL)
    error, _ = failure_of(fail, start_method=method)
    assert isinstance(error.__cause__, KeyError)


def test_stuck_worker_is_named() -> None:
    error, seconds = failure_of(hang, stuck_after=0.5)
    assert "gave no sign of life for" in str(error) and "at sample 17, expected one within 0.5 s" in str(error)
    assert error.index == 17
    assert 0.5 < seconds < 2 * children.PATIENCE


def test_waiting_is_not_stuck() -> None:
    with crew_of(echo, stuck_after=0.1) as crew:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            assert crew.listen() == []


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


@pytest.mark.parametrize(
    "act", [ignore_sigterm, lambda: os.kill(os.getpid(), signal.SIGSTOP)], ids=["ignores", "stopped"]
)
def test_end_ends_what_does_not_want_to(act: Callable[[], None]) -> None:
    with crew_of(at_17, act=act):
        time.sleep(0.2)
        started = time.monotonic()
    assert time.monotonic() - started < 2 * children.PATIENCE


def child_of_worker(link: Link, heart: Heart) -> None:
    """A child that holds the worker's descriptors, the sentinel's among them, and then a death."""
    heart.mark(heartbeats.SAMPLE, 3)
    if os.fork() == 0:
        time.sleep(3 * children.PATIENCE)
        os._exit(0)
    kill_me()


def test_death_is_noticed_though_a_grandchild_holds_the_pipes() -> None:
    started = time.monotonic()
    with crew_of(child_of_worker) as crew, pytest.raises(WorkerError, match="SIGKILL at sample 3"):
        while time.monotonic() < started + 10 * children.PATIENCE:
            crew.listen()
    assert time.monotonic() - started < 1.5 * children.PATIENCE


def finish_badly(link: Link, heart: Heart) -> None:
    try:
        link.receive(wait=True)
    finally:
        os._exit(3)


def test_a_bad_end_after_the_work_is_told() -> None:
    with crew_of(finish_badly) as crew, pytest.raises(WorkerError, match="exited with code 3 after its last sample"):
        crew.dismiss()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_workers_is_noticed(method: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the kernel cannot say when a process ends, or there is no descriptor for that."""
    asked = []

    def pidfd_open(pid: int) -> int:
        asked.append(pid)
        if not known:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_one(pid)

    open_one = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    before = os.listdir("/proc/self/fd")
    with crew_of(echo, count=2, start_method=method) as crew:
        crew.dismiss()
    assert asked
    if method == "fork":  # others keep a server, or a tracker of resources
        assert not {*os.listdir("/proc/self/fd")} - {*before}


def linger(link: Link, heart: Heart) -> None:
    threading.Thread(target=time.sleep, args=(60,)).start()


def test_a_worker_that_lingers_after_its_work_does_not_matter() -> None:
    started = time.monotonic()
    with crew_of(linger) as crew:
        crew.dismiss()
    assert time.monotonic() - started < 3 * children.PATIENCE


def test_what_does_not_pickle_is_named() -> None:
    for method in ("spawn", "forkserver"):
        crew = WorkerPool(echo, {"suffix": lambda: b""}, 1, start_method=method)
        try:
            with pytest.raises(
                TypeError, match=rf"suffix \(function\) cannot be pickled, which start_method='{method}' needs"
            ):
                crew.start()
        finally:
            crew.end()


def test_unknown_start_method() -> None:
    with pytest.raises(ValueError, match="start_method is 'thread', expected one of"):
        start_method_of("thread")
    assert start_method_of(None) == "fork"


def test_fork_beside_threads_does_not_warn() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with crew_of(echo) as crew:
                crew.send(0, b"x")
                assert listen_all(crew, 1) == [(0, b"x")]
    finally:
        stop.set()
        thread.join()


def test_a_worker_leaves_ctrl_c_to_its_parent() -> None:
    with crew_of(echo) as crew:
        crew.send(0, b"up")
        listen_all(crew, 1)
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGINT)
        crew.send(0, b"still up")
        assert listen_all(crew, 1) == [(0, b"still up")]


PARENT = """
    import os, sys, time
    sys.path[:0] = {path!r}
    from ffrecord.processes.pool import WorkerPool
    from test_worker_pool import echo, pids, tell_pid

    if __name__ == "__main__":
        crew = WorkerPool(tell_pid, {{"path": {file!r}, "busy": {busy}}}, 3, start_method={method!r})
        crew.start()
        while True:
            crew.listen()
"""


def tell_pid(link: Link, heart: Heart, *, path: str, busy: bool) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    if busy:
        time.sleep(60)
    link.receive(wait=True)


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize(
    "busy, method", [(False, "fork"), (True, "fork"), (True, "spawn"), (False, "forkserver")], ids=str
)
def test_workers_die_with_their_parent(tmp_path: Path, method: str, busy: bool) -> None:
    file, script = tmp_path / "pids", tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT).format(path=sys.path, file=str(file), method=method, busy=busy))
    with subprocess.Popen([sys.executable, str(script)]) as parent:
        assert wait_until(lambda: len(pids(file)) == 3, 20)
        parent.kill()
    assert wait_until(lambda: not any(map(alive, pids(file))), 1.5)


def test_end_of_file_alone_ends_waiting_workers(tmp_path: Path) -> None:
    """Without the kernel's help, so that no worker may hold another one's pipe."""
    file = tmp_path / "pids"
    with crew_of(tell_pid, 3, path=str(file), busy=False) as crew:
        assert wait_until(lambda: len(pids(file)) == 3, 5)
        first = crew._workers[0]
        first.channel.close()
        assert wait_until(lambda: first.process.exitcode == 0, 2)
        assert [worker.process.exitcode for worker in crew._workers[1:]] == [None, None]


def test_channel_gives_no_partial_message() -> None:
    ours, theirs = channel_pair()
    assert ours.receive(wait=False) is None
    theirs.socket.send(b"+half")
    assert ours.receive(wait=False) is None
    theirs.socket.send(b".done")
    assert ours.receive(wait=False) == b"halfdone"
    theirs.socket.send(b"+cut")
    theirs.close()
    with pytest.raises(EOFError):
        ours.receive(wait=False)
    ours.close()


def test_channel_gives_what_was_sent_before_a_reset() -> None:
    ours, theirs = channel_pair()
    theirs.send(b"last words")
    ours.send(b"never read")
    theirs.close()
    assert ours.receive(wait=False) == b"last words"
    with pytest.raises(EOFError):
        ours.receive(wait=False)
    ours.close()


def test_channel_does_not_wait_for_a_deaf_receiver() -> None:
    ours, theirs = channel_pair()
    for number in range(1000):
        ours.post(number.to_bytes(2, "little") * 1000)
    assert not ours.flush()
    received = []
    while not ours.flush() or len(received) < 1000:
        received.append(theirs.receive(wait=True))
    assert received == [number.to_bytes(2, "little") * 1000 for number in range(1000)]
    ours.close()
    theirs.close()


def test_an_end_is_noticed_though_others_hold_copies_of_it() -> None:
    """Processes that the user forked, such as the workers of a loader."""
    ours, theirs = channel_pair()
    copy = os.dup(ours.fileno())
    ours.end()
    with pytest.raises(EOFError):
        theirs.receive(wait=True)
    os.close(copy)
    theirs.close()


def test_shared_memory_is_closed_though_a_view_is_left() -> None:
    memory = SharedMemory(4096)
    view, before = memory.view[:10], memory_files()
    memory.close()
    memory.close()
    assert memory_files() == before - 1 and view.tobytes() == bytes(10)


def test_beats_survive_their_writer() -> None:
    hearts = heartbeats.Heartbeats(2)
    pid = os.fork()
    if pid == 0:
        hearts.heart(1).mark(heartbeats.SAMPLE, 2**40)
        os._exit(0)
    os.waitpid(pid, 0)
    assert hearts.heart(1).beat() == heartbeats.Beat(heartbeats.SAMPLE, 2**40, 1)
    assert hearts.heart(0).beat() == heartbeats.Beat(heartbeats.IDLE, 0, 0)
    hearts.close()
    hearts.close()


def torch_threads(link: Link, heart: Heart) -> None:
    import torch

    link.send(str(torch.get_num_threads()).encode())


def test_torch_uses_one_thread_in_a_worker() -> None:
    pytest.importorskip("torch.utils.data")
    with crew_of(torch_threads) as crew:
        assert listen_all(crew, 1) == [(0, b"1")]


def test_a_main_module_without_guard_is_explained(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = {sys.path!r}
            from ffrecord.processes.pool import WorkerPool
            from test_worker_pool import echo
            crew = WorkerPool(echo, {{}}, 1, start_method="spawn")
            try:
                crew.start()
                while True:
                    crew.listen()
            finally:
                crew.end()
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30)
    assert "exited with code 1 while waiting for work: it ended before its first task" in done.stderr


def test_channel_is_for_selectors() -> None:
    ours, theirs = channel_pair()
    assert isinstance(ours, Channel) and ours.fileno() == ours.socket.fileno()
    ours.close()
    theirs.close()


FORKS_AT_ONCE = """
import os, sys, threading, time
from ffrecord.processes.pool import WorkerPool
from test_worker_pool import echo

forking = []
os.register_at_fork(before=lambda: (forking.append(1), time.sleep(0.02)), after_in_parent=lambda: forking.pop())

def refuse(event, arguments):  # as filelock does
    if event == "os.fork" and forking:
        raise RuntimeError("two forks at once")

def start():
    crew = WorkerPool(echo, {}, 3, start_method="fork")
    try:
        crew.start()
    except RuntimeError as error:
        print(error)
    finally:
        crew.end()

sys.addaudithook(refuse)
threads = [threading.Thread(target=start) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def test_threads_fork_one_after_the_other() -> None:
    assert children.run(FORKS_AT_ONCE) == "done\n"


def test_no_signal_comes_between_the_kernel_and_the_exit_code() -> None:
    """Who has asked the kernel knows it, and nobody else ever will."""

    class Ended:
        """A process that a signal comes to as soon as its exit code was asked for."""

        pid, known = None, False

        @property
        def exitcode(self) -> int | None:
            signal.raise_signal(signal.SIGINT)
            self.known = True
            return 0

    process: Any = Ended()
    with pytest.raises(KeyboardInterrupt):
        _exit_code(process)
    assert process.known
