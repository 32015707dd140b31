"""The connections of the page's server: not too many at once, and none for longer than a request may take."""

import contextlib
import math
import socket
import threading
import time

MOST = 64  # connections at once; a browser has 6 for each page
IDLE = 60.0  # seconds until a request is here as a whole, idle time before it included
SENDING = 60.0  # seconds until an answer is taken as a whole


class Connection:
    """One connection.

    Attributes:
        deadline: on the clock `time.monotonic`, after which it is closed; infinite while an answer is made.
        waits: whether a request is waited for, so that nothing is lost if it is closed.
    """

    def __init__(self, request: socket.socket) -> None:
        self._request = request
        self.waits, self.deadline = True, time.monotonic() + IDLE

    def await_request(self) -> None:
        """Note that a request is waited for."""
        self.deadline, self.waits = time.monotonic() + IDLE, True

    def answer(self) -> None:
        """Note that a request has come, and that its answer takes as long as it takes."""
        self.deadline, self.waits = math.inf, False

    def send(self) -> None:
        """Note that an answer is sent."""
        self.deadline = time.monotonic() + SENDING

    def end(self) -> None:
        """End it: whoever reads or writes it, in another thread, is told that it is closed."""
        with contextlib.suppress(OSError):
            self._request.shutdown(socket.SHUT_RDWR)


class Connections:
    """All that are open."""

    def __init__(self) -> None:
        self._open: dict[socket.socket, Connection] = {}
        self._lock = threading.Lock()

    def add(self, request: socket.socket) -> bool:
        """Take a new connection in; return false where there is no room for it.

        Where there are too many, that one ends which has waited longest for a request.
        """
        with self._lock:
            if len(self._open) >= MOST and not self._end_one():
                return False
            self._open[request] = Connection(request)
            return True

    def _end_one(self) -> bool:
        waiting = [(each.deadline, id(request), request) for request, each in self._open.items() if each.waits]
        if not waiting:
            return False
        self._open.pop(min(waiting)[2]).end()
        return True

    def of(self, request: socket.socket) -> Connection:
        """Return what is noted of a connection."""
        with self._lock:
            return self._open.get(request) or Connection(request)

    def remove(self, request: socket.socket) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self._open.pop(request, None)

    def end_late(self) -> None:
        """End those whose time is over."""
        now = time.monotonic()
        with self._lock:
            for each in self._open.values():
                if each.deadline < now:
                    each.end()

    def __len__(self) -> int:
        return len(self._open)
