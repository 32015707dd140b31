"""How much of this machine there is for us: memory that is free or holds nothing but clean pages, and descriptors."""

import os
import resource
from pathlib import Path

UNLIMITED = 1 << 62


def available_memory() -> int:
    """Bytes that could hold file pages: MemAvailable, or less where a control group of this process leaves less."""
    return min(_mem_available(), *_group_limits())


def descriptors() -> int:
    """Files that one reader may hold open though nobody reads them: a quarter of the soft limit, at most 1,024."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if soft == resource.RLIM_INFINITY else max(1, min(soft // 4, 1024))


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
            limits += _limits_above(Path("/sys/fs/cgroup"), path, ("memory.max", "memory.current", "memory.stat:file"))
            limits += _limits_above(Path("/sys/fs/cgroup"), path, ("memory.high", "memory.current", "memory.stat:file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat:total_cache")
            limits += _limits_above(Path("/sys/fs/cgroup/memory"), path, names)
    return limits


def _limits_above(root: Path, path: str, names: tuple[str, ...]) -> list[int]:
    """What groups leave free, from `path` up to the root. In a container, with its own root, it may not exist."""
    group = root / path.lstrip("/")
    limits = []
    for each in [group, *(parent for parent in group.parents if parent.is_relative_to(root))]:
        limit, *rest = names
        most = _number(each, limit)
        if most is not None and most < UNLIMITED:  # the rest takes the kernel some time to count
            usage, cached = (_number(each, name) for name in rest)
            limits.append(max(0, most - max(0, (usage or 0) - (cached or 0))))
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
