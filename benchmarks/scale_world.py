"""The cluster, dataset and store of scale.py, and the numbers that follow from them alone."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.order import sample_seeds
from ffrecord.remote.connecting import REQUESTS, TABLES_MEMORY

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TABLE_BYTES = 12  # of a sample in the tables of its shard: CRC-32 and offset


def _given(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class World:
    """All assumptions. Each is an option of the program."""

    samples: int = _given(10**10, "of the dataset")
    shards: int = _given(10**5, "that they are in, of sizes that differ by up to a third")
    sample_bytes: int = _given(110_000, "of each sample")
    nodes: int = _given(1000, "that train")
    ranks: int = _given(8, "processes on each node, one for each GPU")
    batch: int = _given(64, "samples of a rank in a step")
    step_ms: float = _given(250.0, "computation of a step")
    node_gbit: float = _given(25.0, "Gbit/s that a node can receive")
    latency_ms: float = _given(20.0, "median of a request, without its bytes")
    spread: float = _given(0.4, "of requests: the logarithm of their times is normal, with this deviation")
    slow_share: float = _given(0.0001, "of requests that take long, whatever the reason")
    slow_ms: float = _given(1000.0, "that these take")
    prefix_requests: float = _given(5500.0, "GET requests per second that a store promises for a prefix")
    price: float = _given(0.40, "of a million GET requests")
    in_flight: int = _given(REQUESTS, "requests of a process at once")
    tables_memory: int = _given(TABLES_MEMORY, "bytes of tables that a process holds")
    small: int = _given(200, "samples of a shard where whole epochs are simulated for their caches")
    seed: int = _given(0, "of the order and of all chance")

    @property
    def world_size(self) -> int:
        """Number of ranks on all nodes."""
        return self.nodes * self.ranks

    @property
    def steps(self) -> int:
        """Number of steps of an epoch."""
        return self.samples // (self.world_size * self.batch)

    @property
    def shard_samples(self) -> float:
        """Number of samples of a mean shard."""
        return self.samples / self.shards

    @property
    def samples_per_second(self) -> float:
        """Samples per second of all ranks, as fast as they compute."""
        return self.world_size * self.batch / (self.step_ms / 1000)

    def ends(self, samples: int) -> Integers:
        """Return int64 [shards], the end of each shard of a dataset of this many samples: sizes differ by up to a
        third.
        """
        weights = 1 + chances(self.seed, 0, self.shards) / 3
        ends: Integers = np.round(np.cumsum(weights) / weights.sum() * samples).astype(np.int64)
        return ends


def chances(seed: int, stream: int, count: int) -> Floats:
    """Return float64 [count] in [0, 1): the same on every machine, with any version of any package."""
    found: Floats = (sample_seeds(seed, stream, np.arange(count)) >> np.uint64(11)).astype(np.float64)
    return found * 2.0**-53


def world_of(arguments: Sequence[str] | None, description: str | None) -> World:
    """Return the assumptions from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for each in fields(World):
        kind = _whole if each.type in (int, "int") else float
        name = f"--{each.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=each.default, help=each.metadata["help"])
    given = World(**vars(parser.parse_args(arguments)))
    for each in fields(World):
        if each.name != "seed" and not getattr(given, each.name) > 0:
            parser.error(f"{each.name} is {getattr(given, each.name)}, expected more than 0")
    if given.samples < given.world_size * given.batch * 2:
        parser.error(f"{given.samples} samples are less than two steps of {given.world_size} ranks")
    return given


def _whole(text: str) -> int:
    """Return an int, also from text like 1e10."""
    number = float(text)
    if not number.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text) if text.lstrip("-").isdigit() else int(number)


def assumptions(world: World) -> list[list[str]]:
    """Return rows: name, value, meaning."""
    return [[each.name, figure(getattr(world, each.name)), each.metadata["help"]] for each in fields(World)]


def figure(number: float) -> str:
    """Format a number for people: whole if it is, else three digits."""
    if isinstance(number, int) or (number == int(number) and abs(number) < 1e15):
        return f"{int(number):,}"
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def size(count: float) -> str:
    """Format bytes for people."""
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.3g} {units[0]}"


def share(part: float) -> str:
    """Format a share of 1 in per cent."""
    return f"{100 * part:.3g} %"
