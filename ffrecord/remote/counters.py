"""Sums that many threads add to."""

import threading
from collections import Counter

from ffrecord.system.forks import renew_in_children


class Counters:
    """Sums by name, 0 at first. What one thread adds no other undoes."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Have a lock that nobody holds: in a forked child."""
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        """Add to some."""
        with self._lock:
            for name, amount in amounts.items():
                self._sums[name] += amount

    def clear(self) -> None:
        """Let all be 0 again."""
        with self._lock:
            self._sums.clear()

    def sums(self) -> Counter[str]:
        """All of them, as they are now."""
        with self._lock:
            return self._sums.copy()

    def __getitem__(self, name: str) -> int:
        return self._sums[name]
