"""The dataset that a command is about."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from ffrecord.sources.opening import FORMATS, open
from ffrecord.store import Store


def add_source(parser: argparse.ArgumentParser, *, several: bool = False, formats: Sequence[str] = ()) -> None:
    """The argument `source`, and --format; `formats`: those besides what `ffrecord.open` knows."""
    help = "a file, a directory, a pattern: .ffr, or any other format that ffrecord.open reads"
    parser.add_argument("source", metavar="PATH", nargs="+" if several else None, help=help)
    known = [*FORMATS, *formats]
    parser.add_argument(
        "--format", choices=known, metavar="NAME", help=f"what it is, if not found out: {', '.join(known)}"
    )


def add_jobs(parser: argparse.ArgumentParser, what: str) -> None:
    """The option --jobs; all CPUs by default."""
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument(
        "-j", "--jobs", type=positive, default=cpus, metavar="N", help=f"{what} (default: {cpus}, one for each CPU)"
    )


def seed_of(text: str) -> int:
    """A seed, 0 <= seed < 2**32."""
    return whole_number(text, 0, (1 << 32) - 1)


def positive(text: str) -> int:
    """A number of things."""
    return whole_number(text, 1)


def whole_number(text: str, least: int, most: int | None = None) -> int:
    """A number of a command line, in a range.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    wanted = f"{least} or more" if most is None else f"{least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number, {wanted}") from None
    if number < least or (most is not None and number > most):
        raise argparse.ArgumentTypeError(f"{number}, expected {wanted}")
    return number


def open_source(given: argparse.Namespace, **options: Any) -> Store:
    """Open what `add_source` asked for.

    Raises:
        As `ffrecord.open`.
    """
    source = given.source
    return open(source[0] if isinstance(source, list) and len(source) == 1 else source, given.format, **options)
