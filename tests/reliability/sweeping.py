"""In a child of the build with faults (faults.py): the k-th call of some work fails, k = 1, 2, ... until none does."""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from ffrecord import _calls

NUMBERS = (
    errno.EIO,
    errno.EINTR,
    errno.EAGAIN,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.EMFILE,
    errno.EINVAL,
    errno.ESTALE,
    errno.ENOSYS,
    errno.EPERM,
    errno.EFBIG,
    errno.EOPNOTSUPP,
)
TRANSIENT = (errno.EINTR, errno.EAGAIN)  # whoever is told so asks again, so they cannot be for good
MOST = 1000  # calls: many times what any of these works needs


class Work(Protocol):
    """What is done again and again, each time with another call failing."""

    def prepare(self) -> None:
        """Before each time; calls do not fail here."""

    def do(self) -> None:
        """Itself."""

    def check(self, site: str, number: int, error: BaseException | None, for_good: bool) -> None:
        """That what is there afterwards is as promised, and the error, if any, the right one."""


def used(work: Work) -> list[str]:
    """The sites that some work comes by."""
    work.prepare()
    _calls.clear()
    work.do()
    found = [site for site in _calls.sites() if _calls.count(site)]
    _calls.clear()
    return found


def sweep(work: Work, sites: Sequence[str], numbers: Sequence[int] = NUMBERS) -> int:
    """Have every call at these sites fail, once and for good; how many calls failed."""
    injected = 0
    for site in sites:
        for number in numbers:
            for for_good in (False, True)[: 1 if number in TRANSIENT else 2]:
                injected += _every_call(work, site, number, for_good)
    return injected


def _every_call(work: Work, site: str, number: int, for_good: bool) -> int:
    for call in range(1, MOST):
        work.prepare()
        before = descriptors()
        with faults((site, call, "fail", number, for_good)) as fired:
            error = attempt(work)
        what = f"{site}, call {call}, {errno.errorcode[number]}{', for good' if for_good else ''}"
        try:
            if fired:
                work.check(site, number, error, for_good)
            elif error is not None:
                raise error
            left = descriptors() - before
            assert not left, f"descriptors left open: {left}"
        except BaseException as wrong:
            raise AssertionError(f"{what}: ended with {error!r}") from wrong
        if not fired:
            return call - 1
    raise AssertionError(f"{site} is called more than {MOST} times")


def attempt(work: Work) -> BaseException | None:
    """What the work ended with."""
    try:
        work.do()
    except (OSError, MemoryError, RuntimeError) as error:
        return error
    return None


@contextlib.contextmanager
def faults(*wanted: tuple[str, int, str, int, bool]) -> Iterator[list[int]]:
    """Set faults; afterwards the list holds how many calls were changed, and is empty if none was."""
    fired: list[int] = []
    _calls.clear()
    for site, call, action, value, for_good in wanted:
        _calls.fault(site, call, action, value, for_good=for_good)
    try:
        yield fired
    finally:
        if _calls.fired():
            fired.append(_calls.fired())
        _calls.clear()


def descriptors() -> set[str]:
    """Of this process, with what they are of."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return {each for each in found if not each.endswith("/fd")}
