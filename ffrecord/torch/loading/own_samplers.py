"""Samplers of this package in a `Loader`: their order is arithmetic, so the loader takes it over, with its ranks."""

from typing import Any, NamedTuple

from torch.utils.data import BatchSampler as TorchBatchSampler

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import SEEDS, check_range
from ffrecord.torch.loading.sampled import INSIDE
from ffrecord.torch.samplers import BatchSampler, Sampler

__all__ = ["KnownOrder", "check_ranks", "check_seed", "find_order"]


class KnownOrder(NamedTuple):
    """The order of a sampler of this package, and the batches to make of it."""

    sampler: Sampler
    batch_size: int
    drop_last: bool


def find_order(sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool) -> KnownOrder | None:
    """Return the order of these arguments of `Loader`; None if another sampler decides the samples, or none.

    A subclass may change what it yields, so it is read as any sampler is.
    """
    # torch's BatchSampler over our Sampler is known too.
    if type(batch_sampler) is BatchSampler:
        return KnownOrder(batch_sampler.sampler, *batch_sampler.sampler._sizes)
    if type(batch_sampler) is TorchBatchSampler:
        sampler, batch_size, drop_last = batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
    return KnownOrder(sampler, batch_size, drop_last) if type(sampler) is Sampler else None


def check_seed(seed: int, sampler: Sampler) -> None:
    """Refuse a seed beside a sampler of this package, whose seed is that of order and augmentation.

    Raises:
        ValueError: `seed` is another one than the sampler's, and not the default.
        TypeError: it is no int.
    """
    if check_range("seed", seed, 0, SEEDS) not in (0, sampler.seed):
        raise ArgumentError(f"seed is {seed}, but the sampler has {sampler.seed}: leave it out here")


def check_ranks(rank: Any, world_size: Any, sampler: Any) -> None:
    """Refuse a rank beside a sampler that is made for another one.

    Raises:
        ValueError: the sampler, or the one inside it, has another rank or number of ranks.
    """
    if rank is None and world_size is None:
        return
    seen: list[Any] = []
    while sampler is not None and all(sampler is not each for each in seen):
        for name, value, other in (("rank", rank, "rank"), ("world_size", world_size, "num_replicas")):
            own = getattr(sampler, other, None)
            if value is not None and isinstance(own, int) and own != value:
                raise ArgumentError(f"{name} is {value}, but the sampler has {own}: leave it out here")
        seen.append(sampler)
        sampler = next((inside for each in INSIDE if (inside := getattr(sampler, each, None)) is not None), None)
