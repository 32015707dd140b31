"""The HTTP server of the page, for this machine and for people who know the address.

Anybody on this machine can connect, and any web site can make a browser on it do so. Three things protect the data:
- The address has a secret in it.
- The header Host must have one of our names: another name may point at this machine (DNS rebinding).
- The server only gives the answers of `Endpoints`. It serves no files, and no request changes anything.
"""

import contextlib
import errno
import hmac
import json
import math
import secrets
import socket
import sys
import threading
import time
import traceback
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl

from ffrecord.cli.viewer.endpoints import Endpoints, NotThereError, Response
from ffrecord.cli.viewer.records import format_reason
from ffrecord.errors import ArgumentError, SampleIndexError

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


ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE = 0.2  # seconds until the next attempt to accept a connection, when descriptors or memory have run out
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
QUERY_MOST = 32  # arguments of a query

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def hosts_of(port: int) -> list[str]:
    """Return the allowed values of the header Host. Browsers leave the port of HTTP out."""
    return [f"{name}:{port}" for name in NAMES] + [name for name in NAMES if port == HTTP_PORT]


class Server(ThreadingHTTPServer):
    """The server of one page, on a port of this machine.

    Args:
        answers: the answers about the dataset.
        port: 0 for a free one.
        debug: whether to print tracebacks of errors.

    Raises:
        OSError: the port cannot be used.
    """

    daemon_threads = True
    # A browser that opens many pages at once would fill a short queue, and its connections would wait for retries.
    request_queue_size = 128

    def __init__(self, answers: Endpoints, port: int, *, debug: bool = False) -> None:
        self.connections = Connections()
        super().__init__((ADDRESS, port), Handler)
        self.answers, self.debug, self.token = answers, debug, secrets.token_urlsafe(16)

    @property
    def url(self) -> str:
        """The address of the page, with its secret."""
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Without a free descriptor the connection stays in the queue. A pause keeps the loop from spinning.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                time.sleep(PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or refuse it if there are too many."""
        if not self.connections.add(request):
            request.setblocking(False)  # the client may not read, and the server must not wait for it
            with contextlib.suppress(OSError):
                request.send(BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget and close a connection."""
        self.connections.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long. The server calls this twice a second."""
        self.connections.end_late()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback with --debug. Errors of the connection are ignored: mostly a browser went away."""
        if self.debug and not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """The handler of one connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "ffrecord", ""

    def setup(self) -> None:
        """Look up the state of the connection."""
        super().setup()
        self.state = cast(Server, self.server).connections.find(self.request)

    def handle_one_request(self) -> None:
        """Read a request and answer it. The deadline is for the whole request, however slowly its bytes arrive."""
        self.state.await_request()
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the rest of a request."""
        found = super().parse_request()
        self.state.answer()
        return found

    def do_GET(self) -> None:
        """Answer a request, or refuse it with the reason."""
        server = cast(Server, self.server)
        if not self._is_for_us(server):
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for a browser on this machine only")
            return
        path, _, arguments = self.path.partition("?")
        names = path.split("/")  # ["", secret, address]
        if len(names) != 3 or not hmac.compare_digest(names[1].encode(errors="replace"), server.token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, "this address does not exist")
            return
        try:
            query = dict(parse_qsl(arguments, keep_blank_values=True, max_num_fields=QUERY_MOST))
            self._send(HTTPStatus.OK, server.answers(names[2], query))
        except NotThereError as error:
            self._refuse(HTTPStatus.NOT_FOUND, f"this address does not exist: {error}")
        except (ArgumentError, SampleIndexError, KeyError, ValueError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, format_reason(error))
        except ConnectionError:
            self.close_connection = True
        except Exception as error:  # a user's own field, or a bug of ours: the page shows the error and goes on
            if server.debug:
                traceback.print_exc()
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, format_reason(error))

    def _is_for_us(self, server: Server) -> bool:
        """Tell whether the header Host has one of our names, and not another name that leads here."""
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and hosts[0].lower() in hosts_of(server.server_port)

    def _not_get(self) -> None:
        self.close_connection = True  # its body is not read, and would be taken for the next request
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"method is {self.command}, expected GET")

    def __getattr__(self, name: str) -> Any:
        """Refuse every other method: http.server looks for an attribute `do_` and the method's name."""
        if name.startswith("do_"):
            return self._not_get
        raise AttributeError(name)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, Response(json.dumps({"error": why}).encode()))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the errors of http.server itself as JSON, without its error page."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _send(self, status: HTTPStatus, answer: Response) -> None:
        self.state.send()
        try:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "GET")
            self.send_header("Content-Security-Policy", answer.policy)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body if self.command != "HEAD" else b"")
        except OSError:  # the browser closed it, or it took too long
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are not logged."""
