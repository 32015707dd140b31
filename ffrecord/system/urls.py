"""URLs of remote objects: recognition, parts, and removal of secrets."""

import re
from urllib.parse import quote, unquote

from ffrecord.errors import ArgumentError

REDACTED = "…"
WEB = ("http", "https")  # the only schemes whose URLs have a query; in all others `?` is a character of a key
UNQUOTED = "/!$&'()*+,;=:@~"  # allowed unquoted in the path of a web URL, beside letters, digits, `-`, `.` and `_`
# Query parameters that choose a version of an object or grant access to it. No key contains them by chance.
ACCESS = re.compile(
    r"[?&](versionid|generation|snapshot|x-amz-[a-z-]+|x-goog-[a-z-]+|awsaccesskeyid|sig"
    r"|[a-z_-]*(signature|token|secret|password|credential)[a-z_-]*)=",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NO_HOST = re.compile(r"[?#%\\\s]")
ENDS_HOST = re.compile("[/?#]")
LOST_SLASH = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
CHAIN = re.compile("[A-Za-z][A-Za-z0-9+.-]*::.*:/")  # of file systems of fsspec, as "simplecache::s3://bucket/name"


def is_url(path: object) -> bool:
    """Tell whether an object is a string such as "s3://bucket/name": a scheme of letters, digits, `+`, `-` and `.`, and
    "://".
    """
    scheme = scheme_of(path) if isinstance(path, str) else ""
    return bool(scheme) and scheme[0].isalpha() and all(each.isalnum() or each in "+-." for each in scheme)


def scheme_of(url: str) -> str:
    """Return the scheme before "://" in lower case; "" if the string is no URL."""
    scheme, mark, _ = url.partition("://")
    return scheme.lower() if mark and scheme.isascii() else ""


def is_remote(path: object) -> bool:
    """Tell whether an object is a URL, but not a `file://` URL of this machine."""
    return isinstance(path, str) and is_url(path) and scheme_of(path) != "file"


def is_mistaken(path: str) -> bool:
    """Tell whether a path looks like a URL, but is none: one that passed through `pathlib.Path`, such as
    "s3:/bucket/name", or a chain of file systems of fsspec.
    """
    return (LOST_SLASH.match(path) or CHAIN.match(path)) is not None


def mistaken_url_error(path: str) -> ArgumentError:
    """Return the error to raise for a path that looks like a URL, if no file of that name exists."""
    if CHAIN.match(path):
        first, _, rest = path.partition("::")
        url = redact(rest)
        return ArgumentError(
            f"{first}::{url} is a chain of file systems, expected a path or a URL, such as {url}; cache_dir= keeps "
            "what is read"
        )
    url = redact(path.replace(":/", "://", 1))
    return ArgumentError(f"{url} has one slash in place of two, as a pathlib.Path leaves it; pass the URL as str")


def misses_quotes(url: str) -> bool:
    """Tell whether the password of a URL seems to contain an unquoted `/`, `?` or `#`, which would end the host."""
    rest = url.partition("://")[2]
    host = ENDS_HOST.split(rest, maxsplit=1)[0]
    _, colon, port = host.rpartition(":")
    return bool(colon) and not port.isdigit() and port[-1:] != "]" and "@" not in host and "@" in rest


def redact(url: str) -> str:
    """Return a URL for messages: without user and password, and without its query, which may be a signature.

    In a URL without a query, such as `s3://bucket/run?lr=1`, `?` is a normal character and stays.
    """
    if not is_url(url):
        return url
    scheme, _, rest = url.partition("://")
    if misses_quotes(url):
        rest = rest.rpartition("@")[2]
    secret = rest.find("?") if scheme_of(url) in WEB or ACCESS.search(rest) else -1
    hidden, rest = (f"?{REDACTED}", rest[:secret]) if secret >= 0 else ("", rest)
    host, slash, path = rest.partition("/")
    # abfss://container@account: the part before "@" is a container, not a secret, and messages need it.
    user, at, host = host.rpartition("@")
    if at and ":" not in user and scheme.lower().startswith("abfs"):
        host = f"{user}@{host}"
    return f"{scheme}://{host}{slash}{path}{hidden}"


def _split_query(url: str) -> tuple[str, str]:
    """Return (URL up to its path, query with its `?`) of a URL; only web URLs have a query."""
    base, mark, query = url.partition("?") if scheme_of(url) in WEB else (url, "", "")
    return base, f"{mark}{query}"


def quote_path(name: str) -> str:
    """Return the path of an object as web URLs write it: all characters with another meaning there are quoted."""
    return quote(name, UNQUOTED, errors="surrogateescape")


def join_url(url: str, name: str) -> str:
    """Return the URL of the object `name` inside `url`. It keeps the query of `url`, which may grant access.

    Args:
        url: URL or path of the parent.
        name: a path in the store's own form; it is quoted if `url` is a web URL.
    """
    if not is_url(url):
        return f"{url.rstrip('/')}/{name}"
    base, query = _split_query(url)
    return f"{base.rstrip('/')}/{quote_path(name) if scheme_of(url) in WEB else name}{query}"


def name_of(url: str) -> str:
    """Return the last part of the path of a URL."""
    return _split_query(url)[0].partition("://")[2].rstrip("/").rpartition("/")[2]


def parent_of(url: str) -> str:
    """Return the URL without the last part of its path; its query stays."""
    base, query = _split_query(url)
    return f"{base.rstrip('/').rpartition('/')[0]}{query}"


def split_url(url: str) -> tuple[str, str, str, str]:
    """Return (scheme, host with user and port, path without its first slash, query) of a URL."""
    base, query = _split_query(url)
    host, _, path = base.partition("://")[2].partition("/")
    return scheme_of(url), host, path, query[1:]


def check_key(url: str) -> None:
    """Refuse a URL that a store or a library could take for another object than the one that it names.

    Raises:
        ValueError: the message names the part, and says how to write it.
    """
    if misses_quotes(url):
        raise ArgumentError(f"{redact(url)}: write `/`, `?` and `#` in a password as %2F, %3F and %23")
    scheme, host, path, _ = split_url(url)
    shown = redact(url)
    if scheme not in WEB and ACCESS.search(url):
        raise ArgumentError(
            f"{shown}: a {scheme}:// URL has no query, so it cannot give a version or a signature; pass credentials in "
            "storage_options; the latest of several versions is read"
        )
    if NO_HOST.search(host.rpartition("@")[2]):
        raise ArgumentError(f"{shown}: {host.rpartition('@')[2]!r} is not the name of a host or bucket")
    if scheme in WEB:
        if "#" in url:
            raise ArgumentError(f"{shown}: the part after a `#` is not sent to a server; write %23 if the name has one")
        if "%2f" in path.lower():
            raise ArgumentError(f"{shown}: a name with %2F cannot be told from a path, so it is not supported")
        path = unquote(path, errors="surrogateescape")
    if "*" in f"{host}/{path}":
        raise ArgumentError(f"{shown}: patterns work on this machine only; name the dataset")
    if CONTROL.search(path):
        raise ArgumentError(f"{shown}: its path has a control character, expected none")
    wrong = [part for part in path.removesuffix("/").split("/") if part in ("", ".", "..")] if path else []
    if wrong:
        raise ArgumentError(f"{shown}: not all stores keep {wrong[0]!r} between slashes; leave it out")


def local_path(path: str) -> str:
    """Return the path of a `file://` URL of this machine; return any other string unchanged.

    Raises:
        ValueError: the URL names another machine.
    """
    if not is_url(path) or scheme_of(path) != "file":
        return path
    host, slash, name = path.partition("://")[2].partition("/")
    if host not in ("", "localhost"):
        raise ArgumentError(f"{path} names a file of {host}, expected one of this machine, as in file:///path")
    return unquote(slash + name)
