"""A copy that has every record → a complete one, which is read as any file of this machine is."""

import errno
import os
from collections.abc import Callable

import numpy as np

from ffrecord.errors import FFRecordError, FormatError
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.record_reader import RecordReader
from ffrecord.remote.cache.copy import found_in
from ffrecord.remote.cache.files import AWAY, mark, regular_size
from ffrecord.remote.cache.names import HAVE, PART, WHOLE
from ffrecord.remote.tables import ShardFacts
from ffrecord.system.atomic_file import PartFile

STEP_BYTES = 64 << 20  # compared with their checksums between two looks at whether to go on


def seal(stem: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """Make a copy complete: all its records are compared with their checksums, all of it is put on the disk, and then
    it gets the name of a complete one.

    Args:
        stem: what its paths begin with.
        facts: of the shard.
        stop: asked now and then whether to leave it as it is.

    Returns:
        Whether there is a complete copy now. If not, records are missing, or do not match, which is noted; or another
        process is at it.

    Raises:
        OSError: the disk is full or broken, or the directory may not be written to.
    """
    path = stem + PART
    if regular_size(path) < 0:
        return regular_size(stem + WHOLE) == facts.size
    try:
        part = PartFile(path, left=path)  # locked from here on
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOENT):  # another process is at it, or was
            return regular_size(stem + WHOLE) == facts.size
        raise
    try:
        os.ftruncate(part.fd, facts.size)
        try:
            if not _is_right(stem, path, facts, stop) or stop():
                return False
        except FFRecordError:  # its tables are damaged, so nobody can read it
            part.remove()
            return False
        # Renaming replaces what has that name, were it a link that leads elsewhere: nothing is written through it.
        part.target = stem + WHOLE
        part.publish()
        return True
    finally:
        part.leave()


def _is_right(stem: str, path: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """
    Raises:
        FFRecordError: its tables are not there, or not as they should be.
    """
    opened = OpenedFile(path, check=True)
    with RecordReader([opened]) as reader:
        if (opened.n, opened.size, opened.crc) != facts:
            raise FormatError(f"{path}: not a copy of that shard")
        if not found_in(opened, stem).all():
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
