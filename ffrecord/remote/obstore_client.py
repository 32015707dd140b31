"""A client over obstore, for object storage and HTTP. It works in forked processes too.

obstore follows redirects itself, and drops only `Authorization` and cookies. A server that receives another header,
such as `x-api-key`, may redirect to another server, which must not see that header. So if there are other headers,
Python's own HTTP library requests each object once, and stops at a redirect.
"""

import base64
import contextlib
import importlib.machinery
import importlib.util
import logging
import os
import re
import shutil
import ssl
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import EllipsisType
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from ffrecord.errors import ChangedError, NoRangesError, NotSupportedError, RemoteError, TransientError
from ffrecord.remote.client import SIZE_MAX, FetchedObject, check_there, never
from ffrecord.remote.errors import (
    AGAIN,
    CONFLICT_CODES,
    MISSING,
    answer_error,
    changed_error,
    compressed_error,
    long_body_error,
    missing_error,
    no_length_error,
    no_ranges_error,
    not_http_error,
    range_error,
    redirect_error,
    refused_error,
    replaced_error,
    short_body_error,
    too_large_error,
)
from ffrecord.remote.obstore_options import convert_options, option_error
from ffrecord.system import urls
from ffrecord.system.forks import call_in_children
from ffrecord.system.requirements import require

# obstore's messages have two parts: a text for people, and the structure of the error. Only the structure is parsed.
# The texts of servers and URLs are removed from it first.
STRUCTURE = "\nDebug source:\n"  # search the last one: behind it, line ends within texts are escaped
# A server decides how long the text is. Of a longer one only the start of each line, and the first and last lines, are
# parsed: BODY would take 130 bytes of memory for each byte of an answer.
LINE_MAX = 4 << 10  # characters
LINES_MAX = 500  # at each end
LONG_ANSWER = 1 << 20  # characters; an error of this length is logged
BODY = re.compile(r'body: Some\(\s*"((?:[^"\\\n]|\\.)*)')
URI = re.compile(r"uri: Some\(\s*(\S*)")
PATH = re.compile(r'(path|href): "(?:[^"\\\n]|\\.)*')
STATUS = re.compile(r"\bstatus: (\d{3})\b")
CODE = re.compile(r"<Code>(\w{1,80})</Code>")  # in answers of S3 and compatible stores
REGION = re.compile(r"<Region>([\w-]{1,40})</Region>")
# The message of the layer below: it never contains a URL or an option.
OS = re.compile(r'kind: (\w+),\s+message: "([^"]{1,200})"')
SOURCE = re.compile(r"source: ([A-Z]\w+)")
CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)|(certificate verify failed)")
OF_AUTHORITY = "CaUsedAsEndEntity"  # the certificates that `openssl req -x509` makes by default
# The texts of nginx, Apache and servers in Go.
WANTS_TLS = re.compile("plain HTTP request was sent to HTTPS|speaking plain HTTP to an SSL|request to an HTTPS server")
DNS = "failed to lookup address"
NOT_HTTP = re.compile(r"hyper::Error\(\s*Parse\(")
RANGES = ("ContentRange", "UnexpectedRange", "InvalidRangeRequest")
METADATA = re.compile(r"https?://(169\.254\.|metadata\b|\[fd00:ec2)")  # of cloud machines; it gives credentials
CONFLICT = 409

logger = logging.getLogger("ffrecord")


class ObstoreMessage(NamedTuple):
    """The parsed message of an obstore exception.

    Attributes:
        structure: structure of the error, without texts of servers, URLs and paths.
        status: HTTP status; 0 if no answer came.
        code, region: error code and region in the answer, as S3 names them; "" if there are none.
        metadata: the request went to the machine's metadata service for credentials, and not to the storage.
        tls: the server expects TLS, and the request was made without.
    """

    structure: str
    status: int
    code: str
    region: str
    metadata: bool
    tls: bool


def parse_message(text: str) -> ObstoreMessage:
    """Parse the text of an exception."""
    # `rfind`: the first part may contain any text, also this one.
    structure = _shorten(text, max(0, text.rfind(STRUCTURE) + 1))
    body, uri = BODY.search(structure), URI.search(structure)
    # Bodies, URLs and paths may contain words that look like an error.
    bare = PATH.sub("", URI.sub("", BODY.sub("", structure)))
    status = STATUS.search(bare)
    code, region = (pattern.search(body[1] if body else "") for pattern in (CODE, REGION))
    return ObstoreMessage(
        bare,
        int(status[1]) if status else 0,
        code[1] if code else "",
        region[1] if region else "",
        uri is not None and METADATA.match(uri[1]) is not None,
        body is not None and WANTS_TLS.search(body[1]) is not None,
    )


def _shorten(text: str, start: int) -> str:
    """Return the text from `start`: the first part of each line, of the first and the last lines."""
    stop = len(text)
    # From both ends: the outermost error is at the start, the system's at the end.
    lines: list[str] = []
    while start < stop and len(lines) < LINES_MAX:
        end = text.find("\n", start)
        end = stop if end < 0 else end
        lines.append(text[start : min(end, start + LINE_MAX)])
        start = end + 1
    last: list[str] = []
    while start < stop and len(last) < LINES_MAX:
        begin = max(start, text.rfind("\n", start, stop) + 1)
        last.append(text[begin : min(stop, begin + LINE_MAX)])
        stop = begin - 1
    return "\n".join([*lines, *reversed(last)])


def error_of(error: Exception, url: str, span: tuple[int, int] | None) -> Exception:
    """Return the error to raise in place of an exception of obstore.

    Args:
        error: the exception. Its class counts by name: after a fork, each copy of the library has its own classes.
        url: URL of the object, without secrets.
        span: bytes [start, stop) that were requested; None for all.
    """
    text, kind = str(error), type(error).__name__
    # Worth a line: it explains the memory.
    if len(text) > LONG_ANSWER:
        logger.warning("%s: its server sent a long error, of which obstore made a text of %d MiB", url, len(text) >> 20)
    said = parse_message(text)
    if isinstance(error, FileNotFoundError) and said.status in (0, *MISSING):
        return missing_error(url, said.code)
    if said.code in CONFLICT_CODES or (said.status == CONFLICT and url.startswith("s3")):
        # obstore reports 409 as "the object exists". But S3 means by 409 that another write has not ended yet, and by
        # 412 that the object exists.
        return TransientError(f"{url}: another write of it is going on ({_words(said)})")
    if kind == "PreconditionError":
        return replaced_error(url)
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return refused_error(url, _words(said) or "no permission")
    # A server without ranges gives the whole, or says that it cannot.
    if span is not None and (kind == "NotSupportedError" or "NotPartial" in said.structure):
        return no_ranges_error(url)
    if kind == "AlreadyExistsError" and not url.startswith("http"):  # by HTTP, nothing is written that could exist
        return ChangedError(f"{url} already exists")
    if kind in ("NotSupportedError", "NotImplementedError") or "NotImplemented" in (said.code, *_sources(said)):
        return NotSupportedError(f"{url}: the store does not support this")
    if kind == "GenericError" or said.status:
        return _generic_error(url, said)
    if isinstance(error, TypeError | ValueError) or kind == "UnknownConfigurationKeyError":
        return RemoteError(f"{url}: {_first_line(text, kind)}")
    return RemoteError(f"{url}: {kind}")


def _generic_error(url: str, said: ObstoreMessage) -> Exception:
    # The certificate is fine; the port is not.
    if said.tls:
        return RemoteError(f"{url}: {_words(said)}: the server uses TLS on this port; write https://")
    # Not an answer of the storage.
    if said.metadata:
        return _credentials_error(url, said)
    if said.status or said.code:
        return answer_error(url, said.status, said.code, said.region, _words(said))
    if "Redirect" in said.structure:
        return redirect_error(url, said.region, "")
    return _connection_error(url, said)


def _credentials_error(url: str, said: ObstoreMessage) -> Exception:
    why = "no credentials are given, and this machine has none to give"
    # 403 or 404 from the metadata service: this machine has no role.
    if said.status and said.status not in AGAIN:
        return refused_error(url, why)
    return TransientError(f"{url}: {why}: {_words(said) or 'no answer'}")  # it may only be busy


def _connection_error(url: str, said: ObstoreMessage) -> Exception:
    structure = said.structure
    certificate = CERTIFICATE.search(structure)
    if certificate:
        why = certificate[1] or certificate[2]
        remark = (
            ": it is the certificate of an authority, expected one that an authority has signed"
            if why == OF_AUTHORITY
            else ""
        )
        return RemoteError(f"{url}: TLS failed: its certificate is not accepted ({why}{remark})")
    if NOT_HTTP.search(structure):
        return not_http_error(url)
    if "kind: Builder" in structure and url.startswith("http"):  # an http:// of its own is always allowed
        return redirect_error(url, "", "")
    if "kind: Builder" in structure:
        return RemoteError(f"{url}: this is not a valid request; check the URL, the endpoint and the options")
    if "InvalidContentType" in structure or "InvalidMessage" in structure:
        return RemoteError(f"{url}: TLS failed: the server does not use TLS on this port")
    if "MissingContentLength" in structure:
        return no_length_error(url)
    if any(name in structure for name in RANGES):
        return range_error(url)
    if "HttpError" not in structure:  # an answer came with invalid headers: another try would give the same
        return RemoteError(f"{url}: {_words(said) or 'the answer is not valid: ' + ', '.join(_sources(said))}")
    if "TimedOut" in structure or "kind: Timeout" in structure:
        return TransientError(f"{url}: the server did not answer in time")
    return TransientError(f"{url}: {_words(said) or 'the connection failed'}")


def _sources(said: ObstoreMessage) -> list[str]:
    """Return the names of the nested errors, from the outermost to the innermost."""
    return SOURCE.findall(said.structure)


def _words(said: ObstoreMessage) -> str:
    """Return status, error code and the system's message, as far as they are known."""
    below = OS.search(said.structure)
    words = [f"HTTP status {said.status}" if said.status else "", said.code, below[2] if below else ""]
    if DNS in said.structure:
        words.append("no such host")
    elif "IncompleteMessage" in said.structure or "UnexpectedEof" in said.structure:
        words.append("the connection ended early")
    return ", ".join(word for word in words if word)


def _first_line(text: str, kind: str) -> str:
    """Return the part of a message that names an option or a path, but never a value, which might be secret."""
    name = re.match(r"(Configuration key: '[\w.]{1,60}' is not valid[\w ]*|Could not parse path|[\w ]{1,80})", text)
    return name[0].strip() if name else kind


MOST = 10
REDIRECTED = (301, 302, 303, 307, 308)
SECONDS = 30.0
# Headers that obstore sends to no other host, and headers without secrets.
HARMLESS = ("authorization", "cookie", "cookie2", "proxy-authorization", "www-authenticate", "accept", "user-agent")


class _StopAtRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect handler that follows none: urllib then raises an HTTPError, which has the address."""

    def redirect_request(self, *_: Any) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]


class Redirects:
    """The redirects of the objects of a web server.

    Args:
        root: URL of the server, with its query.
        options: options of `ObstoreClient`.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        client = convert_options(root, options, {})["client_options"]
        self._headers: dict[str, str] = client["default_headers"]
        self._opener = _opener(client)
        self._here: set[str] = set()  # URLs of objects that are not redirected
        self._lock = threading.Lock()

    def target(self, url: str) -> str | None:
        """Return the URL on another server to which an object is redirected; None if there is none.

        Args:
            url: URL of the object, quoted.
        """
        at = url
        for _ in range(MOST):
            found = self._next(at)
            if found is None:
                break
            # Scheme, host and port: another port may be another server.
            if origin_of(found) != origin_of(url):
                return found
            at = found
        return None

    def _next(self, url: str) -> str | None:
        """Return the target of a redirect; None if there is no redirect, or the request failed."""
        # Once for each object: this request costs as much as a read.
        if url in self._here:
            return None
        # One byte, as a whole object may be large.
        request = urllib.request.Request(url, headers={**self._headers, "Range": "bytes=0-0"})
        try:
            with contextlib.closing(self._opener.open(request, timeout=SECONDS)):
                # Threads share the set.
                with self._lock:
                    self._here.add(url)
                return None
        except urllib.error.HTTPError as error:
            # With `_StopAtRedirect` a redirect is an HTTPError.
            with error:
                to = error.headers.get("Location") if error.code in REDIRECTED else None
            return urljoin(url, to) if to else None
        except (OSError, ValueError):  # obstore will meet the same error, and report it
            return None


def needs_check(root: str, options: Mapping[str, Any]) -> bool:
    """Tell whether there are headers that another server must not see."""
    if urlsplit(root).scheme not in ("http", "https"):
        return False
    headers = convert_options(root, options, {})["client_options"]["default_headers"]
    return any(name.lower() not in HARMLESS for name in headers)


def without_headers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for another server: without headers."""
    found = {name: value for name, value in options.items() if name != "default_headers"}
    inside = found.get("client_options")
    if isinstance(inside, Mapping):
        # Both places may have them.
        found["client_options"] = {name: value for name, value in inside.items() if name != "default_headers"}
    return found


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return (scheme, host, port) of a URL."""
    parts = urlsplit(url)
    # An explicit standard port is the same origin.
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def _opener(client: Mapping[str, Any]) -> urllib.request.OpenerDirector:
    """Return an opener of URLs with the certificates and the proxy of the options."""
    context = ssl.create_default_context()
    certificates = client.get("root_certificate")
    if certificates is not None:
        text = certificates.decode() if isinstance(certificates, bytes) else str(certificates)
        context.load_verify_locations(cadata=text)
    # As obstore reads it: text, or a bool.
    if str(client.get("allow_invalid_certificates", "")).lower() == "true":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    proxy = client.get("proxy_url")
    proxies = urllib.request.ProxyHandler({"http": str(proxy), "https": str(proxy)} if proxy else None)
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=context), _StopAtRedirect)


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
        self._redirects = Redirects(root, options) if needs_check(root, options) else None

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
        return ObstoreClient(root, without_headers(self._options), self.url(path)), unquote(name)

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
