"""What the cache knows of datasets themselves: the last `dataset.json` of each, to open them while a server is away.

    NAME.KEY.json   as it came, or for a file alone one that lists only that

KEY is made of the URL and of the options that say which store it is of. What a query may choose nobody knows, and a
signature is another one each time: of URLs with a query nothing is kept.
"""

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Any

from ffrecord.format import manifest
from ffrecord.remote.cache.files import opened
from ffrecord.remote.cache.names import stem_of
from ffrecord.remote.connecting import telling
from ffrecord.system import urls
from ffrecord.system.atomic_file import PartFile, read_up_to, write_all

SUFFIX = ".json"
DATASET, FILE = "dataset", "file"

logger = logging.getLogger("ffrecord")


class Listings:
    """The listings of one cache. What cannot be read or written is as if it were not there.

    Args:
        directory: of the cache; None without one, then there are no listings.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    def get(self, url: str, options: Mapping[str, Any], kind: str = DATASET) -> bytes | None:
        """Return what was kept last of a URL; None for nothing.

        Args:
            url, options: as of a `Storage`.
            kind: whether it is of a dataset, or of a file alone.
        """
        path = self._path(url, options, kind)
        if path is None:
            return None
        with contextlib.suppress(OSError), opened(path, os.O_RDONLY) as fd:
            return read_up_to(fd, manifest.SIZE_MAX + 1, 0)
        return None

    def put(self, data: bytes, url: str, options: Mapping[str, Any], kind: str = DATASET) -> None:
        """Keep what came; nothing is written where it is the same as before."""
        path = self._path(url, options, kind)
        if path is None or self.get(url, options, kind) == data:
            return
        try:
            part = PartFile(path)
            try:
                write_all(part.fd, memoryview(data), 0)
                part.publish()
            finally:
                part.discard()
        except OSError as error:
            logger.info("%s: not kept in the cache: %s", urls.redact(url), error)

    def _path(self, url: str, options: Mapping[str, Any], kind: str) -> str | None:
        if self._directory is None or urls.split_url(url)[3]:
            return None
        shown = urls.redact(url).rstrip("/")
        return f"{self._directory}/{stem_of(shown, repr((kind, *telling(shown, options))))}{SUFFIX}"
