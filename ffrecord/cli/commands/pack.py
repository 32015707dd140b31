"""`ffrecord pack`: a folder → one file, from which each of its files can be read by path."""

import argparse
import os
from errno import EEXIST

from ffrecord.cli.leftovers import report_leftovers
from ffrecord.cli.sources import local_path_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_count, format_size
from ffrecord.folders.folder import PackedFolder
from ffrecord.folders.folder_pack import pack_folder
from ffrecord.reading.paths import check_outside

EXAMPLES = """\
examples:
  ffrecord pack photos/ photos.ffr
  ffrecord get photos.ffr cats/1.jpg --raw > 1.jpg"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add FOLDER and FILE."""
    parser.epilog = EXAMPLES
    parser.add_argument("folder", metavar="FOLDER", type=local_path_of)
    parser.add_argument(
        "out", metavar="FILE.ffr", type=local_path_of, help="file to write; it appears when it is complete"
    )
    parser.add_argument("--replace", action="store_true", help="replace an existing file")


def run(given: argparse.Namespace, out: Output) -> int:
    """Pack the folder."""
    check_outside([given.folder], given.out)
    if os.path.lexists(given.out) and not given.replace:
        raise FileExistsError(EEXIST, "it already exists; use --replace to replace it", given.out)
    report_leftovers(given.out, out, "pack")
    with out.progress(None, " files", "packing") as bar:
        pack_folder(given.folder, given.out, on_file=bar.reach)
    size = os.path.getsize(given.out)
    with PackedFolder(given.out) as packed:
        files = packed.num_files()
    facts = {"path": given.out, "files": files, "bytes": size}
    out.facts(facts) if out.json else out.line(f"{given.out}: {format_count(files, 'file')}, {format_size(size)}")
    return exit_codes.DONE
