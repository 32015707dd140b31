"""Datasets and loaders for torch over FFRecord files; the only part of the package that imports torch."""

from ffrecord.reading.notebook import show as show
from ffrecord.system.optional import install_command

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
