"""Objects by URL: each request goes to a client of the current process, and is repeated after temporary errors."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ffrecord.reading.stats import Counters
from ffrecord.remote.client import Client, FetchedObject
from ffrecord.remote.connecting import check_options, connect, options_of
from ffrecord.remote.pool import Pool, Task, pause, pool
from ffrecord.remote.retrying import retry
from ffrecord.system import urls

T = TypeVar("T")


class Storage:
    """The objects below a URL, or one object.

    Args:
        url: the URL.
        options: options of `connect`.

    Attributes:
        url, options: the arguments; they may contain secrets.
        shown: the URL without secrets.
        tables_memory: bytes that a reader may use for the tables of shards.
        ahead_memory: bytes that a loop may hold for later batches; None for a share of the free memory.
        requests_most: most requests in flight in one process.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        check_options(options)
        self.url, self.options = url, dict(options or {})
        ours = options_of(self.options)
        self._tries, self._seconds, self.requests_most = ours.tries, ours.seconds, ours.requests
        self.tables_memory, self.ahead_memory = ours.tables_memory, ours.ahead_memory
        self.shown = urls.redact(url)
        # Split the URL once, instead of for each of many shards.
        self._before, _, self._after = urls.join_url(self.shown, "~").rpartition("~")
        self._quotes = urls.scheme_of(url) in urls.WEB
        self._counted = Counters()
        self._owner = 0
        self._connect()  # now, so that a wrong option is an error of opening

    def __repr__(self) -> str:
        return f"<Storage of {self.shown}>"

    def show(self, name: str) -> str:
        """Return the URL of an object without secrets, for messages."""
        if not name:
            return self.shown
        return f"{self._before}{urls.quote_path(name) if self._quotes else name}{self._after}"

    def _connect(self) -> tuple[Client, str]:
        """Return the client and the path of the URL there.

        After a fork, connect again: a parent's client cannot be used.
        """
        # A forked child has other threads and connections than its parent.
        if self._owner != os.getpid():
            self._connected = connect(self.url, self.options)
            self._counted.clear()  # counts are of one process
            self._owner = os.getpid()
        return self._connected

    @property
    def asked(self) -> int:
        """Number of requests of this process, failed ones included."""
        return self._counted["asked"]

    @property
    def retries(self) -> int:
        """Number of requests of this process that repeated a failed one."""
        return self._counted["retries"]

    @property
    def nanoseconds(self) -> int:
        """Time from request to answer, summed over all requests."""
        return self._counted["nanoseconds"]

    @property
    def pool(self) -> Pool:
        """The threads that wait for its answers."""
        return pool(self.requests_most)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run tasks that make requests, within the limit of requests at once."""
        self.pool.run(tasks, self)

    def begin(self, task: Task) -> bool:
        """Begin a task that makes requests, for which nobody waits; return False if it will not run."""
        return self.pool.begin(task, self)

    def give_up(self) -> None:
        """End all waits in `run`, which raise ClosedError. Running requests end by themselves."""
        self.pool.give_up(self)

    def get(self, name: str, most: int) -> FetchedObject:
        """Read a whole object of at most `most` bytes."""
        client, path = self._at(name)
        return self._request(partial(client.get, path, most))

    def get_start(self, name: str, most: int) -> FetchedObject:
        """Read the first `most` bytes of an object, or all of a smaller one."""
        client, path = self._at(name)
        return self._request(partial(client.get_start, path, most))

    def get_range(self, name: str, start: int, stop: int, etag: str | None = None) -> FetchedObject:
        """Read bytes [start, stop) of an object."""
        client, path = self._at(name)
        return self._request(partial(client.get_range, path, start, stop, etag))

    def exists(self, name: str) -> bool:
        """Tell whether there is an object of this name."""
        client, path = self._at(name)
        try:
            self._request(partial(client.head, path))
        except FileNotFoundError:
            return False
        return True

    def _at(self, name: str) -> tuple[Client, str]:
        client, path = self._connect()
        return client, (f"{path}/{name}" if path else name) if name else path

    def _request(self, call: Callable[[], T]) -> T:
        return retry(
            partial(self._time, call), self._tries, self._seconds, pause, partial(self._counted.add, retries=1)
        )

    def _time(self, call: Callable[[], T]) -> T:
        begun = time.perf_counter_ns()
        try:
            return call()
        finally:
            self._counted.add(asked=1, nanoseconds=time.perf_counter_ns() - begun)
