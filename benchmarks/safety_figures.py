"""The cost of safety in one run: how many times as fast the safe way is, in each round."""

from collections.abc import Sequence

import workloads
from harness import Measurement
from read_figures import Figure, Group, ratio, size_name
from write_figures import groups

CHECKS = ("read auto", "read_packed auto", "read mmap")
FILES = (
    ("FileWriter", "FileWriter without fsync"),
    ("FileWriter, flushed every 64 MiB", "FileWriter without fsync"),
    ("FileWriter", "plain writes, fsync"),
    ("FileWriter without fsync", "plain writes"),
    ("FileWriter", "plain writes"),
)
DATASETS = (("DatasetWriter", "DatasetWriter without fsync"),)


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return the figures of checks and of durability."""
    found: list[Figure] = []
    for (cache, work), group in groups(measurements).items():
        if isinstance(work, workloads.Reads):
            where = f"{'cached' if cache == 'hot' else cache} {size_name(work.mean)}"
            found += pairs(where, group, [(name, f"{name} unchecked") for name in CHECKS])
        elif isinstance(work, workloads.Writes):
            found += pairs(f"written {size_name(work.mean)}", group, [*FILES, *DATASETS])
    return found


def pairs(where: str, group: Group, names: Sequence[tuple[str, str]]) -> list[Figure]:
    return [figure for safe, other in names for figure in ratio(where, group.named(safe), group.named(other), None)]
