"""TFRecord files as the format says, slowly: written, and read or refused at a place."""

import gzip
import struct
import zlib

import crc32c

PACK = {
    None: bytes,
    "gzip": lambda data: gzip.compress(data, 1),
    "zlib": lambda data: zlib.compress(data, 1),
    # As many programs append to one: a member for each piece.
    "members": lambda data: b"".join(gzip.compress(data[at : at + 700], 1) for at in range(0, len(data), 700)),
}


def masked(data):
    crc = crc32c.crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def header(length):
    packed = struct.pack("<Q", length)
    return packed + masked(packed)


def encode(records):
    return b"".join(header(len(record)) + record + masked(record) for record in records)


def decode(data, check=True):
    """(records, whether each matches its checksum, offset at which the chain ends early or None)."""
    records, good, at = [], [], 0
    while at < len(data):
        head = data[at : at + 12]
        if len(head) < 12 or (check and masked(head[:8]) != head[8:]):
            return records, good, at
        (length,) = struct.unpack_from("<Q", head)
        record, footer = data[at + 12 : at + 12 + length], data[at + 12 + length : at + 16 + length]
        if len(record) < length or len(footer) < 4:
            return records, good, at
        records.append(record)
        good.append(masked(record) == footer)
        at += 16 + length
    return records, good, None
