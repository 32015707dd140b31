"""A progress bar in samples/s and MB/s."""

import sys
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]


class Bar(tqdm):  # type: ignore[misc]
    """A bar without tqdm's monitor thread, which would live on into the next fork."""

    monitor_interval = 0

    def reach(self, done: int, total: int) -> None:
        """Be at `done` of `total`."""
        self.total = total
        self.update(done - self.n)


class WriteProgress:
    """The bar of one write; to be made after the workers were forked.

    Args:
        total: samples; None if unknown.
        show: True always, False never, None if stderr is a terminal.
        label: what stands before the bar.
        done: samples that were there before.
    """

    def __init__(self, total: int | None, show: bool | None, label: str, done: int = 0) -> None:
        # Not one that is merely disabled: making a bar takes tqdm's lock, which all forks share, and which one of them
        # that was killed with it never gives back.
        self._bar: Any = None
        if _is_terminal(sys.stderr) if show is None else show:
            self._bar = Bar(total=total, initial=done, desc=label, unit=" samples", unit_scale=True, miniters=1)
        self._bytes = 0

    def add(self, samples: int, size: int) -> None:
        """That many more samples, and bytes, are written."""
        if self._bar is None:
            return
        self._bytes += size
        seconds = self._bar.format_dict["elapsed"]
        if seconds > 0:
            self._bar.set_postfix_str(f"{self._bytes / seconds / 1e6:.1f} MB/s", refresh=False)
        self._bar.update(samples)

    def close(self) -> None:
        """Leave the bar as it is. May be repeated."""
        if self._bar is not None:
            self._bar.close()


def _is_terminal(stream: Any) -> bool:
    """False too where there is no stream, or a closed one."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
