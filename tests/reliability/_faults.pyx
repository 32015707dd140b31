# cython: language_level=3, autotestdict=False, auto_pickle=False
"""Test builds only: make the k-th call at a site fail, stop short, come late or be the last of its process.

The table of C calls is in fault_table.c. Python's own calls go through `os`, `io` and `fcntl`: their functions are replaced
here by ones that ask the same table, if a module of ffrecord calls, by way of others of the standard library perhaps.
Settings and counts are in memory that forked processes share; processes made afresh have their own.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint64_t

import builtins
import fcntl
import io
import os
import sys

cdef extern from "fault_table.h" nogil:
    enum:
        FFR_SITE_COUNT
        FFR_FAULTS_MOST
        FFR_NONE
        FFR_FAIL
        FFR_SHORT
        FFR_DELAY
        FFR_KILL_BEFORE
        FFR_KILL_AFTER
        FFR_EVENTS_REVERSED
        FFR_EVENT_FAILS
        FFR_EVENT_SHORT
        FFR_EVENT_STALE
    const uint64_t FFR_CHANGES
    ctypedef struct ffr_fault:
        int action
        int64_t value
    ctypedef struct ffr_set_fault:
        uint64_t sites
        int action
        int for_good
        int64_t value
        int64_t call
        int64_t only
        int64_t calls
        int64_t fired
    ctypedef struct ffr_faults_shared:
        int used
        int64_t* calls
        ffr_set_fault* faults
    const char* const* ffr_site_names
    int ffr_share_faults()
    ffr_faults_shared* ffr_shared_faults()
    int ffr_show_table()
    ffr_fault ffr_before_call(int site)
    void ffr_after_call(ffr_fault fault)

if ffr_share_faults() < 0 or ffr_show_table() < 0:
    raise ImportError("no table of faults")

cdef ffr_faults_shared* _shared = ffr_shared_faults()

_NAMES = tuple(ffr_site_names[i].decode() for i in range(FFR_SITE_COUNT))
_NUMBERS = {name: i for i, name in enumerate(_NAMES)}
# Of calls that change files.
WRITING = tuple(name for i, name in enumerate(_NAMES) if FFR_CHANGES >> i & 1)
_ACTIONS = {
    "fail": FFR_FAIL,
    "short": FFR_SHORT,
    "delay": FFR_DELAY,
    "kill before": FFR_KILL_BEFORE,
    "kill after": FFR_KILL_AFTER,
    "events reversed": FFR_EVENTS_REVERSED,
    "event fails": FFR_EVENT_FAILS,
    "event short": FFR_EVENT_SHORT,
    "event stale": FFR_EVENT_STALE,
}


def sites():
    """Names of all sites."""
    return _NAMES


def fault(site, int64_t call, action, int64_t value=0, *, bint for_good=False, only=None):
    """Have the call-th call from now on, counted over all processes, do something else.

    Args:
        site: a name, or several whose calls are counted together.
        call: from 1.
        action: "fail" (value: errno), "short" (value: bytes or requests at most), "delay" (value: ms), "kill before",
            "kill after"; of io_getevents also "events reversed", "event fails" (value: errno), "event short" (value:
            bytes), "event stale" (value: errno).
        for_good: all later calls, too.
        only: count those of the "parent", that is this process, of a "child", that is any other, or of this process id.
    """
    cdef ffr_set_fault* place
    cdef uint64_t mask = 0
    if _shared.used == FFR_FAULTS_MOST:
        raise ValueError(f"more than {FFR_FAULTS_MOST} faults")
    for name in [site] if isinstance(site, str) else site:
        mask |= <uint64_t> 1 << <int> _NUMBERS[name]
    place = &_shared.faults[_shared.used]
    place.action, place.value, place.call, place.for_good = _ACTIONS[action], value, call, for_good
    place.only = {"parent": os.getpid(), "child": -os.getpid(), None: 0}.get(only, only)
    place.calls = place.fired = 0
    place.sites = mask
    _shared.used += 1


def clear():
    """No faults any more, and all counts 0."""
    cdef int i
    for i in range(_shared.used):
        _shared.faults[i].sites = 0
    _shared.used = 0
    for i in range(FFR_SITE_COUNT):
        _shared.calls[i] = 0


def fired(which=None):
    """How many calls were changed since `clear`; which: by the first fault that was set (0), by the second ..."""
    return sum([_shared.faults[i].fired for i in range(_shared.used) if which is None or which == i])


def count(site):
    """How many calls there were at a site, or at several, since `clear`."""
    return sum([_shared.calls[<int> _NUMBERS[name]] for name in ([site] if isinstance(site, str) else site)])


# Names that ffrecord.system._calls has then.
OFFERED = {"WRITING": WRITING, **{each.__name__: each for each in (clear, count, fault, fired, sites)}}


# Python's calls

# What ffrecord's modules call that call `os` in their turn.
_BETWEEN = ("shutil", "pathlib", "contextlib", "tempfile", "genericpath", "posixpath", "os", "multiprocessing", "io")
# Python asks these again after a signal.
_AGAIN = frozenset((
    "open", "read", "pread", "readv", "preadv", "pwrite", "write", "fsync", "ftruncate", "posix_fallocate",
    "posix_fadvise", "fchmod", "flock", "copy_file_range", "pwritev",
))


def _of_ours():
    """Whether the call comes from a module of ffrecord."""
    frame = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        if name not in _BETWEEN:
            return name == "ffrecord"
        frame = frame.f_back
    return False


cdef ffr_fault _ask(int site) noexcept:
    cdef ffr_fault now
    with nogil:
        now = ffr_before_call(site)
    return now


cdef ffr_fault _before(int site, name, paths) except *:
    """What is to become of the call; raises what it is to fail with."""
    cdef ffr_fault now
    while True:
        now = _ask(site)
        if now.action != FFR_FAIL:
            return now
        if now.value != EINTR or name not in _AGAIN:
            _fail(now.value, *paths)
        PyErr_CheckSignals()


def _fail(number, path=None, *other):
    if path is None:
        raise OSError(number, os.strerror(number))
    raise OSError(number, os.strerror(number), path, None, *other)


class _Call:
    """A function of `os` that asks the table first."""

    def __init__(self, name, real):
        self.name, self.real, self.site = name, real, _NUMBERS[name]
        self.__name__ = name

    def __call__(self, *args, **named):
        cdef ffr_fault now
        if not _of_ours():
            return self.real(*args, **named)
        paths = [arg for arg in args[:2] if isinstance(arg, (str, bytes, os.PathLike))]
        if self.name == "close":
            return self._close(*args)
        if self.name in ("write", "pwrite"):
            paths = []
        now = _before(self.site, self.name, paths)
        if now.action == FFR_SHORT:
            args = self._shorter(now.value, *args)
        result = self.real(*args, **named)
        ffr_after_call(now)
        return result

    def _shorter(self, most, first, second=None, *rest):
        if self.name in ("write", "pwrite"):
            return first, memoryview(second).cast("B")[:most], *rest
        if self.name in ("read", "pread"):
            return first, min(second, most), *rest
        if self.name in ("readv", "preadv", "pwritev"):
            return first, [memoryview(second[0]).cast("B")[:most]], *rest
        return first, second, *rest

    def _close(self, fd):
        """It closes even where it fails."""
        cdef ffr_fault now
        now = _ask(_NUMBERS["close"])
        self.real(fd)
        if now.action == FFR_FAIL:
            _fail(now.value)
        ffr_after_call(now)


_FileIO = io.FileIO


class FileIO(_FileIO):
    """As `_Call`, of what it opens, reads and closes."""

    def __init__(self, file, mode="r", closefd=True, opener=None):
        cdef ffr_fault now
        self._asks = _of_ours()
        if isinstance(file, int) or not self._asks:
            super().__init__(file, mode, closefd, opener)
            return
        now = _before(_NUMBERS["open"], "open", [file])
        super().__init__(file, mode, closefd, opener)
        ffr_after_call(now)

    def readinto(self, buffer):
        """Also what a BufferedReader calls; of a plain `read` and `readall` as well."""
        cdef ffr_fault now
        if not self._asks:
            return super().readinto(buffer)
        now = _before(_NUMBERS["read"], "read", ())
        if now.action == FFR_SHORT:
            buffer = memoryview(buffer).cast("B")[:now.value]
        got = super().readinto(buffer)
        ffr_after_call(now)
        return got

    def readall(self):
        found = bytearray()
        piece = bytearray(1 << 16)
        while got := self.readinto(piece):
            found += piece[:got]
        return bytes(found)

    def read(self, size=-1):
        if size is None or size < 0:
            return self.readall()
        piece = bytearray(size)
        return bytes(piece[:self.readinto(piece)])

    def close(self):
        cdef ffr_fault now
        if self.closed or not self.closefd or not _of_ours():
            super().close()
            return
        now = _ask(_NUMBERS["close"])
        super().close()
        if now.action == FFR_FAIL:
            _fail(now.value)
        ffr_after_call(now)


_open = builtins.open


def _asking_open(file, mode="r", buffering=-1, *args, **named):
    if not _of_ours():
        return _open(file, mode, buffering, *args, **named)
    if mode == "rb":
        raw = FileIO(file, "rb", **named)
        return raw if buffering == 0 else io.BufferedReader(raw)
    if not isinstance(file, int):
        _before(_NUMBERS["open"], "open", [file])
    return _open(file, mode, buffering, *args, **named)


def _replace():
    alike = [getattr(os, name) for name in dir(os) if name.startswith("supports_") and name != "supports_bytes_environ"]
    for name in (
        "open", "close", "read", "readv", "pread", "write", "pwrite", "fsync", "rename", "link", "unlink", "mkdir",
        "rmdir", "ftruncate", "posix_fallocate", "chmod", "fchmod", "stat", "lstat", "fstat", "listdir", "scandir",
        "copy_file_range", "fork", "preadv", "pwritev", "posix_fadvise", "replace", "memfd_create", "set_blocking",
        "dup2", "utime",
    ):
        if hasattr(os, name):
            real = getattr(os, name)
            setattr(os, name, _Call(name, real))
            for functions in alike:
                if real in functions:
                    functions.add(getattr(os, name))
    fcntl.flock = _Call("flock", fcntl.flock)
    io.FileIO = FileIO
    builtins.open = io.open = _asking_open


_replace()
