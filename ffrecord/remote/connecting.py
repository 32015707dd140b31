"""A URL and what is given with it → who gets its objects, and where they are."""

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ffrecord.errors import ArgumentError
from ffrecord.remote.client import Client
from ffrecord.remote.fsspec_client import FsspecClient
from ffrecord.remote.obstore_client import SCHEMES, ObstoreClient
from ffrecord.system import urls
from ffrecord.system.forks import call_in_children

BACKENDS = ("obstore", "fsspec")
REQUESTS = 64  # in flight in one process
TRIES = 8
SECONDS = 120.0  # for all tries together
TABLES_MEMORY = 512 << 20  # bytes of tables that one reader holds at most


class ConnectionOptions(NamedTuple):
    """What `storage_options` says to us, not to the package that makes the connections.

    Attributes:
        backend: "obstore" or "fsspec"; None for obstore, where it has the scheme.
        requests: in flight in one process at most.
        tries: of each request, the first one included.
        seconds: after which it is not tried again.
        tables_memory: bytes that a reader may use for the tables of shards.
        others: for the package.
    """

    backend: str | None
    requests: int
    tries: int
    seconds: float
    tables_memory: int
    others: dict[str, Any]


# What of the options says which store a URL is of; all else may change, or is secret.
TELLING = ("endpoint", "account_name", "base_url")
ENVIRONMENT = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
    *("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"),
)


def telling(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return what tells the place of a URL from all others, with nothing in it that is secret."""
    scheme, host, path, _ = urls.split_url(urls.redact(url))  # which keeps the container before an "@" of Azure
    told = [scheme, host, path.strip("/")]
    for key, value in sorted(_flat(storage_options or {})):
        if any(word in key.lower() for word in TELLING):
            told.append(f"{key.lower()}={value}")
    return told + [os.environ.get(name, "") for name in ENVIRONMENT]


def _flat(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of options, also of those that are in dicts, as fsspec's `client_kwargs` are."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from ((str(name), each) for name, each in _flat(value))
        else:
            yield str(key), value


def options_of(storage_options: Mapping[str, Any] | None) -> ConnectionOptions:
    """Ours, checked, apart from those of the package.

    Raises:
        TypeError: they are no dict, or have a name that is no text.
        ValueError: one of ours is out of range.
    """
    check_options(storage_options)
    others = dict(storage_options or {})
    backend = others.pop("backend", None)
    if backend not in (None, *BACKENDS):
        raise ArgumentError(f"storage_options: backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    requests = _number(others, "max_requests", REQUESTS, 1, 1024)
    tries = _number(others, "max_tries", TRIES, 1, 100)
    seconds = _number(others, "retry_seconds", SECONDS, 0, 3600)
    memory = others.pop("tables_memory", TABLES_MEMORY)
    if not isinstance(memory, int) or memory < 0:
        raise ArgumentError(f"storage_options: tables_memory is {memory!r}, expected bytes, >= 0")
    return ConnectionOptions(backend, int(requests), int(tries), float(seconds), memory, others)


def check_options(storage_options: object) -> None:
    """Raise TypeError unless they are a dict whose keys are text, or None."""
    if not isinstance(storage_options, Mapping | None):
        raise TypeError(f"storage_options must be a dict, not {type(storage_options).__name__}")
    wrong = [type(name).__name__ for name in storage_options or {} if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"storage_options: each name must be str, not {wrong[0]}")


def _number(options: dict[str, Any], name: str, usual: float, low: int, high: int) -> float:
    value = options.pop(name, usual)
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ArgumentError(f"storage_options: {name} is {value!r}, expected {low} to {high}")
    return value


class _ProcessClients:
    """The clients of one process. Those of the process that it was forked from are of no use to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[Any, Client] = {}
        self.kept: list[Any] = []  # what the keys of `clients` name by address


_here = _ProcessClients()
_left_by_parents: list[_ProcessClients] = []  # never freed: their ends would be waited for


def connect(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Client, str]:
    """The client for `url`, one for each process, bucket or host, and options; and the path of `url` with that client.

    Args:
        url: of an object, or of what objects are below.
        storage_options: what `ConnectionOptions` names, and what the package takes that makes the connections.

    Raises:
        ImportError: that is not installed; says what to install.
        ValueError, RemoteError: no such options, or no such URL.
    """
    options = options_of(storage_options)
    backend = options.backend or ("obstore" if urls.scheme_of(url) in SCHEMES else "fsspec")
    root, path = located(url, backend)
    key = (backend, root, _frozen(options.others))
    here = _here
    with here.lock:
        if key not in here.clients:
            kind = ObstoreClient if backend == "obstore" else FsspecClient
            here.clients[key] = kind(root, options.others)
            here.kept.append(options.others)
        return here.clients[key], path


def located(url: str, backend: str) -> tuple[str, str]:
    """Return (URL of the bucket or host, path of the object there) of a URL.

    The path is the key as the store has it: what a web URL quotes is not quoted in it.

    Raises:
        ValueError: the URL could be taken for that of another object.
    """
    urls.check_key(url)
    scheme, host, path, query = urls.split_url(url)
    tail = f"?{query}" if query else ""
    if scheme in urls.WEB:
        path = unquote(path, errors="surrogateescape")  # it is quoted again when it is asked for
    if backend == "fsspec":
        return f"{scheme}://{host}{tail}", f"{host}/{path}".rstrip("/")
    if not host:
        raise ArgumentError(f"{urls.redact(url)}: names no bucket or host")
    return f"{scheme}://{host}{tail}", path.strip("/")


def _frozen(value: Any) -> Any:
    """What tells options from others, as a key; what has no value of its own by its address."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _frozen(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(_frozen, value))
    return repr(value) if isinstance(value, str | bytes | int | float | bool | None) else f"{type(value)} {id(value)}"


def _forked() -> None:
    global _here
    _left_by_parents.append(_here)
    _here = _ProcessClients()


call_in_children(_forked)
