"""The cached share of an epoch on a node: whole epochs of the real orders, with fewer samples in as many shards."""

from collections import OrderedDict

import numpy as np
from scale_reading import Way, ways
from scale_world import World, figure, share, size

from ffrecord.order import Placed

EPOCHS = 4
PARTS = (0.25, 0.5, 1.0, 1.25)  # sizes of a cache, as parts of a node's share of the dataset
HEADER = ["order", "cache of a node", *(f"epoch {number}" for number in range(EPOCHS)), "if old shards gave way"]


class Keeping:
    """A cache like ours: contents stay, and once it is full nothing more comes in."""

    def __init__(self, samples: int, most: int) -> None:
        self._here = np.zeros(samples, bool)
        self._left = most

    def epoch(self, samples: list[int], shards: list[int]) -> int:
        """Return how many of these samples, in turn, are cached."""
        wanted = np.array(samples)
        missing = wanted[~self._here[wanted]][: self._left]
        hits = int(self._here[wanted].sum())
        self._here[missing] = True
        self._left -= len(missing)
        return hits


class Replacing:
    """The usual kind of cache: the shard that was unused for longest is dropped with all its contents."""

    def __init__(self, samples: int, most: int) -> None:
        self._shards: OrderedDict[int, set[int]] = OrderedDict()
        self._left = most

    def epoch(self, samples: list[int], shards: list[int]) -> int:
        """Return how many of these samples, in turn, are cached."""
        hits = 0
        for sample, shard in zip(samples, shards, strict=True):
            held = self._shards.setdefault(shard, set())
            self._shards.move_to_end(shard)
            if sample in held:
                hits += 1
                continue
            held.add(sample)
            self._left -= 1
            while self._left < 0 and len(self._shards) > 1:
                self._left += len(self._shards.popitem(last=False)[1])
        return hits


def small_samples(world: World) -> int:
    """Return the number of samples of the simulated dataset."""
    return world.shards * world.small


def read_by_node(world: World, way: Way, epoch: int) -> list[int]:
    """Return the samples of the ranks of a node in the middle, step by step."""
    node, found = world.nodes // 2, []
    for rank in range(node * world.ranks, (node + 1) * world.ranks):
        cursor = way.cursor(world, small_samples(world), rank, 1 << 20)
        cursor.set_epoch(epoch)
        found.append(np.concatenate([step.indices for step in cursor.steps()]))
    together: list[int] = np.stack(found, axis=1).ravel().tolist()
    return together


def rows(world: World) -> list[list[str]]:
    """Return rows for the orders, and the whole dataset's cache for comparison."""
    n, found = small_samples(world), []
    ends = world.ends(n)
    for way in ways(world):
        epochs = [read_by_node(world, way, epoch) for epoch in range(EPOCHS)]
        shards = [np.searchsorted(ends, samples, "right").tolist() for samples in epochs]
        for part in PARTS if way.placed else (1.0, float(world.nodes)):
            most = round(part * n / world.nodes)
            keeping, replacing = Keeping(n, most), Replacing(n, most)
            kept = [keeping.epoch(*each) for each in zip(epochs, shards, strict=True)]
            usual = [replacing.epoch(*each) for each in zip(epochs, shards, strict=True)]
            held = size(part * world.samples / world.nodes * world.sample_bytes)
            of = f"{part:g} / {figure(world.nodes)} of the dataset, {held}" if part < world.nodes else f"all, {held}"
            hits = [share(each / len(samples)) for each, samples in zip(kept, epochs, strict=True)]
            found.append([way.name, of, *hits, share(usual[-1] / len(epochs[-1]))])
    return found


MOVED_HEADER = ["nodes now", "slices", "of a node's share in its cache"]


def moved(world: World) -> list[list[str]]:
    """Return the share that a node has cached already, after the number of nodes changed from the world's."""
    n, nodes, found = world.samples, world.nodes, []
    for now, slices in (
        (nodes - 1, nodes - 1),
        (nodes + 1, nodes + 1),
        (nodes // 2, nodes // 2),
        (nodes // 2, nodes),
    ):
        if now < 1:
            continue
        before, after = Placed(nodes), Placed(slices)
        parts = []
        for node in range(now):
            had = before.bounds(n, node) if node < nodes else (0, 0)
            own = [after.bounds(n, number) for number in range(node, slices, now)]
            both = sum(max(0, min(had[1], stop) - max(had[0], first)) for first, stop in own)
            parts.append(both / sum(stop - first for first, stop in own))
        found.append([figure(now), figure(slices), share(float(np.mean(parts)))])
    return found
