"""Which epoch a trainer has said that a loader with samplers of torch is in.

Trainers call `set_epoch` of the sampler before each of their epochs, some of them after they have made the iterator. A
state of such a loader has the epoch that was said, so that a loop that is told another one does not go on in the old.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from ffrecord.torch.samplers import Sampler

__all__ = ["Shuffled", "decides_order", "tell", "told"]


class Shuffled(RandomSampler):
    """The sampler of `shuffle=True`: torch's, in the same order for the same generator, which can be told an epoch.

    Attributes:
        epoch: what it was told last, or None. The order does not depend on it.
    """

    epoch: int | None = None

    def __iter__(self) -> Iterator[int]:
        # torch's draws once more when it is asked for what comes after the last index. Whether it is depends on workers
        # and on how the loop is written; the generator must not.
        with torch.device("cpu"):  # where the generator is, whatever torch's default device
            order = list(super().__iter__())
        yield from order

    def set_epoch(self, epoch: int) -> None:
        """Note which epoch the next iteration is of."""
        self.epoch = epoch


def told(loader: Any) -> int | None:
    """Return the epoch that a sampler in `loader` was told, or None if nobody could, or has."""
    return next((sampler.epoch for sampler in _samplers(loader)), None)


def tell(loader: Any, epoch: int) -> None:
    """Tell the samplers in `loader` that the next iteration is of `epoch`."""
    for sampler in _samplers(loader):
        sampler.set_epoch(epoch)


def decides_order(loader: Any) -> bool:
    """Whether the order of `loader` depends on the epoch that it was told."""
    return any(isinstance(sampler, DistributedSampler) for sampler in _samplers(loader))


def _samplers(node: Any) -> Iterator[Any]:
    """Yield the samplers inside that keep what they are told; others may count for themselves."""
    if isinstance(node, Sampler):
        return
    if isinstance(node, Shuffled | DistributedSampler):
        yield node
        return
    for name in ("sampler", "batch_sampler"):
        inside = getattr(node, name, None)
        if inside is not None:
            yield from _samplers(inside)
