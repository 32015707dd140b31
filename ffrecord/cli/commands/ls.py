"""`ffrecord ls`: the records of a dataset, one line each: index, bytes, name."""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.cli.partial import PartialDataset, open_partial
from ffrecord.cli.sources import add_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.errors import MissingNamesError
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.store import Store

CHUNK = 4096  # records whose sizes are asked for together
SIZES_AT_ONCE = 1 << 20  # sizes of one file that are summed together

EXAMPLES = """\
examples:
  ffrecord ls archive.zip
  ffrecord ls data/train --shards
  ffrecord ls data/train | head

The list is written as it goes, so memory does not grow with it.
In a narrow terminal names lose their middles, or each row becomes several lines; no number is cut."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and --shards."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument("--shards", action="store_true", help="list the files with their samples and sizes instead")


def run(given: argparse.Namespace, out: Output) -> int:
    """List the records or files. Lines are printed as they are found, so that a closed pipe ends the command early."""
    with open_partial(given, None if given.shards else out, check_data=False) as partial:
        if given.shards:
            _print_shards(partial, out)
        elif out.json:
            out.items(list_records(partial))
        else:
            _print_records(partial, out)
        return exit_codes.BAD_NEWS if partial.wrong else exit_codes.DONE


def list_records(partial: PartialDataset) -> Iterator[dict[str, Any]]:
    """Yield the facts of each record that is there. "bytes" is None if a cut file has lost the record."""
    store = partial.store
    try:
        names: Any = store.keys()
    except MissingNamesError:
        names = None
    for start in range(0, store.n, CHUNK):
        positions = np.arange(start, min(start + CHUNK, store.n))
        for index, size in zip(positions.tolist(), store.record_sizes(positions).tolist(), strict=True):
            told = {"index": partial.index(index), "bytes": size if size >= 0 else None}
            yield told if names is None else {**told, "name": names[index]}


def list_shards(store: Store, out: Output) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the number of records and their bytes of each file."""
    known, first = set(store.fnames), next(iter(store.fnames), "")
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    with out.progress(store.n, " records", "shards") as bar:
        for path, found in _sizes_by_file(store):
            # Records of an image folder or a path list count for the directory or the list, not for their own file.
            name = path if path in known else first
            counts[name] = counts.get(name, 0) + len(found)
            sizes[name] = sizes.get(name, 0) + int(np.maximum(found, 0).sum())
            bar.update(len(found))
    for path in dict.fromkeys(store.fnames):
        yield path, counts.get(path, 0), sizes.get(path, 0)


def _sizes_by_file(store: Store) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield a file and the sizes of some of its records, until all records had their turn.

    Where a table counts the records of a file, many sizes come together.
    """
    start = 0
    for path, count in zip(store.fnames, _counts(store), strict=False):
        for first in range(start, start + count, SIZES_AT_ONCE):
            yield path, store.record_sizes(np.arange(first, min(first + SIZES_AT_ONCE, start + count)))
        start += count
    for first in range(start, store.n, CHUNK):
        positions = np.arange(first, min(first + CHUNK, store.n))
        sizes = store.record_sizes(positions)
        for place, index in enumerate(positions.tolist()):
            yield store.locate(index)[0], sizes[place : place + 1]


def _counts(store: Store) -> list[int]:
    """Return the number of records of each file in turn; [] if only `locate` knows the file of a record."""
    if isinstance(store, RecordReader) and type(store).locate is RecordReader.locate:
        return [file.n for file in store._files]
    return []


def _print_shards(partial: PartialDataset, out: Output) -> None:
    """Print the files as a table. Shards that are missing are listed with the reason."""
    rows: list[tuple[Any, ...]] = [(*row, None) for row in list_shards(partial.store, out)]
    if partial.pieces:
        found = {row[0]: row for row in rows}
        rows = [found.get(each.path, (each.path, each.samples, None, each.wrong)) for each in partial.pieces]
    columns = ("file", "samples", "bytes", "wrong")
    plain = not partial.wrong and not out.json
    out.table(columns[:3] if plain else columns, [row[:3] if plain else row for row in rows], shorten="file")


def _print_records(partial: PartialDataset, out: Output) -> None:
    found = list_records(partial)
    first = list(itertools.islice(found, 1))
    width = len(f"{partial.n - 1:,}")
    for each in itertools.chain(first, found):
        size = "-" if each["bytes"] is None else f"{each['bytes']:,}"
        out.line(f"{each['index']:>{width},}  {size:>12}  {each.get('name', '')}".rstrip())
