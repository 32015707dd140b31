"""Spans of one or many objects → few requests: none twice, neighbours together."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ffrecord.reading.store import Indices

# What a request costs here, in CPU time, and at the other end, in money and in its limits, is worth that many bytes
# which nobody asked for: see docs/design.md.
GAP = 64 << 10
# What is together: longer, and one connection would deliver what several could.
MOST = 1 << 20
# A record larger than that is fetched in pieces at once.
PIECE = 8 << 20


class Request(NamedTuple):
    """Bytes [start, stop) of an object, and the records in them: numbers `first` to `last`, not including it."""

    file: int
    start: int
    stop: int
    first: int
    last: int


def parts(files: Indices) -> list[tuple[int, slice]]:
    """Of numbers in ascending order, those that are the same: (number, where)."""
    if not len(files):
        return []
    bounds = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
    return [(int(files[low]), slice(low, high)) for low, high in pairwise(bounds)]


def requests(files: Indices, starts: Indices, stops: Indices) -> list[Request]:
    """What to ask for to have these records.

    Args:
        files: int64 [k], number of the object that each is in; those of an object together.
        starts, stops: int64 [k], where each begins and ends, bytes; in ascending order in each object, none twice.

    Returns:
        In the same order; of records without bytes, none for them alone.
    """
    if not len(files):
        return []
    apart = (np.diff(files) != 0) | (starts[1:] - stops[:-1] > GAP)
    bounds = np.concatenate(([0], np.flatnonzero(apart) + 1, [len(files)]))
    found: list[Request] = []
    lows, highs, numbers = starts.tolist(), stops.tolist(), files.tolist()
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found += _cut(numbers[first], lows, highs, first, last)
    return found


def _cut(file: int, lows: list[int], highs: list[int], first: int, last: int) -> list[Request]:
    """Records that may be together, in requests of MOST bytes, if several are in one."""
    found = []
    while first < last:
        end = first + 1
        while end < last and highs[end] - lows[first] <= MOST:
            end += 1
        if highs[end - 1] > lows[first]:
            found.append(Request(file, lows[first], highs[end - 1], first, end))
        first = end
    return found


def pieces(start: int, stop: int) -> list[tuple[int, int]]:
    """A request cut into such as one connection may deliver: (start, stop) of each."""
    count = max(1, -(-(stop - start) // PIECE))
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
