"""Waits for batches, recorded beside the rates: every batch of every round.

A wait lasts from the end of a loop's body to its next beginning, as long as a training loop has nothing to do. So it
has the time to free the batch before. The first wait of a round is kept apart, because it has the start.
"""

import math
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
MOST_COST = 0.01  # share of a batch; if recording costs more, rates are measured without it
# Percentiles, and the number of batches that each needs. The method is "higher": each is a wait that happened.
PERCENTILES = {"p50": (50.0, 1), "p99": (99.0, 100), "p99.9": (99.9, 1000)}
NEVER = 1 << 62  # nanoseconds


class Waits:
    """The waits of one contestant, round by round.

    Args:
        most: largest number of batches of a round; the memory for their times is there before it begins.

    Attributes:
        rounds: waits of each round, nanoseconds; the first one has the start.
    """

    def __init__(self, most: int) -> None:
        self.rounds: list[Ints] = []
        self._came, self._asked = array("q", bytes(8 * most)), array("q", bytes(8 * most))

    def add(self, waits: Sequence[int]) -> None:
        """Add a round that another process recorded; none if it had no batches."""
        if len(waits):
            self.rounds.append(np.array(waits, np.int64))

    def record(
        self,
        batches: Iterable[Any],
        use: Callable[[Any], object] | None = None,
        begun: int | None = None,
        limit: float = math.inf,
    ) -> float:
        """Take batch after batch, as a round. One is kept while the next one is made, as in a training loop.

        Args:
            use: function that is called with each batch; its time is in no wait.
            begun: `time.perf_counter_ns()` when the start began; that of the call unless told.
            limit: seconds from then on after which no further batch is taken.

        Returns:
            Seconds from `begun` until there was no further batch.
        """
        begun = time.perf_counter_ns() if begun is None else begun
        deadline = NEVER if math.isinf(limit) else begun + round(limit * 1e9)
        taken = self._taken(batches, deadline) if use is None else self._used(batches, use, deadline)
        came, asked = (np.frombuffer(times, np.int64)[: taken.batches] for times in (self._came, taken.asked))
        self.add(came - np.concatenate([[begun], asked[:-1]]) if taken.batches else ())
        return (taken.ended - begun) / 1e9

    def timed(self, make: Callable[[], Iterable[Any]]) -> float:
        """Record the batches that `make` gives, and return the seconds of all.

        Where recording takes more than MOST_COST of a batch, they are made once more, and timed without it.
        """
        seconds = self.record(make())
        if len(self.rounds[-1]) * recording_seconds() <= MOST_COST * seconds:
            return seconds
        return consume(make())

    def details(self) -> dict[str, Any]:
        """Return {"tails": percentiles, longest and first waits of the rounds, all in seconds, and their "count"}.

        Percentiles are those of PERCENTILES of which there are enough batches. Without any batch there is nothing.
        """
        later = [waits[1:] for waits in self.rounds if len(waits) > 1]
        if not later:
            return {}
        together = np.concatenate(later)
        tails: dict[str, Any] = {"count": len(together)}
        for name, (percent, least) in PERCENTILES.items():
            if len(together) >= least:
                tails[name] = int(np.percentile(together, percent, method="higher")) / 1e9
        tails["longest"] = [int(waits.max()) / 1e9 for waits in later]
        tails["first"] = [int(waits[0]) / 1e9 for waits in self.rounds]
        return {"tails": tails}

    def _taken(self, batches: Iterable[Any], deadline: int) -> "Taken":
        clock, came, number, last = time.perf_counter_ns, self._came, -1, None
        for number, last in enumerate(batches):  # noqa: B007
            came[number] = now = clock()
            if now > deadline:
                break
        ended = clock()
        del last
        return Taken(number + 1, ended, came)

    def _used(self, batches: Iterable[Any], use: Callable[[Any], object], deadline: int) -> "Taken":
        clock, came, asked, number = time.perf_counter_ns, self._came, self._asked, -1
        for number, batch in enumerate(batches):
            came[number] = clock()
            use(batch)
            asked[number] = now = clock()
            if now > deadline:
                break
        return Taken(number + 1, clock(), asked)


class Taken(NamedTuple):
    """Batches that a loop has taken.

    Attributes:
        batches: number of them.
        ended: time of the end, nanoseconds.
        asked: times after each batch, when the next one was asked for; they begin after the first.
    """

    batches: int
    ended: int
    asked: "array[int]"


def consume(results: Iterable[object]) -> float:
    """Return the seconds. One result is kept while the next one is read, as in a training loop."""
    last = None
    start = time.perf_counter()
    for last in results:  # noqa: B007
        pass
    seconds = time.perf_counter() - start
    del last
    return seconds


@cache
def recording_seconds() -> float:
    """Return the cost of recording a batch."""
    count = 10_000
    waits = Waits(count)
    costs = [waits.record(repeat(None, count)) - consume(repeat(None, count)) for _ in range(5)]
    return min(costs) / count
