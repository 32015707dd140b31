"""The requests of a rank, by the real orders over the whole number of samples, and the real merging of requests."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scale_world import TABLE_BYTES, Integers, World, figure, size

from ffrecord.order import Block, Cursor, Identity, Order, Placement, Random
from ffrecord.remote.ranges import requests

BATCHES = 1000  # of one rank, from the middle of an epoch on
HEADER = ["order", "shards of a batch", "requests for it", "its bytes", "tables read for it", "shards of a node"]


@dataclass(frozen=True)
class Way:
    """An order, and whether nodes are placed."""

    name: str
    order: Order
    placed: bool

    def cursor(self, world: World, samples: int, rank: int, batch: int) -> Cursor:
        """Return the cursor of a rank."""
        placement = Placement.of(rank, world.world_size, world.nodes) if self.placed else None
        return Cursor(
            Identity(samples),
            order=self.order,
            seed=world.seed,
            batch_size=batch,
            rank=rank,
            world_size=world.world_size,
            placement=placement,
        )


def ways(world: World) -> list[Way]:
    """Return the ways; a lane is one of the parts that a rank reads in parallel."""
    return [
        Way("random", Random(), placed=False),
        Way("random, placed", Random(), placed=True),
        Way("block", Block(64, 256, lanes=world.world_size), placed=False),
        Way("block, placed", Block(64, 256, lanes=world.ranks), placed=True),
    ]


@dataclass(frozen=True)
class Asked:
    """Means over batches of one rank.

    Attributes:
        shards: number of different shards in a batch.
        requests: number of requests for its records, neighbours merged.
        tables: number of tables that were not cached.
    """

    shards: float
    requests: float
    tables: float


def asked(world: World, way: Way) -> Asked:
    """Return the requests of a rank in the middle of the cluster."""
    ends = world.ends(world.samples)
    held: OrderedDict[int, None] = OrderedDict()
    most = max(1, int(world.tables_memory / (TABLE_BYTES * world.shard_samples)))
    counts: list[tuple[int, int, int]] = []
    for samples in batches(world, way):
        shards = np.searchsorted(ends, samples, "right")
        counts.append(
            (len(set(shards.tolist())), len(_requests(world, samples, shards, ends)), _missed(held, shards, most))
        )
    # The first half fills the cache of tables.
    shards_of, asked_for, tables = np.array(counts[len(counts) // 2 :], float).mean(axis=0).tolist()
    return Asked(shards_of, asked_for, tables)


def batches(world: World, way: Way) -> Iterator[Integers]:
    """Return int64 [batch], ascending samples of each of some consecutive batches."""
    cursor = way.cursor(world, world.samples, world.world_size // 2 + world.ranks // 2, world.batch)
    cursor.set_position(world.steps // 2 * world.world_size * world.batch)
    for step in cursor.steps():
        yield np.sort(step.indices)
        if step.after >= cursor.position + BATCHES * world.world_size * world.batch:
            return


def _requests(world: World, samples: Integers, shards: Integers, ends: Integers) -> list[object]:
    firsts = np.concatenate(([0], ends))[shards]
    counts = ends[shards] - firsts
    starts = TABLE_BYTES * (counts + 1) + (samples - firsts) * world.sample_bytes
    return list(requests(shards, starts, starts + world.sample_bytes))


def _missed(held: "OrderedDict[int, None]", shards: Integers, most: int) -> int:
    """Return the number of tables that are not cached, and cache them."""
    missed = 0
    for shard in dict.fromkeys(shards.tolist()):
        missed += shard not in held
        held[shard] = None
        held.move_to_end(shard)
        while len(held) > most:
            held.popitem(last=False)
    return missed


def shards_of_node(world: World, way: Way) -> float:
    """Return the largest number of shards that a node reads in an epoch."""
    if not way.placed:
        return min(world.shards, world.samples / world.nodes)
    cursor = way.cursor(world, world.samples, 0, world.batch)
    ends = world.ends(world.samples)
    spans = [cursor.order.bounds(world.samples, node) for node in range(world.nodes)]  # type: ignore[attr-defined]
    return float(
        np.mean(
            [
                np.searchsorted(ends, stop - 1, "right") - np.searchsorted(ends, first, "right") + 1
                for first, stop in spans
            ]
        )
    )


def rows(world: World) -> list[list[str]]:
    """Return a row for each way."""
    found = []
    for way in ways(world):
        of = asked(world, way)
        tables = of.tables * TABLE_BYTES * world.shard_samples
        found.append(
            [
                *(way.name, f"{of.shards:.1f}", f"{of.requests:.1f}", size(world.batch * world.sample_bytes)),
                *(f"{of.tables:.2f}, {size(tables)}", figure(round(shards_of_node(world, way)))),
            ]
        )
    return found
