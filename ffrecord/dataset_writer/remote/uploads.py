"""Threads that upload finished shards while others are being written."""

import errno
import threading
from collections import deque
from collections.abc import Callable

from ffrecord.errors import FileError
from ffrecord.format.manifest import Shard

AT_ONCE = 4  # shards; a large one goes in several parts at once
WAITING = 1  # shards in the queue; with more, `make_room` waits
LOOK = 0.25  # seconds between two checks for Ctrl-C
PATIENCE = 1.0  # seconds for running uploads to end when a write is given up
SLOW = 10.0  # seconds for cancelled uploads to end, part by part

Send = Callable[[Shard, threading.Event], None]


class Uploads:
    """A queue of shards, and threads that upload up to AT_ONCE of them together; a failure stops them.

    No thread exists before `start`, which must come after all forks.

    Args:
        send: function (shard, cancel event) that returns once the shard is verified at the URL.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._queue: deque[Shard] = deque()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._ending = False
        self._cancel = threading.Event()
        self._failure: BaseException | None = None
        self._when_idle: Callable[[], object] | None = None

    def add(self, shard: Shard) -> None:
        """Queue a shard."""
        # The condition's lock guards all of the state below.
        with self._changed:
            self._queue.append(shard)
            self._changed.notify_all()

    def start(self) -> None:
        """Start the threads; may be repeated.

        Raises:
            FileError: the system allows this process no more threads, and there was none.
        """
        with self._changed:
            while len(self._threads) < AT_ONCE and not self._ending:
                name = f"ffrecord-upload-{len(self._threads)}"
                # Daemons: a request that hangs must not keep the interpreter from exiting.
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    if self._threads:
                        # Too few threads cost time only.
                        return  # fewer threads are enough
                    raise FileError(errno.EAGAIN, f"a thread to send shards could not be started: {error}") from error
                self._threads.append(thread)  # after the start: a thread that did not start cannot be joined

    def make_room(self) -> None:
        """Wait until the queue is short enough.

        Raises:
            others: whatever the upload of a shard raised.
        """
        with self._changed:
            while len(self._queue) > WAITING and not self._ending:
                self._changed.wait(LOOK)
            self._check()

    def wait(self) -> None:
        """Wait until all shards are uploaded.

        Raises:
            others: whatever the upload of a shard raised.
        """
        # A resumed write may have shards to send without having written one.
        if self._queue:
            self.start()
        with self._changed:
            while (self._queue or self._busy) and not self._ending:
                self._changed.wait(LOOK)
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> bool:
        """Start no more uploads, and cancel those that do not end soon.

        Returns:
            True if no upload is running any more.
        """
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            # A shard that is nearly there should arrive: the next write then has less to do.
            if not self._changed.wait_for(lambda: not self._busy, PATIENCE):
                self._cancel.set()
            # A part of an upload cannot be interrupted, so give it time.
            quiet = self._changed.wait_for(lambda: not self._busy, SLOW)
        # Threads of uploads that hang are left alone; they are daemons.
        for thread in self._threads if quiet else ():
            thread.join()
        return quiet

    def call_when_idle(self, call: Callable[[], object]) -> None:
        """Call a function once no upload is running any more."""
        with self._changed:
            if self._busy:
                self._when_idle = call
                return
        call()

    def _run(self) -> None:
        while (shard := self._next()) is not None:
            try:
                self._send(shard, self._cancel)
            except BaseException as error:
                self._note_sent(error)
                # This thread ends, and `_ending` ends the others after their present shard.
                return
            self._note_sent(None)

    def _next(self) -> Shard | None:
        with self._changed:
            while not self._queue and not self._ending:
                self._changed.wait()
            if self._ending:
                return None
            self._busy += 1
            shard = self._queue.popleft()
            self._changed.notify_all()  # wakes `make_room`
            return shard

    def _note_sent(self, failure: BaseException | None) -> None:
        call = None
        with self._changed:
            self._busy -= 1
            if failure is not None:
                # The first failure is the one to report; later ones often follow from it.
                self._failure, self._ending = self._failure or failure, True
            if not self._busy:
                call, self._when_idle = self._when_idle, None
            self._changed.notify_all()
        # Outside the lock: it frees the part directory, which takes locks of its own.
        if call is not None:
            call()
