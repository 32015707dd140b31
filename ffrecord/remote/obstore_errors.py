"""What obstore's exceptions mean: one of ours for each, with nothing in its message that may be secret."""

import re

from ffrecord.errors import ChangedError, MissingFileError, NotSupportedError, RemoteError, TransientError
from ffrecord.remote.refusals import no_ranges, refused

STATUS = re.compile(r"status code: (\d{3})")
CODE = re.compile(r"<Code>(\w{1,80})</Code>")  # as S3 and those that speak its language say what is wrong
REGION = re.compile(r"<Region>([\w-]{1,40})</Region>")
# What lies below, in its own words: none of them has a URL or an option in it.
OS = re.compile(r'kind: (\w+),\s+message: "([^"]{1,200})"')
CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)|(certificate verify failed)")
DNS = "failed to lookup address"
EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired", "RequestTimeTooSkewed")
DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", *EXPIRED)
AGAIN = {408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524, 529, 598, 599}


def error_of(error: Exception, url: str, span: tuple[int, int] | None) -> Exception:
    """What to raise in place of what obstore raised.

    Args:
        error: by the name of its class: after a fork there is one of each name in every copy of the library.
        url: of the object, without what is secret.
        span: what was asked for of it, bytes; None for all.
    """
    text, kind = str(error), type(error).__name__
    if isinstance(error, FileNotFoundError):
        return _missing(url, text)
    if kind == "PreconditionError":
        return ChangedError(f"{url}: replaced after it was opened")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return refused(url, _said(text) or "no permission")
    if kind == "NotSupportedError" and span is not None:
        return no_ranges(url)
    if kind == "AlreadyExistsError":
        return ChangedError(f"{url}: exists already")
    if kind in ("NotSupportedError", "NotImplementedError") or (kind == "GenericError" and "NotImplemented" in text):
        return NotSupportedError(f"{url}: the store cannot do this")
    if kind == "GenericError":
        return _generic(url, text)
    if isinstance(error, TypeError | ValueError) or kind == "UnknownConfigurationKeyError":
        return RemoteError(f"{url}: {_first_line(text, kind)}")
    return RemoteError(f"{url}: {kind}")


def _missing(url: str, text: str) -> Exception:
    bucket = "; there is no such bucket" if "NoSuchBucket" in text else ""
    return MissingFileError(2, f"{url} does not exist{bucket}", url)


def _generic(url: str, text: str) -> Exception:
    found = STATUS.search(text)
    status, said = int(found[1]) if found else 0, _said(text)
    code = CODE.search(text)
    if status in (401, 403, 407) or (code is not None and code[1] in DENIED):
        return refused(url, said)
    if status == 404:
        return _missing(url, text)
    if status == 301 or "redirect" in text.lower() or "AuthorizationHeaderMalformed" in text:
        return RemoteError(f"{url}: {_elsewhere(text, said)}")
    if status == 416:
        return ChangedError(f"{url}: it has fewer bytes than its tables say: damaged, or replaced")
    if found and status not in AGAIN:
        return RemoteError(f"{url}: {said}")
    return _of_connection(url, text, said)


def _elsewhere(text: str, said: str) -> str:
    region = REGION.search(text)
    there = f": it is in {region[1]}" if region else ""
    return f"wrong region or endpoint{there}; give `region` in storage_options ({said or 'redirected'})"


def _of_connection(url: str, text: str, said: str) -> Exception:
    certificate = CERTIFICATE.search(text)
    if certificate:
        return RemoteError(f"{url}: TLS failed: its certificate is not accepted ({certificate[1] or certificate[2]})")
    if "builder error" in text:
        return RemoteError(f"{url}: no request can be made of this; HTTP without TLS needs allow_http=True")
    if "InvalidContentType" in text or "InvalidMessage" in text:
        return RemoteError(f"{url}: TLS failed: the server speaks something else on this port")
    if "TimedOut" in text or "timed out" in text:
        return TransientError(f"{url}: no answer in time")
    return TransientError(f"{url}: {said or 'the connection failed'}")


def _said(text: str) -> str:
    """Status, code of the error, and what the system said, as far as there are such."""
    status, code, below = STATUS.search(text), CODE.search(text), OS.search(text)
    words = [f"HTTP status {status[1]}" if status else "", code[1] if code else "", below[2] if below else ""]
    if DNS in text:
        words.append("no such host")
    elif "IncompleteMessage" in text or "UnexpectedEof" in text:
        words.append("the connection ended early")
    return ", ".join(word for word in words if word)


def _first_line(text: str, kind: str) -> str:
    """What is said of an option or a path; but never of a value that might be secret."""
    name = re.match(r"(Configuration key: '[\w.]{1,60}' is not valid[\w ]*|Could not parse path|[\w ]{1,80})", text)
    return name[0].strip() if name else kind
