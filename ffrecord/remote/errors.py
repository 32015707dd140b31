"""Errors about objects of a store, with the messages that users see."""

from ffrecord.errors import (
    REOPEN,
    REPLACED,
    ChangedError,
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


def refused_error(url: str, why: str) -> RemotePermissionError:
    """Return the error for an object that these credentials may not read or write."""
    return RemotePermissionError(f"{url}: access denied: {why}; credentials are given by storage_options")
