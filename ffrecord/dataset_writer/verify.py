"""Whether a finished shard is still what it was: header, tables, and the CRC-32 of every record."""

import os

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system.atomic_file import read_into

CHUNK = 8 << 20


def check_listed(directory: str, shard: Shard, *, check: bool = False) -> OpenedFile:
    """Open a shard and compare its header with its listing; the caller closes it.

    Args:
        check: whether the tables must match their CRC-32.

    Raises:
        FormatError, ChecksumError: it is another file, or damaged.
        OSError: it cannot be read.
    """
    opened = OpenedFile(os.path.join(directory, shard.name), check=check)
    found, listed = (opened.n, opened.size, opened.crc), (shard.samples, shard.size, shard.crc)
    if found != listed:
        opened.close()
        what = "not the shard that is listed, but another one or a stale copy"
        raise FormatError(f"{opened.path}: {what}: (samples, size, CRC-32 of tables) {found}, listed {listed}")
    return opened


def check_whole(directory: str, shard: Shard) -> None:
    """Compare everything in a shard with its checksums, in constant memory.

    Raises:
        FormatError, ChecksumError: it is another file, or damaged.
        OSError: it cannot be read.
    """
    opened = check_listed(directory, shard, check=True)
    try:
        _check_records(opened)
    finally:
        opened.close()


def _check_records(opened: OpenedFile) -> None:
    bounds = [*opened.offsets.tolist(), opened.size]
    buffer = memoryview(bytearray(CHUNK))
    held = range(0)  # offsets in the file of what the buffer holds
    for index, stored in enumerate(opened.checksums.tolist()):
        offset, end, crc = bounds[index], bounds[index + 1], 0
        if not opened.data_start <= offset <= end <= opened.size:
            raise FormatError(f"{opened.path}: sample {index}: offsets {offset} .. {end}, expected ascending")
        while offset < end:
            if offset not in held:
                held = range(offset, offset + _fill(opened, buffer, offset))
            upto = min(end, held.stop)
            crc = crc32(buffer[offset - held.start : upto - held.start], crc)
            offset = upto
        if crc != stored:
            sentence = f"{opened.path}: sample {index}: CRC-32 {crc:#010x}, stored {stored:#010x}"
            raise ChecksumError(sentence, path=opened.path, index=index, stored=stored, computed=crc)


def _fill(opened: OpenedFile, buffer: memoryview, offset: int) -> int:
    """Bytes read from `offset` on, > 0."""
    got = read_into(opened.fd, buffer, offset)
    if not got:
        raise FormatError(f"{opened.path}: the file was cut to {offset} bytes")
    return got
