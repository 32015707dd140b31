"""Limits on the connections of the page's server: on their number, and on the time of a request."""

import contextlib
import math
import socket
import threading
import time

MOST = 64  # connections at once; a browser has 6 for each page
IDLE = 60.0  # seconds until a request has arrived completely, including the idle time before it
SENDING = 60.0  # seconds until the client has taken an answer completely


class Connection:
    """The state of one connection.

    Attributes:
        deadline: time on the clock `time.monotonic` at which it is closed; infinite while an answer is computed.
        waits: whether it waits for a request. Closing it loses nothing then.
    """

    def __init__(self, request: socket.socket) -> None:
        self._request = request
        self.waits, self.deadline = True, time.monotonic() + IDLE

    def await_request(self) -> None:
        """Note that the connection waits for a request."""
        self.deadline, self.waits = time.monotonic() + IDLE, True

    def answer(self) -> None:
        """Note that a request has arrived. Computing its answer has no time limit."""
        self.deadline, self.waits = math.inf, False

    def send(self) -> None:
        """Note that an answer is sent."""
        self.deadline = time.monotonic() + SENDING

    def end(self) -> None:
        """Shut the connection down. A thread that reads or writes it sees that it is closed."""
        with contextlib.suppress(OSError):
            self._request.shutdown(socket.SHUT_RDWR)


class Connections:
    """All open connections."""

    def __init__(self) -> None:
        self._open: dict[socket.socket, Connection] = {}
        self._lock = threading.Lock()

    def add(self, request: socket.socket) -> bool:
        """Add a new connection, or return False if there is no room for it.

        If there are too many, the connection that has waited longest for a request is closed.
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

    def find(self, request: socket.socket) -> Connection:
        """Return the state of a connection."""
        with self._lock:
            return self._open.get(request) or Connection(request)

    def remove(self, request: socket.socket) -> None:
        """Forget a closed connection."""
        with self._lock:
            self._open.pop(request, None)

    def end_late(self) -> None:
        """Shut down the connections that have passed their deadlines."""
        now = time.monotonic()
        with self._lock:
            for each in self._open.values():
                if each.deadline < now:
                    each.end()

    def __len__(self) -> int:
        return len(self._open)
