"""The arguments that decide an order, for `Loader`, `Sampler`, `BatchSampler` and `IterableDataset`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order import Cursor, Identity, Order, Weighted
from ffrecord.system.values import describe_wrong
from ffrecord.torch.distributed import Place, Ranks

__all__ = ["OrderArguments"]

SHUFFLES = {True: "random", False: "sequential"}
POLICIES = {True: "drop", False: "pad"}


@dataclass(frozen=True, kw_only=True)
class OrderArguments:
    """The order of the samples, and the share of a rank in it, as the user gave them.

    Attributes:
        order, shuffle, weights: ways to name the order, at most one of them; None for "random".
        policy, drop_uneven: ways to name the policy, at most one of them; None for "drop".
        seed, epoch, rank, world_size, indices, placement: arguments of `Loader`.
    """

    order: str | Order | None = None
    shuffle: bool | None = None
    weights: Any = None
    seed: int = 0
    epoch: int = 0
    rank: int | None = None
    world_size: int | None = None
    policy: str | None = None
    drop_uneven: bool | None = None
    indices: Iterable[int] | torch.Tensor | None = None
    placement: Place = None

    def make(self, identity: Identity, batch_size: int, drop_last: bool) -> tuple[Cursor, Ranks]:
        """Return the cursor over a dataset, and the ranks that it follows.

        Raises:
            ValueError, TypeError: arguments are out of range, of another type, or contradict each other; or there is
                nothing to yield.
        """
        ranks = Ranks(self.rank, self.world_size, self.placement)
        cursor = Cursor(
            identity,
            order=self.parse_order(),
            seed=self.seed,
            epoch=self.epoch,
            batch_size=batch_size,
            drop_last=drop_last,
            rank=ranks.first.rank,
            world_size=ranks.first.world_size,
            policy=resolve_pair("policy", self.policy, "drop_last", self.drop_uneven, POLICIES, "drop"),
            indices=self.indices,  # pyright: ignore[reportArgumentType]  # a tensor of ints is one
            placement=ranks.first.placement,
        )
        return cursor, ranks

    def parse_order(self) -> str | Order:
        """Return the order that `order`, `shuffle` and `weights` ask for.

        Raises:
            ValueError: they contradict each other.
            TypeError: `order` is a bool, or `shuffle` is not.
        """
        if isinstance(self.order, bool):
            raise ArgumentTypeError(
                describe_wrong("order", self.order, "a word or an Order", f"write shuffle={self.order}")
            )
        if self.shuffle is not None and not isinstance(self.shuffle, bool | np.bool_):
            raise ArgumentTypeError(describe_wrong("shuffle", self.shuffle, "True or False", "orders are for order="))
        if self.weights is None:
            order: str | Order = resolve_pair("order", self.order, "shuffle", self.shuffle, SHUFFLES, "random")
            return order
        for name, value in (("order", self.order), ("shuffle", self.shuffle)):
            if value is not None and not (name == "shuffle" and value):
                raise ArgumentError(f"{name} is {value!r}, but weights draw the samples: leave one of them out")
        return Weighted(self.weights)


def resolve_pair(name: str, value: Any, other: str, flag: bool | None, meaning: dict[bool, str], default: str) -> Any:
    """Return the value that two arguments with one meaning ask for.

    Raises:
        ValueError: they contradict each other.
    """
    if flag is None:
        return default if value is None else value
    meant = meaning[bool(flag)]
    if value is not None and value != meant:
        raise ArgumentError(f"{name} is {value!r}, but {other}={flag} asks for {meant!r}: leave one of them out")
    return meant
