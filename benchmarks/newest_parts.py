"""The contestants of each part of bench_newest.py: with no worker processes and with two, where a package has them."""

from typing import Any

import loader_checks
import workloads
from loader_parts import Part
from loader_ways import Way

WORKERS = {0: "no workers", 2: "2 workers"}


def both(label: str, package: str, where: str, role: str = "peer", **options: Any) -> dict[str, Way]:
    return {
        f"{label}, {words}": Way(role, package, where, {**options, "workers": workers})
        for workers, words in WORKERS.items()
    }


STREAMING = {"MosaicML Streaming": ("mosaicml-streaming", "mds"), "LitData": ("litdata", "litdata")}
BY_INDEX = {
    "FileReader.read_columns": Way("ours", "ffrecord", "newest_own.columns"),
    "Dataset": Way("ours", "ffrecord", "newest_own.by_index"),
    "Lance": Way("peer", "pylance", "newest_lance.by_index"),
    "Grain": Way("peer", "grain", "newest_grain.by_index"),
    "Hugging Face datasets": Way("peer", "datasets", "newest_datasets.by_index"),
    **{
        label: Way("peer", package, "newest_streaming.by_index", {"kind": short})
        for label, (package, short) in STREAMING.items()
    },
}


def loaders(pictures: bool) -> dict[str, Way]:
    spdl = {"SPDL": Way("peer", "spdl", "newest_plain.spdl")}
    if pictures:
        spdl["SPDL, its own decoder"] = Way("peer", "spdl", "newest_plain.spdl", {"own": True})
    return {
        "Loader": Way("ours", "ffrecord", "newest_own.epochs"),
        **both("Dataset in DataLoader", "ffrecord", "newest_own.dataset_epochs", "ours"),
        **both("Lance", "pylance", "newest_lance.epochs"),
        **both("WebDataset", "webdataset", "newest_webdataset.epochs"),
        **both("Grain", "grain", "newest_grain.epochs"),
        **spdl,
        **both("MosaicML Streaming", "mosaicml-streaming", "newest_streaming.epochs", kind="mds"),
        **both("LitData", "litdata", "newest_streaming.epochs", kind="litdata"),
        **both("Hugging Face datasets", "datasets", "newest_datasets.epochs"),
        **both("Energon", "megatron-energon", "newest_energon.epochs"),
        **both("torchdata nodes", "torchdata", "newest_plain.epochs"),
    }


# Functions (directory, workload, options, state) that begin at a state; SPDL has none.
RESUMED = {
    "Loader": Way("ours", "ffrecord", "newest_own.resumed", {"workers": 2}),
    **both("Dataset in DataLoader", "ffrecord", "newest_own.resumed", "ours", through=True),
    **both("Lance", "pylance", "newest_lance.resumed"),
    **both("WebDataset", "webdataset", "newest_webdataset.resumed"),
    **both("Grain", "grain", "newest_grain.resumed"),
    **both("MosaicML Streaming", "mosaicml-streaming", "newest_streaming.resumed", kind="mds"),
    **both("LitData", "litdata", "newest_streaming.resumed", kind="litdata"),
    **both("Hugging Face datasets", "datasets", "newest_datasets.resumed"),
    **both("Energon", "megatron-energon", "newest_energon.resumed"),
    **both("torchdata nodes", "torchdata", "newest_plain.resumed"),
}
PARTS = {
    workloads.Gathers: Part(BY_INDEX, loader_checks.cifar),
    workloads.Shuffles: Part(loaders(False), loader_checks.cifar),
    workloads.CropsBeside: Part(loaders(True), loader_checks.pictures),
}
