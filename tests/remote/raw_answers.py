"""A web server that writes its answers byte by byte, so that they need not be HTTP, or true."""

import contextlib
import gzip
import re
import socketserver
import threading
from collections.abc import Callable, Iterator

DATA = bytes(range(256)) * 8
SIZE = len(DATA)
Headers = dict[str, object]


def http(status: int, headers: Headers, body: bytes = b"", version: str = "HTTP/1.1") -> bytes:
    """An answer; headers that are None are left out."""
    lines = [f"{version} {status} Said", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _answer(kind: str, first: int, stop: int, asked: bool, head: bool) -> bytes:
    part = b"" if head else DATA[first:stop]
    status, length = (206 if asked else 200), stop - first
    said: Headers = {"Content_Length": length, "ETag": '"a"'}
    if asked:
        said["Content_Range"] = f"bytes {first}-{stop - 1}/{SIZE}"
    ranges = {
        "another first byte": f"bytes {first + 1}-{stop}/{SIZE}",
        "another first byte, the right last one": f"bytes {first + 1}-{stop - 1}/{SIZE}",
        "another last byte": f"bytes {first}-{stop + 9}/{SIZE}",
        "fewer bytes": f"bytes {first}-{stop - 11}/{SIZE}",
        "any size": f"bytes {first}-{stop - 1}/*",
        "size of zero": f"bytes {first}-{stop - 1}/0",
        "size too small": f"bytes {first}-{stop - 1}/{stop - 1}",
        "size of 40 digits": f"bytes {first}-{stop - 1}/{10**40}",
        "size beyond 63 bits": f"bytes {first}-{stop - 1}/{1 << 63}",
        "negative": f"bytes -5-{stop - 1}/{SIZE}",
        "other unit": f"items {first}-{stop - 1}/{SIZE}",
        "nothing of the range": None,
        "no digits": f"bytes a-b/{SIZE}",
    }
    if kind in ranges:
        if asked:
            said["Content_Range"] = ranges[kind]
        return http(status, said, part)
    if kind.startswith("encoding "):
        return http(status, {**said, "Content_Encoding": kind[9:]}, part)
    if kind == "packed":
        packed = gzip.compress(DATA[first:stop])
        body = b"" if head else packed
        return http(status, {**said, "Content_Length": len(packed), "Content_Encoding": "gzip"}, body)
    if kind.startswith("length "):
        return http(status, {**said, "Content_Length": kind[7:]}, part)
    if kind.startswith("to "):
        return http(302, {"Location": kind[3:], "Content_Length": 0})
    others: dict[str, Callable[[], bytes]] = {
        "as it should": lambda: http(status, said, part),
        "old": lambda: http(status, said, part, "HTTP/1.0"),
        "interim": lambda: b"HTTP/1.1 100 Continue\r\n\r\n" + http(status, said, part),
        "nothing": lambda: b"",
        "bytes only": lambda: DATA[first:stop],
        "ssh": lambda: b"SSH-2.0-OpenSSH_9.0\r\n",
        "ftp": lambda: b"220 ready\r\n",
        "zeros": lambda: bytes(100),
        "no status": lambda: http(99, said, part),
        "whole": lambda: http(200, {"Content_Length": SIZE, "ETag": '"a"'}, b"" if head else DATA),
        "empty part": lambda: http(206, {**said, "Content_Length": 0}),
        "cut": lambda: http(status, said, part[:-5]),
        "cut in a chunk": lambda: http(
            status, {**said, "Content_Length": None, "Transfer_Encoding": "chunked"}, b"%x\r\n" % length + part[:-5]
        ),
        "endless, cut": lambda: http(200, {"ETag": '"a"'}, part[:-5]),
        "elsewhere, but nowhere": lambda: http(302, {"Content_Length": 0}),
    }
    return others[kind]()


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        method, path = [*self.rfile.readline().split(), b"", b""][:2]
        asked = None
        while (line := self.rfile.readline().strip()) != b"":
            asked = re.match(rb"(?i)range: *bytes=(\d+)-(\d+)", line) or asked
        first, stop = (int(asked[1]), min(SIZE, int(asked[2]) + 1)) if asked else (0, SIZE)
        kinds: list[str] = self.server.kinds  # type: ignore[attr-defined]
        number = re.match(rb"/(\d+)/", path)
        kind = kinds[int(number[1])] if number else "to /again"
        with contextlib.suppress(OSError):
            self.wfile.write(_answer(kind, first, stop, asked is not None, method == b"HEAD"))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Of a client that went away: nothing is said."""


class _Greeting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(self.server.greeting)  # type: ignore[attr-defined]


@contextlib.contextmanager
def greeting_server(greeting: bytes) -> Iterator[int]:
    """Serve some bytes to whoever connects; yield the port."""
    with _Server(("127.0.0.1", 0), _Greeting) as server:
        server.greeting = greeting  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def raw_server() -> Iterator[Callable[[str], str]]:
    """Serve DATA; yield a function that gives the URL of answers of a kind."""
    kinds: list[str] = []
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.kinds = kinds  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()

        def url_of(kind: str) -> str:
            kinds.append(kind)
            return f"http://127.0.0.1:{server.server_address[1]}/{len(kinds) - 1}/x.ffr"

        try:
            yield url_of
        finally:
            server.shutdown()
            thread.join()
