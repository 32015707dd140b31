"""`ffrecord bench`: read speed of a dataset on this machine, beside the limit of the machine."""

import argparse
from dataclasses import asdict
from typing import Any

from ffrecord.cli import measure as measuring
from ffrecord.cli.measure import Measurement
from ffrecord.cli.sources import add_source, local_path_of, open_source, positive
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_size
from ffrecord.errors import ArgumentError, FFRecordError
from ffrecord.reading.store import Store
from ffrecord.system import urls
from ffrecord.system.signals import signals_exit

EXAMPLES = """\
examples:
  ffrecord bench data/train
  ffrecord bench data/train --batch-size 256 --seconds 5 --plot bench.svg

cached: random batches from the page cache; the limit is the speed of checksums of memory, without a copy.
cold: random batches after the files were dropped from the page cache; the limit is large direct reads of them.
loader: batches of tensors for training, as ffrecord.torch.Loader gives them (needs torch).
sizes: samples of 1 kB to 4 MB, of files that are made for it in the directory for temporary files; with --plot.

If nothing of what --only names can be measured here, the exit code is 3."""
WAYS = ("cached", "cold", "loader")
SIZES = "sizes"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, and the options for duration and figure."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument(
        "--batch-size", type=positive, default=64, metavar="N", help="samples in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="seconds of each measurement (default: %(default)s)"
    )
    parser.add_argument("--only", choices=(*WAYS, SIZES), action="append", help="measure only this; may be repeated")
    help = "save a figure as .png, .svg or .pdf (needs the extra 'plot'); an existing file is replaced"
    parser.add_argument("--plot", type=local_path_of, metavar="FILE", help=help)


def run(given: argparse.Namespace, out: Output) -> int:
    """Measure and print the results, with a verdict on each."""
    if not given.seconds > 0:
        raise ArgumentError(f"--seconds is {given.seconds}, expected > 0")
    if given.plot:
        from ffrecord.cli.plots import check

        check(given.plot)
    if urls.is_remote(given.source):
        what = "bench measures the disk and the memory of this machine, so it needs a local path"
        raise ArgumentError(f"{urls.redact(given.source)}: {what}")
    # Signals become exceptions, so that the files made for measuring are removed.
    with signals_exit(), open_source(given) as store:
        if not store.n:
            raise ArgumentError(f"{given.source}: there is nothing to measure: it has 0 samples")
        found = measure(store, given, out)
        swept = sweep(found, given, out)
        whole = given.batch_size >= store.n
    if not swept and all(each.missing for each in found):
        raise FFRecordError("; ".join(f"{each.way}: {judge(each)}" for each in found))
    if given.plot:
        from ffrecord.cli.plots import plot_measured

        plot_measured(found, given.source, given.plot, swept)
    if out.json:
        facts: dict[str, Any] = {
            "path": given.source,
            "batch_size": given.batch_size,
            "machine": measuring.describe_machine(),
        }
        facts |= {
            "measured": [_facts_of_way(each, whole) for each in found],
            "sizes": [_facts_of_size(each) for each in swept],
        }
        out.data(facts)
    else:
        _print(found, whole, out)
        _print_sizes(swept, out)
    return exit_codes.DONE


def _facts_of_way(measured: Measurement, whole: bool) -> dict[str, Any]:
    told = {name: value for name, value in asdict(measured).items() if name != "quantiles"}
    return {**told, "verdict": judge(measured, whole)}


def _facts_of_size(measured: Measurement) -> dict[str, Any]:
    size = round(measured.bytes_per_second / measured.samples_per_second)
    told = asdict(measured)
    return {"size": size, **{name: told[name] for name in ("samples_per_second", "bytes_per_second", "limit")}}


def measure(store: Store, given: argparse.Namespace, out: Output) -> list[Measurement]:
    """Measure the requested ways of reading, in the order of WAYS."""
    found = []
    for way in (way for way in given.only or WAYS if way != SIZES):
        with out.progress(None, "", f"measuring: {way}"):
            try:
                found.append(getattr(measuring, f"measure_{way}")(store, given.batch_size, given.seconds))
            except measuring.NotMeasurable as error:
                found.append(Measurement(way, missing=str(error)))
    return found


def sweep(found: list[Measurement], given: argparse.Namespace, out: Output) -> list[Measurement]:
    """Measure samples of several sizes, if requested. The limit is taken from `found`, if it was measured there."""
    if SIZES not in (given.only or ([SIZES] if given.plot else [])):
        return []
    limit = next((each.limit for each in found if each.way == "cached"), None)
    try:
        with out.progress(None, "", "measuring: sizes"):
            return measuring.measure_sizes(given.batch_size, given.seconds, limit)
    except measuring.NotMeasurable as error:
        if not found:
            raise FFRecordError(f"sizes: not measured: {error}") from error
        out.remark(f"ffrecord bench: sizes: not measured: {error}")
        return []


def judge(measured: Measurement, whole: bool = False) -> str:
    """Judge a measurement in words.

    Args:
        measured: the measurement.
        whole: whether a batch is the whole dataset.
    """
    if measured.missing:
        return f"not measured: {measured.missing}"
    share = measured.bytes_per_second / measured.limit if measured.limit else None
    if share is None:
        why = measured.unlimited or "unknown for decoding"
        told = f"{measured.samples_per_second:,.0f} samples/s: training does not wait if it takes fewer"
        return f"{told} (limit: {why})"
    what = {"cached": "memory", "cold": "the storage"}.get(measured.way, "the machine")
    if share > 1.1 and measured.way == "cold":
        return f"faster than large direct reads of {what}: a cache below them keeps the data"
    if share > 1.1:
        return f"faster than {what} allows here: the data fit in the caches of the CPU"
    if share >= 0.8:
        return f"as fast as {what} allows here ({share:.0%} of it)"
    if whole:
        return f"{share:.0%} of what {what} allows: the dataset is too small to say more, as a batch is the whole of it"
    if measured.bytes_per_batch < 64 * 4096:
        return f"{share:.0%} of what {what} allows: samples are small, so larger batches would be faster"
    return f"{share:.0%} of what {what} allows here"


def _print(found: list[Measurement], whole: bool, out: Output) -> None:
    rows: list[list[Any]] = []
    for each in found:
        if not each.missing:
            limit = "-" if each.limit is None else f"{format_size(each.limit)}/s"
            latencies = (
                [f"{each.latencies[name] * 1e3:.3g} ms" for name in ("50 %", "99 %")] if each.latencies else ["-", "-"]
            )
            rows.append(
                [
                    each.way,
                    f"{each.samples_per_second:,.0f}",
                    f"{format_size(each.bytes_per_second)}/s",
                    limit,
                    *latencies,
                ]
            )
    if rows:
        out.table(["", "samples/s", "read", "limit here", "batch, median", "99 %"], rows)
        out.line()
    for each in found:
        out.wrap(f"{each.way}: ", judge(each, whole))


def _print_sizes(swept: list[Measurement], out: Output) -> None:
    if swept:
        out.line()
        rows = [
            [
                format_size(told["size"]),
                f"{told['samples_per_second']:,.0f}",
                f"{format_size(told['bytes_per_second'])}/s",
            ]
            for told in map(_facts_of_size, swept)
        ]
        out.table(["samples of", "samples/s", "read, cached"], rows)
