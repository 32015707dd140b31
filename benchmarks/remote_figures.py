"""Figures of reading by URL with their targets, from the measurements of one run."""

from collections.abc import Sequence

import workloads
from harness import Measurement
from read_figures import Figure, Group, ratio, size_name

SERVER_LEAST = 0.9  # share of the server's speed for a client that does nothing with the bytes
FSSPEC_LEAST = 5.0
CACHE_LEAST = 0.9
OPEN_MOST = 200.0  # ms, in addition to the latency of a request
REQUESTS_MOST = 3
BLOCK_REQUESTS_MOST = 1.25  # for each block, those for tables included
BLOCKS_LEAST = 2.0  # as fast as record by record

__all__ = ["describe", "figures", "groups"]


def groups(measurements: Sequence[Measurement]) -> dict[tuple[str, object], Group]:
    """Return measurements made together, by part of the benchmark and workload."""
    found: dict[tuple[str, object], list[Measurement]] = {}
    for m in measurements:
        found.setdefault((m.details["part"], m.workload), []).append(m)
    return {where: Group(of) for where, of in found.items()}


def describe(part: str, work: object) -> str:
    """Describe a measurement."""
    if isinstance(work, workloads.RemoteOpens):
        return f"opening {work.shards:,} shards, {work.milliseconds} ms a request"
    if isinstance(work, workloads.RemoteBlocks):
        return (
            f"{work.samples:,} records of {size_name(work.mean)}, batches of {work.batch}, blocks of {work.block}, "
            f"windows of {work.window}, {work.milliseconds} ms a request"
        )
    assert isinstance(work, workloads.RemoteReads)
    does = f"{work.samples:,} records of {size_name(work.mean)}, random batches of {work.batch}"
    if part == "cache":
        return f"{does}, cached, from the cache and from files of this machine"
    return f"{does}, {work.milliseconds} ms a request, {work.requests} requests in flight, cached at the server"


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return the figures of batches, of blocks, of the cache, and of opening."""
    found: list[Figure] = []
    for (part, work), group in groups(measurements).items():
        if isinstance(work, workloads.RemoteOpens):
            found += of_opens(work, group)
        elif isinstance(work, workloads.RemoteBlocks):
            found += of_blocks(work, group)
        elif isinstance(work, workloads.RemoteReads):
            found += (of_cache if part == "cache" else of_batches)(work, group)
    return found


def of_batches(work: workloads.RemoteReads, group: Group) -> list[Figure]:
    where = f"{size_name(work.mean)}, {work.milliseconds} ms, {work.requests} requests"
    ours = group.named("iter_batches")
    return [
        *ratio(where, ours, group.named(f"wrk, {work.requests} connections"), SERVER_LEAST),
        *ratio(where, ours, group.named(f"curl, {work.requests} in parallel"), SERVER_LEAST),
        *ratio(where, ours, group.named("fsspec, record by record"), FSSPEC_LEAST),
    ]


def of_blocks(work: workloads.RemoteBlocks, group: Group) -> list[Figure]:
    """Return the figures of blocks. The round with most requests counts."""
    where = f"{size_name(work.mean)}, {work.milliseconds} ms, blocks of {work.block}"
    ours, singly = group.named("blocks"), group.named("record by record")
    found = ratio(where, ours, singly, BLOCKS_LEAST)
    if ours is not None:
        most = [max(ours.details["requests"]) / -(-work.samples // work.block)]
        found.append(Figure(f"{where}, requests for each block", most, BLOCK_REQUESTS_MOST, at_most=True))
    return found


def of_cache(work: workloads.RemoteReads, group: Group) -> list[Figure]:
    ours, local = group.named("second epoch, from the cache"), group.named("files of this machine")
    return ratio(f"{size_name(work.mean)}, batches of {work.batch}", ours, local, CACHE_LEAST)


def of_opens(work: workloads.RemoteOpens, group: Group) -> list[Figure]:
    """Return the figures of opening. The round with most requests counts, because a median may hide one."""
    found = []
    where = f"opening {work.shards:,} shards, {work.milliseconds} ms"
    for m in group.of.values():
        over = [1000 * seconds - work.milliseconds for seconds in m.seconds]
        most = [float(max(m.details["requests"]))]
        found.append(Figure(f"{where}, without the latency of one request", over, OPEN_MOST, at_most=True, unit=" ms"))
        found.append(Figure(f"{where}, requests of the round with most", most, REQUESTS_MOST, at_most=True))
    return found
