"""Errors of what a store of objects gave, or did not give, in the words that people get."""

from ffrecord.errors import ChangedError, NoRangesError, RemoteError, RemotePermissionError, TransientError

NO_BUCKET = "there is no such bucket"
NO_RANGES = "copy the files here first, or serve them by a server with ranges, such as nginx"


def short(url: str, found: int, expected: int) -> TransientError:
    """Of a body that ended early."""
    return TransientError(f"{url}: {found} bytes came, expected {expected}")


def longer(url: str, expected: int) -> TransientError:
    """Return the error of a body that goes on behind what was asked for. None of it was kept."""
    return TransientError(f"{url}: more bytes came than the {expected} that were asked for")


def too_large(url: str, size: int, most: int) -> RemoteError:
    """Of an object that is larger than what is taken in at once."""
    return RemoteError(f"{url}: {size} bytes, expected at most {most}")


def changed(url: str, expected: object, found: object) -> ChangedError:
    """Of an object that was replaced after it was opened."""
    return ChangedError(f"{url}: replaced after it was opened: its version is {found}, it was {expected}")


def no_ranges(url: str) -> NoRangesError:
    """Of a server that gives whole objects only."""
    return NoRangesError(f"{url}: the server does not give parts of files (HTTP ranges), only whole ones: {NO_RANGES}")


def refused(url: str, why: str) -> RemotePermissionError:
    """Of one that may not be had."""
    return RemotePermissionError(f"{url}: access denied: {why}; credentials are given by storage_options")
