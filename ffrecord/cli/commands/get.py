"""`ffrecord get`: samples by index or name, decoded, or their raw bytes."""

import argparse
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from ffrecord.cli.format_values import print_samples
from ffrecord.cli.partial import PartialDataset, open_partial
from ffrecord.cli.sources import add_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.errors import ArgumentError, FFRecordError, MissingNamesError, name_files
from ffrecord.reading.store import Store

EXAMPLES = """\
examples:
  ffrecord get data/train 0 17 -1
  ffrecord get data/train 100:110 -3:
  ffrecord get photos.zip cats/1.jpg --raw > 1.jpg"""

FROM_THE_END = re.compile(r"-\d+(:-?\d*)*$")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the indices."""
    parser.epilog = EXAMPLES
    add_source(parser)
    # argparse would take "-3:-1" for an option otherwise.
    parser._negative_number_matcher = FROM_THE_END
    help = "0 is the first, -1 the last, 3:7 are four, -3: the last three; or a name, if the format has names"
    parser.add_argument("index", metavar="INDEX", nargs="+", help=help)
    parser.add_argument("--raw", action="store_true", help="write the bytes of the records to standard output")


def run(given: argparse.Namespace, out: Output) -> int:
    """Print samples, or write their bytes."""
    if given.raw and out.json:
        raise ArgumentError("--json cannot be used with --raw, which writes bytes")
    with open_partial(given) as partial:
        indices = [index for text in given.index for index in indices_of(partial.store, text, partial.n)]
        if not given.raw:
            return print_samples(partial, indices, out)
        for index in indices:
            out.raw(_read_record(partial, index))
    return exit_codes.DONE


def _read_record(partial: PartialDataset, index: int) -> Any:
    place = partial.place(index)
    try:
        return partial.store.read_one(place).data
    except (FFRecordError, OSError) as error:
        if place == index:
            raise
        raise FFRecordError(partial.describe_error(error, place)) from error


def indices_of(store: Store, text: str, n: int) -> Iterator[int]:
    """Yield the indices, in [0, n), that an argument INDEX means.

    Args:
        store: the opened samples.
        text: an index, a slice or a name.
        n: number of samples of the dataset, of which `store` may be a part.

    Raises:
        ArgumentError: there is no such sample.
    """
    first, colon, last = text.partition(":")
    try:
        if colon:
            yield from range(n)[slice(*(int(each) if each else None for each in (first, last)))]
            return
        index = operator.index(int(text))
    except ValueError:
        yield _index_of_name(store, text)
        return
    if not -n <= index < n:
        raise ArgumentError(f"index is {index}, expected {-n} <= index < {n}: {name_files(store.fnames)}")
    yield index % n


def _index_of_name(store: Store, name: str) -> int:
    """Return the index of the record with this name; the last one if several have it."""
    try:
        names = store.keys()
    except MissingNamesError:
        wanted = "0, -1 or 3:7 (no steps)" if ":" in name else "0, -1 or 3:7"
        raise ArgumentError(
            f"{name!r} is not an index, such as {wanted}, and the format {store.format} has no names"
        ) from None
    find: Callable[[str], int] | None = getattr(names, "find", None)
    found = _last_index(list(names), name) if find is None else find(name)
    if found < 0:
        raise ArgumentError(f"{name!r} is neither an index nor the name of a record: {name_files(store.fnames)}")
    return int(found)


def _last_index(names: list[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name) if name in names else -1
