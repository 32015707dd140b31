"""Where the records of a TFRecord lie: one pass over a file, or a stream, from record to record."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ffrecord.kernels._memory import Mapping

HEADER: int
"""Bytes before a record: its length, and the masked CRC-32C of that."""
FOOTER: int
"""Bytes after it: its own masked CRC-32C."""

# How a chain ends.
END: int
CUT: int
"""The last record, or its checksum, is not all there."""
TORN: int
"""Less is left than a length with its checksum."""
WRONG: int
"""A length does not match its checksum: nobody knows where the next record is."""

class Chain:
    """The records of one file or stream, each found by the length of the one before.

    Args:
        check: compare lengths with their checksums.
        size: bytes of the file, beyond which no record is believed to reach; -1 for a stream.

    Attributes:
        n: records found, all there.
        ending: 0 while it goes on, then END, CUT, TORN or WRONG.
        at: offset of the header that is next, or that ended the chain, bytes.
        length: what the header looked at last says, bytes.
        stored, computed: its CRC-32C, unmasked.
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
        """Go through a file, without the GIL: large records are skipped, small ones read over.

        Returns:
            0, or the errno of a read that failed.

        Raises:
            MemoryError: no room for the tables, of 20 bytes for each record.
        """

    def feed(self, piece: Buffer) -> None:
        """Go on with the next bytes of a stream, as many as there are; none after `ending`.

        Raises:
            MemoryError: as above.
        """

    def finish(self) -> None:
        """The stream ends here."""

    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Offset and size in bytes, and unmasked CRC-32C, of each record: arrays of their own, once it has ended."""

class Ahead:
    """Has pages of a mapping ready before they are looked at, by a thread: from the disk, and mapped.

    One range at a time; what is asked for before that is done is left out.
    """

    def __new__(cls, mapping: Mapping) -> Ahead: ...
    def have(self, start: int, size: int) -> None: ...

def cut(
    memory: npt.NDArray[np.uint8], chain: Chain, check: bool
) -> tuple[list[npt.NDArray[np.uint8]], list[tuple[int, int]], int, int]:
    """The records of a stream that begins with `memory`, as far as a chain has seen it.

    Returns:
        (records, wrong, end, following): arrays over `memory`, of the records that are all there; the place and the
        CRC-32C of each of them that does not match its own, none unless `check`; where the last of them ends; and the
        size of a record that is not all there, -1: there is none.

    Raises:
        ValueError: the chain has seen more; its tables were changed.
    """

def checksums(data: Buffer, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The CRC-32C of each span of `data`: uint32 [k].

    Raises:
        ValueError: a span is not within `data`; as many starts as sizes are needed.
    """

def frame(data: Buffer, offsets: npt.NDArray[np.int64]) -> bytes:
    """Records as they stand in a TFRecord, each between its length and checksums.

    Args:
        data: uint8; offsets: int64 [k + 1]; record i is data[offsets[i]:offsets[i + 1]].

    Raises:
        ValueError: offsets that descend or leave `data`.
    """
