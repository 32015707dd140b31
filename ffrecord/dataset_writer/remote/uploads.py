"""Threads that send finished shards while others are being written."""

import errno
import threading
from collections import deque
from collections.abc import Callable

from ffrecord.errors import FileError
from ffrecord.format.manifest import Shard

AT_ONCE = 4  # shards; each in several parts at once where it is large
WAITING = 1  # shards that wait for one of these, beyond which whoever adds some is to wait
LOOK = 0.25  # seconds between two looks for Ctrl-C
PATIENCE = 1.0  # seconds for what is on its way when a write is given up
SLOW = 10.0  # seconds for what is then given up itself, part by part

Send = Callable[[Shard, threading.Event], None]


class Uploads:
    """Calls `send` for each shard, AT_ONCE at a time, in the order in which they were added; a failure stops it.

    Args:
        send: (shard, given up) → None, once it is there for sure.

    No thread is there before `start`, which is to come after all forks.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._waiting: deque[Shard] = deque()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._ending = False
        self._given_up = threading.Event()
        self._failure: BaseException | None = None
        self._afterwards: Callable[[], object] | None = None

    def add(self, shard: Shard) -> None:
        """Have a shard sent."""
        with self._changed:
            self._waiting.append(shard)
            self._changed.notify_all()

    def start(self) -> None:
        """Begin; may be repeated.

        Raises:
            FileError: the system lets this process have no thread more, and none was there.
        """
        with self._changed:
            while len(self._threads) < AT_ONCE and not self._ending:
                name = f"ffrecord-upload-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    if self._threads:
                        return  # fewer do
                    raise FileError(errno.EAGAIN, f"no thread can be had to send shards: {error}") from error
                self._threads.append(thread)  # not before: one that could not be started cannot be joined

    def make_room(self) -> None:
        """Wait until few enough wait to be sent.

        Raises:
            what sending one raised.
        """
        with self._changed:
            while len(self._waiting) > WAITING and not self._ending:
                self._changed.wait(LOOK)
            self._check()

    def wait(self) -> None:
        """Wait until all are sent.

        Raises:
            what sending one raised.
        """
        if self._waiting:
            self.start()
        with self._changed:
            while (self._waiting or self._busy) and not self._ending:
                self._changed.wait(LOOK)
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> bool:
        """Begin no other, and give up what does not end soon.

        Returns:
            whether nothing is on its way any more.
        """
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._busy, PATIENCE):
                self._given_up.set()
            quiet = self._changed.wait_for(lambda: not self._busy, SLOW)
        for thread in self._threads if quiet else ():
            thread.join()
        return quiet

    def afterwards(self, call: Callable[[], object]) -> None:
        """Have `call` called once nothing is on its way any more."""
        with self._changed:
            if self._busy:
                self._afterwards = call
                return
        call()

    def _run(self) -> None:
        while (shard := self._next()) is not None:
            try:
                self._send(shard, self._given_up)
            except BaseException as error:
                self._done(error)
                return
            self._done(None)

    def _next(self) -> Shard | None:
        with self._changed:
            while not self._waiting and not self._ending:
                self._changed.wait()
            if self._ending:
                return None
            self._busy += 1
            shard = self._waiting.popleft()
            self._changed.notify_all()
            return shard

    def _done(self, failure: BaseException | None) -> None:
        call = None
        with self._changed:
            self._busy -= 1
            if failure is not None:
                self._failure, self._ending = self._failure or failure, True
            if not self._busy:
                call, self._afterwards = self._afterwards, None
            self._changed.notify_all()
        if call is not None:
            call()
