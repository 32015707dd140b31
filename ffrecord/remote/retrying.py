"""Requests that failed for a while: made again, not for ever."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ffrecord.errors import TransientError

T = TypeVar("T")

FIRST_WAIT = 0.1  # seconds; each wait may be twice as long as the one before
LONGEST_WAIT = 5.0


def retried(call: Callable[[], T], tries: int, seconds: float, pause: Callable[[float], object] = time.sleep) -> T:
    """What `call` gives, made again after a `TransientError`.

    Args:
        tries: calls at most, the first one included, >= 1.
        seconds: from the first call, after which there is no other.
        pause: waits so many seconds; true if it is better to give up.

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
            if tried == tries or spent + wait > seconds or pause(wait):
                raise TransientError(f"{error}; tried {tried} times in {spent:.1f} seconds") from None
    raise AssertionError("unreachable")
