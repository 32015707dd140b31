"""The dataset that a command is about."""

import argparse
from typing import Any

from ffrecord.sources.opening import FORMATS, open
from ffrecord.store import Store


def add_source(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """The argument `source`, and --format."""
    help = "a file, a directory, a pattern: .ffr, or any other format that ffrecord.open reads"
    parser.add_argument("source", metavar="PATH", nargs="+" if several else None, help=help)
    parser.add_argument(
        "--format", choices=FORMATS, metavar="NAME", help=f"what it is, if that is not found out: {', '.join(FORMATS)}"
    )


def open_source(given: argparse.Namespace, **options: Any) -> Store:
    """Open what `add_source` asked for.

    Raises:
        As `ffrecord.open`.
    """
    source = given.source
    return open(source[0] if isinstance(source, list) and len(source) == 1 else source, given.format, **options)
