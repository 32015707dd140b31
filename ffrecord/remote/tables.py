"""Tables of shards: taken from their bytes, and held in memory, but not more than there is room for."""

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
    """What tells a shard from others.

    Attributes:
        n: samples.
        size: bytes.
        crc: CRC-32 of the tables; 0 in old files that have none.
    """

    n: int
    size: int
    crc: int


class Tables(NamedTuple):
    """Where the records of a shard lie.

    Attributes:
        bounds: int64 [n + 1], offset of each, bytes; the last entry is the size of the shard.
        checksums: uint32 [n], CRC-32 of each.
    """

    bounds: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]

    @property
    def data_start(self) -> int:
        """Offset of the first record, bytes."""
        return int(self.bounds[0])


def parse(data: Any, n: int, size: int, path: str, *, check: bool) -> Tables:
    """The tables at the start of a shard.

    Args:
        data: bytes of it from its start, up to `ffr_layout.tables_end(n)` at least.
        n, size: samples and bytes of the shard.
        check: compare their CRC-32, if there is one.

    Raises:
        ChecksumError: they do not match it.
        FormatError: without the path: their numbers contradict each other.
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
    # Whatever their checksum is: what is asked for lies in the shard.
    ffr_layout.check_offsets(bounds[:n], size)
    return Tables(bounds, np.frombuffer(data, ffr_layout.CRC, n, ffr_layout.PREFIX.size).copy())


class Holder(Generic[K]):
    """The tables that were used last, of `most` bytes together, or those of one shard.

    Args:
        most: bytes.
        load: fetches those of a shard; called by one thread at a time for each.
    """

    def __init__(self, most: int, load: Callable[[K], Tables]) -> None:
        self._most, self._load = most, load
        self._held: OrderedDict[K, Tables] = OrderedDict()
        self._bytes = 0
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Forget what others load: in a forked child, where they are not."""
        self._lock = threading.Lock()
        self._loading: dict[K, threading.Event] = {}

    def held(self, key: K) -> Tables | None:
        """Those of a shard, if they are here."""
        with self._lock:
            tables = self._held.get(key)
            if tables is not None:
                self._held.move_to_end(key)
            return tables

    def get(self, key: K) -> Tables:
        """Those of a shard, fetched if need be.

        Raises:
            What `load` raises.
        """
        while (tables := self.held(key)) is None:
            own = threading.Event()
            with self._lock:
                loading = self._loading.setdefault(key, own)
            if loading is own:
                return self._loaded(key, own)
            loading.wait()  # for another thread; if that failed, this one will say why
        return tables

    def _loaded(self, key: K, own: threading.Event) -> Tables:
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
            # It may be here by now: between a look and `_loading` another thread may have begun, and ended.
            self._bytes += _bytes(tables) - (_bytes(self._held[key]) if key in self._held else 0)
            self._held[key] = tables
            while self._bytes > self._most and len(self._held) > 1:
                self._bytes -= _bytes(self._held.popitem(last=False)[1])


def _bytes(tables: Tables) -> int:
    return tables.bounds.nbytes + tables.checksums.nbytes
