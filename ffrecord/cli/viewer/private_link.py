"""A way to the page that other users of the machine cannot see, as they see the command line of a browser."""

import html
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ffrecord.system.signals import signals_exit

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>ffrecord</title>
<a href="{url}">To the page</a>
"""


@contextmanager
def way_to(url: str) -> Iterator[str]:
    """The path of a file that only this user can read, and that leads a browser to `url`; gone afterwards, also if the
    process is asked to end (SIGTERM, SIGHUP) and has no handler of its own for that, but not if it is killed.

    Raises:
        OSError: there is no place for it.
    """
    with signals_exit():
        fd, path = tempfile.mkstemp(prefix="ffrecord-", suffix=".html")  # of mode 0600
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(PAGE.format(url=html.escape(url)))
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)
