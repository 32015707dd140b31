"""The objects below the URL of a dataset being written: shards, manifest, and the marker of the writer."""

import contextlib
import copy
import errno
import math
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
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
from ffrecord.system.threads import map_in_threads

T = TypeVar("T")

MARKER = INSIDE  # the name of a part directory inside its target
MARKER_MAX = 1 << 16  # bytes
SLOWEST = 1 << 20  # bytes a second; an upload this slow still has time for retries
DELETES = 8  # at once
TIDYING = 60.0  # seconds to remove the objects of a write
LOOK = 0.25  # seconds between two checks for a waiting Ctrl-C
CHECKSUM = "checksum_algorithm"  # option of obstore's S3: the store then verifies the received bytes


class FoundObjects(NamedTuple):
    """Size in bytes and etag of an object; the etag is None if the store gives none."""

    size: int
    etag: str | None


class Marker(msgspec.Struct):
    """The marker of a writer: the token identifies it, the rest is for people."""

    token: str
    host: str = ""
    process: int = 0
    begun: str = ""


class Objects:
    """The objects below a URL.

    Args:
        url: URL of the dataset, not of an HTTP server, which takes no uploads.
        storage_options: options as a reader takes them.

    Attributes:
        label: the URL without secrets.

    Raises:
        ValueError: the URL cannot be written to.
        ImportError: a package is missing; names the extra.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self.label = urls.redact(url).rstrip("/")
        if urls.scheme_of(url) in ("http", "https"):
            raise ArgumentError(f"{self.label}: datasets cannot be written by HTTP; write to s3://, gs:// or az://")
        options = options_of(storage_options)
        self._tries, self._seconds = options.tries, options.seconds
        # An option of obstore; fsspec would refuse it.
        checksum = {} if options.backend == "fsspec" else _checksum_options(url, options.others)
        self._deadline = math.inf  # no retries after this time
        self._url, self._options = url, {**checksum, **(storage_options or {})}
        _, self._root = self._connect()
        # The root of a bucket would make every other object of it look like part of the dataset.
        if not self._root:
            raise ArgumentError(f"{self.label}: it names only a bucket; add a name for the dataset")

    def __repr__(self) -> str:
        return f"<Objects below {self.label}>"

    def _connect(self) -> tuple[Client, str]:
        return connect(self._url, self._options)  # clients of this process, also in a forked child

    def with_deadline(self) -> "Objects":
        """Return a copy for a clean-up: all its requests together are retried for at most TIDYING seconds from now
        on.
        """
        found = copy.copy(self)
        found._deadline = time.monotonic() + TIDYING
        return found

    def _request(self, ask: Callable[[Client], T]) -> T:
        client, _ = self._connect()
        # A clean-up must end soon, also if the network is gone.
        seconds = min(self._seconds, self._deadline - time.monotonic())
        return retry(partial(ask, client), self._tries, seconds, _pause)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def url(self, name: str) -> str:
        """Return the URL of an object for messages."""
        return urls.redact(urls.join_url(self._url, name))

    def listing(self) -> dict[str, FoundObjects]:
        """Return all objects by their names below the URL.

        Raises:
            RemoteError, MissingFileError: the request failed, or there is no such bucket.
        """
        return self._request(self._listing)

    def _listing(self, client: Client) -> dict[str, FoundObjects]:
        start = len(self._root.strip("/")) + 1
        try:
            # Stores differ in leading slashes.
            return {path.strip("/")[start:]: FoundObjects(size, etag) for path, size, etag in client.list(self._root)}
        except MissingFileError as error:
            # An empty prefix and a missing bucket both answer 404.
            if NO_BUCKET in str(error):
                raise
            return {}  # some stores report an empty prefix as missing

    def get(self, name: str, most: int) -> FetchedObject | None:
        """Return an object of at most `most` bytes; None if there is none."""
        try:
            # `most`: an object from anywhere must not fill the memory.
            return self._request(lambda client: client.get(self._path(name), most))
        except MissingFileError as error:
            if NO_BUCKET in str(error):
                raise
            return None

    def storage(self) -> Storage:
        """Return the storage of these objects, as a reader uses it."""
        return Storage(self._url, self._options)

    # The manifest

    def manifest(self) -> tuple[Manifest, str | None] | None:
        """Return (manifest, its etag), or None if there is none.

        Raises:
            FormatError: it is damaged, or another program's.
        """
        found = self.get(manifest.NAME, manifest.SIZE_MAX)
        if found is None:
            return None
        listing = manifest.parse(bytes(found.data), self.url(manifest.NAME))
        if listing is None:
            sentence = f"{self.url(manifest.NAME)} already exists and is of another program"
            raise file_error(errno.EEXIST, sentence, self.url(manifest.NAME))
        # Ranges read by fsspec have no etag.
        # Without an etag the PUT could not be conditional.
        etag = found.etag or self._request(lambda client: client.head(self._path(manifest.NAME)))[1]
        return listing, etag

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the manifest; None if there is none."""
        found = self.manifest()
        return None if found is None else found[0].fingerprint

    def put_manifest(self, data: bytes, before: str | None, after: str) -> None:
        """Write the manifest, which makes the dataset appear or replaces its old manifest.

        Args:
            data: bytes of the manifest.
            before: fingerprint of the manifest that it replaces; None for none.
            after: fingerprint of the new manifest.

        Raises:
            FileExistsError (also a RuntimeError): there is another manifest by now.
            RemoteError: it could not be written. The dataset is as before, unless the message says that its state is
                unknown.
        """
        found = self.manifest()
        # Compare before the request too: this error is clearer than a refused one.
        if (None if found is None else found[0].fingerprint) != before:
            raise self._changed_error()
        etag = None if found is None else found[1]
        try:
            # Neither backend nor store knows etags: the check before is all that can be done.
            if found is not None and etag is None:
                self._request(lambda client: client.put(self._path(manifest.NAME), data))
            else:
                self._request(lambda client: client.put(self._path(manifest.NAME), data, replaces=etag))
        except RemoteError as error:
            # If the first answer was lost, the retry may be refused although the first try succeeded.
            if self._is_there(after, error):
                return
            raise self._changed_error() if isinstance(error, ChangedError) else error from None
        # A store without conditional writes may have taken two manifests; the last one counts.
        if not self._is_there(after, None):
            raise self._changed_error()

    def _is_there(self, after: str, error: RemoteError | None) -> bool:
        try:
            return self.fingerprint() == after
        except RemoteError as unknown:
            # It matters: the dataset may be complete, and deleting its shards would destroy it.
            sentence = (
                f"{self.url(manifest.NAME)}: it is not known whether it was written; repeat the same call to find out"
            )
            raise TransientError(f"{sentence}. {error or unknown}") from None

    def _changed_error(self) -> OSError:
        changed = f"another process has changed its {manifest.NAME} during this write"
        sentence = f"{self.label}: nothing was published: {changed}"
        return file_error(errno.EEXIST, sentence, self.label)

    # The marker

    def marker(self) -> Marker | None:
        """Return the marker of a writer at work or interrupted; None if there is none."""
        found = self.get(MARKER, MARKER_MAX)
        if found is None:
            return None
        try:
            return msgspec.json.decode(bytes(found.data), type=Marker)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Damaged, or of another program: a token that matches nobody, so it is never removed by us.
            return Marker("")

    def check_free(self, token: str | None) -> bool:
        """Return whether the marker of this token is there.

        Raises:
            BlockingIOError (also a RuntimeError): the marker of another writer is there.
        """
        found = self.marker()
        if found is None or found.token == token:
            return found is not None
        raise self._claimed_error(found)

    def claim(self, token: str) -> None:
        """Put the marker of this token, unless it is there.

        Raises:
            BlockingIOError (also a RuntimeError): the marker of another writer is there.
        """
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        data = msgspec.json.encode(Marker(token, socket.gethostname(), os.getpid(), begun))
        # Our own first try may have put it, if only its answer was lost.
        with contextlib.suppress(ChangedError):
            self._request(lambda client: client.put(self._path(MARKER), data, replaces=None))
        # A store without conditional writes keeps the later marker of two writers at once: so read it back.
        if not self.check_free(token):
            raise RemoteError(
                f"{self.url(MARKER)}: the marker of this write is gone; let nobody else write there, then repeat it"
            )

    def release(self, token: str) -> None:
        """Remove the marker of this token, if it is there."""
        # Not another writer's, even if ours was removed by hand.
        found = self.marker()
        if found is not None and found.token == token:
            self.delete([MARKER])

    def _claimed_error(self, found: Marker) -> OSError:
        who = f"process {found.process} on {found.host}, begun {found.begun}" if found.token else "an unknown process"
        sentence = (
            f"{self.label}: another write of it is going on, or was interrupted: by {who}. Repeat the same call of "
            f"DatasetWriter there to continue it, or remove {self.url(MARKER)} and the shards that no {manifest.NAME} "
            "lists"
        )
        return file_error(errno.EWOULDBLOCK, sentence, self.label)

    # Shards

    def send(self, shard: Shard, local: str, given_up: Event) -> FoundObjects:
        """Upload a shard, and verify size and etag of the object.

        Raises:
            RemoteError: all tries failed, or the upload was cancelled.
        """

        etags: list[str | None] = []  # etag of the uploaded object, to compare with the one there

        def attempt() -> FoundObjects:
            client, _ = self._connect()
            if given_up.is_set():
                raise RemoteError(f"{self.url(shard.name)}: this write has ended; repeat the call")
            # Once sent, only the look at the object is repeated; a mismatch sends it again.
            if not etags:
                etags.append(client.put_file(self._path(shard.name), local, stop=given_up.is_set))
            found = FoundObjects(*client.head(self._path(shard.name)))
            if found.size != shard.size or not same_etag(etags[0], found.etag):
                raise TransientError(
                    f"{self.url(shard.name)}: it has {found.size} bytes with etag {found.etag}, but {shard.size} "
                    f"bytes with etag {etags.pop()} were sent"
                )
            return found

        # A large shard may take longer than all retries of a small request.
        return retry(attempt, self._tries, self._seconds + shard.size / SLOWEST, given_up.wait)

    def delete_unlisted(self, names: Collection[str]) -> None:
        """Remove shards except those that the current manifest lists, because they belong to a dataset.

        Raises:
            RemoteError: a request to delete failed, or not all were done in time.
            RemoteError, FormatError, OSError: the manifest cannot be read; nothing was removed.
        """
        if not names:
            return
        found = self.manifest()
        listed = frozenset() if found is None else {shard.name for shard in found[0].shards}
        self.delete([name for name in names if name not in listed])

    def delete(self, names: Collection[str]) -> None:
        """Remove objects.

        Raises:
            RemoteError: a request failed, or not all were done in time.
        """
        # Not even many objects together may hold up the end of a program.
        with_deadline = self if self._deadline < math.inf else self.with_deadline()

        def remove(name: str) -> None:
            # A second Ctrl-C means hurry: the next write removes the rest.
            if time.monotonic() > with_deadline._deadline or signals.is_signal_waiting():
                raise TransientError(f"{self.url(name)}: it and others could not be removed in time")
            # Another try may have removed it, if only the answer was lost.
            with contextlib.suppress(MissingFileError):
                with_deadline._request(lambda client: client.delete(self._path(name)))

        map_in_threads(remove, names, DELETES)


def _pause(seconds: float) -> bool:
    """Wait before a retry; return True, and skip the retry, if a Ctrl-C is waiting."""
    end = time.monotonic() + seconds
    # Short naps, so that Ctrl-C does not wait for the end of a long pause.
    while (left := end - time.monotonic()) > 0 and not signals.is_signal_waiting():
        time.sleep(min(left, LOOK))
    return signals.is_signal_waiting()


def same_etag(one: str | None, other: str | None) -> bool:
    """Return whether two etags may belong to the same version; None matches all."""
    # HTTP allows weak etags, and listings and HEAD of one store write them differently.
    return one is None or other is None or _bare_etag(one) == _bare_etag(other)


def _bare_etag(etag: str) -> str:
    # Azure lists etags without quotes.
    return etag.removeprefix("W/").strip('"')


def _checksum_options(url: str, others: Mapping[str, Any]) -> dict[str, str]:
    """Return options that make the store verify the received bytes, unless the user chose some."""
    # obstore takes its option with and without the prefix, in any case.
    given = {key.lower().removeprefix("aws_") for key in others}
    ours = urls.scheme_of(url) in ("s3", "s3a") and CHECKSUM not in given
    # The environment counts for obstore too, so the user may have chosen there.
    return {CHECKSUM: "SHA256"} if ours and "AWS_CHECKSUM_ALGORITHM" not in os.environ else {}
