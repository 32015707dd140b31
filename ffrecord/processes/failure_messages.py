"""Errors about a failed worker: how it failed, at which sample, and the likely reason."""

import pickle
import signal
from collections.abc import Callable

from ffrecord.errors import SampleError, WorkerError, escape_unprintable
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Beat
from ffrecord.processes.process import WorkerFailure

Name = Callable[[Beat], str]  # function: beat → name of the worker's sample


class WorkerTraceback(Exception):
    """Traceback of a worker's exception, as text, because tracebacks do not pickle.

    It is the cause of that exception, so Python prints it above.
    """

    def __str__(self) -> str:
        return "\n" + escape_unprintable(super().__str__(), lines=True).rstrip()


def worker_error(who: str, failure: WorkerFailure, name: Name) -> tuple[Exception, BaseException | None]:
    """Return (exception, its cause) for an exception that a worker reported.

    The cause is the worker's exception, and its own cause the traceback; only the traceback if it did not unpickle. An
    exception from this package's own code, such as a full disk, is returned unchanged.
    """
    cause, beat = _unpickle_error(failure.cause), Beat(failure.phase, failure.index, 0, failure.task)
    # An OSError of ours, a full disk for instance, is the same error with and without workers.
    if beat.phase == heartbeats.OURS and isinstance(cause, Exception):
        return cause, None
    sentence = f"{who} failed {_place(beat, name)}: {failure.sentence}"
    kind = SampleError if beat.phase == heartbeats.SAMPLE else WorkerError
    traceback = WorkerTraceback(failure.text)
    if cause is None:
        return kind(sentence, index=_index(beat)), traceback
    # As `raise` does it, because a frozen dataclass refuses assignments.
    BaseException.__setattr__(cause, "__cause__", traceback)
    return kind(sentence, index=_index(beat)), cause


def death_error(who: str, beat: Beat, code: int | None, name: Name) -> WorkerError:
    """Return the error for a process that ended without a report.

    Args:
        code: exit code; None if the process lives but has closed its connection.
    """
    sentence = f"{who} {describe_end(code)} {_place(beat, name)}{advise_on_end(code, beat)}"
    return WorkerError(sentence, index=_index(beat), exitcode=code)


def stuck_error(who: str, beat: Beat, silent: float, limit: float, name: Name) -> WorkerError:
    """Return the error for a worker without a sign of life for `silent` seconds; `limit` are allowed."""
    sentence = (
        f"{who} gave no sign of life for {silent:.1f} s {_place(beat, name)}, expected one within {limit:g} s; "
        "pass a larger stuck_after if it needs so long"
    )
    return WorkerError(sentence, index=_index(beat))


def exit_error(who: str, code: int) -> WorkerError:
    """Return the error for a process that did all its work and still ended with an error."""
    return WorkerError(f"{who} {describe_end(code)} after its last sample{_cause(code)}", exitcode=code)


def describe_end(code: int | None) -> str:
    """Describe how a process ended: by a signal, whose name is given, or with an exit code.

    Args:
        code: exit code, negative for a signal; None if the process lives but has closed its connection.
    """
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def advise_on_end(code: int | None, beat: Beat) -> str:
    """Return the likely cause of the end of a worker before its work was done, to append to a sentence; "" if unknown.

    Args:
        code: exit code, as `describe_end` takes it.
        beat: last sign of life of the worker.
    """
    if code is not None and code >= 0:
        if beat.beats == 0:  # not even one sign of life
            return (
                ": it ended before its first task, see its own message; spawned processes import the main module "
                "again, so calls there must stand below `if __name__ == '__main__':`"
            )
        return ": its work was not done; does your code call exit()?"
    return _cause(code)


def _cause(code: int | None) -> str:
    # The kernel's OOM killer sends SIGKILL, and leaves no other trace in the process.
    return ": probably out of memory" if code == -signal.SIGKILL else ""


def _place(beat: Beat, name: Name) -> str:
    ahead = "" if beat.ahead is None else f", while samples from {beat.ahead} on were read ahead"
    if beat.phase == heartbeats.IDLE:
        return f"while waiting for work{ahead}"
    return f"{'at' if beat.phase == heartbeats.SAMPLE else 'after'} {name(beat)}{ahead}"


def _index(beat: Beat) -> int | None:
    return None if beat.phase == heartbeats.IDLE else beat.index


def _unpickle_error(data: bytes) -> BaseException | None:
    """Return the exception that a worker sent, or None if it does not unpickle here."""
    try:
        # Unpickling may run code of the user's classes, whose modules may be missing here.
        cause = pickle.loads(data) if data else None
    except Exception:
        return None
    return cause if isinstance(cause, BaseException) else None
