"""The `ffrecord` command: look into datasets, check them, make them.

command_line.py    parses the arguments; turns errors into one line and an exit code
commands/          one module per command
terminal/          output for people or as JSON, error messages, exit codes
viewer/            the page of `ffrecord view`
sources.py         the argument PATH and checks of other arguments; sample_index.py: the argument INDEX
partial.py         datasets of which shards are missing or damaged
writing_options.py options of the commands that write datasets
leftovers.py       files that killed processes left beside an output
format_values.py   values as text and as JSON; samples printed
dataset_facts.py   facts about datasets; column_facts.py: about columns; record_sizes.py: about sizes of records
measure.py         how fast a store is read; plots.py: figures
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return the exit code of the process.

    Args:
        argv: arguments without the program's name; sys.argv[1:] if None.
    """
    try:
        import signal
        from functools import partial

        before = sys.unraisablehook
        sys.unraisablehook = partial(_raise_lost_interrupt, before)
        try:
            # Import only here, so that Ctrl-C during the imports is reported in one line, too.
            from ffrecord.cli import command_line

            return command_line.run(argv)
        finally:
            sys.unraisablehook = before
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        # CPython remembers an interrupt that has left code run by `exec`, as some imports do, and would end by SIGINT
        # whatever is returned here. Another `exec` clears that.
        exec("")
        sys.stderr.write("ffrecord: interrupted\n")
        return 130


def _raise_lost_interrupt(before: "Callable[[sys.UnraisableHookArgs], None]", lost: "sys.UnraisableHookArgs") -> None:
    """Raise a `KeyboardInterrupt` again that Python has dropped. Give other errors to the hook before.

    Python drops an exception that a signal raises inside a callback: a `__del__`, or a weak reference's in an import.
    """
    if lost.exc_type is not KeyboardInterrupt:
        before(lost)
        return
    import signal

    signal.signal(signal.SIGALRM, _interrupt_again)
    # A timer, as the callback has to end first: inside it, this one would be dropped as well.
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def _interrupt_again(number: int, frame: "FrameType | None") -> None:
    """Raise the interrupt, as a handler of a timer. Wait for its next time while `_raise_lost_interrupt` still runs."""
    import signal

    while frame is not None:
        if frame.f_code is _raise_lost_interrupt.__code__:
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.raise_signal(signal.SIGINT)
