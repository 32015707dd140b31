"""Opening of datasets by URL: one request for a dataset.json gives all shards."""

import logging
from collections.abc import Callable, Mapping
from errno import ENOENT
from typing import Any

import msgspec

from ffrecord.errors import (
    UNFINISHED,
    ArgumentError,
    FFRecordError,
    FormatError,
    MissingFileError,
    RemotePermissionError,
    TransientError,
)
from ffrecord.format import ffr_layout, leftovers, manifest
from ffrecord.reading import paths
from ffrecord.remote.cache.listings import DATASET, FILE, Listings
from ffrecord.remote.connecting import check_options
from ffrecord.remote.engine import RemoteFiles
from ffrecord.remote.errors import NO_BUCKET
from ffrecord.remote.shard import RemoteShard, open_shard, shard_of_listing
from ffrecord.remote.storage import Storage
from ffrecord.system import urls

# Errors that servers give for a name that is only a prefix of others: missing, refused, or an empty object.
NOT_THERE = (MissingFileError, RemotePermissionError, FormatError)


logger = logging.getLogger("ffrecord")


class Remote:
    """The arguments of a reader of URLs.

    Args:
        fname: a URL, a list or tuple of URLs, or either with the number of files that each had before.
        storage_options, cache_dir, cache_limit: see `FileReader`.

    Attributes:
        source: the URL or URLs.
        counts: number of files of each URL; empty until they are open.
        firsts: numbers of the files whose schemas may differ: the first file of each dataset.
    """

    def __init__(
        self,
        fname: paths.Source | paths.Pinned,
        storage_options: Mapping[str, Any] | None,
        cache_dir: paths.PathLike | None,
        cache_limit: int | str | None,
    ) -> None:
        self.counts: tuple[int, ...] = ()
        if isinstance(fname, paths.Pinned):
            fname, self.counts = fname
        self.source: paths.Source = fname
        check_options(storage_options)
        self._storage_options = None if storage_options is None else dict(storage_options)
        self._directory, self._limit = cache_dir, cache_limit
        self.firsts: list[int] = []

    @property
    def options(self) -> dict[str, Any]:
        """The other arguments, by name."""
        return {
            "storage_options": self._storage_options,
            "cache_dir": self._directory,
            "cache_limit": self._limit,
        }

    def open(self, *, check: bool, io: str) -> tuple[list[RemoteShard], RemoteFiles]:
        """Open the shards, and return them with the engine that reads them.

        Raises:
            The exceptions of `FileReader`.
        """
        # A file that is not here cannot be mapped.
        if io == "mmap":
            raise ArgumentError("io is 'mmap', which works for files of this machine only; pass another io")
        given: Any = self.source if isinstance(self.source, list | tuple) else [self.source]
        cache = self._cache()
        try:
            return self._open_all(given, Listings(None if cache is None else cache.directory), cache, check, io)
        except BaseException:
            # The cache has threads and files.
            if cache is not None:
                cache.close()
            raise

    def _open_all(
        self, given: Any, listings: Listings, cache: Any, check: bool, io: str
    ) -> tuple[list[RemoteShard], RemoteFiles]:
        opening = [_Opening(Storage(paths.check_type(each), self._storage_options), check, listings) for each in given]
        # All URLs at once, one request each.
        opening[0].storage.run([each.open for each in opening])
        # Pickled readers must see the same samples as before.
        if self.counts:  # a writer may have added files since the reader was first opened
            for each, count in zip(opening, self.counts, strict=True):
                each.shards = each.shards[:count]
        self.counts = tuple(len(each.shards) for each in opening)
        files: list[RemoteShard] = []
        for each in opening:
            # Datasets may differ in their schema; the files of one do not.
            self.firsts.append(len(files))
            files += each.shards
        if not files:
            raise ArgumentError(
                f"{opening[0].storage.shown}: its {manifest.NAME} lists no shards, expected at least one"
            )
        offline = sum(each.offline for each in opening)
        if cache is None:
            return files, RemoteFiles(files, None, offline)
        from ffrecord.remote.cache.cached import Cached

        return files, RemoteFiles(files, Cached(cache, files, io), offline)

    def _cache(self) -> Any:
        if self._directory is None:
            if self._limit is not None:
                raise ArgumentError("cache_limit needs cache_dir; pass both or none")
            return None
        from ffrecord.remote.cache.cache import Cache

        return Cache(self._directory, self._limit)


class _Opening:
    """One URL that is being opened.

    The name does not tell what the URL is: a dataset may also be called `x.ffr` or `dataset.json`. The kind that the
    name suggests is tried first, and then a dataset of that name.

    Attributes:
        storage: storage of the URL, or of the dataset that contains it.
        shards: the shards; empty until it is open.
        offline: whether the server did not answer, so that the listing comes from the cache.
    """

    def __init__(self, storage: Storage, check: bool, listings: Listings) -> None:
        self.storage, self._check, self._listings = storage, check, listings
        self.offline = False
        self.shards: list[RemoteShard] = []

    def open(self) -> None:
        name = urls.name_of(self.storage.url)
        if name.endswith(ffr_layout.SUFFIX):
            self._open_first(self._open_file, self._open_dataset)
        elif name == manifest.NAME:
            self._open_first(self._open_parent, self._open_dataset)
        else:
            self._open_dataset()

    def _last_listing(self, error: Exception, kind: str = DATASET) -> manifest.Manifest:
        """Return the last listing in the cache, since the server does not answer; raise `error` if there is none."""
        # The options are part of the key: another store may have the same URL.
        data = self._listings.get(self.storage.url, self.storage.options, kind)
        try:
            found = None if data is None else manifest.parse(data, self.storage.shown)
        except FormatError:  # damaged on the disk
            found = None
        if found is None:
            raise error
        message = "%s: opened by its last listing in the cache, since its server does not answer: %s"
        logger.warning(message, self.storage.shown, error)
        self.offline = True
        return found

    def _open_first(self, likely: Callable[[], None], other: Callable[[], None]) -> None:
        """Open the URL in the likely way, or else in the other. If both fail, raise the error of the likely way."""
        storage = self.storage
        try:
            likely()
        # A prefix, or a server that is away: the other kind may be known.
        except (*NOT_THERE, TransientError) as error:
            self.storage = storage
            try:
                other()
            except (OSError, FFRecordError):
                # The error of the likely kind says more.
                raise error from None

    def _open_file(self) -> None:
        storage = self.storage
        try:
            shard = open_shard(storage, check=self._check)
        except TransientError as error:
            # The cache may have all of its records.
            (found,) = self._last_listing(error, FILE).shards
            shard = shard_of_listing(storage, found, check=self._check, alone=True)
        else:
            listing = manifest.build([manifest.Shard(urls.name_of(storage.url), *shard.facts)])
            self._listings.put(msgspec.json.encode(listing), storage.url, storage.options, FILE)
        self.shards = [shard]

    def _open_parent(self) -> None:
        self.storage = Storage(urls.parent_of(self.storage.url), self.storage.options)
        self._open_dataset()

    def _open_dataset(self) -> None:
        try:
            found = self._parse_listing()
        except FormatError:  # it may have been damaged on the way: read it once more
            found = self._parse_listing()
        if found is None:
            raise FormatError(
                f"{self.storage.shown}: its {manifest.NAME} was written by another program, expected one of ffrecord"
            )
        self.shards = [shard_of_listing(self.storage, shard, check=self._check) for shard in found.shards]

    def _parse_listing(self) -> manifest.Manifest | None:
        # Without secrets, for messages.
        name = urls.join_url(self.storage.shown, manifest.NAME)
        try:
            data = self.storage.get(manifest.NAME, manifest.SIZE_MAX).data
        # Only if the server is away: "missing" is an answer.
        except TransientError as error:
            return self._last_listing(error)
        except MissingFileError as error:
            why = "" if NO_BUCKET in str(error.strerror) else self._why()
            raise MissingFileError(ENOENT, f"{error.strerror}{why}", error.filename) from None
        try:
            found = manifest.parse(bytes(data), name)
            if found is not None:
                self._listings.put(bytes(data), self.storage.url, self.storage.options)
            return found
        except FormatError as error:
            # Many servers answer 200 with a page to log in.
            if not bytes(data).lstrip().startswith(b"<"):
                raise
            raise FormatError(
                f"{error}: the server sent a web page, such as one to log in, expected a {manifest.NAME}"
            ) from None

    def _why(self) -> str:
        if self.storage.exists(leftovers.INSIDE):
            return f"; {UNFINISHED}"
        return (
            f"; expected the URL of a dataset with a {manifest.NAME}, of a {ffr_layout.SUFFIX} file, or a list of "
            "them; copy files of other formats to this machine first"
        )
