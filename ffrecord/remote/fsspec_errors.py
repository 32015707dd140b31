"""What file systems of fsspec raise means: one of ours for each, with nothing in its message that may be secret."""

import asyncio
import errno
import os
import re

from ffrecord.errors import ChangedError, MissingFileError, NotSupportedError, RemoteError, TransientError
from ffrecord.remote.refusals import refused

AGAIN = {408, 425, 429, 500, 502, 503, 504}
# Of an OSError; any other, such as EISDIR, stays as it is. EIO and EBUSY are what s3fs makes of answers.
AGAIN_ERRNO = {
    None, 0, errno.EAGAIN, errno.EINTR, errno.EIO, errno.EBUSY, errno.EPIPE, errno.ECONNABORTED, errno.ECONNREFUSED,
    errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    errno.ENOTCONN, errno.ETIMEDOUT,
}  # fmt: skip
FTP = re.compile(r"\s*([1-5]\d\d)\b")  # how an answer begins
# What Python says of arguments: names, but no values.
ARGUMENTS = re.compile(r"(got an unexpected keyword|missing \d+ required|got multiple values for)[\w\s:,']*$")


def error_of(error: Exception, url: str) -> Exception:
    """What to raise in place of what a file system of fsspec, or what it is made of, raised."""
    status = getattr(error, "status", getattr(error, "status_code", None))
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:
        return MissingFileError(2, f"{url} does not exist", url)
    if isinstance(error, PermissionError) or status in (401, 403, 407):
        return refused(url, f"HTTP status {status}" if status else kind)
    if isinstance(error, asyncio.TimeoutError | TimeoutError) or "Timeout" in kind:
        return TransientError(f"{url}: no answer in time")
    if "Certificate" in kind or "SSL" in kind:
        return RemoteError(f"{url}: TLS failed ({kind})")
    if status == 416:
        return ChangedError(f"{url}: it has fewer bytes than its tables say: damaged, or replaced")
    if status:
        return (TransientError if status in AGAIN else RemoteError)(f"{url}: HTTP status {status}")
    if type(error).__module__ == "ftplib":
        return _of_ftp(error, url)
    if isinstance(error, NotImplementedError):
        return NotSupportedError(f"{url}: its file system cannot do this")
    return _of_connection(error, url) or RemoteError(f"{url}: {_said(error)}")


def _of_connection(error: Exception, url: str) -> Exception | None:
    kind = type(error).__name__
    # Less than 0: what a name server said.
    again = isinstance(error, OSError) and (error.errno in AGAIN_ERRNO or (error.errno or 0) < 0)
    if again or isinstance(error, EOFError) or "Payload" in kind or "Disconnected" in kind:
        return TransientError(f"{url}: the connection failed ({kind})")
    return None


def _of_ftp(error: Exception, url: str) -> Exception:
    answer = FTP.match(str(error))
    code = int(answer[1]) if answer else 0
    if code == 550:
        return MissingFileError(2, f"{url} does not exist, or may not be had", url)
    if code in (530, 532):
        return refused(url, f"FTP status {code}")
    return (TransientError if 400 <= code < 500 else RemoteError)(f"{url}: FTP status {code}")


def _said(error: Exception) -> str:
    kind, arguments = type(error).__name__, ARGUMENTS.search(str(error))
    if isinstance(error, TypeError) and arguments:
        return f"storage_options: {arguments[0]}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return kind
