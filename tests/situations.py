"""Situations that a reader may meet on a machine: files cached or not, little memory, mounted file systems."""

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

PAGE = os.sysconf("SC_PAGE_SIZE")
PAGEOUT = 21  # MADV_PAGEOUT of Linux 5.4, which mmap does not name
GROUPS = Path("/sys/fs/cgroup")


def unmap_pages(path: str, advice: int = mmap.MADV_DONTNEED) -> None:
    """Let go of the pages of a file that mappings of this process hold; they come again when touched.

    With MADV_DONTNEED no thread may unmap the file meanwhile: if an allocator has come into its place since the range
    was looked up, its memory is zeroed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # Names may hold other ends of lines than this one, which is escaped.
    for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).split("\n")[:-1]:
        addresses, _, _, _, _, *name = line.split(maxsplit=5)
        if name == [path]:
            first, last = (int(address, 16) for address in addresses.split("-"))
            if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice):
                # ENOMEM: a thread that read ahead has unmapped it meanwhile.
                assert ctypes.get_errno() == errno.ENOMEM, os.strerror(ctypes.get_errno())


def evict(*paths: str) -> None:
    """Drop a file from the page cache, as far as no other process maps it.

    By MADV_PAGEOUT, which is harmless to memory that came into the place of a mapping; it leaves large folios that two
    mappings share, and those are what MADV_DONTNEED is for: they stay mapped.
    """
    for path in paths:
        for attempt in range(100):
            _forget(path, PAGEOUT if attempt < 10 else mmap.MADV_DONTNEED)
            # Pages that another CPU has on its list of new ones stay a little.
            if os.path.getsize(path) == 0 or cached_share(path) == 0:
                break
            time.sleep(0.01)


def _forget(path: str, advice: int) -> None:
    unmap_pages(path, advice)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def warm(*paths: str) -> None:
    """Read a file into the page cache."""
    for path in paths:
        Path(path).read_bytes()


def cached_share(path: str) -> float:
    """Share of a file's pages in the page cache, by mincore(2), which answers truly for files of one's own."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        found = np.zeros(-(-len(view) // PAGE), np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), ctypes.c_void_p(found.ctypes.data)
        ):
            raise OSError(ctypes.get_errno(), "mincore")
        del view
    return float((found & 1).mean())


def can_be_evicted(path: str) -> bool:
    """Whether this file system has a page cache that forgets when asked to."""
    evict(path)
    return cached_share(path) < 0.1


class MemoryGroup:
    """A control group of this process's children with a limit of memory."""

    def __init__(self, path: Path, limit: str) -> None:
        self.path, self._limit = path, path / limit

    def limit(self, size: int | None) -> None:
        """Bytes that all of its processes may use together, page cache included; None for no limit."""
        none = "max" if self._limit.name == "memory.max" else "-1"
        self._limit.write_text(none if size is None else str(size))

    def join(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))


@contextlib.contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """A new group without a limit, of either version of control groups; skips where there can be none."""
    places = ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max"))
    for root, limit in places:
        path = root / f"ffrecord-test-{os.getpid()}"
        try:
            path.mkdir()
            group = MemoryGroup(path, limit)
            group.limit(None)
        except OSError as error:
            reason = error
            with contextlib.suppress(OSError):
                path.rmdir()
            continue
        try:
            yield group
        finally:
            remove_group(path)
        return
    pytest.skip(f"no control group with a limit of memory can be made here: {reason}")


def remove_group(group: Path) -> None:
    """The processes in it have ended, but may still be leaving."""
    for _ in range(100):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.05)
    return group.rmdir()


@contextlib.contextmanager
def fuse_mount(source: Path, *options: str) -> Iterator[Path]:
    """`source` once more, through a FUSE file system; skips where that is not to be had."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed: nothing tests files on FUSE")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse may not be opened: nothing tests files on FUSE")
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(["bindfs", *options, source, directory], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"bindfs cannot mount here, so nothing tests files on FUSE: {done.stderr.strip()}")
        try:
            yield Path(directory)
        finally:
            unmount = shutil.which("fusermount3") or shutil.which("fusermount") or "umount"
            arguments = [unmount, "-u", directory] if "fuser" in unmount else [unmount, directory]
            for attempt in range(50):
                if not subprocess.run(arguments, capture_output=True, check=False).returncode:
                    break
                assert attempt < 49, f"{directory} stays mounted"
                time.sleep(0.1)
