"""Errors about objects of a store, with the messages that users see, and the error for each answer of a server.

The HTTP status and the error code of S3, where there is one, decide the error. The error decides whether the request is
made again: a `TransientError` is. docs/remote.md has this table for users.
"""

from errno import ENOENT

from ffrecord.errors import (
    REOPEN,
    REPLACED,
    ChangedError,
    MissingFileError,
    NoRangesError,
    RemoteError,
    RemotePermissionError,
    TransientError,
)

NO_BUCKET = "there is no such bucket"
NO_RANGES = "copy the files to this machine first, or use a server with ranges, such as nginx"


def short_body_error(url: str, found: int, expected: int) -> TransientError:
    """Return the error for a body that ended early."""
    return TransientError(f"{url}: {found} bytes arrived, expected {expected}")


def long_body_error(url: str, expected: int) -> TransientError:
    """Return the error for a body that is longer than the request. None of it was kept."""
    return TransientError(f"{url}: more than {expected} bytes arrived, expected {expected}")


def too_large_error(url: str, size: int, most: int) -> RemoteError:
    """Return the error for an object that is larger than the limit."""
    return RemoteError(f"{url} has {size} bytes, expected at most {most}")


def changed_error(url: str, expected: object, found: object) -> ChangedError:
    """Return the error for an object that was replaced after it was opened."""
    return ChangedError(f"{url}: {REPLACED}: its version was {expected}, it is {found}; {REOPEN}")


def replaced_error(url: str) -> ChangedError:
    """Return the error for an object whose version differs, where the versions are unknown."""
    return ChangedError(f"{url}: {REPLACED}; {REOPEN}")


def no_ranges_error(url: str) -> NoRangesError:
    """Return the error for a server that gives whole objects only."""
    return NoRangesError(f"{url}: the server sends only whole files, not parts (HTTP ranges); {NO_RANGES}")


def not_http_error(url: str) -> RemoteError:
    """Return the error for an answer that is not HTTP."""
    return RemoteError(f"{url}: the answer is not HTTP; check the address, its port, and proxies on the way")


def range_error(url: str) -> RemoteError:
    """Return the error for a part of an object that nobody asked for, or that the server does not describe."""
    return RemoteError(f"{url}: the server sends another range than requested, or does not say which (Content-Range)")


def no_length_error(url: str) -> RemoteError:
    """Return the error for an answer whose end nobody could tell from a broken connection."""
    return RemoteError(f"{url}: the server does not say how large the file is (Content-Length)")


def compressed_error(url: str) -> RemoteError:
    """Return the error for an answer that is compressed, or says so."""
    return RemoteError(f"{url}: the server sends it compressed (Content-Encoding), expected plain bytes")


def refused_error(url: str, why: str) -> RemotePermissionError:
    """Return the error for an object that these credentials may not read or write."""
    return RemotePermissionError(f"{url}: access denied: {why}; credentials are given by storage_options")


AGAIN = {408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524, 529, 598, 599}
AGAIN_CODES = ("RequestTimeout", "SlowDown", "ServerBusy", "OperationTimedOut", "InternalError")  # with any status
# A conditional write met another one. It is not known yet which of them wins, and S3 asks for another try.
CONFLICT_CODES = ("ConditionalRequestConflict", "OperationAborted")
MISSING, REFUSED = (404, 410), (401, 403, 407)
EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired", "RequestTimeTooSkewed")
DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", *EXPIRED)
ELSEWHERE = (
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "TemporaryRedirect",
    "IllegalLocationConstraintException",
)


def answer_error(url: str, status: int, code: str = "", region: str = "", words: str = "") -> Exception:
    """Return the error that an answer stands for.

    Args:
        url: URL of the object, without secrets.
        status: HTTP status, of an error or a kind that is not expected; 0 if only a code is known.
        code: error code in the answer, as S3 names it; "" if there is none.
        region: region named in the answer; "" if there is none.
        words: text for the message; status and code by default.
    """
    words = words or ", ".join(filter(None, (f"HTTP status {status}" if status else "", code)))
    # Before the status: S3 sends some of these with 400.
    if status in AGAIN or code in AGAIN_CODES or code in CONFLICT_CODES:
        return TransientError(f"{url}: {words}")
    if status in REFUSED or code in DENIED:
        return refused_error(url, words)
    if status in MISSING:
        return missing_error(url, code)
    # A redirect that was not followed.
    if 300 <= status < 400 or code in ELSEWHERE:
        return redirect_error(url, region, words)
    # 412, precondition failed: the version differs.
    if status == 412:
        return replaced_error(url)
    # 416, range not satisfiable: the object ends before the range.
    if status == 416:
        return ChangedError(f"{url}: the file has fewer bytes than its tables say, so it is damaged or was replaced")
    return RemoteError(f"{url}: {words}")


def missing_error(url: str, code: str = "") -> MissingFileError:
    """Return the error for an object or a bucket that does not exist."""
    bucket = f"; {NO_BUCKET}" if code == "NoSuchBucket" else ""
    return MissingFileError(ENOENT, f"{url} does not exist{bucket}", url)


def redirect_error(url: str, region: str, words: str) -> RemoteError:
    """Return the error for an object that is at another address."""
    # By HTTP the redirect leads to an unusable address; object stores mean another region.
    if url.startswith("http"):
        return RemoteError(f"{url}: the server redirects to an address that cannot be read")
    there = f": it is in {region}" if region else ""
    advice = f"wrong region or endpoint{there}; pass `region` in storage_options"
    return RemoteError(f"{url}: {advice} ({words or 'the server redirects'})")
