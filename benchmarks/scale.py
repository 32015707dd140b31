"""How a dataset of many shards is read by many nodes: worked out and simulated. Nothing of this machine is timed.

What samples a rank gets, which requests that takes and what a dataset.json has are found by the package itself; the
rest follows from what is assumed, and every assumption is an option. The same options print the same tables everywhere.
docs/scale.md shows those of the defaults and explains them.
"""

import sys

import scale_caching
import scale_opening
import scale_reading
import scale_waiting
from scale_world import TABLE_BYTES, World, assumptions, figure, size, world_of

from ffrecord import FFRecordError


def demand(world: World) -> list[list[str]]:
    """Return the load of all nodes on the store while nothing is cached."""
    requests = world.samples_per_second
    received = requests * world.sample_bytes
    busy = requests / world.nodes * world.latency_ms / 1000
    return [
        ["the dataset", size(world.samples * world.sample_bytes)],
        ["a mean shard", size(world.shard_samples * world.sample_bytes)],
        ["all tables", size(world.samples * TABLE_BYTES)],
        ["the tables of a shard", size(world.shard_samples * TABLE_BYTES)],
        ["steps of an epoch", figure(world.steps)],
        ["its time", f"{world.steps * world.step_ms / 3.6e6:.2f} h"],
        ["samples per second, one request each", figure(round(requests))],
        ["prefixes that promise so many", figure(-(-requests // world.prefix_requests))],
        ["bytes per second, all nodes", size(received)],
        ["of a node", size(received / world.nodes)],
        ["of the network of a node", f"{100 * received * 8 / world.nodes / (world.node_gbit * 1e9):.0f} %"],
        ["requests of a node under way at any time", f"{busy:.0f} of {world.ranks * world.in_flight}"],
        ["price of an epoch's requests", figure(round(world.samples / 1e6 * world.price))],
    ]


def sections(world: World) -> dict[str, str]:
    """Return title → table in Markdown."""
    return {
        "Assumptions": table(["", "", ""], assumptions(world)),
        "Demand": table(["", ""], demand(world)),
        "Opening": table(scale_opening.HEADER, scale_opening.rows(world)),
        "A batch": table(scale_reading.HEADER, scale_reading.rows(world)),
        "Caches": table(scale_caching.HEADER, scale_caching.rows(world)),
        "Other numbers of nodes": table(scale_caching.MOVED_HEADER, scale_caching.moved(world)),
        "Slow requests": table(scale_waiting.HEADER, scale_waiting.rows(world)),
        "Slow nodes": table(scale_waiting.NODE_HEADER, scale_waiting.slow_node(world)),
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    """Format a table in Markdown."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: list[str] | None = None) -> None:
    """Print all tables."""
    world = world_of(arguments, __doc__)
    try:
        found = sections(world)
    except FFRecordError as error:  # for example a dataset.json above the size limit
        print(f"scale.py: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    for title, text in found.items():
        print(f"## {title}\n\n{text}\n")


if __name__ == "__main__":
    main()
