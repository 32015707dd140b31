"""The `ffrecord` command: look into datasets, check them, make them.

commands.py  which there are
output.py    facts, tables and bars, for people or as JSON
sources.py   the argument PATH
exits.py     exit codes
"""

import argparse
import os
import signal
import sys
import traceback
import warnings
from typing import NoReturn, TextIO

from ffrecord.cli import exits
from ffrecord.cli.commands import COMMANDS, command
from ffrecord.cli.output import Output, printable, silence

__all__ = ["main"]

EPILOG = """\
ffrecord COMMAND --help says what a command takes.

exit codes: 0 done; 1 done, and something is wrong with the data; 2 wrong arguments; 3 it could not be done;
130 stopped by Ctrl-C"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End with `exits.USAGE`."""
        self.exit(exits.USAGE, f"{self.prog}: {printable(message)}; {self.prog} --help says more\n")


def main(argv: list[str] | None = None) -> int:
    """Run a command line, and return what the process is to end with.

    Args:
        argv: without the name of the program; sys.argv[1:] if None.
    """
    argv = sys.argv[1:] if argv is None else argv
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    try:
        return _run(parsed(argv))
    except SystemExit as ended:
        return int(ended.code or 0)
    except KeyboardInterrupt:
        _say(argv[0] if argv else "", "interrupted")
        return exits.INTERRUPTED


def _nowhere() -> TextIO:
    """In place of a stream that was closed by whoever started this; open to the end."""
    return open(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)


def parsed(argv: list[str]) -> argparse.Namespace:
    """The arguments; only the module of the command that is asked for is imported.

    Raises:
        SystemExit: wrong ones, or --help.
    """
    parser = Parser(
        prog="ffrecord",
        description="Look into datasets for deep learning, check them, make them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    several = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = next((each for each in argv if not each.startswith("-")), None)
    for name, (_, summary) in COMMANDS.items():
        own = several.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            command(name).arguments(own)
            _add_common(own)
    given = parser.parse_args(argv)
    if given.command is None and not given.version:
        parser.print_help()
        raise SystemExit(exits.USAGE)
    return given


def _add_common(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="facts as JSON, for programs")
    group.add_argument("--quiet", action="store_true", help="no progress bars, no remarks")
    group.add_argument("--debug", action="store_true", help="show where in the program an error came from")


def _run(given: argparse.Namespace) -> int:
    if given.command is None:
        from importlib.metadata import version

        try:
            print(f"ffrecord {version('ffrecord')}", flush=True)
        except OSError as error:
            silence(sys.stdout)
            _say("", f"standard output: {error.strerror}")
            return exits.FAILED
        return exits.DONE
    out = Output(json=given.json, quiet=given.quiet)
    warnings.showwarning = lambda message, *_: out.remark(f"ffrecord {given.command}: {message}")
    try:
        code = command(given.command).run(given, out)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        silence(sys.stdout)
        return exits.PIPE_CLOSED
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only interrupt the cleaning up
        _say(given.command, f"interrupted{_notes(error)}")
        return exits.INTERRUPTED
    except (argparse.ArgumentError, Exception) as error:
        return _failed(given, error)


def _failed(given: argparse.Namespace, error: Exception) -> int:
    """Say what went wrong in one line."""
    from ffrecord.errors import ArgumentError, ArgumentTypeError

    if given.debug:
        traceback.print_exc()
    _say(given.command, in_a_line(error) + _notes(error))
    return exits.USAGE if isinstance(error, ArgumentError | ArgumentTypeError) else exits.FAILED


def _notes(error: BaseException) -> str:
    """What an exception was told on its way: what stays, and how to go on."""
    return "".join(f"; {' '.join(note.split())}" for note in getattr(error, "__notes__", []))


def in_a_line(error: BaseException) -> str:
    """What an error says, without line ends; errors that we did not mean keep the name of their type."""
    from ffrecord.errors import FFRecordError

    text = " ".join(str(error).partition("\nTraceback (most recent call last)")[0].split())  # a worker's is for --debug
    if (
        isinstance(error, OSError)
        and error.strerror
        and not isinstance(error, FFRecordError)
        and error.args[:1] == (error.errno,)
    ):
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{name}{error.strerror}" if type(error).__module__ == "builtins" else text
    if isinstance(error, FFRecordError | OSError | ImportError | ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _say(name: str, text: str) -> None:
    sys.stderr.write(f"{f'ffrecord {name}'.strip()}: {printable(text)}\n")
