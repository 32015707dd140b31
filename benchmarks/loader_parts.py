"""The contestants of each part of bench_loader.py that runs them in their own processes."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loader_checks
import workloads
from loader_ways import Batches, Way

Check = Callable[[str, Batches, Path, Any], None]


@dataclass(frozen=True)
class Part:
    """Contestants over the same data.

    Attributes:
        ways: ways to load, by name.
        check: function (name, batches of an epoch, directory of the data, workload) that raises `WrongAnswerError`.
    """

    ways: Mapping[str, Way]
    check: Check


LOADERS = {
    "Loader": Way("ours", "ffrecord", "loader_own.loader"),
    "Loader mmap": Way("ours", "ffrecord", "loader_own.loader", {"io": "mmap"}),
    "Loader mmap unchecked": Way("ours", "ffrecord", "loader_own.loader", {"io": "mmap", "check_data": False}),
    "ffcv": Way("peer", "ffcv", "loader_peers.ffcv"),
    "mds": Way("peer", "mosaicml-streaming", "loader_peers.mds"),
    "litdata": Way("peer", "litdata", "loader_peers.litdata", {"workers": True}),
    "litdata, no workers": Way("peer", "litdata", "loader_peers.litdata", {"workers": False}),
    "C loop": Way("limit", "ffrecord", "loader_limit.Loop", {"check": False}),
    "C loop, CRC-32": Way("limit", "ffrecord", "loader_limit.Loop", {"check": True}),
}
THROUGH_TORCH = {
    "Dataset, BatchSampler": Way("ours", "ffrecord", "loader_torch.with_sampler"),
    "Dataset, shuffle=True": Way("ours", "ffrecord", "loader_torch.shuffled"),
    "original-style Dataset": Way("original", "ffrecord", "loader_torch.original"),
    "numpy.memmap": Way("plain", "numpy", "loader_torch.memmap"),
    "numpy.memmap, whole batches": Way("plain", "numpy", "loader_torch.memmap_batches"),
}
PICTURES = {
    "Loader, RandomResizedCrop": Way("ours", "ffrecord", "loader_pictures.loader"),
    "DataLoader, Dataset": Way("ours", "ffrecord", "loader_pictures.dataset"),
    "ffcv": Way("peer", "ffcv", "loader_pictures.ffcv"),
    "DataLoader, ImageFolder": Way("plain", "pillow", "loader_pictures.image_folder"),
    "DataLoader, Pillow": Way("plain", "pillow", "loader_pictures.pillow", {"draft": False}),
    "DataLoader, Pillow, draft": Way("plain", "pillow", "loader_pictures.pillow", {"draft": True}),
    "simplejpeg alone": Way("limit", "ffrecord", "loader_pictures.Bare"),
    "our decoder alone": Way("limit", "ffrecord", "loader_pictures.Alone"),
}
PARTS = {
    "a loader": Part(LOADERS, loader_checks.cifar),
    "DataLoader": Part(THROUGH_TORCH, loader_checks.cifar),
    "pictures": Part(PICTURES, loader_checks.pictures),
}


def of_work(work: Any) -> Part:
    if isinstance(work, workloads.Gathers | workloads.Shuffles | workloads.CropsBeside):
        newest: Mapping[type, Part] = importlib.import_module("newest_parts").PARTS
        return newest[type(work)]
    return PARTS[work.through if isinstance(work, workloads.Epochs) else "pictures"]
