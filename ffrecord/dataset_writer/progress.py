"""A progress bar in samples/s and MB/s."""

import sys
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]


class Bar(tqdm):  # type: ignore[misc]
    """A bar without tqdm's monitor thread, which would live on into the next fork."""

    monitor_interval = 0

    def reach(self, done: int, total: int) -> None:
        """Move the bar to `done` of `total`."""
        self.total = total
        self.update(done - self.n)


class WriteProgress:
    """The progress bar of one write; create it after the workers were forked.

    Args:
        total: number of samples; None if unknown.
        show: True always, False never, None if stderr is a terminal.
        label: text before the bar.
        done: number of samples written before.
    """

    def __init__(self, total: int | None, show: bool | None, label: str, done: int = 0) -> None:
        # None rather than a disabled bar: creating one takes tqdm's lock. All forks share that lock, and one that is
        # killed while it holds the lock never releases it.
        self._bar: Any = None
        if _is_terminal(sys.stderr) if show is None else show:
            # `miniters=1`: tqdm's own guess stalls the bar when samples become slower.
            self._bar = Bar(total=total, initial=done, desc=label, unit=" samples", unit_scale=True, miniters=1)
        self._bytes = 0

    def add(self, samples: int, size: int) -> None:
        """Add written samples and bytes."""
        if self._bar is None:
            return
        self._bytes += size
        seconds = self._bar.format_dict["elapsed"]
        if seconds > 0:
            # `update` draws the bar, at most ten times a second.
            self._bar.set_postfix_str(f"{self._bytes / seconds / 1e6:.1f} MB/s", refresh=False)
        self._bar.update(samples)

    def close(self) -> None:
        """Leave the bar as it is. May be repeated."""
        if self._bar is not None:
            self._bar.close()


def _is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal; False if there is no stream or it is closed."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
