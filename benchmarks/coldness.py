"""Control of the page cache, for our own files: cold files are cold, and hot files are hot."""

import ctypes
import mmap
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import environment
import numpy as np

libc = ctypes.CDLL(None, use_errno=True)


class NotColdError(Exception):
    """The error that the kernel kept pages: a read now would not be cold."""


def resident(path: Path) -> float:
    """Return the share of a file's pages that are in the page cache.

    The file must be ours: mincore lies about others' files.
    """
    size = path.stat().st_size
    mapped = np.memmap(path, np.uint8, "r")
    pages = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
    where, answer = (array.ctypes.data_as(ctypes.c_void_p) for array in (mapped, pages))
    if libc.mincore(where, ctypes.c_size_t(size), answer):
        raise OSError(ctypes.get_errno(), "mincore")
    return float(np.mean(pages & 1))


def evict(paths: Iterable[Path]) -> None:
    """Drop files from the page cache. Nothing may have them mapped.

    Raises:
        NotColdError: more than a thousandth of a file is still cached.
    """
    for path in paths:
        forget(path)
        if resident(path) > 0.001:
            drop_everything()
        if (left := resident(path)) > 0.001:
            raise NotColdError(f"{path.name}: {left:.1%} of it is in the page cache, expected none")


def let_go(path: Path) -> None:
    """Release a file's pages from the mappings of this process, because mapped pages are not dropped."""
    wanted = str(path.resolve())
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, _, _, _, *name = line.split(maxsplit=5)
        if name == [wanted]:
            first, last = (int(address, 16) for address in addresses.split("-"))
            if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED):
                raise OSError(ctypes.get_errno(), "madvise")


def forget(path: Path) -> None:
    """Ask the kernel to drop one file, written or not."""
    let_go(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def drop_everything() -> None:
    """Drop the page cache of the whole machine, where that is permitted."""
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1")


def have_memory(size: int) -> None:
    """Touch and free `size` bytes, so that the host of a virtual machine returns free memory that it has taken away.

    Otherwise the next user of the memory would wait for its return, 4 KiB at a time.
    """
    np.ones(size, np.uint8)


def warm(path: Path) -> None:
    """Read a file into the page cache."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def on_disk(directory: Path) -> bool:
    """Return whether files there have a storage that they can be read from again."""
    return environment.filesystem(directory) not in ("tmpfs", "ramfs")


def check_disk(directory: Path, room: int, smoke: bool, consequence: str) -> None:
    """End the program if files have no storage there, or do not fit.

    Args:
        room: number of bytes needed.
        smoke: only say so instead, because nothing is measured.
        consequence: text for that case: the effect of having no storage.
    """
    if not on_disk(directory):
        kind = environment.filesystem(directory)
        if not smoke:
            sys.exit(f"{directory} is on {kind}, which has no storage behind it: name another with --data")
        print(f"{directory} is on {kind}: {consequence}")
    if not smoke and shutil.disk_usage(directory).free < room:
        sys.exit(f"{directory}: less than {room / 1e9:.0f} GB free")
