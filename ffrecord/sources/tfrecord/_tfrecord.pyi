"""The records of a TFRecord: one pass over a file, or a stream, from record to record."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ffrecord.kernels._memory import Mapping

HEADER: int
"""Bytes before a record: its length, and the masked CRC-32C of that."""
FOOTER: int
"""Bytes after it: its own masked CRC-32C."""

# Kinds of ends of a chain.
END: int
CUT: int
"""The last record, or its checksum, is not all there."""
TORN: int
"""Less is left than a length with its checksum."""
WRONG: int
"""A length does not match its checksum: it is unknown where the next record is."""

class Chain:
    """The records of one file or stream, each found by the length of the one before.

    Args:
        check: compare lengths with their checksums.
        size: bytes of the file, beyond which no record may reach; -1 for a stream.

    Attributes:
        n: number of complete records found.
        ending: 0 while it goes on, then END, CUT, TORN or WRONG.
        at: offset of the next header, or of the header that ended the chain, bytes.
        length: length in the last header, bytes.
        stored, computed: stored and actual CRC-32C of that length, unmasked.
    """

    def __new__(cls, *, check: bool = True, size: int = -1) -> Chain: ...
    @property
    def n(self) -> int: ...
    @property
    def ending(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def computed(self) -> int: ...
    def follow_file(self, fd: int) -> int:
        """Scan a file without the GIL: large records are skipped, small ones read over.

        Returns:
            0, or the errno of a read that failed.

        Raises:
            MemoryError: there is no room for the tables, of 20 bytes for each record.
        """

    def feed(self, piece: Buffer) -> None:
        """Take the next bytes of a stream, in pieces of any size; after `ending`, they are ignored.

        Raises:
            MemoryError: there is no room for the tables.
        """

    def finish(self) -> None:
        """Note that the stream ends here."""

    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Return offset and size in bytes, and unmasked CRC-32C, of each record: arrays of their own, after the end."""

class Ahead:
    """A thread that prepares pages of a mapping before they are needed: it reads them from the disk, and maps them.

    It works on one range at a time; a range that is requested meanwhile is skipped.
    """

    def __new__(cls, mapping: Mapping) -> Ahead: ...
    def have(self, start: int, size: int) -> None: ...

def cut(
    memory: npt.NDArray[np.uint8], chain: Chain, check: bool
) -> tuple[list[npt.NDArray[np.uint8]], list[tuple[int, int]], int, int]:
    """Return the records of a stream that begins with `memory`, as far as a chain has seen it.

    Returns:
        (records, wrong, end, following): arrays over `memory`, for the complete records; (place, CRC-32C) of each of
        them that does not match, none unless `check`; the end of the last of them; and the size of a record that is not
        complete, or -1.

    Raises:
        ValueError: the chain has seen more, or its tables were changed.
    """

def checksums(data: Buffer, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the CRC-32C of each span of `data`: uint32 [k].

    Raises:
        ValueError: a span is not within `data`; or there are not as many starts as sizes.
    """

def frame(data: Buffer, offsets: npt.NDArray[np.int64]) -> bytes:
    """Return records in the form of a TFRecord, each between its length and checksums.

    Args:
        data: uint8; offsets: int64 [k + 1]; record i is data[offsets[i]:offsets[i + 1]].

    Raises:
        ValueError: offsets descend or leave `data`.
    """
