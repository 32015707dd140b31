"""`ffrecord export`: a dataset of any format → zip, tar, WebDataset, TFRecord or a folder."""

import argparse

from ffrecord.cli.leftovers import report_leftovers
from ffrecord.cli.sources import add_jobs, add_source, local_path_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import conclude
from ffrecord.conversion import export

FORMATS = ("zip", "tar", "webdataset", "tfrecord", "folder")

EXAMPLES = """\
examples:
  ffrecord export data/train train.zip
  ffrecord export data/train shards/ --to webdataset --samples-per-shard 9000"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, OUT and the options of an export."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument(
        "out", metavar="OUT", type=local_path_of, help="new file or directory, in an existing directory"
    )
    parser.add_argument(
        "--to",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format: {', '.join(FORMATS)}; by default, the one of the suffix of OUT",
    )
    parser.add_argument(
        "--samples-per-shard", type=int, metavar="N", help="write files of N samples into the directory OUT"
    )
    parser.add_argument("--verify", action="store_true", help="compare every byte before OUT appears")
    add_jobs(parser, "processes that write")


def run(given: argparse.Namespace, out: Output) -> int:
    """Export the dataset."""
    report_leftovers(given.out, out, "export")
    summary = export(
        given.source,
        given.out,
        given.to,
        samples_per_shard=given.samples_per_shard,
        num_workers=given.jobs if given.jobs > 1 else 0,
        verify=given.verify,
        source_format=given.format,
        progress=False if out.quiet or out.json else None,
    )
    conclude([summary], out, verified=given.verify)
    return exit_codes.DONE
