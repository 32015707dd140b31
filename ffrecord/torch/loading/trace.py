"""A trace of a loader's work in the format that Chrome and Perfetto show: reads, builds, waits, for each batch."""

import errno
import json
import os
import threading
from time import perf_counter
from typing import Any, NamedTuple

from ffrecord.errors import file_error
from ffrecord.order import Step
from ffrecord.system.atomic_file import PartFile

__all__ = ["BatchTrace", "LoaderTrace", "ReadTimes"]

EVENTS_MOST = 1_000_000  # some 200 MB of JSON; later ones are counted only
LOOP = "training loop"
# Stages of `Seconds` in the order in which a batch goes through them.
BUILDS = ("fetch", "decode", "transform", "collate", "batch_transform")


class ReadTimes(NamedTuple):
    """Times of the read of a batch, of time.perf_counter(): when it was begun, when it was waited for, when it was
    there.
    """

    begun: float
    asked: float
    there: float


class BatchTrace:
    """The work on one batch, by the thread that makes this object.

    Args:
        read: times of its read.
        start: time when the first stage began; the others follow without a gap.
        seconds: attributes of `Seconds`.
    """

    def __init__(self, read: ReadTimes, start: float, seconds: dict[str, float]) -> None:
        self.pid, self.tid, self.thread = _place()
        self.read = read
        self.stages: list[tuple[str, float, float]] = []
        if read.there > read.asked:
            self.stages.append(("wait for read", read.asked, read.there - read.asked))
        for name in BUILDS:
            if seconds[name]:
                self.stages.append((name, start, seconds[name]))
                start += seconds[name]

    def add(self, name: str, start: float) -> None:
        """Add a stage that ends now."""
        self.stages.append((name, start, perf_counter() - start))


class LoaderTrace:
    """The events of a trace. Times in the file are microseconds; their zero is arbitrary.

    Attributes:
        dropped: events beyond EVENTS_MOST, which are left out.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._threads: dict[tuple[int, int], str] = {}
        self._reads = self.dropped = 0

    def add_batch(self, step: Step, done: BatchTrace) -> None:
        """Add the work on a batch."""
        self._threads.setdefault((done.pid, done.tid), done.thread)
        args = {"epoch": step.epoch, "position": int(step.positions[0]), "samples": len(step.indices)}
        self._reads += 1
        place = {"name": "read", "cat": "read", "pid": done.pid, "tid": done.tid, "id": self._reads}
        self._add({**place, "ph": "b", "ts": done.read.begun * 1e6, "args": args})
        self._add({**place, "ph": "e", "ts": done.read.there * 1e6})
        for name, start, seconds in done.stages:
            self._add_span(name, "build", done.pid, done.tid, start, seconds, args)

    def add_wait(self, start: float, stop: float) -> None:
        """Add a wait of the training loop, which is this thread."""
        pid, tid, _ = _place()
        self._threads[pid, tid] = LOOP
        self._add_span("wait for batch", "wait", pid, tid, start, stop - start, {})

    def _add_span(
        self, name: str, kind: str, pid: int, tid: int, start: float, seconds: float, args: dict[str, Any]
    ) -> None:
        event = {"name": name, "cat": kind, "ph": "X", "ts": start * 1e6, "dur": seconds * 1e6, "pid": pid, "tid": tid}
        self._add({**event, "args": args})

    def _add(self, event: dict[str, Any]) -> None:
        if len(self._events) < EVENTS_MOST:
            self._events.append(event)
        else:
            self.dropped += 1

    def save(self, part: PartFile) -> None:
        """Write the trace as JSON, and give the file its name.

        Raises:
            OSError: the file cannot be written; what was there before stays.
        """
        names = [
            {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
            for (pid, tid), name in self._threads.items()
        ]
        trace = {
            "traceEvents": [*names, *self._events],
            "displayTimeUnit": "ms",
            "otherData": {"dropped events": self.dropped},
        }
        try:
            with open(part.fd, "w", encoding="utf-8", closefd=False) as file:
                json.dump(trace, file)
        except OSError as error:
            sentence = f"{part.target}: the trace could not be written"
            raise file_error(error.errno or errno.EIO, sentence, part.target) from None
        part.publish()


def _place() -> tuple[int, int, str]:
    """Return process, thread, and the name of the thread."""
    return os.getpid(), threading.get_native_id(), threading.current_thread().name
