"""The last `dataset.json` of each dataset in the cache, to open the dataset while its server is away.

    NAME.KEY.json   the bytes as they came; for a single file, a listing with only that file

KEY is a hash of the URL and of the options that identify the store. URLs with a query are not kept: a query may change
the content, and a signature is different each time.
"""

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Any

from ffrecord.format import manifest
from ffrecord.remote.cache.files import open_regular
from ffrecord.remote.cache.names import stem_of
from ffrecord.remote.connecting import identity_of
from ffrecord.system import urls
from ffrecord.system.atomic_file import PartFile, read_up_to, write_all

SUFFIX = ".json"
DATASET, FILE = "dataset", "file"

logger = logging.getLogger("ffrecord")


class Listings:
    """The listings of one cache. A listing that cannot be read or written counts as missing.

    Args:
        directory: directory of the cache; None without a cache, and then there are no listings.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    def get(self, url: str, options: Mapping[str, Any], kind: str = DATASET) -> bytes | None:
        """Return the last listing of a URL, or None.

        Args:
            url, options: arguments of `Storage`.
            kind: DATASET, or FILE for a single file.
        """
        path = self._path(url, options, kind)
        if path is None:
            return None
        with contextlib.suppress(OSError), open_regular(path, os.O_RDONLY) as fd:
            # One byte more than the limit shows that it is too long.
            return read_up_to(fd, manifest.SIZE_MAX + 1, 0)
        return None

    def put(self, data: bytes, url: str, options: Mapping[str, Any], kind: str = DATASET) -> None:
        """Keep a listing. Write nothing if it has not changed."""
        path = self._path(url, options, kind)
        # Mostly unchanged, and then the disk is spared.
        if path is None or self.get(url, options, kind) == data:
            return
        try:
            part = PartFile(path)
            try:
                write_all(part.fd, memoryview(data), 0)
                part.publish()
            finally:
                part.discard()
        # Reading works without it.
        except OSError as error:
            logger.info("%s: its listing is not kept in the cache: %s", urls.redact(url), error)

    def _path(self, url: str, options: Mapping[str, Any], kind: str) -> str | None:
        if self._directory is None or urls.split_url(url)[3]:  # a query may be a signature, which must not be stored
            return None
        shown = urls.redact(url).rstrip("/")
        return f"{self._directory}/{stem_of(shown, repr((kind, *identity_of(shown, options))))}{SUFFIX}"
