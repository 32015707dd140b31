"""A client over obstore, for object storage and HTTP. It works in forked processes too."""

import base64
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import EllipsisType
from typing import IO, Any, TypeVar
from urllib.parse import unquote

from ffrecord.errors import ChangedError, NoRangesError, NotSupportedError
from ffrecord.remote import redirects
from ffrecord.remote.client import SIZE_MAX, FetchedObject, check_there, never
from ffrecord.remote.errors import (
    changed_error,
    compressed_error,
    long_body_error,
    range_error,
    short_body_error,
    too_large_error,
)
from ffrecord.remote.obstore_errors import error_of
from ffrecord.remote.obstore_options import convert_options, option_error
from ffrecord.system import urls
from ffrecord.system.forks import call_in_children
from ffrecord.system.requirements import require

LIBRARY = "obstore._obstore"


class _LibraryProcess:
    """The library of one process. Its threads do not survive a fork: calls in the child would wait for them forever.

    Attributes:
        lock: held while the library is loaded.
        loaded: the library; None until the first use.
        forked: whether the library that Python has imported belongs to a parent process.
    """

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.loaded: Any = None
        self.forked = forked


_here = _LibraryProcess(forked=False)
_left_by_parents: list[_LibraryProcess] = []  # never freed: their destructors would wait for threads that are gone


def library() -> Any:
    """Return obstore's functions, with `_store`, in a copy that works in this process.

    Raises:
        ImportError: obstore is not installed; the message says what to install.
    """
    here = _here
    with here.lock:
        # A child knows at the first use whether its parent had loaded the library.
        if here.loaded is None:
            package = require("obstore", "remote", "reading from object storage or HTTP")
            # The parent's library waits for threads that do not exist here.
            here.loaded = _load_copy(package._obstore.__file__) if here.forked else package._obstore
        return here.loaded


def _load_copy(path: str) -> Any:
    """Load the library again, with its own threads. The loader takes a file with another inode for another library."""
    try:
        # The file in memory may go: the loader has mapped it.
        with open(os.memfd_create("obstore"), "wb") as memory:
            return _load_from(path, memory)
    except (OSError, ImportError):  # some systems forbid to execute a file in memory
        with tempfile.NamedTemporaryFile(prefix="obstore") as file:
            return _load_from(path, file)


def _load_from(path: str, file: "IO[bytes]") -> Any:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file)
    # All of it must be in the file before it is loaded.
    file.flush()
    # The path contains the process number: the loader takes equal paths for one library, and the copies of parent
    # processes are still loaded.
    copy = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    # Any: typeshed for Python 3.15 takes no such loader here.
    loader: Any = importlib.machinery.ExtensionFileLoader(LIBRARY, copy)
    spec = importlib.util.spec_from_file_location(LIBRARY, copy, loader=loader)
    if spec is None:
        raise ImportError(f"{copy} cannot be loaded", name=LIBRARY)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _renew_after_fork() -> None:
    """Prepare a child for its own copy, if any parent has loaded the library."""
    global _here
    # Also if only a grandparent has loaded it: its copy is still in memory.
    if LIBRARY in sys.modules or _here.forked:
        _left_by_parents.append(_here)
        _here = _LibraryProcess(forked=True)
    else:
        _here = _LibraryProcess(forked=False)


call_in_children(_renew_after_fork)


T = TypeVar("T")

SCHEMES = {"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https"}
NEVER = {"max_retries": 0}  # obstore does not retry: `retrying` does, and bounds the time of all tries together
PART = 8 << 20  # bytes of each part of a large upload; more if there would be more parts than PARTS_MAX
PARTS_MAX = 9_000  # S3 allows 10,000
PARTS_AT_ONCE = 4  # parts of one upload that are in memory at once


class ObstoreClient:
    """A `Client` over one bucket or host.

    Args:
        root: URL of the bucket or host, with no path.
        options: keyword arguments of obstore's store: its configuration, `client_options`, `retry_config` (for large
            uploads), `credential_provider`.
        shown: name in messages of the one object that is requested; None for its URL.
    """

    def __init__(self, root: str, options: Mapping[str, Any], shown: str | None = None) -> None:
        self._root, self._options, self._shown = root, dict(options), shown
        self._address, self._headers = _split_root(root)
        self._is_web = urls.scheme_of(root) in ("http", "https")
        self._library = library()
        # Without retries of its own, see NEVER.
        self._once = self._store(NEVER)
        self._uploading: Any = None
        self._redirects = redirects.Redirects(root, options) if redirects.needs_check(root, options) else None

    def __repr__(self) -> str:
        return f"<ObstoreClient of {urls.redact(self._root)}>"

    def url(self, path: str) -> str:
        """Return the name of an object for messages."""
        return self._shown or urls.redact(urls.join_url(self._root, path))

    def _elsewhere(self, path: str) -> "tuple[ObstoreClient, str] | None":
        """Return (client, path) for an object that is redirected to another server; None if it is on its own."""
        target = None if self._redirects is None else self._redirects.target(urls.join_url(self._root, path))
        if target is None:
            return None
        scheme, host, name, query = urls.split_url(target)
        root = f"{scheme}://{host}{'?' if query else ''}{query}"
        return ObstoreClient(root, redirects.without_headers(self._options), self.url(path)), unquote(name)

    def get(self, path: str, most: int) -> FetchedObject:
        """Read a whole object of at most `most` bytes."""
        # Only if there are headers that another host must not see.
        there = self._elsewhere(path)
        if there is not None:
            return there[0].get(there[1], most)
        found = self._request(path, partial(self._library.get, self._once, path))
        # The size comes with the answer, before any of the body is read.
        meta = found.meta
        if meta["size"] > most:
            raise too_large_error(self.url(path), meta["size"], most)
        data = self._body(path, found, meta["size"], None)
        return FetchedObject(data, meta["size"], meta["e_tag"])

    def get_start(self, path: str, most: int) -> FetchedObject:
        """Read the first `most` bytes of an object, or all of a smaller one."""
        there = self._elsewhere(path)
        if there is not None:
            return there[0].get_start(there[1], most)
        options = {"range": (0, most)}
        try:
            found = self._request(path, partial(self._library.get, self._once, path, options=options), (0, most))
        # An empty object, or one without ranges.
        except (ChangedError, NoRangesError):  # which is how servers say that there is not even a first one
            size, etag = self.head(path)
            if size:
                raise
            return FetchedObject(b"", 0, etag)
        meta = found.meta
        data = self._body(path, found, min(most, meta["size"]), (0, most))
        return FetchedObject(data, meta["size"], meta["e_tag"])

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> FetchedObject:
        """Read bytes [start, stop) of an object, of the version `etag` if that is given."""
        there = self._elsewhere(path)
        if there is not None:
            return there[0].get_range(there[1], start, stop, etag)
        found = self._request(
            path, partial(self._library.get, self._once, path, options={"range": (start, stop)}), (start, stop)
        )
        meta = found.meta
        # Compared here, and not by If-Match: that header never matches a weak etag, and some servers give only those.
        # None: the store knows no versions.
        if etag is not None and meta["e_tag"] is not None and meta["e_tag"] != etag:
            raise changed_error(self.url(path), etag, meta["e_tag"])
        data = self._body(path, found, stop - start, (start, stop))
        return FetchedObject(data, meta["size"], meta["e_tag"])

    def _body(self, path: str, found: Any, size: int, span: tuple[int, int] | None) -> bytes:
        """Read a body, which must have `size` bytes.

        `bytes()` of obstore's result would read the whole body, even if it is longer than requested. A stream is closed
        when more follows; some 10 kB too much have been read by then.
        """
        # Stores such as S3 keep this as a note of the user, and send the bytes as they are.
        encoding = found.attributes.get("Content-Encoding", "identity") if self._is_web else "identity"
        if str(encoding).lower() not in ("identity", ""):
            raise compressed_error(self.url(path))
        if found.meta["size"] > SIZE_MAX:
            raise range_error(self.url(path))
        # There is no body to read, and a range of nothing would be an error.
        if not size:
            return b""
        # One piece of at most size + 1: more than that shows a body that is too long.
        data: bytes = self._request(path, lambda: next(iter(found.stream(min_chunk_size=size + 1)), b""), span)
        if len(data) > size:
            raise long_body_error(self.url(path), size)
        if len(data) < size:
            raise short_body_error(self.url(path), len(data), size)
        return data

    def head(self, path: str) -> tuple[int, str | None]:
        """Return (size in bytes, etag) of an object."""
        there = self._elsewhere(path)
        if there is not None:
            return there[0].head(there[1])
        meta = self._request(path, partial(self._library.head, self._once, path))
        return meta["size"], meta["e_tag"]

    def put(self, path: str, data: bytes, *, replaces: str | EllipsisType | None = ...) -> str | None:
        """Write an object. If the store can, it compares `replaces` and writes in one step."""
        mode = self._mode(path, replaces)
        put = partial(self._library.put, self._once, path, data, mode=mode, use_multipart=False)
        try:
            etag: str | None = self._request(path, put)["e_tag"]
        # The store cannot compare and write in one step.
        except NotSupportedError:
            if replaces is ...:
                raise
            check_there(self, path, replaces)
            etag = self.put(path, data)
        return etag

    def _mode(self, path: str, replaces: str | EllipsisType | None) -> Any:
        if replaces is ...:
            return "overwrite"
        if replaces is None:
            return "create"
        # Some stores compare the version, others the etag.
        meta = self._request(path, partial(self._library.head, self._once, path))
        if meta["e_tag"] != replaces:
            raise changed_error(self.url(path), replaces, meta["e_tag"])
        return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}

    def put_file(self, path: str, local: str, *, stop: Callable[[], bool] = never) -> str | None:
        """Write a file."""
        with open(local, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Larger parts if there would be too many.
            part = max(PART, -(-size // PARTS_MAX))
            # A small file is one request, which appears whole or not at all.
            if size <= part:
                return self.put(path, file.read())
            options = {"use_multipart": True, "chunk_size": part, "max_concurrency": PARTS_AT_ONCE}
            # An exception from this iterator makes obstore abort the upload and delete the parts that were sent.
            parts = iter(partial(_read, file, part, stop), b"")
            put = partial(self._library.put, self._uploader(), path, parts, **options)
            etag: str | None = self._request(path, put)["e_tag"]
            return etag

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._request(path, partial(self._library.delete, self._once, path))

    def list(self, prefix: str) -> Iterator[tuple[str, int, str | None]]:
        """Yield (path, size in bytes, etag) of each object below a path."""
        pieces = iter(self._request(prefix, partial(self._library.list, self._once, prefix)))
        while (piece := self._request(prefix, partial(next, pieces, None))) is not None:
            for each in piece:
                yield each["path"], each["size"], each["e_tag"]

    def _request(self, path: str, call: Callable[[], T], span: tuple[int, int] | None = None) -> T:
        try:
            return call()
        except Exception as error:
            # Its message contains the whole URL and all options, with secrets: so a new error, raised out of `except`.
            raised = error_of(error, self.url(path), span)
        raise raised from None

    def _uploader(self) -> Any:
        """Return the store for large uploads.

        It sends a failed part again by itself, instead of all parts before it.
        """
        if self._uploading is None:
            self._uploading = self._store(self._options.get("retry_config"))
        return self._uploading

    def _store(self, retry: Any) -> Any:
        options = {**convert_options(self._root, self._options, self._headers), "retry_config": retry}
        scheme = urls.scheme_of(self._root)
        try:
            return self._kind(scheme).from_url(self._address, **options)
        except Exception as error:  # outside of `except`, see `_request`
            raised = option_error(error, self._root, self._options) or error_of(error, urls.redact(self._root), None)
        raise raised from None

    def _kind(self, scheme: str) -> Any:
        stores = self._library._store
        if scheme in ("http", "https"):
            return stores.HTTPStore
        # By the first two letters: s3, s3a; gs, gcs; all others are Azure's.
        return {"s3": stores.S3Store, "gs": stores.GCSStore, "gc": stores.GCSStore}.get(scheme[:2], stores.AzureStore)


def _read(file: IO[bytes], size: int, stop: Callable[[], bool]) -> bytes:
    if stop():
        raise InterruptedError("the upload was stopped")
    data: bytes = file.read(size)
    return data


def _split_root(root: str) -> tuple[str, dict[str, str]]:
    """Split a root into the URL that obstore takes, and the headers for the credentials that it leaves out."""
    scheme, host, _, query = urls.split_url(root)
    user, at, plain = host.rpartition("@")
    if scheme not in ("http", "https") or not at:
        return f"gs{root[3:]}" if scheme == "gcs" else root, {}  # obstore's name of the scheme
    basic = base64.b64encode(unquote(user).encode()).decode()
    return f"{scheme}://{plain}{'?' if query else ''}{query}", {"authorization": f"Basic {basic}"}
