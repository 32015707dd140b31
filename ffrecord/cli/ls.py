"""`ffrecord ls`: the records of a dataset, one line each: index, bytes, where, name."""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ffrecord.cli import exits
from ffrecord.cli.output import Output
from ffrecord.cli.sources import add_source, open_source
from ffrecord.errors import MissingNamesError
from ffrecord.store import Store

CHUNK = 4096  # records asked for at once

EXAMPLES = """\
examples:
  ffrecord ls archive.zip
  ffrecord ls data/train --shards
  ffrecord ls data/train | head"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, and of what."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument("--shards", action="store_true", help="the files, with their samples and sizes, instead")


def run(given: argparse.Namespace, out: Output) -> int:
    """List them: lines as they are found, so that a pipe may stop it."""
    with open_source(given, check_data=False) as store:
        if given.shards:
            out.table(("file", "samples", "bytes"), list(shards(store)))
        elif out.json:
            out.data(list(records(store)))
        else:
            _print(store, out)
    return exits.DONE


def records(store: Store) -> Iterator[dict[str, Any]]:
    """Each record."""
    try:
        names: Any = store.keys()
    except MissingNamesError:
        names = None
    for start in range(0, store.n, CHUNK):
        positions = np.arange(start, min(start + CHUNK, store.n))
        for index, size in zip(positions.tolist(), store.record_sizes(positions).tolist(), strict=True):
            yield {"index": index, "bytes": size} | ({} if names is None else {"name": names[index]})


def shards(store: Store) -> Iterator[tuple[str, int, int]]:
    """Each file that has records: its name, how many, and their bytes."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for start in range(0, store.n, CHUNK):
        positions = np.arange(start, min(start + CHUNK, store.n))
        for index, size in zip(positions.tolist(), store.record_sizes(positions).tolist(), strict=True):
            path, _ = store.locate(index)
            counts[path], sizes[path] = counts.get(path, 0) + 1, sizes.get(path, 0) + size
    for path in dict.fromkeys(store.fnames):
        yield path, counts.get(path, 0), sizes.get(path, 0)


def _print(store: Store, out: Output) -> None:
    found = records(store)
    first = list(itertools.islice(found, 1))
    width = len(f"{store.n - 1:,}")
    for each in itertools.chain(first, found):
        out.line(f"{each['index']:>{width},}  {each['bytes']:>12,}  {each.get('name', '')}".rstrip())
