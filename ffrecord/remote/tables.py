"""Tables of shards: parsing, and a bounded memory of the last used ones."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, plural
from ffrecord.format import ffr_layout
from ffrecord.system.forks import renew_in_children

K = TypeVar("K")


class ShardFacts(NamedTuple):
    """The numbers that identify a shard.

    Attributes:
        n: samples.
        size: bytes.
        crc: CRC-32 of the tables; 0 in old files that have none.
    """

    n: int
    size: int
    crc: int


class Tables(NamedTuple):
    """Positions and checksums of the records of a shard.

    Attributes:
        bounds: int64 [n + 1], offset of each record, bytes; the last entry is the size of the shard.
        checksums: uint32 [n], CRC-32 of each record.
    """

    bounds: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]

    @property
    def data_start(self) -> int:
        """Offset of the first record, bytes."""
        return int(self.bounds[0])


def parse(data: Any, n: int, size: int, path: str, *, check: bool) -> Tables:
    """Parse the tables at the start of a shard.

    Args:
        data: first bytes of the shard, at least up to `ffr_layout.tables_end(n)`.
        n, size: samples and bytes of the shard.
        check: compare their CRC-32, if there is one.

    Raises:
        ChecksumError: they do not match their CRC-32.
        FormatError: their numbers contradict each other; the message is without the path.
    """
    crc = int.from_bytes(memoryview(data)[: ffr_layout.CHECKED_FROM], "little")
    computed = crc32(memoryview(data)[ffr_layout.CHECKED_FROM : ffr_layout.tables_end(n)]) if check else crc
    if crc not in (0, computed):
        raise ChecksumError(
            f"{path}: checksum of metadata mismatch: CRC-32 {computed:#010x} of the tables of {plural(n, 'sample')}, "
            f"stored {crc:#010x}",
            path=path,
            stored=crc,
            computed=computed,
        )
    bounds = np.empty(n + 1, np.int64)
    bounds[:n] = np.frombuffer(data, ffr_layout.OFFSET, n, ffr_layout.offsets_start(n))
    bounds[n] = size
    # Always checked: also with a valid or missing checksum, no read may go outside the shard.
    ffr_layout.check_offsets(bounds[:n], size)
    return Tables(bounds, np.frombuffer(data, ffr_layout.CRC, n, ffr_layout.PREFIX.size).copy())


class Holder(Generic[K]):
    """The last used tables, with `most` bytes together, but at least those of one shard.

    Args:
        most: limit in bytes.
        load: reads the tables of a shard; for each shard, one thread at a time calls it.
    """

    def __init__(self, most: int, load: Callable[[K], Tables]) -> None:
        self._most, self._load = most, load
        self._held: OrderedDict[K, Tables] = OrderedDict()
        self._bytes = 0
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock and forget running loads: in a forked child, their threads do not exist."""
        self._lock = threading.Lock()
        self._loading: dict[K, threading.Event] = {}

    def get_held(self, key: K) -> Tables | None:
        """Return the tables of a shard if they are in memory, else None."""
        with self._lock:
            tables = self._held.get(key)
            if tables is not None:
                self._held.move_to_end(key)
            return tables

    def get(self, key: K) -> Tables:
        """Return the tables of a shard; load them if needed.

        Raises:
            The exceptions of `load`.
        """
        while (tables := self.get_held(key)) is None:
            own = threading.Event()
            with self._lock:
                loading = self._loading.setdefault(key, own)
            if loading is own:
                return self._load_and_keep(key, own)
            loading.wait()  # another thread loads it; if that fails, this thread tries itself and raises its own error
        return tables

    def _load_and_keep(self, key: K, own: threading.Event) -> Tables:
        try:
            tables = self._load(key)
            self._keep(key, tables)
            return tables
        finally:
            with self._lock:
                self._loading.pop(key, None)
            own.set()

    def _keep(self, key: K, tables: Tables) -> None:
        with self._lock:
            # The key may be here: between `get_held` and `_loading`, another thread may have loaded it completely.
            self._bytes += _bytes(tables) - (_bytes(self._held[key]) if key in self._held else 0)
            self._held[key] = tables
            while self._bytes > self._most and len(self._held) > 1:
                self._bytes -= _bytes(self._held.popitem(last=False)[1])


def _bytes(tables: Tables) -> int:
    return tables.bounds.nbytes + tables.checksums.nbytes
