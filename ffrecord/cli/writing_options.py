"""Options, writers and final messages of the commands that write datasets."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from ffrecord.cli.sources import add_jobs, path_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.messages import is_out_of_memory
from ffrecord.cli.terminal.output import Output, StandardOutputError, format_count, format_size
from ffrecord.conversion.input import ConversionInput, open_input
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import ArgumentError, WorkerError, add_note
from ffrecord.system.sizes import parse_size


def add_out(parser: argparse.ArgumentParser, what: str = "new directory of shards") -> None:
    """Add the argument `out` and the options of commands that write shards."""
    parser.add_argument("out", metavar="OUT", type=path_of, help=what)
    add_writing(parser)


def add_writing(parser: argparse.ArgumentParser) -> None:
    """Add the options for the division into shards and for the number of processes."""
    cut = parser.add_mutually_exclusive_group()
    cut.add_argument(
        "--shard-size",
        type=size_of,
        metavar="BYTES",
        help="largest size of a shard, such as 500M or 2Gi (default: 256Mi)",
    )
    cut.add_argument("--samples-per-shard", type=int, metavar="N", help="samples in each shard except the last")
    cut.add_argument("--num-shards", type=int, metavar="N", help="number of shards")
    add_jobs(parser, "processes that write")
    parser.add_argument("--restart", action="store_true", help="discard the finished shards of an interrupted run")


def size_of(text: str) -> int:
    """Parse a number of bytes.

    Raises:
        argparse.ArgumentTypeError: the text is not a size.
    """
    try:
        return parse_size("it", text, least=0)
    except ArgumentError:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected bytes, such as 500M, 1.5TB or 2GiB") from None


def options_of(given: argparse.Namespace, out: Output) -> dict[str, Any]:
    """Return the arguments for `DatasetWriter` and `convert`."""
    return {
        "shard_size": given.shard_size,
        "samples_per_shard": given.samples_per_shard,
        "num_shards": given.num_shards,
        "num_workers": given.jobs if given.jobs > 1 else 0,
        "resume": not given.restart,
        "progress": False if out.quiet or out.json else None,
        **({"max_skipped": given.max_skipped} if getattr(given, "max_skipped", 0) else {}),
    }


def add_skipping(parser: argparse.ArgumentParser) -> None:
    """Add the option --max-skipped, which makes a whole dataset of a damaged one."""
    parser.add_argument(
        "--max-skipped",
        type=int,
        default=0,
        metavar="N",
        help="leave out up to N samples that cannot be read, and name them (default: 0)",
    )


@contextmanager
def hint_at_skipping(given: argparse.Namespace) -> Iterator[None]:
    """Add a hint at --max-skipped to an error about a sample, unless the option was given."""
    try:
        yield
    except WorkerError as error:
        skips = error.index is not None and error.exitcode is None and not is_out_of_memory(error)
        if skips and not given.max_skipped:
            add_note(error, "use --max-skipped N to leave out up to N samples that cannot be read")
        raise


@contextmanager
def open_indexed(source: Any, format: str | None) -> Iterator[ConversionInput]:
    """Open the samples of `source` by index.

    Raises:
        ArgumentError: `source` gives its samples only one after the other.
        The errors of `ffrecord.convert`.
    """
    with open_input(source, format, None, {}) as found:
        if found.dataset is None:
            raise ArgumentError(f"{source}: its samples can only be read in order; run `ffrecord convert` on it first")
        yield found


def write_some(found: ConversionInput, out: str, indices: Any, options: Mapping[str, Any]) -> Summary:
    """Write the samples at `indices` to `out`. Records of .ffr files are copied byte by byte."""
    writer = make_writer(found, out, options)
    return writer.from_indexed_dataset(found.dataset, indices=indices, fingerprint=fingerprint_of(found))


def make_writer(found: ConversionInput, out: str, options: Mapping[str, Any]) -> DatasetWriter:
    """Make a writer for the samples of `found`."""
    return DatasetWriter(out, found.fields, on_error="skip" if "max_skipped" in options else "raise", **options)


def fingerprint_of(found: ConversionInput) -> str | None:
    """Return a fingerprint of the samples; None if there is none."""
    told = getattr(found.dataset, "fingerprint", None)
    return told if isinstance(told, str) else None


def conclude(summaries: Iterable[Summary], out: Output, **more: Any) -> int:
    """Print a summary of each written dataset and return the exit code.

    Args:
        summaries: one for each dataset.
        out: output of the command.
        more: facts to add to each summary.
    """
    told = [{**asdict(each), **more} for each in summaries]
    try:
        _print_summaries(told, out)
        out.flush()
    except StandardOutputError as error:
        add_note(error, "everything was written")
        raise
    return exit_codes.BAD_NEWS if any(each.get("skipped") for each in told) else exit_codes.DONE


def _print_summaries(told: list[dict[str, Any]], out: Output) -> None:
    if out.json:
        out.data(told[0] if len(told) == 1 else told)
        return
    for each in told:
        size, seconds = format_size(each["bytes"]), each["seconds"]
        seed = f", seed {each['seed']}" if each["seed"] is not None else ""
        count = f"{format_count(each['samples'], 'sample')}, {size}, {format_count(each['shards'], 'shard')}{seed}"
        left_out = f", {format_count(each['skipped'], 'sample')} left out" if each.get("skipped") else ""
        verified = ", verified" if each.get("verified") else ""
        speed = f"{format_size(each['bytes'] / max(seconds, 1e-9))}/s"
        out.line(f"{each['path']}: {count}{left_out}{verified}; {seconds:.3g} s, {speed}")
