"""Completion of a copy that has all records, after which it is read like any local file."""

import errno
import os
from collections.abc import Callable

import numpy as np

from ffrecord.errors import FFRecordError, FormatError
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.record_reader import RecordReader
from ffrecord.remote.cache.copy import known_records
from ffrecord.remote.cache.files import AWAY, mark, regular_size
from ffrecord.remote.cache.names import HAVE, PART, WHOLE
from ffrecord.remote.tables import ShardFacts
from ffrecord.system.atomic_file import PartFile

STEP_BYTES = 64 << 20  # bytes of records that are checked between two calls of `stop`


def seal(stem: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """Complete a copy: check all records, flush the file to the disk, then give it the name of a complete copy.

    Args:
        stem: common start of its paths.
        facts: facts of the shard.
        stop: called now and then; true to leave the copy as it is.

    Returns:
        True if there is a complete copy now. If not, records are missing or damaged, and marked as missing, or another
        process is completing it.

    Raises:
        OSError: the disk is full or broken, or the directory may not be written to.
    """
    path = stem + PART
    if regular_size(path) < 0:
        return regular_size(stem + WHOLE) == facts.size
    try:
        part = PartFile(path, left=path)  # locked from here on
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOENT):  # another process is completing it, or has done so
            return regular_size(stem + WHOLE) == facts.size
        raise
    try:
        os.ftruncate(part.fd, facts.size)  # in case it was cut: the records that are lost then fail their check
        try:
            if not _is_right(stem, path, facts, stop) or stop():
                return False
        except FFRecordError:  # its tables are damaged, so the copy is of no use
            part.remove()
            return False
        # A rename replaces a symbolic link of that name: it never writes to the file that the link points to.
        part.target = stem + WHOLE
        part.publish()
        return True
    finally:
        part.leave()


def _is_right(stem: str, path: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """Check all records, and mark damaged ones as missing.

    Raises:
        FFRecordError: the tables are missing or damaged.
    """
    opened = OpenedFile(path, check=True)
    with RecordReader([opened]) as reader:
        if (opened.n, opened.size, opened.crc) != facts:
            raise FormatError(f"{path} is not a copy of that shard")
        if not known_records(opened, stem).all():
            return False
        step = max(1, STEP_BYTES * opened.n // max(1, opened.size))
        bad: list[int] = []
        for start in range(0, opened.n, step):
            if stop():
                return False
            bad += [index for index, _ in reader.bad_records(start, min(start + step, opened.n))]
    if bad:
        mark(stem + HAVE, np.array(bad), AWAY)
    return not bad
