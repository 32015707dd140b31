"""`ffrecord split`: a dataset into several, such as for training and validation; every sample goes into one of them."""

import argparse
import itertools
import math
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.cli.sources import add_source, local_path_of, refuse_inside, seed_of
from ffrecord.cli.split_parts import SplitPart, publish
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_writing, conclude, indexed, options_of, told_apart, write_some
from ffrecord.conversion.input import Given
from ffrecord.dataset_writer.resume import fingerprint
from ffrecord.errors import ArgumentError, add_note, counted
from ffrecord.order import Random
from ffrecord.system import filesystems

EXAMPLES = """\
examples:
  ffrecord split data/all data/train=0.9 data/val=0.1  # by chance, seed 0
  ffrecord split data/all data/train=50000 data/val=rest --in-order"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, parts, and a seed."""
    parser.epilog = EXAMPLES
    add_source(parser)
    help = "a new directory, and its share of the samples (0.1), their number (5000), or what is left (rest)"
    parser.add_argument("parts", metavar="OUT=SHARE", nargs="+", type=_part, help=help)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seed", type=seed_of, default=0, metavar="N", help="of the chance by which samples are chosen (default: 0)"
    )
    which.add_argument("--in-order", action="store_true", help="the first samples to the first part, and so on")
    add_writing(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the parts; within each, samples keep their order."""
    _check(given.parts)
    refuse_inside([given.source], *(path for path, _ in given.parts))
    with indexed(given.source, given.format) as found, ExitStack() as stack:
        chosen = choose(given, len(found.dataset))
        parts = [SplitPart(path, restart=given.restart) for path, _ in given.parts]
        for part in parts:
            part.check_begun()  # before directories are made for any of them
        for part in parts:
            stack.enter_context(part)
        for part, indices in zip(parts, chosen, strict=True):
            part.begin(_request(given, found, indices))
        try:
            for part, indices in zip(parts, chosen, strict=True):
                part.write(lambda path, wanted=indices: write_some(found, path, wanted, options_of(given, out)))  # type: ignore[misc]
            publish(parts)
        except BaseException as error:
            _tell(parts, error)
            raise
    for part, indices in zip(parts, chosen, strict=True):
        if not len(indices):
            out.remark(f"ffrecord split: {part.path} has no samples")
    conclude([part.summary for part in parts if part.summary is not None], out)
    return exit_codes.DONE


def choose(given: argparse.Namespace, n: int) -> list[npt.NDArray[np.int64]]:
    """Indices of each part, ascending."""
    order = np.arange(n) if given.in_order else Random().indices(np.arange(n), n, given.seed, 0)
    return [np.sort(each) for each in np.split(order, np.cumsum(sizes(given.parts, n))[:-1])]


def _request(given: argparse.Namespace, found: Given, indices: npt.NDArray[np.int64]) -> dict[str, Any]:
    """What makes a part the one that it is."""
    cuts = {name: getattr(given, name) for name in ("shard_size", "samples_per_shard", "num_shards")}
    return {"samples": len(indices), "indices": fingerprint(indices), "source": told_apart(found), **cuts}


def _tell(parts: list[SplitPart], error: BaseException) -> None:
    """Add to an error what stays."""
    published = [part.path for part in parts if part.published]
    hidden = [part.path for part in parts if part.summary is not None and part.path not in published]
    said = f"published: {', '.join(published)}" if published else "nothing was published"
    if hidden:
        said += f"; what is complete stays hidden ({', '.join(hidden)})"
    if published or hidden:
        discards = "" if published else ", and --restart discards it"
        add_note(error, f"{said}: the same call goes on from there{discards}")


def sizes(parts: list[tuple[str, float | int | None]], n: int) -> list[int]:
    """Samples of each part: [len(parts)], of n in all; of a share less than one more or fewer than it is of n.

    Raises:
        ArgumentError: they ask for more or for fewer.
    """
    shared = iter(_of_shares([share for _, share in parts if isinstance(share, float)], n))
    counts = [next(shared) if isinstance(share, float) else share for _, share in parts]
    known = sum(count for count in counts if count is not None)
    if None in counts:
        if known > n:
            raise ArgumentError(f"the parts ask for {counted(known, 'sample')}, and there are {n}")
        return [n - known if count is None else count for count in counts]
    if known != n:
        raise ArgumentError(
            f"the parts ask for {counted(known, 'sample')}, and there are {n}: every sample goes into one part"
        )
    return counts  # type: ignore[return-value]


def _of_shares(shares: list[float], n: int) -> list[int]:
    """Samples of each share, cut where the shares up to it end: each one rounded by itself would not add up to n."""
    ends = itertools.accumulate(Fraction(repr(share)) for share in shares)  # as written: 0.1 is a tenth
    cuts = [n if math.isclose(end, 1, abs_tol=1e-9) else math.ceil(end * n - Fraction(1, 2)) for end in ends]
    return [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]


def _part(text: str) -> tuple[str, float | int | None]:
    path, sign, share = text.rpartition("=")
    if not sign or not path:
        raise argparse.ArgumentTypeError(f"{text!r}, expected OUT=SHARE, such as data/val=0.1")
    path = local_path_of(path)
    try:
        if share == "rest":
            return path, None
        if share.isdigit():
            return path, int(share)
        number = float(share)
    except ValueError:
        number = -1
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: {share!r} is no share from 0 to 1, no number, and not 'rest'")
    return path, number


def _check(parts: list[tuple[str, float | int | None]]) -> None:
    """Refuse before anything is written what would be refused at a later part."""
    paths = [filesystems.real(path) for path, _ in parts]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ArgumentError(f"{twice} is given twice")
    if sum(share is None for _, share in parts) > 1:
        raise ArgumentError("only one part can be the rest")
