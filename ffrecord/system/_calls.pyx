# cython: language_level=3, autotestdict=False, auto_pickle=False
"""System calls that Python's `os` lacks; in a test build also the functions that make calls fail (see calls.h)."""

from libc.errno cimport errno
from libc.stdint cimport int64_t

import os
from importlib import import_module

cdef extern from *:
    """
    #include "ffrecord/system/calls.h"
    #ifndef __linux__
    static int call_fallocate(int fd, int mode, int64_t offset, int64_t size) {
        (void)fd, (void)mode, (void)offset, (void)size;
        errno = EOPNOTSUPP;
        return -1;
    }
    #endif
    """
    enum: FFR_FAULTS
    int call_fallocate(int fd, int mode, int64_t offset, int64_t size) nogil


if FFR_FAULTS:
    globals().update(import_module("ffrecord._faults").OFFERED)


def fallocate(int fd, int mode, int64_t offset, int64_t size):
    """Call fallocate(2).

    Raises:
        OSError: the call failed; InterruptedError if a signal interrupted it.
    """
    cdef int result
    cdef int error = 0
    with nogil:
        result = call_fallocate(fd, mode, offset, size)
        if result < 0:
            error = errno
    if result < 0:
        raise OSError(error, os.strerror(error))
