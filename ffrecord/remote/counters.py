"""Counters that many threads add to."""

import threading
from collections import Counter

from ffrecord.system.forks import renew_in_children


class Counters:
    """Sums by name, 0 at first. No addition of any thread is lost."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock: in a forked child, nobody would release the old one."""
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add an amount to each sum that is named."""
        with self._lock:
            for name, amount in amounts.items():
                self._sums[name] += amount

    def clear(self) -> None:
        """Set all sums to 0."""
        with self._lock:
            self._sums.clear()

    def sums(self) -> Counter[str]:
        """Return a copy of all sums."""
        with self._lock:
            return self._sums.copy()

    def __getitem__(self, name: str) -> int:
        return self._sums[name]
