"""In a child of the build with faults: calls that are shortened, delayed or answered in another order, at random."""

import errno

import numpy as np
from sweeping import Change, Fault, attempt, faults

from ffrecord import _aio

SIZES = (1, 511, 512, 4095)
EVENT_ERRORS = (errno.EAGAIN, errno.EIO, errno.EINVAL, errno.EINTR)
# Of each site: an action, and values to choose from.
READING = {
    "pread": [("short", SIZES), ("fail", (errno.EINTR,))],
    "preadv": [("short", SIZES), ("fail", (errno.EINTR, errno.EIO))],
    "preadv2": [("short", SIZES), ("fail", (errno.EINTR, errno.EAGAIN, errno.EOPNOTSUPP))],
    "io_submit": [("short", (1, 2, 3)), ("fail", (errno.EAGAIN, errno.EINTR, errno.EINVAL))],
    "io_getevents": [
        ("short", (1,)),
        ("events reversed", (0,)),
        ("event fails", EVENT_ERRORS),
        ("event short", (0, *SIZES)),
        ("event stale", (errno.EIO,)),
        ("fail", (errno.EINTR,)),
        ("delay", (1,)),
    ],
}
WRITING = {
    "pwrite": [("short", (1, 511, 4096, 1 << 20)), ("fail", (errno.EINTR,)), ("delay", (1,))],
    "sync_file_range": [("fail", (errno.EINTR, errno.EINVAL)), ("delay", (1,))],
    "fsync": [("fail", (errno.EINTR,)), ("delay", (1,))],
    "pread": [("short", SIZES), ("fail", (errno.EINTR,))],
}


def chosen(random: np.random.Generator, sites: dict, most: int) -> list[Fault]:
    """Up to `most` faults at sites that are among these."""
    found = []
    for _ in range(random.integers(1, most + 1)):
        site = random.choice(list(sites))
        action, values = sites[site][random.integers(len(sites[site]))]
        value = int(random.choice(values))
        # One byte at a time for good would take a million calls, and signals would never end.
        for_good = bool(random.integers(2)) and action not in ("fail", "delay") and value != 1
        found.append((str(site), int(random.integers(1, 12)), Change(action, value, for_good)))
    return found


def run(works: list, sites: dict, count: int, seed: int) -> int:
    """Do the works in turn, each time with other faults that nobody is to notice; how many calls were changed."""
    random = np.random.default_rng(seed)
    changed = 0
    for turn in range(count):
        work = works[turn % len(works)]
        wanted = chosen(random, sites, 6)
        work.prepare()
        with faults(*wanted) as fired:
            error = attempt(work)
        changed += sum(fired)
        try:
            assert error is None
            work.compare()
        except AssertionError as wrong:
            raise AssertionError(f"turn {turn}: {[(s, k, str(c)) for s, k, c in wanted]}: {error!r}") from wrong
    return changed


def stale() -> int:
    """Events of other batches that were dropped."""
    return int(_aio.stats()["stale"])
