"""The command line: it parses arguments, runs a command and reports errors in one line."""

import argparse
import atexit
import os
import signal
import sys
import traceback
import warnings
from typing import Any, NoReturn, TextIO

from ffrecord.cli.commands import COMMANDS, add_common, command
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, StandardOutputError, make_printable, silence
from ffrecord.system.signals import ENDED, defer_ctrl_c

EPILOG = """\
Run `ffrecord COMMAND --help` for the arguments of a command.

exit codes: 0 done; 1 done, but something is wrong with the data; 2 wrong arguments; 3 failed;
129 the terminal was closed; 130 stopped by Ctrl-C; 141 the reader of the output has ended; 143 ended by SIGTERM"""


class Format(argparse.HelpFormatter):
    """Help that keeps the line breaks of descriptions and examples. Lines wider than the terminal are wrapped."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrap_line(indent + line, width) for line in text.splitlines())


def _wrap_line(line: str, width: int) -> str:
    from textwrap import fill

    lead = line[: len(line) - len(line.lstrip())]
    hanging = f"{lead}    " if lead else ""
    return fill(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


class Parser(argparse.ArgumentParser):
    """A parser that reports wrong arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with `exit_codes.USAGE`."""
        self.exit(exit_codes.USAGE, f"{self.prog}: {make_printable(message)}; see {self.prog} --help\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help as other output is printed, so that a failed write is noticed."""
        out = Output(stream=file)
        for line in self.format_help().splitlines():
            out.line(line)


def run(argv: list[str] | None = None) -> int:
    """Run a command line and return the exit code, as `ffrecord.cli.main` documents."""
    argv = sys.argv[1:] if argv is None else argv
    # A closed stdout is replaced by a descriptor that cannot be written: output is then an error, as on a full disk.
    # A closed stderr is replaced by /dev/null: nobody could read a message about it.
    sys.stdout, sys.stderr = sys.stdout or _open_null(os.O_RDONLY), sys.stderr or _open_null(os.O_WRONLY)
    # Ctrl-C while the interpreter shuts down would print a traceback, and nothing is left to interrupt.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        return _flush_output(argv, _run(parse(argv)))
    except SystemExit as ended:
        code = int(ended.code or 0)
        return (
            _report_signal(_command_name(argv), ended, code)
            if code in (exit_codes.TERMINATED, exit_codes.HUNG_UP)
            else _flush_output(argv, code)
        )
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt as error:
        return _report_interrupt(_command_name(argv), error)
    except Exception as error:  # the import of a command failed
        return _report_failure(argparse.Namespace(command=_command_name(argv), debug="--debug" in argv), error)


def _open_null(flags: int) -> TextIO:
    """Open /dev/null to replace a closed standard stream. It stays open until the process ends."""
    return open(os.open(os.devnull, flags), "w", closefd=False)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments. Only the module of the requested command is imported.

    Raises:
        SystemExit: the arguments are wrong, or --help was printed.
    """
    parser = Parser(
        prog="ffrecord",
        description="Inspect, check and write datasets for deep learning.",
        epilog=EPILOG,
        formatter_class=Format,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    several = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = _command_name(argv)
    for name, (_, summary) in COMMANDS.items():
        own = several.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=Format,
        )
        if name == asked:
            # numpy 2.2 reports Ctrl-C during its own import as an import error.
            with defer_ctrl_c():
                module = command(name)
            module.arguments(own)
            add_common(own)
    if asked and asked not in COMMANDS:
        from difflib import get_close_matches  # here, as only mistakes need it

        if close := get_close_matches(asked, COMMANDS, 1):
            parser.error(f"there is no command {asked!r}; do you mean {close[0]}?")
    given, unknown = parser.parse_known_args(argv)
    if unknown:  # raise the error from the command's own parser: its --help lists the options
        own = several.choices.get(given.command, parser)
        early = set(unknown) & set(argv[: argv.index(asked)] if asked else [])
        own.error(f"{f'options come after {asked}' if early else 'unrecognized arguments'}: {' '.join(unknown)}")
    if given.command is None and not given.version:
        parser.print_help()
        raise SystemExit(exit_codes.USAGE)
    return given


def _command_name(argv: list[str]) -> str:
    """Return the name of the requested command before the arguments are parsed; "" if there is none."""
    return next((each for each in argv if not each.startswith("-")), "")


def _run(given: argparse.Namespace) -> int:
    """Run a parsed command and return its exit code."""
    if given.command is None:
        from importlib.metadata import version

        Output().line(f"ffrecord {version('ffrecord')}")
        return exit_codes.DONE
    out = Output(json=given.json, quiet=given.quiet)
    warnings.showwarning = lambda message, *_: out.remark(f"ffrecord {given.command}: {message}")
    noted = exit_codes.DamageNotice()
    try:
        with noted:
            code = command(given.command).run(given, out)
        return exit_codes.BAD_NEWS if code == exit_codes.DONE and noted.messages else code
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except KeyboardInterrupt as error:
        return _report_interrupt(given.command, error)
    except (argparse.ArgumentError, Exception) as error:
        return _report_failure(given, error)


def _flush_output(argv: list[str], code: int) -> int:
    """Flush standard output. Return `code`, or the exit code of a failure if the flush fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return exit_codes.PIPE_CLOSED
    except OSError as error:
        silence(sys.stdout)
        _print_error(_command_name(argv), f"standard output: {error.strerror}")
        return exit_codes.FAILED
    return code


def _report_interrupt(name: str, error: KeyboardInterrupt) -> int:
    """Report Ctrl-C and what the interrupted command leaves behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would only interrupt the report
    exec("")  # see the comment in `main`
    from ffrecord.cli.terminal.messages import format_notes

    _print_error(name, f"interrupted{format_notes(error)}")
    return exit_codes.INTERRUPTED


def _report_signal(name: str, ended: SystemExit, code: int) -> int:
    """Report SIGTERM or SIGHUP and what the interrupted command leaves behind."""
    from ffrecord.cli.terminal.messages import format_notes

    _print_error(name, f"ended by {signal.Signals(code - ENDED).name}{format_notes(ended)}")
    return code


def _report_failure(given: argparse.Namespace, error: Exception) -> int:
    """Report an error in one line and return the exit code for it."""
    from ffrecord.cli.terminal.messages import explain_memory, format_error, format_notes, is_out_of_memory
    from ffrecord.errors import ArgumentError, ArgumentTypeError

    if isinstance(error, StandardOutputError):
        silence(sys.stdout)
    if given.debug:
        traceback.print_exc()
    text = format_error(error)
    if is_out_of_memory(error):
        text = explain_memory(text, _sources_of(given), getattr(given, "jobs", 1))
    _print_error(given.command, text + format_notes(error))
    return exit_codes.USAGE if isinstance(error, ArgumentError | ArgumentTypeError) else exit_codes.FAILED


def _sources_of(given: argparse.Namespace) -> list[str]:
    """Return the paths that a command reads, whatever it calls them."""
    found: Any = next((getattr(given, each) for each in ("source", "sources", "path", "folder") if each in given), [])
    return [found] if isinstance(found, str) else [str(each) for each in found]


def _print_error(name: str, text: str) -> None:
    try:
        sys.stderr.write(f"{f'ffrecord {name}'.strip()}: {make_printable(text)}\n")
        sys.stderr.flush()
    except OSError:  # stderr is full or closed: there is no other place to report that
        silence(sys.stderr)
