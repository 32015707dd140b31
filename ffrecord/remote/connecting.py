"""Clients for URLs: check the options, find the package, and keep one client for each bucket or host."""

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ffrecord.errors import ArgumentError
from ffrecord.remote.client import Client
from ffrecord.remote.fsspec_client import FsspecClient
from ffrecord.remote.obstore_client import SCHEMES, ObstoreClient
from ffrecord.remote.retrying import SECONDS, TRIES
from ffrecord.system import urls
from ffrecord.system.forks import call_in_children
from ffrecord.system.sizes import parse_limit, parse_size
from ffrecord.system.values import describe_type

BACKENDS = ("obstore", "fsspec")
REQUESTS = 64  # in flight in one process
TABLES_MEMORY = 512 << 20  # most bytes of tables that one reader holds


class ConnectionOptions(NamedTuple):
    """The parts of `storage_options` that are for us, apart from those for the package that makes the connections.

    Attributes:
        backend: "obstore" or "fsspec"; None for obstore if it has the scheme.
        requests: most requests in flight in one process.
        tries: most tries of each request, the first one included.
        seconds: time after which a request is not tried again.
        tables_memory: bytes that a reader may use for the tables of shards.
        ahead_memory: bytes that a loop may hold for later batches; None for a share of the free memory.
        others: options for the package.
    """

    backend: str | None
    requests: int
    tries: int
    seconds: float
    tables_memory: int
    ahead_memory: int | None
    others: dict[str, Any]


# Options that say which store a URL belongs to. All others may change, or are secret.
IDENTIFYING = ("endpoint", "account_name", "base_url")
ENVIRONMENT = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
    *("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"),
)


def identity_of(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return texts that identify a URL among all others, without secrets."""
    # The query is left out; it may be a signature.
    scheme, host, path, _ = urls.split_url(urls.redact(url))  # redact keeps the container before an "@" of Azure
    told = [scheme, host, path.strip("/")]
    for key, value in sorted(_flat(storage_options or {})):
        # Not all options: keys and tokens change, while the store stays the same.
        if any(word in key.lower() for word in IDENTIFYING):
            told.append(f"{key.lower()}={value}")
    return told + [os.environ.get(name, "") for name in ENVIRONMENT]


def _flat(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each option, also of those in nested dicts such as fsspec's `client_kwargs`."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from ((str(name), each) for name, each in _flat(value))
        else:
            yield str(key), value


def options_of(storage_options: Mapping[str, Any] | None) -> ConnectionOptions:
    """Check `storage_options`, and separate our options from those of the package.

    Raises:
        TypeError: not a dict, a name is not a str, or a size is neither a number nor text.
        ValueError: one of our options is out of range.
    """
    check_options(storage_options)
    # A copy, from which ours are taken out.
    others = dict(storage_options or {})
    backend = others.pop("backend", None)
    if backend not in (None, *BACKENDS):
        raise ArgumentError(f"storage_options: backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    requests = _number(others, "max_requests", REQUESTS, 1, 1024)
    tries = _number(others, "max_tries", TRIES, 1, 100)
    seconds = _number(others, "retry_seconds", SECONDS, 0, 3600)
    tables = parse_size("storage_options: tables_memory", others.pop("tables_memory", TABLES_MEMORY), least=0)
    ahead = parse_limit("storage_options: ahead_memory", others.pop("ahead_memory", None), least=0)
    return ConnectionOptions(backend, int(requests), int(tries), float(seconds), tables, ahead, others)


def check_options(storage_options: object) -> None:
    """Raise TypeError unless the options are None or a dict whose keys are str."""
    if not isinstance(storage_options, Mapping | None):
        raise TypeError(f"storage_options is {describe_type(storage_options)}, expected a dict")
    wrong = [name for name in storage_options or {} if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"storage_options: a name is {describe_type(wrong[0])}, expected str")


def _number(options: dict[str, Any], name: str, usual: float, low: int, high: int) -> float:
    value = options.pop(name, usual)
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ArgumentError(f"storage_options: {name} is {value!r}, expected {low} to {high}")
    return value


class _ProcessClients:
    """The clients of one process. A forked child cannot use those of its parent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[Any, Client] = {}
        self.kept: list[Any] = []  # objects whose address is in a key of `clients`, so that no other gets that address


_here = _ProcessClients()
_left_by_parents: list[_ProcessClients] = []  # never freed: their destructors would wait for threads that are gone


def connect(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Client, str]:
    """Return the client for `url`, and the path of `url` with that client.

    There is one client for each process, bucket or host, and set of options.

    Args:
        url: URL of an object, or of a prefix of objects.
        storage_options: the options of `ConnectionOptions`, and those of the package that makes the connections.

    Raises:
        ImportError: that package is not installed; the message says what to install.
        ValueError, RemoteError: an option or the URL is invalid.
    """
    options = options_of(storage_options)
    # fsspec serves the schemes that obstore does not have.
    backend = options.backend or ("obstore" if urls.scheme_of(url) in SCHEMES else "fsspec")
    root, path = locate(url, backend)
    key = (backend, root, _freeze(options.others))
    here = _here
    with here.lock:
        if key not in here.clients:
            # One client for each bucket keeps connections open, and their TLS.
            kind = ObstoreClient if backend == "obstore" else FsspecClient
            here.clients[key] = kind(root, options.others)
            here.kept.append(options.others)  # see `kept`
        return here.clients[key], path


def locate(url: str, backend: str) -> tuple[str, str]:
    """Split a URL into (URL of the bucket or host, path of the object there).

    The path is the key as the store has it: without the percent-encoding of a web URL.

    Raises:
        ValueError: the URL could be taken for that of another object.
    """
    urls.check_key(url)
    scheme, host, path, query = urls.split_url(url)
    tail = f"?{query}" if query else ""
    if scheme in urls.WEB:
        # On the web a path is quoted; the keys of object stores are not.
        path = unquote(path, errors="surrogateescape")  # the client quotes it again for its request
    # fsspec takes the host as the first part of its paths.
    if backend == "fsspec":
        return f"{scheme}://{host}{tail}", f"{host}/{path}".rstrip("/")
    if not host:
        raise ArgumentError(f"{urls.redact(url)} has no bucket or host")
    return f"{scheme}://{host}{tail}", path.strip("/")


def _freeze(value: Any) -> Any:
    """Return a hashable key that tells options from others. A value that cannot be compared counts by its address."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _freeze(each)) for key, each in value.items()))
    # Lists and tuples alike, since neither is hashable for certain.
    if isinstance(value, list | tuple):
        return ("list", *map(_freeze, value))
    # By its address: a credential provider, for instance.
    return repr(value) if isinstance(value, str | bytes | int | float | bool | None) else f"{type(value)} {id(value)}"


def _renew_after_fork() -> None:
    global _here
    _left_by_parents.append(_here)
    _here = _ProcessClients()


call_in_children(_renew_after_fork)
