"""Our error for each exception of an fsspec file system. No message contains a secret."""

import asyncio
import errno
import os
import re
import ssl
from collections.abc import Mapping

from ffrecord.errors import MissingFileError, NotSupportedError, RemoteError, TransientError
from ffrecord.remote.errors import answer_error, missing_error, refused_error

# `errno` of an OSError that is worth another try. Others, such as EISDIR, are not. s3fs turns some answers into EIO or
# EBUSY.
AGAIN_ERRNO = {
    None, 0, errno.EAGAIN, errno.EINTR, errno.EIO, errno.EBUSY, errno.EPIPE, errno.ECONNABORTED, errno.ECONNREFUSED,
    errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    errno.ENOTCONN, errno.ETIMEDOUT,
}  # fmt: skip
FTP = re.compile(r"\s*([1-5]\d\d)\b")  # the start of an answer
# Python's messages about arguments: they contain names, but no values.
ARGUMENTS = re.compile(r"(got an unexpected keyword|missing \d+ required|got multiple values for)[\w\s:,']*$")


# Classes that mean a failed connection, in packages whose errors are no OSError, such as httpx (used by hf://).
CONNECTION = (
    "ConnectError", "ReadError", "WriteError", "CloseError", "NetworkError", "RemoteProtocolError", "ProxyError",
    "ConnectionError", "ClientConnectionError", "EndpointConnectionError", "IncompleteRead", "ProtocolError",
)  # fmt: skip
CAUSES = 8  # most exceptions of a chain of causes that are looked at


def error_of(error: Exception, url: str) -> Exception:
    """Return the error to raise in place of an exception from an fsspec file system, or from a package below it.

    Some file systems report every failure as a missing file, with the real error as its cause. Then the cause counts.
    """
    # An answer of the server says more than the class of the exception.
    for each in _cause_chain(error):
        found = _answer_error(each, url)
        if found is not None:
            return found
    # "Missing" may only mean that the connection failed.
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        cause = error.__cause__
        found = _connection_error(cause, url) if isinstance(cause, Exception) else None
        if found is not None:
            return found
    if isinstance(error, FileNotFoundError):
        return missing_error(url)
    if isinstance(error, PermissionError):
        # The name of the class only: the message may contain secrets.
        return refused_error(url, type(error).__name__)
    found = _connection_error(error, url)
    if found is not None:
        return found
    if type(error).__module__ == "ftplib":
        return _ftp_error(error, url)
    if isinstance(error, NotImplementedError):
        return NotSupportedError(f"{url}: the store does not support this")
    return RemoteError(f"{url}: {_safe_text(error)}")


def _cause_chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    # Bounded, as a chain may be a circle.
    at: BaseException | None = error
    while at is not None and len(found) < CAUSES:
        found.append(at)
        # As Python shows it: the cause, or else the context unless it was suppressed.
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return found


def _answer_error(error: BaseException, url: str) -> Exception | None:
    """Return the error that a server's answer stands for; None if no answer came, or it is not known."""
    status, code = _status(error), ""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        code = str(response.get("Error", {}).get("Code", ""))
        status = status or _number(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    elif not status:  # requests, httpx, and packages made from them
        status = _number(getattr(response, "status_code", None))
    # A code that is no plain word may be text of the server.
    known = code if re.fullmatch(r"[A-Z][A-Za-z]{1,79}", code) else ""
    return answer_error(url, status, known) if status >= 300 or known else None


def _status(error: BaseException) -> int:
    return _number(getattr(error, "status", None)) or _number(getattr(error, "status_code", None))


def _number(value: object) -> int:
    # A bool is an int.
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 1000 else 0


def _connection_error(error: Exception, url: str) -> Exception | None:
    """Return the error for a failed connection; None if the exception means something else."""
    # A certificate does not become valid by another try.
    if any(isinstance(each, ssl.SSLError) or _names_tls(each) for each in _cause_chain(error)):
        return RemoteError(f"{url}: TLS failed ({type(error).__name__})")
    kind = type(error).__name__
    # By name: several packages have a timeout of their own.
    if isinstance(error, asyncio.TimeoutError | TimeoutError) or "Timeout" in kind:
        return TransientError(f"{url}: the server did not answer in time")
    # `errno` is negative if the name could not be resolved (socket.gaierror).
    again = isinstance(error, OSError) and (error.errno in AGAIN_ERRNO or (error.errno or 0) < 0)
    missing_or_refused = isinstance(error, FileNotFoundError | PermissionError)
    if (again and not missing_or_refused) or isinstance(error, EOFError):
        return TransientError(f"{url}: the connection failed ({kind})")
    # By name, as these packages may not be installed here.
    if "Payload" in kind or "Disconnected" in kind or kind in CONNECTION:
        return TransientError(f"{url}: the connection failed ({kind})")
    return None


def _names_tls(error: BaseException) -> bool:
    return "Certificate" in type(error).__name__ or "SSL" in type(error).__name__


def _ftp_error(error: Exception, url: str) -> Exception:
    answer = FTP.match(str(error))
    code = int(answer[1]) if answer else 0
    # FTP has one code for both.
    if code == 550:
        return MissingFileError(errno.ENOENT, f"{url} does not exist, or you may not read it", url)
    if code in (530, 532):
        return refused_error(url, f"FTP status {code}")
    if not code:
        return RemoteError(f"{url}: the answer is not FTP; check the address, its port, and proxies on the way")
    # 4xx is temporary in FTP, 5xx is not.
    return (TransientError if 400 <= code < 500 else RemoteError)(f"{url}: FTP status {code}")


def _safe_text(error: Exception) -> str:
    kind, arguments = type(error).__name__, ARGUMENTS.search(str(error))
    # Python's own message about a keyword names the option and no value.
    if isinstance(error, TypeError) and arguments:
        return f"storage_options: {arguments[0]}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return kind
