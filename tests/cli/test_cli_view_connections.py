"""The server of `ffrecord view` under what other programs of the machine may do: drips, floods, and no descriptors."""

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ffrecord.cli.viewer.endpoints import Response
from ffrecord.cli.viewer.server import PAUSE, Server


def answers(name: str, query: dict[str, str]) -> Response:
    return Response(b"x" * int(query.get("size", 3)))


@pytest.fixture
def server() -> Iterator[Server]:
    given: Any = answers
    with Server(given, 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: Server, size: int = 3) -> socket.socket:
    connection = socket.create_connection(server.server_address, timeout=10)
    path = f"/{server.token}/x?size={size}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
    return connection


def is_answered(server: Server) -> bool:
    with ask(server) as connection:
        return connection.recv(100).startswith(b"HTTP/1.1 200")


def ends(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


def until(true: Any) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("drip", [b"", b"G", b"GET / HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_request_has_an_end(server: Server, monkeypatch: pytest.MonkeyPatch, drip: bytes) -> None:
    """However slowly it comes: each byte would begin the time of a timeout anew."""
    monkeypatch.setattr("ffrecord.cli.viewer.server.IDLE", 0.5)
    before = threading.active_count()
    with socket.create_connection(server.server_address, timeout=10) as connection:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            connection.sendall(drip)
            while time.monotonic() < began + 10:
                connection.sendall(b"x" if drip else b"")
                time.sleep(0.05)
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if connection.recv(1) == b"":
                        break
                connection.setblocking(True)
        assert time.monotonic() < began + 5
    until(lambda: not len(server.connections) and threading.active_count() <= before)


def test_an_answer_that_nobody_takes_has_an_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffrecord.cli.viewer.server.SENDING", 0.5)
    before = threading.active_count()
    with ask(server, 64 << 20):
        until(lambda: threading.active_count() > before or len(server.connections))
        until(lambda: threading.active_count() <= before)


def test_a_connection_is_kept_for_the_next_request(server: Server) -> None:
    with ask(server) as connection:
        for _ in range(3):
            answer = b""
            while not answer.endswith(b"\r\n\r\nxxx"):
                answer += connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200")
            path = f"/{server.token}/x"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())


def test_no_more_connections_than_there_may_be(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait for a request make room; the oldest first."""
    monkeypatch.setattr("ffrecord.cli.viewer.server.MOST", 8)
    before = threading.active_count()
    with ExitStack() as held:
        idle = [held.enter_context(socket.create_connection(server.server_address, timeout=10)) for _ in range(40)]
        assert is_answered(server)
        assert all(ends(each) for each in idle[:30])
        assert len(server.connections) <= 8
        until(lambda: threading.active_count() <= before + 8)


def test_where_all_are_busy_the_next_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffrecord.cli.viewer.server.MOST", 2)
    going_on = threading.Event()

    def slow(name: str, query: dict[str, str]) -> Response:
        going_on.wait(20)
        return Response(b"done")

    given: Any = slow
    with Server(given, 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        with ask(running) as first, ask(running) as second:
            until(lambda: [each.waits for each in running.connections._open.values()] == [False, False])
            with ask(running) as third:
                assert third.recv(100).startswith(b"HTTP/1.1 503 ")
                assert ends(third)
            going_on.set()
            assert first.recv(100).startswith(b"HTTP/1.1 200") and second.recv(100).startswith(b"HTTP/1.1 200")
        running.shutdown()
        thread.join()


class Counting(Server):
    """Counts how often the server tries to accept a connection."""

    tries = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        return super().get_request()


def test_without_descriptors_the_loop_waits() -> None:
    """It does not spin, and goes on when there are some again."""
    given: Any = answers
    with Counting(given, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        threads = threading.active_count()
        assert is_answered(server)
        until(lambda: not len(server.connections) and threading.active_count() <= threads)  # its descriptor is back
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as held:
            connection = held.enter_context(socket.socket())
            used = max(int(name) for name in os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
            try:
                with contextlib.suppress(OSError):
                    while True:  # whatever is left below
                        held.callback(os.close, os.dup(0))
                connection.settimeout(10)
                before = server.tries
                connection.connect(server.server_address)
                until(lambda: server.tries > before)
                began, before = time.monotonic(), server.tries
                time.sleep(1)
                until(lambda: server.tries >= before + 2)
                tries, seconds = server.tries - before, time.monotonic() - began
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert tries <= seconds / PAUSE + 2
        assert is_answered(server)
        server.shutdown()
        thread.join()
