"""The contestants of each part of bench_loader.py that runs them in their own processes."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loader_checks
import loader_gpu
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
    "Loader, random_split": Way("ours", "ffrecord", "loader_own.of_split"),
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
NORMALISED = {
    "Loader, normalised": Way("ours", "ffrecord", "loader_pictures.loader"),
    "ffcv, normalised": Way("peer", "ffcv", "loader_pictures.ffcv"),
    "DataLoader, Dataset, normalised": Way("ours", "ffrecord", "loader_pictures.dataset"),
    "DataLoader, ImageFolder, normalised": Way("plain", "pillow", "loader_pictures.normalised_folder"),
}
PNG = {
    "Loader, PNG": Way("ours", "ffrecord", "loader_pictures.loader"),
    "Pillow alone, PNG": Way("limit", "pillow", "loader_pictures.BarePillow"),
}
GPU = {
    "Loader, CPU": Way("ours", "ffrecord", "loader_gpu.loader", {"place": "cpu", "library": False}),
    "Loader, CPU, copied": Way("ours", "ffrecord", "loader_gpu.loader", {"place": "cuda", "library": False}),
    "Loader, nvImageCodec, GPU": Way("ours", "ffrecord", "loader_gpu.loader", {"place": "cuda", "library": True}),
    "Loader, nvImageCodec, CPU": Way("ours", "ffrecord", "loader_gpu.loader", {"place": "cpu", "library": True}),
    "nvImageCodec alone, GPU": Way("limit", "nvidia-nvimgcodec-cu12", "loader_gpu.Whole", {"place": "cuda"}),
    "nvImageCodec alone, CPU": Way("limit", "nvidia-nvimgcodec-cu12", "loader_gpu.Whole", {"place": "cpu"}),
}
WEIGHTED = {
    "Loader, random": Way("ours", "ffrecord", "loader_own.loader"),
    "Loader, weights": Way("ours", "ffrecord", "loader_own.Weighted"),
}
PYTHON = {
    "Loader, no threads": Way("ours", "ffrecord", "loader_own.of_python", {"num_threads": 0}),
    "DataLoader, no workers": Way("plain", "torch", "loader_torch.memmap", {"processes": False}),
    "Loader, workers": Way("ours", "ffrecord", "loader_own.of_python", {"num_workers": 2}),
    "DataLoader, workers": Way("plain", "torch", "loader_torch.memmap"),
}
PARTS = {
    "a loader": Part(LOADERS, loader_checks.cifar),
    "DataLoader": Part(THROUGH_TORCH, loader_checks.cifar),
    "weights": Part(WEIGHTED, loader_checks.drawn),
    "Python": Part(PYTHON, loader_checks.cifar),
    "bytes": Part(PICTURES, loader_checks.pictures),
    "normalised": Part(NORMALISED, loader_checks.normalised),
    "PNG": Part(PNG, loader_checks.pictures),
    "GPU": Part(GPU, loader_gpu.check),
}


def of_work(work: Any) -> Part:
    if isinstance(work, workloads.Gathers | workloads.Shuffles | workloads.CropsBeside):
        newest: Mapping[type, Part] = importlib.import_module("newest_parts").PARTS
        return newest[type(work)]
    if isinstance(work, workloads.Sources):
        part: Part = importlib.import_module("loader_sources").PART
        return part
    return PARTS[work.through if isinstance(work, workloads.Epochs) else work.form]
