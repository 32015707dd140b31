"""`python -m ffrecord.order`: how well each order mixes, as a table or JSON."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from ffrecord.errors import ArgumentError
from ffrecord.order import quality
from ffrecord.order.block import Block
from ffrecord.order.orders import Order, Random, Sequential
from ffrecord.order.sliced import Placed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the qualities; the exit status is 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m ffrecord.order", description="How well each order mixes.")
    parser.add_argument("--n", type=int, default=1_000_000, help="samples in the dataset (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="samples in a batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="to take the mean over (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", action="append", metavar="SIZE[,WINDOW[,LANES]]", help="instead of some usual sizes")
    parser.add_argument("--slices", type=int, help="beside the others, a random order within so many slices")
    parser.add_argument("--ranks", type=int, default=1, help="that share the epoch; batches are those of one")
    parser.add_argument("--shuffled", action="store_true", help="the dataset is stored in random order")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        blocks = [block_of(text) for text in given.block or []]
        placed = [] if given.slices is None else [Placed(given.slices)]
        orders: list[Order] = [Random(), *placed, *blocks, Sequential()]
        sources = quality.contestants(orders if blocks or placed else None)
        if given.shuffled:
            sources = {name: quality.stored_shuffled(source) for name, source in sources.items()}
        found = {
            name: quality.measure(source, given.n, given.batch_size, given.epochs, given.seed, ranks=given.ranks)
            for name, source in sources.items()
        }
    except ValueError as error:
        parser.error(str(error))
    if given.json:
        facts = {"n": given.n, "batch_size": given.batch_size, "epochs": given.epochs, "seed": given.seed}
        facts |= {"ranks": given.ranks, "shuffled": given.shuffled}
        print(json.dumps({**facts, "orders": {name: asdict(each) for name, each in found.items()}}))
    else:
        print(table(found))
    return 0


def block_of(text: str) -> Block:
    """The order that "block_size,window" or "block_size,window,lanes" means.

    Raises:
        ValueError: it means none.
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise ArgumentError(f"block is {text!r}, expected block_size,window,lanes")
    return Block(*numbers)


def table(found: dict[str, quality.Quality]) -> str:
    """A Markdown table."""
    rows = ["| order | displacement | effective batch | together |", "|---|---|---|---|"]
    for name, each in found.items():
        worth = three(each.effective_batch)
        rows.append(f"| {name} | {each.displacement:.3f} | {worth} | {100 * each.together:.3g} % |")
    return "\n".join(rows)


def three(number: float) -> str:
    """Write a number with three digits that count, not as a power of ten."""
    return f"{number:.3g}" if number < 999.5 else f"{float(f'{number:.3g}'):,.0f}"


if __name__ == "__main__":
    sys.exit(main())
