"""What files of other formats hold, as the packages say that others use: mistakes that our readers and writers share do
not pass them."""

import struct
import sys
import warnings
from pathlib import Path


def of_tfrecord(path: Path) -> list[bytes]:
    """All records; that package compares no checksums, but has the function that makes them."""
    sys.modules.setdefault("torch", None)  # it does without, and importing torch takes longer than all of the test
    from tfrecord.reader import tfrecord_iterator
    from tfrecord.writer import TFRecordWriter

    records = [bytes(view) for view in tfrecord_iterator(str(path))]
    masked = TFRecordWriter.masked_crc
    sizes = [struct.pack("<Q", len(record)) for record in records]
    whole = [size + masked(size) + record + masked(record) for size, record in zip(sizes, records, strict=True)]
    assert path.read_bytes() == b"".join(whole)
    return records


def of_recordio(path: Path) -> list[bytes]:
    """All records of dialect A, compared with their checksums."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "crc32c.crc32 will be", DeprecationWarning)
        import recordio

        with recordio.File(str(path), "r") as file:
            return [bytes(record) for record in file]
