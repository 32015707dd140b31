"""Datasets written to a bucket of a real S3 server, and what is there of them afterwards."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from faulty import Faulty
from servers import Storage

from ffrecord.remote.connecting import connect

SECRET = "testing-secret"
# A request that fails is made again soon: nobody else waits for the server.
QUICK = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2},
}


class Bucket:
    """One place in a bucket.

    Args:
        storage: the server.
        name: of the place.
        staging: an empty directory.
        proxy: that writers go through, if any.
    """

    def __init__(self, storage: Storage, name: str, staging: Path, proxy: Faulty | None = None) -> None:
        self.url, self.staging, self._storage, self._proxy = storage.url(name), staging, storage, proxy

    def __str__(self) -> str:
        return self.url

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of a writer to it."""
        options: dict[str, Any] = {**self._storage.storage_options, "retry_config": QUICK}
        if self._proxy is not None:
            options["endpoint"] = self._proxy.url
        return {"storage_options": options, "staging": self.staging}

    def files(self) -> dict[str, bytes]:
        """All objects below, by name, as they are without the proxy."""
        client, root = connect(self.url, self._storage.storage_options)
        names = [path for path, _, _ in client.list(root)]
        return {path[len(root) + 1 :]: bytes(client.get(path, 1 << 30).data) for path in names}

    def put(self, name: str, data: bytes) -> None:
        """Somebody else writes an object there."""
        client, root = connect(self.url, self._storage.storage_options)
        client.put(f"{root}/{name}", data)

    def delete(self, name: str) -> None:
        """Somebody else removes one."""
        client, root = connect(self.url, self._storage.storage_options)
        client.delete(f"{root}/{name}")

    def staged(self) -> list[str]:
        """Files in the staging directory, and hidden directories."""
        return sorted(str(path.relative_to(self.staging)) for path in self.staging.rglob("*"))


def sent(proxy: Faulty) -> list[str]:
    """Names of what was written by way of a proxy, in order; of parts and of ends of large ones, once each."""
    puts = [line.split()[1].partition("?") for line in proxy.requests if line.startswith("PUT ")]
    return [path.rpartition("/")[2] for path, _, query in puts if "partNumber" not in query]
