"""`system.signals`: Ctrl-C, SIGTERM and SIGHUP at any step of a write and of its clean-up."""

import contextlib
import dis
import gc
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from ffrecord.system import signals

LOOKS = ("CALL", "JUMP_BACKWARD")  # instructions, beside the first of a function, at which Python looks for signals


@pytest.fixture(autouse=True)
def of_a_terminal() -> Iterator[None]:
    """SIGHUP ends this process, as in one that was not started by nohup; afterwards all is as it was."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
    assert not signals.is_signal_waiting()


def ends(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


BEFORE = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: ends, signal.SIGHUP: ends}


@pytest.fixture
def handlers() -> Iterator[None]:
    """Of a program: at the last steps those of the system would end this process. What they raise while the collector
    calls somebody would be lost."""
    before = {number: signal.signal(number, handler) for number, handler in HANDLERS.items()}
    gc.disable()
    yield
    gc.enable()
    for number, handler in before.items():
        signal.signal(number, handler)


def come(*numbers: int) -> None:
    """Signals arrive, all at once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Sweep:
    """Has signals come at the one step after the other of some code, each time it is run."""

    def __init__(self, numbers: tuple[int, ...], *files: str) -> None:
        self.numbers, self.files = numbers, files
        self.at = self.step = 0

    def rounds(self) -> Iterator[int]:
        """Until the code has fewer steps."""
        while self.step >= self.at:
            self.at, self.step = self.at + 1, 0
            yield self.at

    def run(self, work: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "call" or (event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(LOOKS)):
            self.step += 1
            if self.step == self.at:
                come(*self.numbers)
        return self._trace


def swept(numbers: tuple[int, ...], work: Callable[[list[str]], object]) -> int:
    """Have `ensured` do and clean up `work`, interrupted at each step; how many steps there were."""
    sweep, cleaned = Sweep(numbers, signals.__file__, contextlib.__file__), ["clean up", "cleaned up"]
    for at in sweep.rounds():
        steps: list[str] = []

        def clean_up(error: BaseException | None, steps: list[str] = steps) -> None:
            steps.append("clean up")
            time.sleep(0)
            steps.append("cleaned up")

        raised = raised_by(partial(sweep.run, partial(signals.run_with_cleanup, partial(work, steps), clean_up)))
        assert steps in ([], cleaned, ["work", *cleaned]), (at, steps)
        assert type(raised) in ((SystemExit, KeyboardInterrupt) if sweep.step >= at else (OSError, type(None))), at
        assert {number: signal.getsignal(number) for number in HANDLERS} == HANDLERS, at
    return sweep.at


def raised_by(run: Callable[[], object]) -> BaseException | None:
    """What does not come out of it, also of a second signal that comes on the way out."""
    raised = None
    try:
        try:
            run()
        except BaseException as error:
            raised = error
            signal.pthread_sigmask(signal.SIG_BLOCK, ())  # looks for signals, which Python may not do for a while
    except BaseException as error:
        raised = error
    return raised


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
    ids=lambda numbers: "+".join(signal.Signals(number).name for number in numbers),
)
def test_a_clean_up_is_done_whenever_signals_come(numbers: tuple[int, ...], fails: bool) -> None:
    def work(steps: list[str]) -> None:
        steps.append("work")
        if fails:
            raise OSError("no")

    assert swept(numbers, work) > 50


@pytest.fixture
def another_thread() -> Iterator[None]:
    """One that takes what comes to the process while this one has blocked it."""
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    yield
    event.set()
    thread.join()


def come_to_all(number: int) -> None:
    """A signal arrives at the process, and Python knows of it, whichever thread took it."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno())
    try:
        os.kill(os.getpid(), number)
        ours.recv(1)
        signal.pthread_sigmask(signal.SIG_BLOCK, ())  # looks for signals
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()


@pytest.mark.usefixtures("handlers", "another_thread")
@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM,)], ids=["SIGINT", "SIGTERM"])
def test_handlers_are_put_back_whoever_takes_the_signal(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    monkeypatch.setitem(globals(), "come", come_to_all)
    assert swept(numbers, lambda steps: steps.append("work")) > 50


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_single_signal_leaves_no_handlers_behind(number: int) -> None:
    sweep = Sweep((number,), signals.__file__)
    for at in sweep.rounds():
        raised = raised_by(partial(sweep.run, lambda: signals.exit_on_signals(lambda: None)))
        assert type(raised) in (SystemExit, KeyboardInterrupt, type(None)), at
        del raised
        assert {number: signal.getsignal(number) for number in HANDLERS} == HANDLERS, at
    assert sweep.at > 20


def test_a_forked_child_does_not_wait_for_its_parents_clean_up() -> None:
    with signals.defer_signals():
        pid = os.fork()
        if pid == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0)
            except SystemExit as end:
                os._exit(int(end.code or 0))
            os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_becomes_an_exit_and_is_put_back(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as caught, signals.signals_exit():
        signal.raise_signal(number)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_what_is_ignored_stays_so_and_does_not_wait() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.signals_exit(), signals.defer_signals():
        signal.raise_signal(signal.SIGHUP)
        assert not signals.is_signal_waiting()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_closed_terminal_waits_for_a_clean_up() -> None:
    steps = []
    with pytest.raises(SystemExit), signals.signals_exit():
        with signals.defer_signals():
            signal.raise_signal(signal.SIGHUP)
            steps.append("cleaned")
        steps.append("not reached")
    assert steps == ["cleaned"]


def test_a_program_keeps_its_own_handlers() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with signals.signals_exit():
            come(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_clean_up_is_finished_before_ctrl_c_counts() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with signals.defer_signals():
            come(signal.SIGINT)
            steps.append("cleaned")
        steps.append("not reached")
    assert steps == ["cleaned"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_in_other_threads_are_left_alone() -> None:
    errors: list[BaseException] = []

    def use() -> None:
        try:
            with signals.signals_exit(), signals.defer_signals():
                pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert errors == []


def test_a_second_signal_waits_after_one_that_raised() -> None:
    """Its exception might leave out what the first one has begun to clean up."""
    steps = []
    with pytest.raises(SystemExit) as caught, signals.signals_exit():
        try:
            come(signal.SIGINT)
        finally:
            come(signal.SIGTERM)
            steps.append("cleaned")
            assert signals.is_signal_waiting()
    assert steps == ["cleaned"] and caught.value.code == 143 and isinstance(caught.value.__context__, KeyboardInterrupt)


def test_a_second_signal_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE", 60)
    steps = []
    with pytest.raises(KeyboardInterrupt), signals.signals_exit():
        with contextlib.suppress(KeyboardInterrupt):  # as who asks whether to go on
            come(signal.SIGINT)
        come(signal.SIGINT)
        steps.append("waited")
        monkeypatch.setattr(signals, "PATIENCE", 0)
        come(signal.SIGINT)
        steps.append("not reached")
    assert steps == ["waited"]


def test_the_first_error_stays_where_a_second_signal_says_the_same() -> None:
    with pytest.raises(KeyboardInterrupt, match="first"), signals.signals_exit():
        try:
            come(signal.SIGINT)
        except KeyboardInterrupt:
            come(signal.SIGINT)
            raise KeyboardInterrupt("first") from None


def test_a_handler_of_the_program_is_called_for_what_waited() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with pytest.raises(OSError, match="no"), signals.signals_exit(), signals.defer_signals():
            come(signal.SIGTERM)
            assert not seen
            raise OSError("no")
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_a_clean_up_raises_does_not_repeat_it() -> None:
    done = []

    def clean_up(error: BaseException | None) -> None:
        done.append(error)
        come(signal.SIGINT)
        raise OSError("no")

    with pytest.raises(KeyboardInterrupt):
        signals.run_with_cleanup(lambda: None, clean_up)
    assert done == [None]
    with pytest.raises(OSError, match="no"):
        signals.run_with_cleanup(partial(raising, OSError("no")), done.append)
    assert [type(error) for error in done] == [type(None), OSError]
    assert signals.run_with_cleanup(lambda: 3, done.append) == 3 and done[2:] == [None]


def raising(error: Exception) -> None:
    raise error


def test_signals_are_not_held_where_that_is_interrupted() -> None:
    sweep = Sweep((signal.SIGINT,), signals.__file__)

    def hold() -> None:
        with signals.block_signals():
            pass

    for at in sweep.rounds():
        assert isinstance(raised_by(partial(sweep.run, hold)), KeyboardInterrupt if sweep.step >= at else type(None))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set(), at
    assert sweep.at > 3


class Dying:
    """A signal arrives while it dies; what the handler raises then is dropped by Python."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        come(self.number)


def in_an_object_that_dies(number: int) -> None:
    Dying(number)


def in_a_callback_of_a_reference(number: int) -> None:
    target = threading.Event()
    reference = weakref.ref(target, lambda _: come(number))
    del target
    assert reference() is None


def in_a_callback_of_the_collector(number: int) -> None:
    def collected(phase: str, _: object) -> None:
        if phase == "stop":
            gc.callbacks.remove(collected)
            come(number)

    gc.callbacks.append(collected)
    gc.collect()


def in_one_of_several(number: int) -> None:
    """And once more in each of those that die after it."""
    several = [Dying(number), *(Dying(signal.SIGURG) for _ in range(3))]
    several.reverse()
    del several


def in_a_block(work: Callable[[], object]) -> None:
    with signals.signals_exit():
        work()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("inside", [in_a_block, signals.exit_on_signals])
@pytest.mark.parametrize(
    "where",
    [in_an_object_that_dies, in_a_callback_of_a_reference, in_a_callback_of_the_collector, in_one_of_several],
)
def test_what_python_drops_comes_again(
    where: Callable[[int], None], inside: Callable[[Callable[[], object]], object], number: int
) -> None:
    hook, steps = sys.unraisablehook, []

    def work() -> None:
        where(number)
        time.sleep(0)
        steps.append("not reached")

    raised = raised_by(partial(inside, work))
    assert isinstance(raised, KeyboardInterrupt) or (isinstance(raised, SystemExit) and raised.code == 128 + number)
    assert steps == []
    assert sys.unraisablehook is hook
    assert {number: signal.getsignal(number) for number in HANDLERS} == BEFORE


def test_what_python_drops_at_the_last_step_comes_again() -> None:
    """Then it comes while handlers are put back, or afterwards."""
    with pytest.raises(SystemExit) as caught:
        signals.exit_on_signals(partial(in_an_object_that_dies, signal.SIGTERM))
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_python_drops_waits_for_a_clean_up() -> None:
    steps = []

    def work() -> None:
        with signals.defer_signals():
            in_an_object_that_dies(signal.SIGTERM)
            steps.append("cleaned")
        steps.append("not reached")

    with pytest.raises(SystemExit):
        signals.exit_on_signals(work)
    assert steps == ["cleaned"]


def test_what_else_python_drops_is_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))

    class Failing:
        def __del__(self) -> None:
            raise OSError("no")

    signals.exit_on_signals(lambda: Failing() and None)
    assert told == [OSError]
