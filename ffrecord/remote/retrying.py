"""The retry policy: repetition of requests after temporary errors, within bounds.

A `TransientError` is temporary: `answer_error` in remote/errors.py decides which answers of a server are,
obstore_errors.py and fsspec_errors.py which failures of a connection. Reads call `retry` in storage.py, writes in
dataset_writer/remote/objects.py.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ffrecord.errors import TransientError

T = TypeVar("T")

TRIES = 8  # most tries of a request, unless `max_tries` says otherwise
SECONDS = 120.0  # for all tries together, unless `retry_seconds` says otherwise
FIRST_WAIT = 0.1  # seconds; each wait may be twice as long as the one before
LONGEST_WAIT = 5.0

logger = logging.getLogger("ffrecord")


def retry(
    call: Callable[[], T],
    tries: int,
    seconds: float,
    pause: Callable[[float], object] = time.sleep,
    again: Callable[[], object] = time.monotonic,
) -> T:
    """Return the result of `call`. After a `TransientError`, log it and call again.

    Args:
        tries: most calls, the first one included, >= 1.
        seconds: time from the first call, after which there is no further call.
        pause: waits for the given seconds; returns true to stop trying.
        again: called before each call but the first.

    Raises:
        The last exception of `call`. A TransientError says how many tries it took, and how long.
    """
    begun = time.monotonic()
    for tried in range(1, tries + 1):
        try:
            return call()
        except TransientError as error:
            # A random wait: requests that failed together must not come back together. Its bound doubles each time.
            wait = min(FIRST_WAIT * 2 ** (tried - 1), LONGEST_WAIT) * random.uniform(0.5, 1)
            spent = time.monotonic() - begun
            # Not even begun if the time would be over by then.
            more = tried < tries and spent + wait <= seconds
            if more:
                logger.info("%s; attempt %d of %d failed, the next one begins in %.2f s", error, tried, tries, wait)
            if not more or pause(wait):
                # `from None`: the message of the cause is in this one.
                raise TransientError(f"{error}; tried {tried} times in {spent:.1f} seconds") from None
            again()
    raise AssertionError("unreachable")
