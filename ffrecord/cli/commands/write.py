"""`ffrecord write`: image folders, lists of files and numpy arrays → a directory of shards of typed samples."""

import argparse
import os
from collections.abc import Mapping
from errno import EINVAL
from pathlib import Path
from typing import Any

import numpy as np

from ffrecord.cli.sources import path_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_out, conclude, options_of
from ffrecord.conversion import convert
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.errors import ArgumentError, FormatError, name_files
from ffrecord.reading.paths import check_outside
from ffrecord.sources.opening import open

EXAMPLES = """\
examples:
  ffrecord write photos/ data/train                # class/file.jpg: labelled
  ffrecord write train.txt data/train              # lines of "path label"
  ffrecord write images.npy labels.npy data/train  # "images", "labels"
  ffrecord write arrays.npz data/train             # a column for each array"""

NO_ARRAYS = "it is damaged, or not a .npy or .npz file of numbers or text; Python objects cannot be read"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sources and OUT."""
    parser.epilog = EXAMPLES
    help = "image folder; list of paths with labels; or .npy and .npz files, whose first axis is the samples"
    parser.add_argument("sources", metavar="SOURCE", nargs="+", type=path_of, help=help)
    add_out(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the dataset."""
    check_outside(given.sources, given.out)
    options = options_of(given, out)
    if all(path.endswith((".npy", ".npz")) for path in given.sources):
        writer = DatasetWriter(given.out, **options)
        summary = writer.from_indexed_dataset(ArrayRows(load_columns(given.sources)))
    elif len(given.sources) > 1:
        raise ArgumentError(
            f"{given.sources[0]} is a dataset beside other sources, expected .npy or .npz files; use `ffrecord merge`"
        )
    else:
        format = "image folder" if os.path.isdir(given.sources[0]) else "path list"
        with open(given.sources[0], format) as store:
            if not store.n:
                raise FormatError(
                    f"{given.sources[0]}: there is nothing to write: it has no lines, and no pictures in directories "
                    "of classes"
                )
        summary = convert(given.sources[0], given.out, format=format, **options)
    conclude([summary], out)
    return exit_codes.DONE


class ArrayRows:
    """Samples from columns: arrays of the same length, which may be mapped from files."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}


def load_columns(paths: list[str]) -> dict[str, Any]:
    """Load the columns of .npy and .npz files. The name of a .npy file names its column. Nothing is unpickled.

    Returns:
        Column → array, [n, ...], with the same n for all.

    Raises:
        FormatError: a file is missing or damaged, or the lengths differ.
        ArgumentError: two columns have the same name.
    """
    found: dict[str, Any] = {}
    for path in paths:
        for name, array in _load_arrays(path).items():
            if name in found:
                raise ArgumentError(f"{path}: column {name!r} occurs twice")
            if array.ndim == 0:
                raise FormatError(f"{path}: {name!r} is a single number, expected an array with an axis of samples")
            found[name] = array
    lengths = {name: len(array) for name, array in found.items()}
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items()) or "no arrays"
        raise FormatError(f"{name_files(paths)}: columns of different lengths: {told}")
    return found


def _load_arrays(path: str) -> dict[str, Any]:
    try:
        # numpy would leave the file of a damaged archive open.
        with Path(path).open("rb") as file:
            if file.peek(2)[:2] != b"PK":
                return {os.path.basename(path).removesuffix(".npy"): np.load(path, mmap_mode="r", allow_pickle=False)}
            with np.load(file, allow_pickle=False) as loaded:
                found = dict(loaded)
    # numpy and zipfile raise many kinds of errors. Some messages advise to unpickle files that may be malicious.
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in (None, EINVAL)):
            raise
        raise FormatError(f"{path}: {NO_ARRAYS}") from error
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise FormatError(f"{path}: {NO_ARRAYS}")
    return found
