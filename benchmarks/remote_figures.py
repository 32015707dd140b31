"""The figures that reading by URL is judged by, each with its target, from measurements of one run."""

from collections.abc import Sequence

import workloads
from harness import Measurement
from read_figures import Figure, Group, ratio, size_name

OPEN_MOST = 200.0  # ms, and the latency of a request


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Of batches, of the cache, and of opening."""
    found: list[Figure] = []
    for work in dict.fromkeys(m.workload for m in measurements):
        group = Group(m for m in measurements if m.workload == work)
        if isinstance(work, workloads.RemoteReads):
            found += of_reads(work, group)
        else:
            found += of_opens(work, group)
    return found


def of_reads(work: workloads.RemoteReads, group: Group) -> list[Figure]:
    where = f"{size_name(work.mean)}, {work.milliseconds} ms, {work.requests} requests"
    ours, usual = group.named("iter_batches"), work.requests == 64
    wrk = group.named(f"wrk, {work.requests} connections")
    return [
        *ratio(where, ours, wrk, 0.9 if usual else None),
        *ratio(where, ours, group.named(f"curl, {work.requests} in parallel"), 0.9 if usual and wrk is None else None),
        *ratio(where, ours, group.named("fsspec, record by record"), 5),
        *ratio(where, group.named("second epoch, from the cache"), group.named("files of this machine"), 0.9),
    ]


def of_opens(work: workloads.RemoteOpens, group: Group) -> list[Figure]:
    found = []
    where = f"opening {work.shards:,} shards, {work.milliseconds} ms"
    for m in group.of.values():
        over = [1000 * seconds - work.milliseconds for seconds in m.seconds]
        about = f"{where}: {m.contestant}"
        found.append(Figure(f"{about}, without the latency of one", over, OPEN_MOST, at_most=True, unit=" ms"))
        found.append(Figure(f"{about}, requests", m.details["requests"], 3, at_most=True))
    return found
