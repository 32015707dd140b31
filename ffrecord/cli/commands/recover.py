"""`ffrecord recover`: the flushed samples of a killed writer, as a whole file."""

import argparse
import os

from ffrecord.cli.sources import local_path_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_count, format_size
from ffrecord.system import filesystems
from ffrecord.writing.recovery import recover

EXAMPLES = """\
examples:
  ffrecord recover run.ffr
  ffrecord recover .run.ffr.0123456789ab.part"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH."""
    parser.epilog = EXAMPLES
    help = "path that the writer was given, or the part file that it left (.NAME.….part)"
    parser.add_argument("path", metavar="PATH", type=local_path_of, help=help)
    parser.add_argument("--replace", action="store_true", help="replace an existing file of that name")


def run(given: argparse.Namespace, out: Output) -> int:
    """Publish the recovered file. Return BAD_NEWS if flushed samples are damaged."""
    found = recover(given.path, replace=given.replace)
    if out.json:
        out.facts(found._asdict() | {"path": _relative_path(found.path)})
    else:
        out.line(f"{_relative_path(found.path)}: {format_count(found.samples, 'sample')}, {format_size(found.bytes)}")
        if found.dropped:
            out.line(
                f"{format_count(found.dropped, 'byte')} were written after the last flush, and cannot be recovered"
            )
        if found.damaged:
            out.line(
                f"{format_count(found.damaged, 'sample')} had been flushed, but are damaged: the disk did not keep them"
            )
    return exit_codes.BAD_NEWS if found.damaged else exit_codes.DONE


def _relative_path(path: str) -> str:
    """Return a path relative to the working directory, if it is below it."""
    here = filesystems.working_directory()
    return path if here is None else path.removeprefix(os.path.join(here, ""))
