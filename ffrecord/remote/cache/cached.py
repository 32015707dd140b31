"""The cache as the engine of remote batches sees it: records that are in it, and records to put there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ffrecord._crc import crc32
from ffrecord.reading.batch_forms import Array, Form, Out
from ffrecord.reading.stats import Counters
from ffrecord.reading.store import Indices
from ffrecord.remote.cache.cache import Cache
from ffrecord.remote.cache.local import Local, Read
from ffrecord.remote.ranges import parts
from ffrecord.remote.shard import RemoteShard


class Cached:
    """The copies of the shards of one reader. Complete ones are read like local files.

    Args:
        cache: cache of the copies; closed with this object.
        files: the shards; each gets its copy.
        io: way to read complete copies.
    """

    def __init__(self, cache: Cache, files: Sequence[RemoteShard], io: str) -> None:
        self._cache, self._files = cache, files
        for file in files:
            # Each shard knows its copy, so that tables are kept and found there too.
            file.copy = cache.file(file.path, file.facts)
        self._local = Local(cache, files, io)
        self._counted = Counters()

    def close(self) -> None:
        """Close all files."""
        self._local.close()
        self._cache.close()

    @property
    def batches(self) -> int:
        """Number of batches that `read` and `begin` read."""
        return self._local.sums()["batches"]

    def counters(self) -> dict[str, int]:
        """Return the counters of `read` and `begin`, with "probed", "missed" and "cached_bytes".

        "probed" counts the records that were looked for, "missed" those that were not here, "cached_bytes" the bytes of
        the others.
        """
        direct = dict(self._local.sums())
        # They are counted by another name.
        direct.pop("batches", None)
        records, size = direct.get("records", 0), direct.get("bytes", 0)
        looked = {
            "probed": self._counted["probed"] + records,
            "missed": self._counted["missed"],
            "cached_bytes": self._counted["bytes"] + size,
        }
        return direct | looked

    def engines(self) -> list[tuple[str, int, str, dict[str, Any]]]:
        """Return the ways in which complete copies are read, in the form of `_engine.Files.counters`."""
        return self._local.engines()

    def read(self, indices: Indices, form: Form, out: Out) -> Read | None:
        """Read a batch if all of it is in complete copies; else return None.

        The result is that of `_engine.Files.read`.

        Raises:
            IndexError: see `_engine.Files.read`.
        """
        self._cache.tick()
        return self._local.read(indices, form, out)

    def begin(
        self, indices: Indices, form: Form, out: Out, threads: int, sequential: bool
    ) -> Callable[[], Read | None] | None:
        """Begin to read a batch if all of it is in complete copies; else return None.

        Returns:
            A function that waits for the batch. It returns None if copies were damaged.
        """
        self._cache.tick()
        return self._local.begin(indices, form, out, threads, sequential)

    def fill(self, files: Indices, locals: Indices, records: list[Array | None]) -> None:
        """Put the records that are in the cache into `records`.

        Args:
            files, locals: number of the shard of each record, and its number there; records of a shard stand together.
        """
        self._local.fill(files, locals, records)
        # Complete copies have been read; these are in copies that are being filled.
        left = np.flatnonzero([record is None for record in records])
        for number, part in parts(files[left]):
            places = left[part]
            found = self._files[number].copy.read(locals[places])
            for place, record in zip(places.tolist(), found, strict=True):
                records[place] = record
        here = [len(record) for record in records if record is not None]
        # Counted here, because `fill` serves batches that are counted by the caller.
        self._counted.add(probed=len(records), missed=len(records) - len(here), bytes=sum(here))

    def absent(self, file: int, locals: Indices) -> Indices:
        """Return those records of a shard that are not known to be here."""
        return self._files[file].copy.absent(locals)  # type: ignore[no-any-return]

    def store(self, file: int, locals: Indices, records: Sequence[Array]) -> None:
        """Keep records of a shard, which match their CRC-32."""
        shard = self._files[file]
        # A copy begins with its tables: without them no record has a place.
        if shard.copy.needs_tables:
            shard.keep_tables(shard.tables)
        shard.copy.store(locals, records)

    def store_span(self, file: int, start: int, data: Array) -> None:
        """Keep the records that are whole in the bytes from offset `start` of a shard, and match their CRC-32."""
        shard = self._files[file]
        if shard.copy.needs_tables:
            shard.keep_tables(shard.tables)
        self.store_others(file, np.empty(0, np.int64), start, data)

    def store_others(self, file: int, locals: Indices, start: int, data: Array) -> None:
        """Keep records that lie between the requested ones and came with them, though no batch needs them now.

        Args:
            file: number of their shard.
            locals: numbers of the requested records, ascending.
            start: offset of `data` in the shard, bytes.
        """
        shard = self._files[file]
        # The tables were refused, so there is no copy.
        if shard.copy.needs_tables:
            return
        bounds, checksums = shard.tables
        # Records that lie whole in the data: from the first that begins here to the last that ends here.
        low, high = np.searchsorted(bounds, start), np.searchsorted(bounds, start + len(data), "right") - 1
        # Nothing but what was asked for.
        if high - low <= len(locals):
            return
        # Only what is missing: comparing takes time.
        others = shard.copy.missing_of(np.setdiff1d(np.arange(low, high), locals, assume_unique=True))
        spans = zip(
            others.tolist(), (bounds[others] - start).tolist(), (bounds[others + 1] - start).tolist(), strict=True
        )
        records = {i: data[begin:end] for i, begin, end in spans}
        # They have not been checked for any batch.
        good = [i for i, record in records.items() if crc32(record.data) == checksums[i]]
        shard.copy.store(np.array(good, np.int64), [records[i] for i in good])
