"""Names of what lies elsewhere: told from paths, taken apart, and without what nobody else may see."""

import re
from urllib.parse import unquote

from ffrecord.errors import ArgumentError

REDACTED = "…"
ENDS_HOST = re.compile("[/?#]")
LOST_SLASH = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/[^/]")


def is_url(path: object) -> bool:
    """Whether it is a string such as "s3://bucket/name": a scheme of letters, digits, `+`, `-` and `.`, then "://"."""
    scheme = scheme_of(path) if isinstance(path, str) else ""
    return bool(scheme) and scheme[0].isalpha() and all(each.isalnum() or each in "+-." for each in scheme)


def scheme_of(url: str) -> str:
    """What stands before "://", in small letters; "" if it is no URL."""
    scheme, mark, _ = url.partition("://")
    return scheme.lower() if mark and scheme.isascii() else ""


def is_remote(path: object) -> bool:
    """Whether it is a URL of anything but a file of this machine."""
    return isinstance(path, str) and is_url(path) and scheme_of(path) != "file"


def lost_slash(path: str) -> bool:
    """Whether it is what `pathlib.Path` makes of a URL, such as "s3:/bucket/name"; or a path that looks like one."""
    return LOST_SLASH.match(path) is not None


def without_slash(path: str) -> ArgumentError:
    """What to raise of such a path, where there is nothing of that name on this machine."""
    url = redacted(path.replace(":/", "://", 1))
    return ArgumentError(f"{url} has one slash of its two, as pathlib.Path leaves them: give the URL as str")


def misses_quotes(url: str) -> bool:
    """Whether its password seems to have a `/`, `?` or `#`, which end the host where they are not quoted."""
    rest = url.partition("://")[2]
    host = ENDS_HOST.split(rest, maxsplit=1)[0]
    _, colon, port = host.rpartition(":")
    return bool(colon) and not port.isdigit() and port[-1:] != "]" and "@" not in host and "@" in rest


def redacted(url: str) -> str:
    """The same without user and password, and with the query, which may be a signature, left out: for messages."""
    if not is_url(url):
        return url
    scheme, _, rest = url.partition("://")
    if misses_quotes(url):
        rest = rest.rpartition("@")[2]
    rest, query, _ = rest.partition("?")
    host, slash, path = rest.partition("/")
    # abfss://container@account: what stands before "@" is not secret there, and tells two of them apart.
    user, at, host = host.rpartition("@")
    if at and ":" not in user and scheme.lower().startswith("abfs"):
        host = f"{user}@{host}"
    return f"{scheme}://{host}{slash}{path}{query}{REDACTED if query else ''}"


def joined(url: str, name: str) -> str:
    """The URL of what is called `name` inside of `url`, the query kept: it may be what gives access to all of it."""
    if not is_url(url):
        return f"{url.rstrip('/')}/{name}"
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def name_of(url: str) -> str:
    """The last part of its path."""
    return url.partition("://")[2].partition("?")[0].rstrip("/").rpartition("/")[2]


def parent_of(url: str) -> str:
    """The URL without the last part of its path, the query kept."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/').rpartition('/')[0]}{mark}{query}"


def split(url: str) -> tuple[str, str, str, str]:
    """(scheme, host with user and port, path without its first slash, query) of a URL."""
    _, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    host, _, path = rest.partition("/")
    return scheme_of(url), host, path, query


def local_of(path: str) -> str:
    """The path that a `file://` URL of this machine names; anything else as it is.

    Raises:
        ValueError: it is of another machine.
    """
    if not is_url(path) or scheme_of(path) != "file":
        return path
    host, slash, name = path.partition("://")[2].partition("/")
    if host not in ("", "localhost"):
        raise ArgumentError(f"{path}: only files of this machine can be opened by file://, not of {host}")
    return unquote(slash + name)
