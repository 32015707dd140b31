"""A thread that completes shards while workers fill the next ones: the wait for the disk is not in their way."""

import queue
import threading
import time
from collections.abc import Callable

from ffrecord.format.manifest import Shard

Step = Callable[[], Shard]

SHORT = 0.005  # seconds between two looks at a backlog


class Finisher:
    """Runs steps one after the other, each of which completes one shard; the first failure stops it.

    To be started after all forks: a thread is not inherited, but the locks it holds would be.
    """

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._done: list[Shard] = []
        self._failure: BaseException | None = None
        self._cancelled = False
        self._added = 0
        self._thread = threading.Thread(target=self._run, name="ffrecord-finisher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def backlog(self) -> int:
        """How many steps are not done."""
        return self._added - len(self._done)

    def add(self, step: Step) -> None:
        """Have a shard completed."""
        self._added += 1
        self._steps.put(step)

    def wait_for(self, backlog: int) -> None:
        """Wait until no more steps than these are not done.

        Raises:
            what a step raised.
        """
        self.check()
        while self.backlog > backlog:
            time.sleep(SHORT)
            self.check()

    def check(self) -> None:
        """Raise what a step raised."""
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float) -> list[Shard] | None:
        """The completed shards, in order of completion, once every step is done; None if that takes longer.

        Raises:
            what a step raised.
        """
        self._steps.put(None)
        self._thread.join(seconds)
        self.check()
        return None if self._thread.is_alive() else self._done

    def cancel(self, seconds: float) -> None:
        """Do what can be done in `seconds`, for whoever goes on from there, and no more; a step then at work ends by
        itself."""
        self._steps.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)
        self._cancelled = True

    def _run(self) -> None:
        try:
            while (step := self._steps.get()) is not None and not self._cancelled:
                self._done.append(step())
        except BaseException as error:
            self._failure = error
