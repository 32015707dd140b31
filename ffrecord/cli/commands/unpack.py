"""`ffrecord unpack`: a packed folder, zip or tar → a new directory of files, all or none."""

import argparse

from ffrecord.cli.sources import add_source, local_path_of, open_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_count, format_size
from ffrecord.cli.writing_options import size_of
from ffrecord.errors import ArgumentError, MissingFileError
from ffrecord.sources.unpacking import unpack
from ffrecord.system.signals import signals_exit

EXAMPLES = """\
examples:
  ffrecord unpack photos.ffr photos/
  ffrecord unpack archive.zip cats/ --only cats/1.jpg --only cats/2.jpg"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and FOLDER."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument("folder", metavar="FOLDER", type=local_path_of, help="new or empty directory to write to")
    parser.add_argument("--only", action="append", metavar="NAME", help="unpack only this file; may be repeated")
    parser.add_argument(
        "--max-size", type=size_of, metavar="BYTES", help="refuse an archive of more bytes in all, such as 10G"
    )


def run(given: argparse.Namespace, out: Output) -> int:
    """Unpack the files."""
    with signals_exit(), open_source(given) as store, out.progress(None, " files", "unpacking") as bar:
        options = {"max_size": given.max_size, "paths": given.only, "on_file": bar.reach}
        try:
            _, files, size = unpack(store, given.folder, **options)
        except MissingFileError as error:
            if error.filename not in (given.only or []):
                raise
            raise ArgumentError(f"--only {error.filename}: {given.source} has no file of that name") from None
    facts = {"path": given.folder, "files": files, "bytes": size}
    out.facts(facts) if out.json else out.line(f"{given.folder}: {format_count(files, 'file')}, {format_size(size)}")
    return exit_codes.DONE
