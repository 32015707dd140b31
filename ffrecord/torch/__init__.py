"""Datasets and loaders for torch over FFRecord files; the only part of the package that imports torch.

dataset.py           datasets that read a whole batch at once
iterable.py          the same as an iterable, for trainers without samplers
samplers.py          orders as samplers of torch; sampler_wrappers.py: samplers around them
dataloader.py        torch's DataLoader, which can begin at any batch
loader.py            the loader that works in threads; its parts are in loading/
images/              crops, scaled and flipped, in one tensor

ordering.py          arguments that decide an order; argument_words.py: wrong words, right ones
distributed.py       rank and node of this process
progress.py          the epoch, and the position in it as plain data
sampler_progress.py  progress of a loader with our samplers
trainer_epoch.py     the epoch that a trainer sets on torch's samplers

indices.py           indices of `dataset[...]`
fetching.py          positions -> one batched read -> samples
sample_work.py       `fields`, `decode` and `transform` of a dataset
samples.py           batches that know their columns
collation.py         records -> a tensor for each column; tensors.py: columns -> tensors

iterators.py         torch's loader iterators, which count
worker_queues.py     queues of workers that report errors of pickling
transfer.py          a batch from worker to loader; shared_memory.py: the memory that is lent for it
stop_iteration.py    a guard: StopIteration of a user's function does not end a loop
"""

from ffrecord.reading.notebook import show as show
from ffrecord.system.requirements import install_command

try:
    import torch as _torch  # noqa: F401  (only for a clear error if torch is missing)
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"ffrecord.torch needs torch: {install_command('torch')}", name="torch") from error

from ffrecord.torch.collation import collate as collate
from ffrecord.torch.dataloader import DataLoader
from ffrecord.torch.dataloader import track as track
from ffrecord.torch.dataset import ConcatDataset, Dataset, ReaderRegistry, Subset
from ffrecord.torch.iterable import IterableDataset as IterableDataset
from ffrecord.torch.loader import Loader
from ffrecord.torch.loading.ragged import Padded
from ffrecord.torch.loading.stats import LoaderStats
from ffrecord.torch.samplers import BatchSampler as BatchSampler
from ffrecord.torch.samplers import Sampler as Sampler

# The names of `from ffrecord.torch import *`. Public names that torch has too, and 1.x did not have, are left out: they
# would replace torch's own.
__all__ = [
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Loader",
    "LoaderStats",
    "Padded",
    "ReaderRegistry",
    "Subset",
]

ReaderResitry = ReaderRegistry  # the spelling of ffrecord 1.2, which programs use
