"""The objects below the URL of a dataset that is being written: shards, its manifest, and the marker of who writes."""

import contextlib
import copy
import errno
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TypeVar

import msgspec

from ffrecord.errors import ArgumentError, ChangedError, MissingFileError, RemoteError, TransientError, file_error
from ffrecord.format import manifest
from ffrecord.format.leftovers import INSIDE
from ffrecord.format.manifest import Manifest, Shard
from ffrecord.remote.client import Client, FetchedObject
from ffrecord.remote.connecting import connect, options_of
from ffrecord.remote.errors import NO_BUCKET
from ffrecord.remote.retrying import retry
from ffrecord.remote.storage import Storage
from ffrecord.system import signals, urls

T = TypeVar("T")

MARKER = INSIDE  # named as the part directory of a write inside of its target
MARKER_MAX = 1 << 16  # bytes
SLOWEST = 1 << 20  # bytes a second at which a shard may go up and be tried again for all that
DELETES = 8  # at once
TIDYING = 60.0  # seconds to remove what is left of a write
LOOK = 0.25  # seconds between two looks for a Ctrl-C that waits
CHECKSUM = "checksum_algorithm"  # of obstore's S3: then the store compares what came with what was sent


class FoundObjects(NamedTuple):
    """An object that is there: bytes, and what tells this version from others if the store says that."""

    size: int
    etag: str | None


class Marker(msgspec.Struct):
    """Who writes; for people, but for the token."""

    token: str
    host: str = ""
    process: int = 0
    begun: str = ""


class Objects:
    """What is below a URL.

    Args:
        url: of the dataset; not of an HTTP server, which takes nothing.
        storage_options: as a reader takes them.

    Attributes:
        label: the URL without what is secret.

    Raises:
        ValueError: nothing can be written there.
        ImportError: a package is missing; names the extra.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self.label = urls.redact(url).rstrip("/")
        if urls.scheme_of(url) in ("http", "https"):
            raise ArgumentError(f"{self.label}: an HTTP server takes no datasets; write to s3://, gs:// or az://")
        options = options_of(storage_options)
        self._tries, self._seconds = options.tries, options.seconds
        checksum = {} if options.backend == "fsspec" else _checksummed(url, options.others)
        self._end = math.inf  # of the time in which requests are made again
        self._url, self._options = url, {**checksum, **(storage_options or {})}
        _, self._root = self._connected()
        if not self._root:
            raise ArgumentError(f"{self.label}: names no place in the bucket: a dataset needs one of its own")

    def __repr__(self) -> str:
        return f"<Objects below {self.label}>"

    def _connected(self) -> tuple[Client, str]:
        return connect(self._url, self._options)  # those of this process, whoever made this object

    def hurried(self) -> "Objects":
        """The same for a clean-up: all requests together are made again for TIDYING seconds from now on, no longer."""
        found = copy.copy(self)
        found._end = time.monotonic() + TIDYING
        return found

    def _asked(self, ask: Callable[[Client], T]) -> T:
        client, _ = self._connected()
        seconds = min(self._seconds, self._end - time.monotonic())
        return retry(partial(ask, client), self._tries, seconds, _pause)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def url(self, name: str) -> str:
        """What an object is called in messages."""
        return urls.redact(urls.join_url(self._url, name))

    def listing(self) -> dict[str, FoundObjects]:
        """All that is there, by the names below the URL.

        Raises:
            RemoteError, MissingFileError: it cannot be had; there is no such bucket.
        """
        return self._asked(self._listing)

    def _listing(self, client: Client) -> dict[str, FoundObjects]:
        start = len(self._root.strip("/")) + 1
        try:
            return {path.strip("/")[start:]: FoundObjects(size, etag) for path, size, etag in client.list(self._root)}
        except MissingFileError as error:
            if NO_BUCKET in str(error):
                raise
            return {}  # as some stores say it of a prefix

    def get(self, name: str, most: int) -> FetchedObject | None:
        """An object of at most `most` bytes; None for none."""
        try:
            return self._asked(lambda client: client.get(self._path(name), most))
        except MissingFileError as error:
            if NO_BUCKET in str(error):
                raise
            return None

    def storage(self) -> Storage:
        """The same, as a reader has it."""
        return Storage(self._url, self._options)

    # The manifest

    def manifest(self) -> tuple[Manifest, str | None] | None:
        """(what `dataset.json` says, its etag); None for none.

        Raises:
            FormatError: it is damaged, or another program's.
        """
        found = self.get(manifest.NAME, manifest.SIZE_MAX)
        if found is None:
            return None
        listing = manifest.parse(bytes(found.data), self.url(manifest.NAME))
        if listing is None:
            sentence = f"{self.url(manifest.NAME)} is another program's"
            raise file_error(errno.EEXIST, sentence, self.url(manifest.NAME))
        # Ranges by fsspec come without.
        etag = found.etag or self._asked(lambda client: client.head(self._path(manifest.NAME)))[1]
        return listing, etag

    def fingerprint(self) -> str | None:
        """That of the manifest that is there; None for none."""
        found = self.manifest()
        return None if found is None else found[0].fingerprint

    def put_manifest(self, data: bytes, before: str | None, after: str) -> None:
        """Have the dataset appear, or become the one that it is to be.

        Args:
            data: of the manifest.
            before: fingerprint of the one that this replaces; None for none.
            after: its own.

        Raises:
            FileExistsError (also a RuntimeError): there is another one by now.
            RemoteError: it could not be written; the dataset is as before, unless the message says that nobody knows.
        """
        found = self.manifest()
        if (None if found is None else found[0].fingerprint) != before:
            raise self._changed()
        etag = None if found is None else found[1]
        try:
            if found is not None and etag is None:
                self._asked(lambda client: client.put(self._path(manifest.NAME), data))
            else:
                self._asked(lambda client: client.put(self._path(manifest.NAME), data, replaces=etag))
        except RemoteError as error:
            # Of an answer that was lost nobody knows whether it was yes; and the second try is refused because of it.
            if self._is_there(after, error):
                return
            raise self._changed() if isinstance(error, ChangedError) else error from None
        if not self._is_there(after, None):
            raise self._changed()

    def _is_there(self, after: str, error: RemoteError | None) -> bool:
        try:
            return self.fingerprint() == after
        except RemoteError as unknown:
            sentence = f"{self.url(manifest.NAME)}: whether it was written is not known; the same call finds out"
            raise TransientError(f"{sentence}. {error or unknown}") from None

    def _changed(self) -> OSError:
        sentence = f"{self.label}: nothing was published: another writer has changed its {manifest.NAME} meanwhile"
        return file_error(errno.EEXIST, sentence, self.label)

    # The marker

    def marker(self) -> Marker | None:
        """Who writes, or did when it was interrupted; None for nobody."""
        found = self.get(MARKER, MARKER_MAX)
        if found is None:
            return None
        try:
            return msgspec.json.decode(bytes(found.data), type=Marker)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Marker("")

    def check_free(self, token: str | None) -> bool:
        """Whether the marker of this token is there.

        Raises:
            BlockingIOError (also a RuntimeError): that of another one is.
        """
        found = self.marker()
        if found is None or found.token == token:
            return found is not None
        raise self._taken(found)

    def claim(self, token: str) -> None:
        """Put the marker of this token, unless it is there.

        Raises:
            BlockingIOError (also a RuntimeError): that of another one is.
        """
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        data = msgspec.json.encode(Marker(token, socket.gethostname(), os.getpid(), begun))
        # It may be there by our own first try, the answer of which was lost.
        with contextlib.suppress(ChangedError):
            self._asked(lambda client: client.put(self._path(MARKER), data, replaces=None))
        # Where a store compares nothing, of two writers at once the later one has its marker there.
        if not self.check_free(token):
            raise RemoteError(f"{self.url(MARKER)}: written, but not there")

    def release(self, token: str) -> None:
        """Remove the marker of this token, if it is there."""
        found = self.marker()
        if found is not None and found.token == token:
            self.delete([MARKER])

    def _taken(self, found: Marker) -> OSError:
        who = f"process {found.process} on {found.host}, begun {found.begun}" if found.token else "nobody knows whom"
        sentence = (
            f"{self.label}: a write of it is going on, or was interrupted: by {who}. A DatasetWriter goes on by the "
            f"same call there. If none is to, remove {self.url(MARKER)}, and the shards that no {manifest.NAME} lists"
        )
        return file_error(errno.EWOULDBLOCK, sentence, self.label)

    # Shards

    def send(self, shard: Shard, local: str, given_up: Event) -> FoundObjects:
        """Copy a shard there, and see that it is.

        Raises:
            RemoteError: in vain, or given up.
        """

        etags: list[str | None] = []  # of what was sent and is to be seen there

        def attempt() -> FoundObjects:
            client, _ = self._connected()
            if given_up.is_set():
                raise RemoteError(f"{self.url(shard.name)}: given up")
            if not etags:
                etags.append(client.put_file(self._path(shard.name), local, stop=given_up.is_set))
            found = FoundObjects(*client.head(self._path(shard.name)))
            if found.size != shard.size or not same(etags[0], found.etag):
                raise TransientError(
                    f"{self.url(shard.name)}: {found.size} bytes of version {found.etag} are there, sent were "
                    f"{shard.size} of {etags.pop()}"
                )
            return found

        return retry(attempt, self._tries, self._seconds + shard.size / SLOWEST, given_up.wait)

    def delete_unlisted(self, names: Collection[str]) -> None:
        """Remove shards, but for those that the manifest lists which is there now: they are of a dataset.

        Raises:
            RemoteError: as `delete`.
            RemoteError, FormatError, OSError: that manifest cannot be read; nothing was removed.
        """
        if not names:
            return
        found = self.manifest()
        listed = frozenset() if found is None else {shard.name for shard in found[0].shards}
        self.delete([name for name in names if name not in listed])

    def delete(self, names: Collection[str]) -> None:
        """Remove objects.

        Raises:
            RemoteError: one cannot be; or not all of them in time.
        """
        hurried = self if self._end < math.inf else self.hurried()

        def remove(name: str) -> None:
            if time.monotonic() > hurried._end or signals.is_signal_waiting():
                raise TransientError(f"{self.url(name)}: could not be removed in time, nor others")
            with contextlib.suppress(MissingFileError):
                hurried._asked(lambda client: client.delete(self._path(name)))

        if names:
            with ThreadPoolExecutor(min(DELETES, len(names))) as pool:
                list(pool.map(remove, names))


def _pause(seconds: float) -> bool:
    """Wait before a request is made again; true if Ctrl-C waits for the end of it: then it is not."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not signals.is_signal_waiting():
        time.sleep(min(left, LOOK))
    return signals.is_signal_waiting()


def same(one: str | None, other: str | None) -> bool:
    """Whether two etags do not tell two versions apart; None tells nothing."""
    return one is None or other is None or _bare(one) == _bare(other)


def _bare(etag: str) -> str:
    # Azure lists them without quotes.
    return etag.removeprefix("W/").strip('"')


def _checksummed(url: str, others: Mapping[str, Any]) -> dict[str, str]:
    """What has the store compare the bytes that arrive, unless the user says how."""
    given = {key.lower().removeprefix("aws_") for key in others}
    ours = urls.scheme_of(url) in ("s3", "s3a") and CHECKSUM not in given
    return {CHECKSUM: "SHA256"} if ours and "AWS_CHECKSUM_ALGORITHM" not in os.environ else {}
