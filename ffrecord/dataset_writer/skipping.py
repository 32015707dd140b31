"""Samples that are left out because they cannot be had or encoded: counted, told, and not too many."""

import logging

from ffrecord.dataset_writer.messages import Sized
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.errors import SampleError, counted
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Beat

TOLD = 5  # of them are logged one by one

log = logging.getLogger("ffrecord")


class Skipping:
    """Keeps count.

    Args:
        source: has names for its samples.
        most: how many may be left out.
        before: how many were, by the write that this one goes on with.
    """

    def __init__(self, source: Source, most: int | None, before: int = 0) -> None:
        self._source, self._most, self._count = source, most or 0, before
        self._told = 0

    def add(self, piece: Sized) -> None:
        """Take note of what was left out of a piece.

        Raises:
            SampleError: too many now.
        """
        for skipped in piece.skipped:
            self._count += 1
            name = self._source.name(Beat(heartbeats.SAMPLE, skipped.index, 0, piece.task))
            if self._count > self._most:
                raise SampleError(
                    f"{counted(self._count, 'sample')} could not be written, max_skipped is {self._most}; the "
                    f"latest, {name}: "
                    f"{skipped.reason}",
                    index=skipped.index,
                )
            if self._told < TOLD:
                self._told += 1
                log.warning("%s skipped: %s", name, skipped.reason)

    def close(self) -> None:
        """Tell how many there were, if not all were told."""
        if self._count > self._told:
            log.warning("%d samples skipped in all", self._count)
