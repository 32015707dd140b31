"""Requests that failed for a while: made again, not for ever."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ffrecord.errors import TransientError

T = TypeVar("T")

FIRST_WAIT = 0.1  # seconds; each wait may be twice as long as the one before
LONGEST_WAIT = 5.0

logger = logging.getLogger("ffrecord")


def retried(
    call: Callable[[], T],
    tries: int,
    seconds: float,
    pause: Callable[[float], object] = time.sleep,
    again: Callable[[], object] = time.monotonic,
) -> T:
    """Return what `call` gives; call it again after a `TransientError`, and say so in the log.

    Args:
        tries: calls at most, the first one included, >= 1.
        seconds: from the first call, after which there is no other.
        pause: waits so many seconds; true if it is better to give up.
        again: called before each call that is not the first.

    Raises:
        Whatever it raised last; a TransientError says how often and how long it was tried.
    """
    begun = time.monotonic()
    for tried in range(1, tries + 1):
        try:
            return call()
        except TransientError as error:
            # Not all at once, as they failed: by chance, at most twice as long as the last time.
            wait = min(FIRST_WAIT * 2 ** (tried - 1), LONGEST_WAIT) * random.uniform(0.5, 1)
            spent = time.monotonic() - begun
            more = tried < tries and spent + wait <= seconds
            if more:
                logger.info("%s; attempt %d of %d failed, the next one in %.2f s", error, tried, tries, wait)
            if not more or pause(wait):
                raise TransientError(f"{error}; tried {tried} times in {spent:.1f} seconds") from None
            again()
    raise AssertionError("unreachable")
