"""Few requests for many spans: neighbours are read together, and no byte twice."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ffrecord.reading.store import Indices

# Spans with a gap of at most this many bytes are read by one request. A request costs CPU time here, and money and rate
# limits at the store: more than the unneeded bytes cost.
GAP = 64 << 10
# Bytes of a request for several records. Larger ones would keep one connection busy while others are idle.
MOST = 1 << 20
# A larger record is read in pieces, by several connections at once.
PIECE = 8 << 20


class Request(NamedTuple):
    """Bytes [start, stop) of an object, which contain the records [first, last) of a batch."""

    file: int
    start: int
    stop: int
    first: int
    last: int


def parts(files: Indices) -> list[tuple[int, slice]]:
    """Return (number, slice) for each run of equal numbers. The numbers must be in ascending order."""
    if not len(files):
        return []
    bounds = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
    return [(int(files[low]), slice(low, high)) for low, high in pairwise(bounds)]


def requests(files: Indices, starts: Indices, stops: Indices) -> list[Request]:
    """Return the requests that read these records.

    Args:
        files: int64 [k], number of the object of each record; records of one object stand together.
        starts, stops: int64 [k], first byte and end of each record; ascending in each object, none twice.

    Returns:
        Requests in the same order. There is no request for records without bytes alone.
    """
    if not len(files):
        return []
    # Another object, or a gap that costs more than a request.
    apart = (np.diff(files) != 0) | (starts[1:] - stops[:-1] > GAP)
    bounds = np.concatenate(([0], np.flatnonzero(apart) + 1, [len(files)]))
    found: list[Request] = []
    # Lists: single items of arrays are slow.
    lows, highs, numbers = starts.tolist(), stops.tolist(), files.tolist()
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found += _cut(numbers[first], lows, highs, first, last)
    return found


def _cut(file: int, lows: list[int], highs: list[int], first: int, last: int) -> list[Request]:
    """Split records that lie close together into requests of at most MOST bytes, but at least one record each."""
    found = []
    while first < last:
        end = first + 1
        # A record that is larger than MOST is a request of its own.
        while end < last and highs[end] - lows[first] <= MOST:
            end += 1
        if highs[end - 1] > lows[first]:  # records without bytes need no request
            found.append(Request(file, lows[first], highs[end - 1], first, end))
        first = end
    return found


def pieces(start: int, stop: int) -> list[tuple[int, int]]:
    """Split the span of a large record into parts that different connections can read: (start, stop) of each."""
    count = max(1, -(-(stop - start) // PIECE))
    # Equal parts, so that none is left for the end.
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
