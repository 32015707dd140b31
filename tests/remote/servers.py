"""Real servers on this machine, for the time of a test: nginx, an S3 API, and a proxy that does harm."""

import contextlib
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import nginx_server
import pytest
from faulty import Faulty, faulty
from nginx_server import PATIENCE, Nginx, free_port, running

__all__ = ["Faulty", "Moto", "Nginx", "faulty", "moto", "nginx", "without_nginx"]

without_nginx = pytest.mark.skipif(nginx_server.NGINX is None, reason="nginx is not installed")


@contextlib.contextmanager
def nginx(root: object, latency: float = 0, **more: Any) -> Iterator[Nginx]:
    """As `nginx_server.serving`, but where nginx is missing the test is skipped."""
    missing = nginx_server.missing(latency)
    if missing:
        pytest.skip(f"{missing} is not installed")
    with nginx_server.serving(root, latency, **more) as server:
        yield server


class Moto(NamedTuple):
    """A running S3 API server, with a bucket.

    Attributes:
        endpoint: its address.
        bucket: of this name.
    """

    endpoint: str
    bucket: str

    def url(self, path: str = "") -> str:
        """URL of what is at a path in the bucket."""
        return f"s3://{self.bucket}/{path}"

    @property
    def storage_options(self) -> dict[str, str]:
        """With which it can be used."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "testing-key",
            "secret_access_key": "testing-secret",
        }


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[Moto]:
    """Serve the S3 API, with a bucket that is empty.

    Args:
        directory: an empty one for its own files, which this makes.
    """
    for package in ("moto", "flask"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed, which the S3 server of the tests needs")
    directory.mkdir()
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {"AWS_ACCESS_KEY_ID": "testing-key", "AWS_SECRET_ACCESS_KEY": "testing-secret"}
    with running(command, port, directory / "log", environment):
        served = Moto(f"http://127.0.0.1:{port}", "bucket")
        make = urllib.request.Request(f"{served.endpoint}/{served.bucket}", method="PUT")
        with urllib.request.urlopen(make, timeout=PATIENCE) as answer:
            assert answer.status == 200
        yield served
