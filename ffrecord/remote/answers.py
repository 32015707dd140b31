"""What answers of stores and servers mean: one table for all packages that talk to them.

A status of HTTP, and where the store speaks the language of S3 its code, say which error it is, and with that if the
request is made again (`TransientError`) or not. docs/remote.md has the table for people.
"""

from ffrecord.errors import ChangedError, MissingFileError, RemoteError, TransientError
from ffrecord.remote.errors import NO_BUCKET, refused

AGAIN = {408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524, 529, 598, 599}
AGAIN_CODES = ("RequestTimeout", "SlowDown", "ServerBusy", "OperationTimedOut", "InternalError")  # whatever the status
# Of a conditional write that met another one: nobody knows yet which of them counts, and S3 asks for another try.
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


def error_of_answer(url: str, status: int, code: str = "", region: str = "", words: str = "") -> Exception:
    """Return the error that an answer stands for.

    Args:
        url: of the object, without what is secret.
        status: of HTTP, 300 or more; 0 where only a code is known.
        code: that the answer names, in the language of S3; "" if it does not.
        region: that it names.
        words: what to say of it; status and code unless given.
    """
    words = words or ", ".join(filter(None, (f"HTTP status {status}" if status else "", code)))
    if status in AGAIN or code in AGAIN_CODES or code in CONFLICT_CODES:
        return TransientError(f"{url}: {words}")
    if status in REFUSED or code in DENIED:
        return refused(url, words)
    if status in MISSING:
        return missing(url, code)
    if 300 <= status < 400 or code in ELSEWHERE:
        return redirected(url, region, words)
    if status == 412:
        return ChangedError(f"{url}: replaced after it was opened")
    if status == 416:
        return ChangedError(f"{url}: it has fewer bytes than its tables say: damaged, or replaced")
    return RemoteError(f"{url}: {words}")


def missing(url: str, code: str = "") -> MissingFileError:
    """Return the error of an object that is not there, or of a bucket."""
    bucket = f"; {NO_BUCKET}" if code == "NoSuchBucket" else ""
    return MissingFileError(2, f"{url} does not exist{bucket}", url)


def redirected(url: str, region: str, words: str) -> RemoteError:
    """Return the error of an object that is somewhere else."""
    if url.startswith("http"):
        return RemoteError(f"{url}: redirected to where it cannot be had")
    there = f": it is in {region}" if region else ""
    advice = f"wrong region or endpoint{there}; give `region` in storage_options"
    return RemoteError(f"{url}: {advice} ({words or 'redirected'})")
