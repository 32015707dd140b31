"""Resources available to this process: free memory (clean cached pages included), descriptors, CPUs and mappings."""

import os
import resource
import sys
from functools import cache

UNLIMITED = 1 << 62
MAPPED_FEW = 1024  # files of one reader whose tables are always mapped, even if they are small
MAPPINGS_SHARE = 8  # one reader may use 1/8 of the mappings of a process
# Memory usage of a control group, the cached part of it, and the part of the cache that is shared memory or tmpfs: the
# kernel cannot free that part.
USED_2 = ("memory.current", "memory.stat:file", "memory.stat:shmem")
USED_1 = ("memory.usage_in_bytes", "memory.stat:total_cache", "memory.stat:total_shmem")


def available_memory() -> int:
    """Return the bytes that could hold file pages: MemAvailable, or less if a control group of this process leaves
    less.
    """
    return min(_mem_available(), *_group_limits())


def descriptors() -> int:
    """Return how many unused files one reader may keep open: a quarter of the soft limit, at most 1,024."""
    return max(1, min(all_descriptors() // 4, 1024))


def all_descriptors() -> int:
    """Return the soft limit of descriptors of this process, or Linux's default if a container hides the limit."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return 1024
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, 1 or more; all CPUs if a container hides the number."""
    try:
        return len(os.sched_getaffinity(0))
    except (OSError, OverflowError):  # OverflowError: Python takes EINVAL as a sign of very many CPUs
        return os.cpu_count() or 1


@cache
def mappings() -> int:
    """Return how many mappings one reader may have: an eighth of vm.max_map_count, at least MAPPED_FEW."""
    try:
        most = int(_read("/proc/sys/vm/max_map_count"))
    except (OSError, ValueError):
        most = 65_530  # Linux's default
    return max(MAPPED_FEW, most // MAPPINGS_SHARE)


def _mem_available() -> int:
    try:
        with open("/proc/meminfo") as lines:
            found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) << 10
    except (OSError, IndexError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _group_limits() -> list[int]:
    """Return the free bytes of the control groups above this process (cgroups v1 and v2); at least one entry."""
    limits = [UNLIMITED]
    try:
        lines = _read("/proc/self/cgroup").splitlines()
    except OSError:
        return limits
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += _limits_above("/sys/fs/cgroup", path, ("memory.max", *USED_2))
            limits += _limits_above("/sys/fs/cgroup", path, ("memory.high", *USED_2))
        elif "memory" in controllers.split(","):
            limits += _limits_above("/sys/fs/cgroup/memory", path, ("memory.limit_in_bytes", *USED_1))
    return limits


def _limits_above(root: str, path: str, names: tuple[str, ...]) -> list[int]:
    """Return the free bytes of each group from `path` up to the root. In a container with its own root, `path` may not
    exist.
    """
    limit, *rest = names
    limits = []
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        group = "/".join([root, *parts[:depth]])
        most = _number(group, limit)
        if most is not None and most < UNLIMITED:  # only then read the usage, which the kernel is slow to sum up
            usage, cached, shared = (_number(group, name) or 0 for name in rest)
            limits.append(max(0, most - max(0, usage - max(0, cached - shared))))
    return limits


def _number(group: str, name: str) -> int | None:
    """Return a number from a file of a group: the whole file, or after a word, as in "memory.stat:cache"; None if
    missing.
    """
    file, _, word = name.partition(":")
    try:
        text = _read(f"{group}/{file}")
    except OSError:
        return None
    if word:
        text = next((line.split()[1] for line in text.splitlines() if line.split()[0] == word), "")
    return int(text) if text.strip().isdigit() else None


def _read(path: str) -> str:
    # Plain open(): if memory is short, pathlib of Python 3.13 raises SystemError instead of MemoryError.
    with open(path) as file:
        return file.read()
