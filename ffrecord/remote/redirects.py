"""Redirects of web servers, found before obstore follows them: it would send the user's headers to any host.

A server that receives a header such as `x-api-key` may redirect to another server, which must not see that header.
obstore follows redirects itself, and drops only `Authorization` and cookies. So if there are other headers, Python's
own HTTP library requests each object once, and stops at a redirect.
"""

import contextlib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from ffrecord.remote.obstore_options import convert_options

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
