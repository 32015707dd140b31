"""The cost of the slowest request if all ranks wait for each other: a model where only request times are random.

Step j begins when step j - 1 is done and all ranks have its batch. A batch is requested when the batch `ahead` steps
before it is taken. It is there when its slowest request has been answered, and its bytes have arrived, one batch after
the other. The slowest of m independent requests is drawn at once: the m-th root of a uniform number is distributed like
the largest of m.
"""

from dataclasses import replace
from math import exp, log
from statistics import NormalDist

from scale_world import World, chances, figure, share

STEPS = 2000
AHEAD = (1, 2, 4, 8, 16)  # batches; the loader has 4 ready and 4 being read unless told otherwise
HEADER = ["fetched, of all samples", "requests of a step", "slow ones", "of", *(f"{number} ahead" for number in AHEAD)]
MISSES = (1.0, 0.25, 0.01)
LONGER = (1, 5)  # factors for the time of slow requests
NORMAL = NormalDist()


def request_ms(world: World, chance: float) -> float:
    """Return the request time that is longer than this share of all."""
    usual = 1 - world.slow_share
    if chance >= usual:
        return world.slow_ms
    return world.latency_ms * exp(world.spread * NORMAL.inv_cdf(min(max(chance / usual, 1e-12), 1 - 1e-12)))


def transfer_ms(world: World, missed: float, node_gbit: float) -> float:
    """Return the time to transfer the bytes of a step to a node."""
    return missed * world.ranks * world.batch * world.sample_bytes * 8 / (node_gbit * 1e6)


def slowest_ms(world: World, missed: float) -> list[float]:
    """Return the time of the slowest request of all ranks, for each of some steps."""
    count = missed * world.world_size * world.batch
    waves = max(1, -(-missed * world.batch // world.in_flight))
    found = []
    for chance in chances(world.seed, 2, STEPS).tolist():
        largest = exp(log(chance) / count) if chance else 0.0
        found.append(waves * request_ms(world, largest))
    return found


def speed(world: World, slowest: list[float], transfer: float, ahead: int) -> float:
    """Return the speed relative to that without waiting.

    Args:
        slowest: ms, of each step.
        transfer: ms, for the bytes of a step.
        ahead: number of batches.
    """
    begun: list[float] = []
    through, done = 0.0, 0.0  # times when the bytes so far have arrived, and when the last step is done
    for j, waited in enumerate(slowest):
        asked = begun[j - ahead] if j >= ahead else 0.0
        through = max(through, asked) + transfer
        begun.append(max(done, through + waited))
        done = begun[-1] + world.step_ms
    return world.step_ms * (len(begun) - 1) / (begun[-1] - begun[0])


def rows(world: World) -> list[list[str]]:
    """Return rows for shares of samples that are not cached, and for slower slow requests."""
    found = []
    for longer in LONGER:
        slower = replace(world, slow_ms=world.slow_ms * longer)
        for missed in MISSES:
            count = missed * world.world_size * world.batch
            slowest, transfer = slowest_ms(slower, missed), transfer_ms(world, missed, world.node_gbit)
            speeds = [share(speed(world, slowest, transfer, ahead)) for ahead in AHEAD]
            slow = [figure(round(count * world.slow_share, 3)), f"{slower.slow_ms / 1000:g} s"]
            found.append([share(missed), figure(round(count)), *slow, *speeds])
    return found


NODE_HEADER = ["the slowest node receives", "all fetched", "a quarter", "a hundredth"]


def slow_node(world: World) -> list[list[str]]:
    """Return the speed of all if one node receives less than the others: reading ahead does not help against that."""
    found = []
    for part in (1.0, 0.1, 0.05, 0.02):
        gbit = world.node_gbit * part
        speeds = [share(min(1.0, world.step_ms / max(transfer_ms(world, missed, gbit), 1e-9))) for missed in MISSES]
        found.append([f"{figure(gbit)} Gbit/s", *speeds])
    return found
