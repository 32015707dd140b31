"""The cost of opening: the real `dataset.json` of as many shards."""

import os
import tempfile

from scale_world import World, chances, figure, size

from ffrecord import FormatError
from ffrecord.format import manifest

HEADER = ["shards", "dataset.json", "for each", "a node's processes", "all processes", "received by a node in"]


def document(world: World, shards: int) -> int:
    """Return the bytes of the dataset.json of this many shards of this size, as it is written and read."""
    samples = round(world.shard_samples)
    made = []
    for i, chance in enumerate(chances(world.seed, 1, shards).tolist()):
        size_of = samples * (world.sample_bytes + 12) + int(chance * world.sample_bytes)
        made.append(manifest.Shard(f"PART_{i:05}.ffr", samples, size_of, int(chance * 2**32)))
    with tempfile.TemporaryDirectory() as directory:
        manifest.save(directory, manifest.build(made))
        assert manifest.load(directory) is not None
        return os.path.getsize(os.path.join(directory, manifest.NAME))


def rows(world: World) -> list[list[str]]:
    """Return a row for each of some numbers of shards up to the world's.

    Raises:
        FormatError: a dataset.json of so many would be refused.
    """
    most = most_shards(world)
    if world.shards > most:
        raise FormatError(f"{manifest.NAME} lists at most {most:,} shards, {world.shards:,} are asked for")
    found = []
    for shards in sorted({1000, 10_000, world.shards}):
        length = document(world, shards)
        each = length / shards
        seconds = world.latency_ms / 1000 + world.ranks * length * 8 / (world.node_gbit * 1e9)
        found.append(
            [
                *(figure(shards), size(length), f"{each:.0f} B", size(world.ranks * length)),
                *(size(world.world_size * length), f"{1000 * seconds:.0f} ms"),
            ]
        )
    return found


def most_shards(world: World) -> int:
    """Return the largest number of shards in a dataset.json before it is refused as too large."""
    return int(manifest.SIZE_MAX / (document(world, 10_000) / 10_000))
