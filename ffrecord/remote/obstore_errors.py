"""Our error for each exception of obstore. No message contains a secret."""

import logging
import re
from typing import NamedTuple

from ffrecord.errors import ChangedError, NotSupportedError, RemoteError, TransientError
from ffrecord.remote.errors import (
    AGAIN,
    CONFLICT_CODES,
    MISSING,
    answer_error,
    missing_error,
    no_length_error,
    no_ranges_error,
    not_http_error,
    range_error,
    redirect_error,
    refused_error,
    replaced_error,
)

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
