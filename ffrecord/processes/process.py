"""The life of a worker process, from inside: it does its work, and reports a failure to the parent."""

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from ffrecord.errors import SampleError
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Beat, Heart, Heartbeats
from ffrecord.system import named_calls, signals

PACKET = 32 << 10  # bytes
MORE, LAST = b"+", b"."
WAIT = int(socket.MSG_NOSIGNAL)
NO_WAIT = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


class Channel:
    """One end of a connection.

    It uses packet sockets, so that a process stopped in the middle of a message blocks nobody.

    Attributes:
        socket: socket of this end.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._begun = bytearray()
        self._unsent: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self.socket.fileno()

    def send(self, message: bytes) -> None:
        """Send `message`, of any size; wait until the other side takes it.

        Raises:
            OSError: the other side is gone (EPIPE, ECONNRESET).
        """
        for packet in _packets(message):
            # Packets of a socket arrive whole or not at all, so a killed sender leaves no half of one.
            self.socket.send(packet, WAIT)

    def post(self, message: bytes) -> None:
        """Send `message` without waiting; later calls of `flush` send the rest.

        Raises:
            OSError: the other side is gone.
        """
        # A full socket must not block the parent: another worker may need it to go on.
        self._unsent.extend(_packets(message))
        self.flush()

    def flush(self) -> bool:
        """Send the rest of posted messages as far as the other side takes it now; return whether that was all.

        Raises:
            OSError: the other side is gone.
        """
        while self._unsent:
            try:
                self.socket.send(self._unsent[0], NO_WAIT)
            except BlockingIOError:
                return False
            self._unsent.popleft()
        return True

    def receive(self, *, wait: bool) -> bytes | None:
        """Return the next message; None if `wait` is false and there is none yet.

        Raises:
            EOFError: the other side is gone and all its messages were received.
        """
        while True:
            try:
                # One byte more than a packet, for its mark.
                packet = self.socket.recv(PACKET + 1, WAIT if wait else NO_WAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # The other side left without reading all of ours; its own messages are still there.
                continue
            if not packet:
                raise EOFError("the other process has closed the connection")
            self._begun += packet[1:]
            if packet[:1] == LAST:
                message, self._begun = bytes(self._begun), bytearray()
                return message

    def end(self) -> None:
        """Close, so that the other side notices even while processes forked by the user hold copies of this end."""
        # `shutdown` counts for all copies of the descriptor, `close` only for this one.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Close this end. May be repeated."""
        with contextlib.suppress(OSError):
            self.socket.close()


def channel_pair() -> tuple[Channel, Channel]:
    """Return two connected ends."""
    # SEQPACKET keeps the borders of packets, and tells the end of the other side as a stream does.
    with named_calls.naming("socketpair"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        # With a small default a packet would not fit at all.
        with named_calls.naming("setsockopt"):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * PACKET)
    return Channel(ours), Channel(theirs)


def _packets(message: bytes) -> Iterator[bytes]:
    # Exactly PACKET bytes are one last packet, and so is an empty message.
    for start in range(0, len(message) - PACKET, PACKET):
        yield MORE + message[start : start + PACKET]
    yield LAST + message[max(0, (len(message) - 1) // PACKET * PACKET) :]


MESSAGE, FAILURE = b"m", b"f"
TEXT_MAX = 64 << 10  # characters of a traceback that are passed on
CAUSE_MAX = 1 << 20  # bytes of a pickled exception that are passed on
PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 0.25  # between two checks that the parent lives

Work = Callable[..., None]


class ParentGone(Exception):
    """The signal that the parent has closed the connection or died: nothing is left to do."""


class WorkerFailure(msgspec.Struct, array_like=True):
    """A worker's report of its failure.

    Attributes:
        phase, index, task: fields of its heartbeat.
        sentence: type and message of the exception.
        text: traceback.
        cause: pickled exception, empty if it does not pickle.
    """

    phase: int
    index: int
    task: int
    sentence: str
    text: str
    cause: bytes


class Link:
    """A worker's connection to its parent."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, message: bytes) -> None:
        """Send to the parent, which always listens.

        Raises:
            ParentGone: nobody listens any more.
        """
        try:
            # The first byte tells messages from failures.
            self._channel.send(MESSAGE + message)
        except (BrokenPipeError, ConnectionResetError):
            raise ParentGone from None

    def receive(self, *, wait: bool) -> bytes | None:
        """Return the parent's next message; None if `wait` is false and there is none yet.

        Raises:
            ParentGone: there will be no more.
        """
        try:
            return self._channel.receive(wait=wait)
        except EOFError:
            raise ParentGone from None


def run_worker(
    work: Work,
    arguments: dict[str, Any],
    end: socket.socket,
    hearts: Heartbeats,
    number: int,
    inherited: list[Channel],
    blocked: set[int] | None,
) -> None:
    """Call work(link, heart, **arguments) as worker `number`.

    Args:
        end: the worker's end of its channel.
        inherited: ends of other channels that a fork copied and that must not stay open here.
        blocked: argument of `signals.become_worker`.
    """
    # While a sibling holds a copy of the parent's end, a worker would not see the parent die.
    for channel in inherited:
        channel.close()
    # Before signals are unblocked: a parent that dies here must not leave this process behind.
    _die_with_parent()
    signals.become_worker(blocked)
    # Otherwise the garbage collector would write to, and so copy, every page of objects shared with the parent.
    gc.freeze()
    _use_one_torch_thread()
    channel, heart = Channel(end), hearts.heart(number)
    # `work` ends with `ParentGone` if all is well: there is no other message of the end.
    try:
        work(Link(channel), heart, **arguments)
    except ParentGone:
        pass
    # Everything, also SystemExit of user code: the parent must learn of it.
    except BaseException as error:
        _report(channel, heart.beat(), error)


class WithoutProcess:
    """A context for work in this process: user errors become the same SampleError as in a worker.

    It is no generator: contextlib would take an error caused by StopIteration for its own.

    Args:
        heart: heart of the work.
        name: function beat → name of the sample, for messages.
    """

    def __init__(self, heart: Heart, name: Callable[[Beat], str] = lambda beat: beat.sample) -> None:
        self._heart, self._name = heart, name

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        beat = self._heart.beat()
        if isinstance(error, Exception) and beat.phase == heartbeats.SAMPLE:
            raise SampleError(f"failed at {self._name(beat)}: {sentence(error)}", index=beat.index) from error


def _die_with_parent() -> None:
    """End with the parent, even while user code runs and the end of the link goes unnoticed."""
    # A worker that was started by other means has no parent to follow.
    parent = parent_process()
    if parent is None:
        return
    # prctl(2) is of Linux; elsewhere the closed link is noticed between two samples.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent.pid:
        # Started by a fork server, which lives as long as its children: the death signal would never come.
        watch_parent()
    # The parent may have died before `prctl` was called.
    elif not parent.is_alive():
        os._exit(1)


def watch_parent() -> None:
    """End with the parent, within a moment, whichever of its threads started this process."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent, os.getppid()), name="ffrecord-parent", daemon=True).start()


def _exit_after(parent: BaseProcess, above: int) -> None:
    # `join` alone would not do: processes forked later hold copies of the pipe end that it waits for.
    # After the parent's death another process becomes the parent, which only `getppid` shows.
    while parent.is_alive() and os.getppid() == above:
        parent.join(LOOK_SECONDS)
    # Without handlers and `finally`: they might wait for the parent.
    os._exit(1)


def _use_one_torch_thread() -> None:
    """Make torch use one thread: OpenMP's threads do not survive a fork, and waiting for them hangs."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def _report(channel: Channel, beat: Beat, error: BaseException) -> None:
    """Report a failure to the parent, with less detail if memory is short."""
    try:
        failure = WorkerFailure(
            beat.phase, beat.index, beat.task, sentence(error), _traceback(error), _pickle_error(error)
        )
    # Memory may be short, so a report of fixed size must do.
    except Exception:
        failure = WorkerFailure(beat.phase, beat.index, beat.task, type(error).__name__, "", b"")
    # The parent may be gone; nobody is left to tell.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.send(FAILURE + msgspec.msgpack.encode(failure))


def sentence(error: BaseException) -> str:
    """Return type and message of an exception, of bounded length."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # the original, which a generator turned into a RuntimeError (PEP 479)
    return _as_utf8("".join(traceback.format_exception_only(error)).strip()[:TEXT_MAX])


def _traceback(error: BaseException) -> str:
    """Return the end of the traceback, which has the message."""
    # The end, because the exception stands there.
    return _as_utf8("".join(traceback.format_exception(error))[-TEXT_MAX:])


def _as_utf8(text: str) -> str:
    """Return a text that messages can hold: a file name that is not UTF-8 has surrogates, which become `\\udce9`."""
    return text.encode(errors="backslashreplace").decode()


def _pickle_error(error: BaseException) -> bytes:
    """Return the exception pickled, as the cause of the parent's error; empty if it does not survive pickling."""
    try:
        data = pickle.dumps(error)
        # Some exceptions pickle but do not unpickle, such as those with required arguments.
        pickle.loads(data)
    except Exception:
        return b""
    # A huge one, of an array in a message for instance, would only delay the report.
    return data if len(data) <= CAUSE_MAX else b""
