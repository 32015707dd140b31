"""In a child of the build with faults (faults.py): the k-th call of some work fails, k = 1, 2, ... until none does."""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ffrecord.system import _calls

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


class Change(NamedTuple):
    """What becomes of a call, and of the later ones if for good."""

    action: str
    value: int
    for_good: bool

    def __str__(self) -> str:
        value = errno.errorcode[self.value] if "fail" in self.action else str(self.value)
        return f"{self.action} {value}{' for good' if self.for_good else ''}"


Fault = tuple[str, int, Change]  # site, number of the call, what becomes of it


class Work(Protocol):
    """What is done again and again, each time with another call failing."""

    beside: Sequence[Fault]  # calls that are changed each time, so that what is to fail comes to be called

    def prepare(self) -> None:
        """Before each time; calls do not fail here."""

    def do(self) -> None:
        """Itself."""

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        """That what is there afterwards is as promised, and the error, if any, the right one."""


def errors(numbers: Sequence[int] = NUMBERS) -> list[Change]:
    """Each once, and for good where that makes sense."""
    once = [Change("fail", number, False) for number in numbers]
    return once + [Change("fail", number, True) for number in numbers if number not in TRANSIENT]


def used(work: Work) -> list[str]:
    """The sites that some work comes by."""
    work.prepare()
    with faults(*work.beside):
        work.do()
        return [site for site in _calls.sites() if _calls.count(site)]


def sweep(work: Work, sites: Sequence[str], changes: Sequence[Change]) -> int:
    """Have every call at these sites changed in each of these ways; how many calls were."""
    return sum(_every_call(work, site, [change]) for site in sites for change in changes)


def sweep_in_turns(work: Work, sites: Sequence[str], changes: Sequence[Change]) -> int:
    """Have the first call at each site changed in all of these ways, and every later one in one, each in its turn."""
    changed = 0
    for site in sites:
        changed += sum(_changed(work, site, 1, change) for change in changes)
        changed += _every_call(work, site, changes, first=2)
    return changed


def _every_call(work: Work, site: str, turns: Sequence[Change], first: int = 1) -> int:
    for call in range(first, MOST):
        if not _changed(work, site, call, turns[call % len(turns)]):
            return call - first
    raise AssertionError(f"{site} is called more than {MOST} times")


def _changed(work: Work, site: str, call: int, change: Change) -> bool:
    """Whether there was such a call, which was changed, and all was as promised."""
    work.prepare()
    before = descriptors()
    with faults((site, call, change), *work.beside) as fired:
        error = attempt(work)
    try:
        if fired[0]:
            work.check(site, change, error)
        elif error is not None:
            raise error
        # multiprocessing leaves the pipes that it made for a fork that fails.
        left = set() if site == "fork" else descriptors() - before
        assert not left, f"descriptors left open: {left}"
    except BaseException as wrong:
        raise AssertionError(f"{site}, call {call}, {change}: ended with {error!r}") from wrong
    return bool(fired[0])


def attempt(work: Work) -> BaseException | None:
    """What the work ended with."""
    try:
        work.do()
    except (OSError, MemoryError, RuntimeError) as error:
        return error
    return None


@contextlib.contextmanager
def faults(*wanted: Fault) -> Iterator[list[int]]:
    """Set faults; afterwards the list holds how many calls each has changed."""
    fired: list[int] = []
    _calls.clear()
    for site, call, change in wanted:
        _calls.fault(site, call, change.action, change.value, for_good=change.for_good)
    try:
        yield fired
    finally:
        fired += [_calls.fired(i) for i in range(len(wanted))]
        _calls.clear()


def descriptors() -> set[str]:
    """Of this process, with what they are of."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return {each for each in found if not each.endswith("/fd")}
