"""Web servers that answer as they should not: too much, compressed, elsewhere, or with an error."""

import contextlib
import http.server
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = b"\0" * (1 << 16)
ENDLESS = 512 << 20  # bytes that no reader may ask for


class Odd:
    """A server of the files below a directory, as /KIND/PATH.

    Attributes:
        url: of it, without a slash at the end.
        sent: bytes of bodies, by kind.
        requests: (path, headers) of each.
        elsewhere: where /redirect leads, a URL.
        status: that /status gives; 0 for none.
        failures: of /status, after which it answers as it should; None for always.
        code: of S3 in the body of /status.
        padding: bytes that follow it there.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.url, self.elsewhere = root, "", ""
        self.sent: Counter[str] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.status, self.code, self.padding = 0, "", 0
        self.failures: int | None = None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        odd: Odd = self.server.odd  # type: ignore[attr-defined]
        odd.requests.append((self.path, dict(self.headers.items())))
        _, kind, name = self.path.partition("?")[0].split("/", 2)
        if kind == "redirect":
            self._answer(302, b"", Location=f"{odd.elsewhere}/{name}")
        elif kind == "status" and odd.failures != 0:
            odd.failures = None if odd.failures is None else odd.failures - 1
            self._answer(odd.status, f"<Error><Code>{odd.code}</Code></Error>".encode() + b'\\"\n' * (odd.padding // 3))
        elif not (odd.root / name).is_file():
            self._answer(404, b"nothing")
        else:
            self._send(kind, (odd.root / name).read_bytes(), odd)

    do_HEAD = do_GET  # noqa: N815

    def _send(self, kind: str, data: bytes, odd: Odd) -> None:
        asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, stop = (int(asked[1]), min(len(data), int(asked[2]) + 1)) if asked else (0, len(data))
        more: dict[str, str] = {}
        if asked and kind != "whole":
            shown = first + (1 if kind == "shifted" else 0)
            more["Content-Range"] = f"bytes {shown}-{stop - 1}/{len(data)}"
        part = data[first:stop] if kind != "whole" else data
        status = 206 if "Content-Range" in more else 200
        endless = kind in ("chunked", "longer", "whole") or (kind == "manifest" and name_is(self.path, "dataset.json"))
        if kind == "packed":
            more["Content-Encoding"] = "gzip"
        if not endless:
            self._answer(status, part, **more)
            return
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        if kind in ("chunked", "manifest"):
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(part) + ENDLESS))
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._write(kind, part, odd)
            while odd.sent[kind] < ENDLESS:
                self._write(kind, CHUNK, odd)

    def _write(self, kind: str, piece: bytes, odd: Odd) -> None:
        if kind in ("chunked", "manifest"):
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        self.wfile.write(piece)
        odd.sent[kind] += len(piece)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body if self.command != "HEAD" else b"")

    def log_message(self, *_: object) -> None: ...


def name_is(path: str, name: str) -> bool:
    return path.partition("?")[0].endswith(f"/{name}")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Of a client that went away: nothing is said."""


@contextlib.contextmanager
def odd_server(root: Path) -> Iterator[Odd]:
    """Serve the files below `root`."""
    odd = Odd(root)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.odd = odd  # type: ignore[attr-defined]
        odd.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield odd
        finally:
            server.shutdown()
            thread.join()
