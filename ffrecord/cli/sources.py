"""The dataset that a command reads, and types of arguments that several commands take."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ffrecord.errors import ArgumentError, FormatError, add_note
from ffrecord.format import manifest
from ffrecord.reading.paths import local_path
from ffrecord.reading.store import Store
from ffrecord.sources.opening import open
from ffrecord.sources.registry import FORMATS
from ffrecord.system import resources

FILE_EACH = ("image folder", "path list")  # formats with one file per sample
JOBS_MOST = 1024  # threads or processes; a larger number is a mistake


def add_source(parser: argparse.ArgumentParser, *, several: bool = False, formats: Sequence[str] = ()) -> None:
    """Add the argument `source` and the option --format.

    Args:
        parser: parser of the command.
        several: whether the command takes several datasets.
        formats: names of formats besides those of `ffrecord.open`.
    """
    help = "file, directory or pattern: .ffr, or any other format that ffrecord.open reads"
    parser.add_argument("source", metavar="PATH", nargs="+" if several else None, type=path_of, help=help)
    known = [*FORMATS, *formats]
    parser.add_argument(
        "--format", choices=known, metavar="NAME", help=f"format, if detection fails: {', '.join(known)}"
    )


def path_of(text: str) -> str:
    """Return a path that is not empty.

    Raises:
        argparse.ArgumentTypeError: it is empty, as an unset variable of a script is.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def local_path_of(text: str) -> str:
    """Return the path of a file or directory on this machine.

    Raises:
        argparse.ArgumentTypeError: it is empty, or a URL.
    """
    try:
        return local_path("the argument", path_of(text))
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_jobs(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option --jobs. The default is the number of usable CPUs."""
    cpus = resources.usable_cpus()
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=cpus, metavar="N", help=f"{what} (default: {cpus}, one for each CPU)"
    )


def _jobs(text: str) -> int:
    return whole_number(text, 1, JOBS_MOST)


def seed_of(text: str) -> int:
    """Parse a seed, 0 <= seed < 2**32."""
    return whole_number(text, 0, (1 << 32) - 1)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    return whole_number(text, 1)


def whole_number(text: str, least: int, most: int | None = None) -> int:
    """Parse a whole number from `least` to `most`; None: no upper limit.

    Raises:
        argparse.ArgumentTypeError: it is no whole number, or outside of the range.
    """
    wanted = f"{least} or more" if most is None else f"{least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a whole number, {wanted}") from None
    if number < least or (most is not None and number > most):
        raise argparse.ArgumentTypeError(f"it is {number}, expected {wanted}")
    return number


def open_source(given: argparse.Namespace, **options: Any) -> Store:
    """Open the dataset that the argument `source` names.

    Raises:
        The errors of `ffrecord.open`.
    """
    source = given.source[0] if isinstance(given.source, list) and len(given.source) == 1 else given.source
    if isinstance(source, str):
        # A path without permission raises its own error here. Patterns, URIs and missing paths are left to `open`.
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            os.stat(source)
    try:
        return open(source, given.format, **options)
    except FormatError:
        manifest_of(given)
        raise


def manifest_of(given: argparse.Namespace, directory: str | None = None) -> manifest.Manifest | None:
    """Return the manifest of the source, or None if the source is not a directory with dataset.json.

    Args:
        given: arguments of the command.
        directory: real path of the source, if the caller reads other files there, too.

    Raises:
        FormatError: dataset.json is damaged; a note says what you can do.
    """
    if isinstance(given.source, str) and given.format in (None, "ffrecord") and os.path.isdir(given.source):
        try:
            return manifest.load(directory or given.source)
        except FormatError as error:
            if given.command != "verify":
                add_note(error, "run `ffrecord verify` to check the shards without it")
            raise
    return None
