"""Messages between two processes: they arrive whole or not at all, and a reader never waits for half a message."""

import contextlib
import socket
from collections import deque
from collections.abc import Iterator

PACKET = 32 << 10  # bytes
MORE, LAST = b"+", b"."
WAIT = int(socket.MSG_NOSIGNAL)
NO_WAIT = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


class Channel:
    """One end of a connection.

    It uses packet sockets, so that a process stopped in the middle of a message blocks nobody.

    Attributes:
        socket: socket of this end.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._begun = bytearray()
        self._unsent: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self.socket.fileno()

    def send(self, message: bytes) -> None:
        """Send `message`, of any size; wait until the other side takes it.

        Raises:
            OSError: the other side is gone (EPIPE, ECONNRESET).
        """
        for packet in _packets(message):
            self.socket.send(packet, WAIT)

    def post(self, message: bytes) -> None:
        """Send `message` without waiting; later calls of `flush` send the rest.

        Raises:
            OSError: the other side is gone.
        """
        self._unsent.extend(_packets(message))
        self.flush()

    def flush(self) -> bool:
        """Send the rest of posted messages as far as the other side takes it now; return whether that was all.

        Raises:
            OSError: the other side is gone.
        """
        while self._unsent:
            try:
                self.socket.send(self._unsent[0], NO_WAIT)
            except BlockingIOError:
                return False
            self._unsent.popleft()
        return True

    def receive(self, *, wait: bool) -> bytes | None:
        """Return the next message; None if `wait` is false and there is none yet.

        Raises:
            EOFError: the other side is gone and all its messages were received.
        """
        while True:
            try:
                packet = self.socket.recv(PACKET + 1, WAIT if wait else NO_WAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # The other side left without reading all of ours; its own messages are still there.
                continue
            if not packet:
                raise EOFError("the other process has closed the connection")
            self._begun += packet[1:]
            if packet[:1] == LAST:
                message, self._begun = bytes(self._begun), bytearray()
                return message

    def end(self) -> None:
        """Close, so that the other side notices even while processes forked by the user hold copies of this end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Close this end. May be repeated."""
        with contextlib.suppress(OSError):
            self.socket.close()


def channel_pair() -> tuple[Channel, Channel]:
    """Return two connected ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        # With a small default a packet would not fit at all.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * PACKET)
    return Channel(ours), Channel(theirs)


def _packets(message: bytes) -> Iterator[bytes]:
    for start in range(0, len(message) - PACKET, PACKET):
        yield MORE + message[start : start + PACKET]
    yield LAST + message[max(0, (len(message) - 1) // PACKET * PACKET) :]
