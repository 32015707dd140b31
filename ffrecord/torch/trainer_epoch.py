"""The epoch that a trainer has set for a loader with samplers of torch.

Trainers call `set_epoch` of the sampler before each of their epochs, some of them after they have made the iterator. A
state of such a loader has this epoch. So a loop for which another epoch is set does not go on in the old one.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from ffrecord.torch.samplers import Sampler

__all__ = ["ShuffleSampler", "decides_order", "set_trainer_epoch", "trainer_epoch"]


class ShuffleSampler(RandomSampler):
    """The sampler of `shuffle=True`: torch's RandomSampler with the same order for the same generator, and an epoch.

    Attributes:
        epoch: the epoch that was set last, or None. The order does not depend on it.
    """

    epoch: int | None = None

    def __iter__(self) -> Iterator[int]:
        # torch's sampler draws once more when it is asked for an index after the last one. Whether it is asked depends
        # on workers and on the form of the loop, but the generator's state must not: so draw all indices first.
        with torch.device("cpu"):  # the generator is on the CPU, whatever torch's default device is
            order = list(super().__iter__())
        yield from order

    def set_epoch(self, epoch: int) -> None:
        """Note the epoch of the next iteration."""
        self.epoch = epoch


def trainer_epoch(loader: Any) -> int | None:
    """Return the epoch that was set for a sampler in `loader`, or None."""
    return next((sampler.epoch for sampler in _samplers(loader)), None)


def set_trainer_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch of the next iteration for the samplers in `loader`."""
    for sampler in _samplers(loader):
        sampler.set_epoch(epoch)


def decides_order(loader: Any) -> bool:
    """Tell whether the order of `loader` depends on the epoch that was set."""
    return any(isinstance(sampler, DistributedSampler) for sampler in _samplers(loader))


def _samplers(node: Any) -> Iterator[Any]:
    """Yield the samplers inside that keep the epoch that is set; other samplers may count epochs themselves."""
    if isinstance(node, Sampler):
        return
    if isinstance(node, ShuffleSampler | DistributedSampler):
        yield node
        return
    for name in ("sampler", "batch_sampler"):
        inside = getattr(node, name, None)
        if inside is not None:
            yield from _samplers(inside)
