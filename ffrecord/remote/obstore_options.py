"""`storage_options` for obstore: conversion to its types, and messages about invalid options."""

import difflib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ffrecord.errors import ArgumentError, RemoteError
from ffrecord.system import urls
from ffrecord.system.values import describe_type

ADDRESS = re.compile("endpoint|base_url")  # options with an address: of S3 and Azure, and of Google
# Environment variables with an address, by the start of the scheme. Other endpoint variables are those of services
# that give credentials.
OF_GOOGLE = ("GOOGLE_BASE_URL",)
VARIABLES = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": OF_GOOGLE,
    "gc": OF_GOOGLE,
    "ht": (),
}
AZURE_VARIABLES = ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
# A request without an answer in this time fails. Without these limits it would wait forever.
CLIENT = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "300s"}
CLIENT_NAMES = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "default_headers",
    "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
)  # fmt: skip
OURS = ("backend", "max_requests", "max_tries", "retry_seconds", "tables_memory")
OF_ALL = ("client_options", "retry_config")
AS_GIVEN = ("config", "credential_provider", "retry_config")
OF_STORES = ("credential_provider", "endpoint", "skip_signature")
# The most used options of each store. Each store has more, and more names for them.
OF_STORE = {
    "s3": (*OF_STORES, "access_key_id", "region", "secret_access_key", "session_token", "virtual_hosted_style_request"),
    "gs": ("base_url", "credential_provider", "service_account", "service_account_key", "skip_signature"),
    "ht": (),
}
OF_AZURE = (*OF_STORES, "account_key", "account_name", "client_id", "client_secret", "sas_key", "tenant_id")
DURATION = re.compile("_interval$|timeout$")
UNKNOWN = re.compile(r"unexpected keyword argument '(\w{1,60})'|key: '?([\w.]{0,59}\w)")
NO_VALUE = re.compile(r'failed to parse "(.*)" as (\w+)')
PLAIN = (str, bytes, bool, int, float, timedelta)


def convert_options(root: str, given: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the options as obstore takes them.

    Args:
        root: URL of the bucket or host.
        given: `storage_options` without ours. Names of `client_options` may also stand at the top level.
        headers: headers to send with each request; a header in `given` replaces one of the same name.

    Raises:
        TypeError, ArgumentError: a value has a wrong type, or is out of range.
    """
    inside = _dict("client_options", given.get("client_options"))
    beside = {name: value for name, value in given.items() if name in CLIENT_NAMES}
    client = _values({**beside, **inside})
    # The user's headers replace those from the URL.
    client["default_headers"] = {**headers, **client.get("default_headers", {})}
    others = {name: value for name, value in given.items() if name not in (*beside, "client_options")}
    # Ours first, so that the user's options win.
    return {**_values(others), "client_options": {**CLIENT, **plain_http(root, given), **client}}


def _dict(name: str, value: Any) -> Mapping[str, Any]:
    """Return the value of an option that must be a dict; {} if it is not given.

    Raises:
        TypeError: it is not a dict, or a name is not a str.
    """
    if not isinstance(value, Mapping | None):
        raise TypeError(f"storage_options: {name} is {describe_type(value)}, expected a dict")
    wrong = [key for key in value or {} if not isinstance(key, str)]
    if wrong:
        raise TypeError(f"storage_options: {name}: a name is {describe_type(wrong[0])}, expected str")
    return value or {}


def plain_http(root: str, given: Mapping[str, Any]) -> dict[str, bool]:
    """Return the option that allows HTTP without TLS, if an address begins with http://.

    The address is the URL or an option; without such an option, an environment variable.
    """
    addresses = [str(value) for key, value in given.items() if ADDRESS.search(key.lower())]
    if not addresses:
        # Without an address in the options, obstore looks at these.
        names = VARIABLES.get(urls.scheme_of(root)[:2], AZURE_VARIABLES)
        addresses = [os.environ.get(name, "") for name in names]
    # obstore refuses http:// unless it is allowed; who writes http:// means it.
    return {"allow_http": True} if any(each.lower().startswith("http://") for each in [root, *addresses]) else {}


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as obstore takes them, without those that are None."""
    # None means "not given", as for arguments.
    values = {name: value for name, value in given.items() if value is not None}
    return {name: value if name in AS_GIVEN else _value(name, value) for name, value in values.items()}


def _value(name: str, value: Any) -> Any:
    if name == "default_headers":
        return {key: _value(f"{name} {key}", each) for key, each in _dict(name, value).items()}
    if not isinstance(value, PLAIN):
        raise TypeError(f"storage_options: {name} is {describe_type(value)}, expected text, a number, or True or False")
    if name in ("root_certificate", "proxy_ca_certificate"):
        return _certificates(name, value)
    if isinstance(value, bool | bytes | timedelta):  # obstore takes these as they are
        return value
    # Numbers become text: obstore takes all options as text.
    return _duration(name, value) if DURATION.search(name) else str(value)


def _duration(name: str, value: Any) -> str:
    """Return a duration as text with a unit. A number, also as text, means seconds."""
    try:
        milliseconds = round(float(value) * 1000)
    except (ValueError, OverflowError):
        return str(value)  # with a unit
    if milliseconds <= 0:
        raise ArgumentError(f"storage_options: {name} is {value!r}, expected seconds > 0")
    return f"{milliseconds}ms"


def _certificates(name: str, value: Any) -> Any:
    if isinstance(value, str | bytes) and b"-----BEGIN" in (value.encode() if isinstance(value, str) else value):
        return value
    raise ArgumentError(f"storage_options: {name} is not a certificate, expected the text of a PEM file, not its path")


def option_error(error: Exception, root: str, given: Mapping[str, Any]) -> Exception | None:
    """Return the error to raise if obstore rejected an option; None if its error means something else."""
    text, scheme, url = str(error), urls.scheme_of(root)[:2], urls.redact(root)
    # Only the name of an option is taken from the message, never a value.
    name = UNKNOWN.search(text)
    if name:
        inside = text.startswith("Invalid key")
        there = CLIENT_NAMES if inside else (*OF_ALL, *OF_STORE.get(scheme, OF_AZURE), *OURS)
        return RemoteError(f"{url}: {_describe_unknown(name[1] or name[2], there, inside=inside)}")
    value = NO_VALUE.search(text.partition("\n")[0])
    if value:
        values = {**given, **(given.get("client_options") or {})}
        # By value, as the message does not name the option. The value itself is not shown.
        names = [each for each, one in values.items() if str(one) == value[1]]
        wrong = " or ".join(names) or "a value"
        kind = "duration, such as 30 (seconds) or '30s'" if value[2] == "Duration" else value[2]
        return ArgumentError(f"{url}: storage_options: {wrong} cannot be read, expected a {kind}")
    if "MissingAccount" in text:
        return RemoteError(
            f"{url}: it has no account; pass `account_name` in storage_options, or set AZURE_STORAGE_ACCOUNT_NAME"
        )
    return None


def _describe_unknown(name: str, there: tuple[str, ...], *, inside: bool) -> str:
    near = difflib.get_close_matches(name, (*there, *CLIENT_NAMES), 1)
    meant = f"; {near[0]} may be meant" if near else ""
    place = "client_options" if inside else "storage_options"
    among = "there are" if inside else "there are, among others"
    return f"{place}: there is no option {name!r}{meant}; {among} {', '.join(sorted(there))}"
