"""Writes that find no room: on a full disk, beyond a limit of the process or a quota. Preloaded: disk_calls.c."""

import ctypes
import errno
import json
import logging
import os
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import children
from crash_case import DONE, Case, Tree, tree
from crash_cases import cases
from crash_files import Recovery
from disk_calls import Action, Calls, Site

ROOMY = 64 << 20
PAGE = 4096
MOST = 1000  # calls: many times what any of these needs
MS_REMOUNT = 32
# What may stay: finished shards, which the same call goes on from.
KEPT = (".set.part/", "set/.dataset.part/")


class Disk:
    """A tmpfs that only this process and its children see.

    Args:
        mount: an empty directory.

    Raises:
        OSError: this machine allows no mounts.
    """

    def __init__(self, mount: Path) -> None:
        self.mount, self.place = mount, mount / "d"
        self._libc = ctypes.CDLL(None, use_errno=True)
        children.own_mounts()

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """A roomy one, with an empty `place`."""
        self._mounted(0, ROOMY)
        self.place.mkdir()
        try:
            yield
        finally:
            if self._libc.umount(os.fsencode(self.mount)):
                raise OSError(ctypes.get_errno(), "umount")

    def resize(self, size: int) -> bool:
        """Give it `size` bytes; whether what is there leaves that possible."""
        try:
            self._mounted(MS_REMOUNT, size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def _mounted(self, flags: int, size: int) -> None:
        if self._libc.mount(b"none", os.fsencode(self.mount), b"tmpfs", flags, f"size={size}".encode()):
            raise OSError(ctypes.get_errno(), "mount")

    @property
    def free(self) -> int:
        """Bytes."""
        found = os.statvfs(self.mount)
        return found.f_bfree * found.f_bsize


class Trial:
    """Writes of one case where there is not room enough.

    Args:
        case: of `disk.place`.
        disk: on which it is.
    """

    def __init__(self, case: Case, disk: Disk) -> None:
        self._case, self._disk = case, disk
        self.said: set[str] = set()  # the messages, without paths and numbers

    def point(self, code: int, narrow: Callable[[], bool], widen: Callable[[], object]) -> bool | None:
        """Write once without room, and if that fails, with room.

        Args:
            code: the errno that the write must give.
            narrow: from now on there is not room enough; false if that cannot be.
            widen: there is again.

        Returns:
            whether the write failed; None if it could not be tried.
        """
        with self._disk.fresh():
            self._case.prepare()
            before, free = tree(self._disk.place), self._disk.free
            if not narrow():
                return None
            error: OSError | None = None
            try:
                self._case.work(lambda number: None)
            except OSError as caught:
                error = caught
            finally:
                widen()
            if error is None:
                self._case.check(DONE)
                return False
            assert error.errno == code and isinstance(error, RuntimeError), repr(error)
            assert str(self._disk.place) in str(error) or "shared memory" in str(error), error
            self.said.add(re.sub(r"\d+", "N", str(error).replace(str(self._disk.place), "")))
            self._check_untouched(before, free)
            self._case.check(0)
            return True

    def _check_untouched(self, before: Tree, free: int) -> None:
        """The destination is as it was, nothing else is there, and the disk has its room back."""
        there = tree(self._disk.place)
        if isinstance(self._case, Recovery):
            assert there.keys() == before.keys() and there.get("a.ffr") == before.get("a.ffr")
            return
        kept = {path: data for path, data in there.items() if not path.startswith(KEPT)}
        assert kept == before, sorted(there)
        if kept == there:
            assert self._disk.free == free, f"{free - self._disk.free} bytes are not given back"
            assert not any(name.startswith(".") for name in os.listdir(self._disk.place))

    def sizes(self, step: int) -> int:
        """Disks of `step` bytes more each, up to the first that is large enough; how many were not."""
        outcomes = []
        for size in range(PAGE, ROOMY, step):
            narrow, widen = partial(self._disk.resize, size), partial(self._disk.resize, ROOMY)
            outcomes.append(self.point(errno.ENOSPC, narrow, widen))
            if outcomes[-1] is False:
                return outcomes.count(True)
        raise AssertionError("no disk is large enough")

    def limits(self, step: int) -> int:
        """The same with a limit of the size of files."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for number, limit in enumerate(range(0, ROOMY, step)):
            narrow, widen = partial(_limit, limit, hard), partial(_limit, hard, hard)
            if not self.point(errno.EFBIG, narrow, widen):
                return number
        raise AssertionError("no limit is large enough")

    def quota(self, calls: Calls) -> int:
        """The quota is used up at the first call that needs room, the second, ...; how many there are."""
        for call in range(1, MOST):

            def narrow(call: int = call) -> bool:
                calls.plan(call, Action.FAIL_ON, sites=Site.SPACE, value=errno.EDQUOT)
                calls.arm()
                return True

            if not self.point(errno.EDQUOT, narrow, lambda: calls.arm(False)):
                assert not calls.fired
                return call - 1
        raise AssertionError(f"more than {MOST} calls")


def _limit(soft: int, hard: int) -> bool:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return True


def main(root: str, given: str) -> None:
    """Print as JSON how many writes found no room in each case, and what their errors said; or why none was tried.

    Args:
        root: an empty directory.
        given: as JSON: of sizes, limits and quota the cases, with the step in bytes.
    """
    logging.getLogger("ffrecord").setLevel(logging.ERROR)  # or each write says that it goes on
    wanted = json.loads(given)
    mount = Path(root) / "disk"
    mount.mkdir()
    try:
        disk = Disk(mount)
    except OSError as error:
        print(json.dumps({"skipped": str(error)}))
        return
    made, calls = cases(Path(root), disk.place), Calls()
    found, said = Counter[str](), set[str]()
    for how, steps in wanted.items():
        for name, step in steps.items():
            trial = Trial(made[name](), disk)
            try:
                if how == "quota":
                    found[f"{how}, {name}"] = trial.quota(calls)
                else:
                    found[f"{how}, {name}"] = (trial.sizes if how == "sizes" else trial.limits)(step)
            except BaseException:
                print(f"{how}, case {name!r}", file=sys.stderr)
                raise
            said |= trial.said
    print(json.dumps({"failed": found, "said": sorted(said)}))
