"""Figures of the Ray part with their targets, from the measurements of one run."""

from collections.abc import Sequence

import workloads
from harness import Measurement
from read_figures import Figure, ratio
from write_figures import groups

TARGET = 0.7


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return the figures of writing and reading."""
    found: list[Figure] = []
    for (_, work), group in groups(measurements).items():
        if isinstance(work, workloads.Blocks):
            where = f"{work.samples:,} {work.content}, {work.workers} workers"
            local, kept = group.named("FileReader"), group.named("ffrecord.ray.read, blocks kept")
            found += [
                *ratio(where, group.named("ffrecord.ray.write"), group.named("DatasetWriter"), TARGET),
                *ratio(where, group.named("ffrecord.ray.read"), local, TARGET),
                *ratio(where, kept, local, None),
            ]
    return found
