"""Datasets and loaders for torch over FFRecord files; the only part of the package that imports torch."""

from ffrecord.system.optional import install

try:
    import torch as _torch  # noqa: F401  (only to say what is missing before anything else does)
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"ffrecord.torch needs torch: {install('torch')}", name="torch") from error

from ffrecord.torch.collating import collate
from ffrecord.torch.dataloader import DataLoader
from ffrecord.torch.dataset import ConcatDataset, Dataset, Subset
from ffrecord.torch.iterable import IterableDataset
from ffrecord.torch.loader import Loader
from ffrecord.torch.loading.ragged import Padded
from ffrecord.torch.loading.stats import LoaderStats
from ffrecord.torch.registry import ReaderRegistry
from ffrecord.torch.samplers import BatchSampler, Sampler

__all__ = [
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "Loader",
    "LoaderStats",
    "Padded",
    "ReaderRegistry",
    "Sampler",
    "Subset",
    "collate",
]

ReaderResitry = ReaderRegistry  # spelt so by programs written for ffrecord 1.2
