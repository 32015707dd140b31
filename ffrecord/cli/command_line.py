"""The arguments of the command, and what becomes of its errors: a line, and an exit code."""

import argparse
import atexit
import os
import signal
import sys
import traceback
import warnings
from typing import Any, NoReturn, TextIO

from ffrecord.cli.commands import COMMANDS, command
from ffrecord.cli.options import add_common
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, StandardOutputError, printable, silence
from ffrecord.system.signals import ENDED, defer_ctrl_c

EPILOG = """\
ffrecord COMMAND --help says what a command takes.

exit codes: 0 done; 1 done, and something is wrong with the data; 2 wrong arguments; 3 it could not be done;
129 its terminal was closed; 130 stopped by Ctrl-C; 141 nobody reads the output any more; 143 ended by SIGTERM"""


class Format(argparse.HelpFormatter):
    """Keeps the lines of descriptions and examples, but for those that are wider than the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrapped(indent + line, width) for line in text.splitlines())


def _wrapped(line: str, width: int) -> str:
    from textwrap import fill

    lead = line[: len(line) - len(line.lstrip())]
    hanging = f"{lead}    " if lead else ""
    return fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End with `exit_codes.USAGE`."""
        self.exit(exit_codes.USAGE, f"{self.prog}: {printable(message)}; {self.prog} --help says more\n")

    def print_help(self, file: Any = None) -> None:
        """As any other output, of which it is noticed where it does not get out."""
        out = Output(stream=file)
        for line in self.format_help().splitlines():
            out.line(line)


def run(argv: list[str] | None = None) -> int:
    """As `ffrecord.cli.main`."""
    argv = sys.argv[1:] if argv is None else argv
    # What is written to a stdout that was closed is an error, as of one that is full; of stderr nobody can be told.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(os.O_RDONLY), sys.stderr or _nowhere(os.O_WRONLY)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # when all is done, there is nothing to interrupt
    try:
        return _flushed(argv, _run(parsed(argv)))
    except SystemExit as ended:
        code = int(ended.code or 0)
        return (
            _ended(_name(argv), ended, code)
            if code in (exit_codes.TERMINATED, exit_codes.HUNG_UP)
            else _flushed(argv, code)
        )
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt as error:
        return _interrupted(_name(argv), error)
    except Exception as error:  # of importing a command
        return _failed(argparse.Namespace(command=_name(argv), debug="--debug" in argv), error)


def _nowhere(flags: int) -> TextIO:
    """In place of a stream that was closed by whoever started this; open to the end."""
    return open(os.open(os.devnull, flags), "w", closefd=False)


def parsed(argv: list[str]) -> argparse.Namespace:
    """The arguments; only the module of the command that is asked for is imported.

    Raises:
        SystemExit: wrong ones, or --help.
    """
    parser = Parser(
        prog="ffrecord",
        description="Look into datasets for deep learning, check them, make them.",
        epilog=EPILOG,
        formatter_class=Format,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    several = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = _name(argv)
    for name, (_, summary) in COMMANDS.items():
        own = several.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=Format,
        )
        if name == asked:
            with defer_ctrl_c():  # numpy 2.2 tells of one in the midst of its own import as of an error
                module = command(name)
            module.arguments(own)
            add_common(own)
    given, unknown = parser.parse_known_args(argv)
    if unknown:  # the command's own help says which there are
        own = several.choices.get(given.command, parser)
        early = set(unknown) & set(argv[: argv.index(asked)] if asked else [])
        own.error(f"{f'options come after {asked}' if early else 'unrecognized arguments'}: {' '.join(unknown)}")
    if given.command is None and not given.version:
        parser.print_help()
        raise SystemExit(exit_codes.USAGE)
    return given


def _name(argv: list[str]) -> str:
    """The command that is asked for, before anything is parsed."""
    return next((each for each in argv if not each.startswith("-")), "")


def _run(given: argparse.Namespace) -> int:
    if given.command is None:
        from importlib.metadata import version

        Output().line(f"ffrecord {version('ffrecord')}")
        return exit_codes.DONE
    out = Output(json=given.json, quiet=given.quiet)
    warnings.showwarning = lambda message, *_: out.remark(f"ffrecord {given.command}: {message}")
    try:
        return command(given.command).run(given, out)
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt as error:
        return _interrupted(given.command, error)
    except (argparse.ArgumentError, Exception) as error:
        return _failed(given, error)


def _flushed(argv: list[str], code: int) -> int:
    """The exit code, when all that was said is out; that of a failure if it does not get out."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except OSError as error:
        silence(sys.stdout)
        _say(_name(argv), f"standard output: {error.strerror}")
        return exit_codes.FAILED
    return code


def _interrupted(name: str, error: KeyboardInterrupt) -> int:
    """Say so, and what stays."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only interrupt the cleaning up
    exec("")  # as in `main`
    from ffrecord.cli.terminal.messages import notes

    _say(name, f"interrupted{notes(error)}")
    return exit_codes.INTERRUPTED


def _ended(name: str, ended: SystemExit, code: int) -> int:
    """Say so, and what stays."""
    from ffrecord.cli.terminal.messages import notes

    _say(name, f"ended by {signal.Signals(code - ENDED).name}{notes(ended)}")
    return code


def _failed(given: argparse.Namespace, error: Exception) -> int:
    """Say what went wrong in one line."""
    from ffrecord.cli.terminal.messages import in_a_line, notes
    from ffrecord.errors import ArgumentError, ArgumentTypeError

    if isinstance(error, StandardOutputError):
        silence(sys.stdout)
    if given.debug:
        traceback.print_exc()
    _say(given.command, in_a_line(error) + notes(error))
    return exit_codes.USAGE if isinstance(error, ArgumentError | ArgumentTypeError) else exit_codes.FAILED


def _say(name: str, text: str) -> None:
    try:
        sys.stderr.write(f"{f'ffrecord {name}'.strip()}: {printable(text)}\n")
        sys.stderr.flush()
    except OSError:  # of a stderr that is full there is nobody to tell
        silence(sys.stderr)
