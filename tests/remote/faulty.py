"""A proxy in front of an HTTP server that does to answers what networks do, by a seeded plan."""

import contextlib
import http.client
import random
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

# What may become of an answer.
RESET = "reset"  # before anything of it
CUT = "cut"  # the connection is reset in the middle of the body
UNAVAILABLE = "503"
SLOW_DOWN = "429"
SLOW = "slow"  # the body comes in drips
SHORT = "short"  # the connection is closed before the end of the body
LESS = "less"  # fewer bytes than were asked for, and the header says so
CORRUPT = "corrupt"  # a byte is another one
STALE = "stale"  # another version of the object, by its etag
FAULTS = (RESET, CUT, UNAVAILABLE, SLOW_DOWN, SLOW, SHORT, LESS, CORRUPT)
SILENT = "silent"  # no answer, until the client gives up: only where it is asked for
Span = tuple[int, int]


class Faulty:
    """The proxy.

    Attributes:
        url: of what it serves, without a slash at the end.
        done: how often each fault was injected.
        share: of the answers that become faulty; may be changed at any time.
        kinds: of faults; may be changed at any time.
        methods: of the requests that may have one.
        requests: all so far, such as "GET /a", in the order in which they were answered upstream.
        headers: of each of these.
        refuses: says with which status, such as 403, a request is answered that does not go upstream, or with which
            status and body; None for none.
        watch: called with "before" and "after" and the request, before it goes upstream and before its answer is given.
    """

    def __init__(self, upstream: str, seed: int, share: float, kinds: Sequence[str], in_a_row: int) -> None:
        self.methods: tuple[str, ...] = ("GET",)
        self.requests: list[str] = []
        self.headers: list[http.client.HTTPMessage] = []
        self.refuses: Callable[[str], int | tuple[int, str] | None] = lambda request: None
        self.watch: Callable[[str, str], object] = lambda when, request: None
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "", parts.port or 80)
        self.share, self.kinds, self.in_a_row = share, tuple(kinds), in_a_row
        self.done: Counter[str] = Counter()
        self.answered = 0
        self.url = ""
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        self._corrupted: dict[str, list[Span]] = {}

    def chosen(self, path: str, span: str, size: int) -> str | None:
        """What becomes of the next answer: of a path, a `Range`, with `size` bytes in its body."""
        with self._lock:
            self.answered += 1
            fault = self._random.choice(self.kinds) if self.kinds and self._random.random() < self.share else None
            if fault is not None and not self._allowed(fault, path, span, size):
                fault = None
            if fault is None:
                self._in_a_row.pop((path, span), None)
                return None
            self._in_a_row[path, span] += 1
            self.done[fault] += 1
            return fault

    def _allowed(self, fault: str, path: str, span: str, size: int) -> bool:
        """Not for ever the same answer, and no byte corrupted twice: that would be damage, of which an error tells."""
        if self._in_a_row[path, span] >= self.in_a_row or (fault in (CUT, SHORT, LESS, CORRUPT, SLOW) and size < 2):
            return False
        if fault != CORRUPT:
            return True
        start, stop = _bounds(span, size)
        before = self._corrupted.setdefault(path, [])
        if any(low < stop and start < high for low, high in before):
            return False
        before.append((start, stop))
        return True

    def place(self, size: int) -> int:
        """Where in a body of `size` bytes."""
        with self._lock:
            return self._random.randrange(size)


def _bounds(span: str, size: int) -> Span:
    first, _, last = span.removeprefix("bytes=").partition("-")
    return (int(first), int(last) + 1) if first and last else (0, size)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, plan: Faulty) -> None:
        self.plan = plan
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Of a client that went away: nothing is said."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        upstream = http.client.HTTPConnection(*self.server.plan.upstream, timeout=60)
        try:
            while self._answer(upstream):
                pass
        finally:
            upstream.close()

    def _answer(self, upstream: http.client.HTTPConnection) -> bool:
        """Read a request and answer it; false when the connection ends."""
        line = self.rfile.readline().decode("latin-1").split()
        if len(line) < 3:
            return False
        headers = http.client.parse_headers(self.rfile)
        body = self.rfile.read(int(headers.get("Content-Length") or 0))
        del headers["Connection"]  # and not the host, which the client has signed
        status = self.server.plan.refuses(f"{line[0]} {line[1]}")
        if status is not None:
            status, text = status if isinstance(status, tuple) else (status, "")
            self.wfile.write(f"HTTP/1.1 {status} No\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return True
        self.server.plan.watch("before", f"{line[0]} {line[1]}")
        upstream.request(line[0], line[1], body or None, dict(headers.items()))
        answer = upstream.getresponse()
        data = answer.read()
        fault = None
        self.server.plan.requests.append(f"{line[0]} {line[1]}")
        self.server.plan.headers.append(headers)
        self.server.plan.watch("after", f"{line[0]} {line[1]}")
        if line[0] in self.server.plan.methods and answer.status < 400:
            fault = self.server.plan.chosen(line[1], headers.get("Range") or "", len(data))
        return self._send(answer, data, fault, head=line[0] == "HEAD")

    def _send(self, answer: http.client.HTTPResponse, data: bytes, fault: str | None, *, head: bool) -> bool:
        status, size = f"{answer.status} {answer.reason}", len(data)
        if fault == RESET:
            return self._reset()
        if fault == SILENT:
            self.connection.recv(1)  # until the client gives up
            return False
        if fault in (UNAVAILABLE, SLOW_DOWN):
            status, data, size = f"{fault} No", b"", 0
        if fault == LESS:
            size = self.server.plan.place(size)
            data = data[:size]
        if fault == CORRUPT:
            place = self.server.plan.place(size)
            data = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        lines = [f"HTTP/1.1 {status}"]
        for name, value in answer.getheaders():
            if name.lower() == "etag" and fault == STALE:
                value = '"another"'
            if name.lower() not in ("content-length", "connection", "transfer-encoding") or (head and name[8:9] == "L"):
                lines.append(f"{name}: {value}")
        if not head:
            lines.append(f"Content-Length: {size}")
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        return True if head else self._send_body(data, fault)

    def _send_body(self, data: bytes, fault: str | None) -> bool:
        if fault in (CUT, SHORT):
            self.wfile.write(data[: self.server.plan.place(len(data))])
            return self._reset() if fault == CUT else False
        if fault == SLOW:
            for i in range(4):
                self.wfile.write(data[i * len(data) // 4 : (i + 1) * len(data) // 4])
                time.sleep(0.02)
        else:
            self.wfile.write(data)
        return True

    def _reset(self) -> bool:
        # No FIN, but RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


@contextlib.contextmanager
def faulty(
    upstream: str, seed: int = 0, *, share: float = 0.3, kinds: Sequence[str] = FAULTS, in_a_row: int = 2
) -> Iterator[Faulty]:
    """Answer as the server at the URL `upstream` does, but for faults.

    Args:
        seed: of what becomes of which answer.
        share: of the answers that become faulty.
        kinds: of faults.
        in_a_row: faults at most that one range of one object has, one after the other.
    """
    plan = Faulty(upstream, seed, share, kinds, in_a_row)
    with _Server(plan) as server:
        plan.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield plan
        finally:
            server.shutdown()
            thread.join()
