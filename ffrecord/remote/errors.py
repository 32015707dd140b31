"""Errors about objects of a store, with the messages that users see."""

from ffrecord.errors import ChangedError, NoRangesError, RemoteError, RemotePermissionError, TransientError

NO_BUCKET = "there is no such bucket"
NO_RANGES = "copy the files here first, or serve them by a server with ranges, such as nginx"


def short_body_error(url: str, found: int, expected: int) -> TransientError:
    """Return the error for a body that ended early."""
    return TransientError(f"{url}: {found} bytes came, expected {expected}")


def long_body_error(url: str, expected: int) -> TransientError:
    """Return the error for a body that is longer than the request. None of it was kept."""
    return TransientError(f"{url}: more bytes came than the {expected} that were asked for")


def too_large_error(url: str, size: int, most: int) -> RemoteError:
    """Return the error for an object that is larger than the limit."""
    return RemoteError(f"{url}: {size} bytes, expected at most {most}")


def changed_error(url: str, expected: object, found: object) -> ChangedError:
    """Return the error for an object that was replaced after it was opened."""
    return ChangedError(f"{url}: replaced after it was opened: its version is {found}, it was {expected}")


def no_ranges_error(url: str) -> NoRangesError:
    """Return the error for a server that gives whole objects only."""
    return NoRangesError(f"{url}: the server does not give parts of files (HTTP ranges), only whole ones: {NO_RANGES}")


def refused_error(url: str, why: str) -> RemotePermissionError:
    """Return the error for an object that these credentials may not read or write."""
    return RemotePermissionError(f"{url}: access denied: {why}; credentials are given by storage_options")
