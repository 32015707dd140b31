"""`ffrecord bench`: what a dataset gives on this machine, beside what the machine could give at most."""

import argparse
from dataclasses import asdict
from typing import Any

from ffrecord.cli import exits, measuring
from ffrecord.cli.measuring import Measured
from ffrecord.cli.output import Output, in_bytes
from ffrecord.cli.sources import add_source, open_source, positive
from ffrecord.errors import ArgumentError
from ffrecord.store import Store

EXAMPLES = """\
examples:
  ffrecord bench data/train
  ffrecord bench data/train --batch-size 256 --seconds 5 --plot bench.svg

cached: random batches of what is in the page cache; the limit is to compute checksums of memory, without a copy.
cold: random batches after the page cache was told to forget the files; the limit is large direct reads of them.
loader: batches of tensors for training, as ffrecord.torch.Loader gives them (needs torch)."""
WAYS = ("cached", "cold", "loader")


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, and how long."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="samples (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="of each measurement (default: %(default)s)"
    )
    parser.add_argument("--only", choices=WAYS, action="append", help="measure this; may be repeated")
    parser.add_argument("--plot", metavar="FILE", help="save a figure as .png, .svg or .pdf (needs the extra 'plot')")


def run(given: argparse.Namespace, out: Output) -> int:
    """Measure, and say what it means."""
    if not given.seconds > 0:
        raise ArgumentError(f"--seconds {given.seconds}, expected more than 0")
    if given.plot:
        from ffrecord.cli.plots import check_suffix

        check_suffix(given.plot)
    with open_source(given) as store:
        if not store.n:
            raise ArgumentError(f"{given.source}: nothing to measure in 0 samples")
        found = measure(store, given, out)
    if given.plot:
        from ffrecord.cli.plots import plot_measured

        plot_measured(found, given.source, given.plot)
    if out.json:
        facts = {"path": given.source, "batch_size": given.batch_size, "machine": measuring.machine()}
        out.data({**facts, "measured": [{**asdict(each), "verdict": verdict(each)} for each in found]})
    else:
        _print(found, out)
    return exits.DONE


def measure(store: Store, given: argparse.Namespace, out: Output) -> list[Measured]:
    """What was asked for and can be had, in the order of WAYS."""
    found = []
    for way in given.only or WAYS:
        with out.progress(None, "", f"measuring: {way}"):
            try:
                found.append(getattr(measuring, way)(store, given.batch_size, given.seconds))
            except measuring.NotHere as error:
                found.append(Measured(way, missing=str(error)))
    return found


def verdict(measured: Measured) -> str:
    """What the numbers mean."""
    if measured.missing:
        return f"not measured: {measured.missing}"
    share = measured.bytes_per_second / measured.limit if measured.limit else None
    if share is None:
        return f"{measured.samples_per_second:,.0f} samples/s: training is not kept waiting if it takes fewer"
    what = {"cached": "memory", "cold": "the storage"}.get(measured.way, "the machine")
    if share >= 0.8:
        return f"as fast as {what} allows here ({share:.0%} of it)"
    if measured.bytes_per_batch < 64 * 4096:
        return f"{share:.0%} of what {what} allows: samples are small, larger batches would cost less each"
    return f"{share:.0%} of what {what} allows here"


def _print(found: list[Measured], out: Output) -> None:
    rows: list[list[Any]] = []
    for each in found:
        if not each.missing:
            limit = "-" if each.limit is None else f"{in_bytes(each.limit)}/s"
            latencies = (
                [f"{each.latencies[name] * 1e3:.3g} ms" for name in ("50 %", "99 %")] if each.latencies else ["-", "-"]
            )
            rows.append(
                [each.way, f"{each.samples_per_second:,.0f}", f"{in_bytes(each.bytes_per_second)}/s", limit, *latencies]
            )
    if rows:
        out.table(["", "samples/s", "read", "limit here", "batch, median", "99 %"], rows)
        out.line()
    for each in found:
        out.line(f"{each.way}: {verdict(each)}")
