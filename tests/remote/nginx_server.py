"""nginx on loopback, for the time of a test or a benchmark; and what any server takes."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NGINX = shutil.which("nginx")
MODULES = Path("/usr/lib/nginx/modules")
LUA = [MODULES / "ndk_http_module.so", MODULES / "ngx_http_lua_module.so"]
# Without a sanitizer that may be preloaded into the tests, which is not for programs of others.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
PATIENCE = 30.0  # seconds for a server to begin

# Without tcp_nopush, as nginx is unless told: with it, each answer over loopback is held back for some 40 ms, until the
# client's kernel acknowledges what came, however the client reads.
CONFIGURATION = """
{modules}
{user}
daemon off; pid {directory}/pid; worker_processes 1; error_log {directory}/error;
events {{ worker_connections 2048; }}
http {{
    access_log {directory}/access; sendfile on; keepalive_requests 10000000; keepalive_timeout 600;
    client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
    uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
    server {{
        listen 127.0.0.1:{port}{ssl}; root {root};
        {server}
        {delay}
        location /denied/ {{ return 403; }}
        location /unavailable/ {{ return 503; }}
        location /whole/ {{ alias {root}/; max_ranges 0; }}
        location /basic/ {{ alias {root}/; auth_basic x; auth_basic_user_file {directory}/users; }}
    }}
}}
"""


class Nginx:
    """A running nginx.

    Attributes:
        url: of what it serves, without a slash at the end. Below it, /denied/ and /unavailable/ answer so, /whole/ has
            the same files without ranges, /basic/ for user "user" with password "secret-word" only.
        port: that it listens at.
        root: the directory that it serves.
    """

    def __init__(self, port: int, root: Path, directory: Path, scheme: str) -> None:
        self.port, self.root, self._access = port, root, directory / "access"
        self.url = f"{scheme}://127.0.0.1:{port}"

    def requests(self) -> list[str]:
        """Method, path and status of each request so far, such as "GET /a 206", in the order of their ends."""
        lines = [line.split('"') for line in self._access.read_text().splitlines()]
        return [f"{parts[1].rpartition(' ')[0]} {parts[2].split()[0]}" for parts in lines if len(parts) > 2]

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[str]]:
        """A list that holds, afterwards, the requests that were made meanwhile."""
        found: list[str] = []
        before = len(self._settled())
        yield found
        found += self._settled()[before:]

    def _settled(self) -> list[str]:
        """Requests so far. A line is written when one has ended, which who made it may know before."""
        found = self.requests()
        while True:
            time.sleep(0.04)
            if len(found) == len(found := self.requests()):
                return found


def missing(latency: float) -> str:
    """What it takes to serve with that latency and is not here; "" if all is."""
    if NGINX is None:
        return "nginx"
    if latency and not all(path.exists() for path in LUA):
        return "nginx's module for Lua (Debian: libnginx-mod-http-lua)"
    return ""


@contextlib.contextmanager
def serving(
    root: object, latency: float = 0, *, directory: Path, server: str = "", certificate: tuple[Path, Path] | None = None
) -> Iterator[Nginx]:
    """Serve the files below `root`, ranges as well.

    Args:
        latency: seconds that every request waits before it is answered.
        directory: an empty one for its own files, which this makes.
        server: more of its configuration.
        certificate: files of certificate and key, for HTTPS.
    """
    assert NGINX is not None
    directory.mkdir()
    (directory / "users").write_text("user:{PLAIN}secret-word\n")
    scheme, ssl = "http", ""
    if certificate is not None:
        scheme, ssl = "https", " ssl"
        server += f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    port = free_port()
    text = CONFIGURATION.format(
        modules="".join(f"load_module {path};\n" for path in LUA) if latency else "",
        user="user root;" if os.geteuid() == 0 else "",  # else its worker may not read what only root may
        delay=f"access_by_lua_block {{ ngx.sleep({latency}) }}" if latency else "",
        directory=directory,
        port=port,
        root=root,
        ssl=ssl,
        server=server,
    )
    (directory / "conf").write_text(text)
    command = [NGINX, "-c", str(directory / "conf"), "-e", str(directory / "error")]
    with running(command, port, directory / "log"):
        yield Nginx(port, Path(str(root)), directory, scheme)


def free_port() -> int:
    """One that nobody listens at now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones."""
    with contextlib.ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server, from when it answers at `port`."""
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**ENVIRONMENT, **(environment or {})}
        )
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(port):
            assert server.poll() is None, f"{command[0]} ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < end, f"{command[0]} did not begin in {PATIENCE} seconds"
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
