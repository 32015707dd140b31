"""How much of this machine there is for us: memory that is free or holds nothing but clean pages, and descriptors."""

import os
import resource
import sys
from functools import cache
from pathlib import Path

UNLIMITED = 1 << 62
MAPPED_FEW = 1024  # files of one reader of which tables are mapped, however small they are
MAPPINGS_SHARE = 8  # one of so many parts of the mappings that a process may have is for one reader
# What a group uses, what of that is cached, and what of that is shared memory or tmpfs and makes no room for others.
USED_2 = ("memory.current", "memory.stat:file", "memory.stat:shmem")
USED_1 = ("memory.usage_in_bytes", "memory.stat:total_cache", "memory.stat:total_shmem")


def available_memory() -> int:
    """Bytes that could hold file pages: MemAvailable, or less where a control group of this process leaves less."""
    return min(_mem_available(), *_group_limits())


def descriptors() -> int:
    """Files that one reader may hold open though nobody reads them: a quarter of the soft limit, at most 1,024."""
    return max(1, min(all_descriptors() // 4, 1024))


def all_descriptors() -> int:
    """Descriptors that this process may have: its soft limit, or what Linux gives where a container does not say."""
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return 1024
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def usable_cpus() -> int:
    """CPUs that this process may use, 1 or more; all of the machine where a container does not say."""
    try:
        return len(os.sched_getaffinity(0))
    except (OSError, OverflowError):  # the latter where EINVAL is taken for a sign of very many CPUs
        return os.cpu_count() or 1


@cache
def mappings() -> int:
    """Mappings that one reader may have, at least MAPPED_FEW: an eighth of those of a process (vm.max_map_count)."""
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        most = 65_530  # what Linux has, unless told otherwise
    return max(MAPPED_FEW, most // MAPPINGS_SHARE)


def _mem_available() -> int:
    try:
        with open("/proc/meminfo") as lines:
            found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) << 10
    except (OSError, IndexError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _group_limits() -> list[int]:
    """Limits of the groups above this process, of both versions of cgroups; at least one entry."""
    limits = [UNLIMITED]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return limits
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += _limits_above(Path("/sys/fs/cgroup"), path, ("memory.max", *USED_2))
            limits += _limits_above(Path("/sys/fs/cgroup"), path, ("memory.high", *USED_2))
        elif "memory" in controllers.split(","):
            limits += _limits_above(Path("/sys/fs/cgroup/memory"), path, ("memory.limit_in_bytes", *USED_1))
    return limits


def _limits_above(root: Path, path: str, names: tuple[str, ...]) -> list[int]:
    """What groups leave free, from `path` up to the root. In a container, with its own root, it may not exist."""
    group = root / path.lstrip("/")
    limits = []
    for each in [group, *(parent for parent in group.parents if parent.is_relative_to(root))]:
        limit, *rest = names
        most = _number(each, limit)
        if most is not None and most < UNLIMITED:  # the rest takes the kernel some time to count
            usage, cached, shared = (_number(each, name) or 0 for name in rest)
            limits.append(max(0, most - max(0, usage - max(0, cached - shared))))
    return limits


def _number(group: Path, name: str) -> int | None:
    """A number in a file of a group: alone, or after a word of it, as in "memory.stat:cache"; None if there is none."""
    file, _, word = name.partition(":")
    try:
        text = (group / file).read_text()
    except OSError:
        return None
    if word:
        text = next((line.split()[1] for line in text.splitlines() if line.split()[0] == word), "")
    return int(text) if text.strip().isdigit() else None
