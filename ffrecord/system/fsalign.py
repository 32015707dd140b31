"""Query whether a file system reads files with O_DIRECT at unaligned offsets."""

import fcntl
import operator
import struct
from typing import SupportsIndex

# _IOR('f', 100, int). Only the file system of the authors of 1.x is known to answer it.
_CHECK_FS_ALIGN = 0x80046664
_ANSWER = struct.Struct("=I")
_YES = 1


def checkFsAlign(fd: SupportsIndex, /) -> bool:  # noqa: N802, the original's name
    """Tell whether the file system of an open file says that O_DIRECT needs no alignment.

    Args:
        fd: a file descriptor; a bad one is no error.

    Raises:
        TypeError: `fd` is not an integer.
    """
    descriptor, answer = operator.index(fd), bytearray(_ANSWER.size)
    try:
        fcntl.ioctl(descriptor, _CHECK_FS_ALIGN, answer)
    except (OSError, ValueError, OverflowError):
        return False
    return bool(_ANSWER.unpack(answer)[0] == _YES)
