"""Figures of loading with their targets, from the measurements of one run."""

from collections.abc import Callable, Sequence
from typing import Any

import workloads
from harness import Measurement
from read_figures import Figure, Group, figure_table, ratio, size_name
from write_figures import fastest, groups

MB = 1e6
KINDS = (workloads.Epochs, workloads.Crops, workloads.Sources, workloads.ColdEpochs, workloads.Starts)

__all__ = ["KINDS", "describe", "figure_table", "figures", "groups"]


def describe(work: Any) -> str:
    if isinstance(work, workloads.Epochs):
        by = {
            "a loader": f"{work.workers} threads",
            "DataLoader": f"torch's DataLoader, {work.workers} workers",
            "weights": f"{work.workers} threads, drawn by weights",
            "Python": "made by Python one by one",
        }[work.through]
        return f"{work.samples:,} images of 32 x 32 x 3, batches of {work.batch}, {by}"
    if isinstance(work, workloads.Crops):
        forms = {
            "bytes": "",
            "normalised": ", flipped and normalised",
            "PNG": ", PNG files",
            "GPU": ", with and without a GPU",
        }
        form = forms[work.form]
        return (
            f"{work.files:,} photographs, random crops of {work.side}, batches of {work.batch}, "
            f"{work.workers} workers{form}"
        )
    if isinstance(work, workloads.Sources):
        return work.way if work.workers else f"{work.way}, no workers"
    if isinstance(work, workloads.ColdEpochs):
        return f"cold, samples of {size_name(work.mean)}, batches of {work.batch}"
    assert isinstance(work, workloads.Starts)
    by = f", DataLoader with {work.processes} workers" if work.processes else ""
    return f"{work.samples:,} samples, first batch at {work.at:.0%} of the epoch{by}"


def best(group: Group, package: str) -> Measurement | None:
    """Return the fastest way of a package."""
    return fastest(*(m for m in group.of.values() if m.details.get("package") == package))


def loader_figures(group: Group) -> list[Figure]:
    where, ours, mapped = "images", group.named("Loader"), group.named("Loader mmap")
    loop, ffcv = group.named("C loop"), best(group, "ffcv")
    return [
        *ratio(where, ours, ffcv, 1),
        *ratio(where, mapped, ffcv, 1.5),
        *ratio(where, group.named("Loader, random_split"), ours, 0.95),
        *ratio(where, ours, loop, 0.8),
        *ratio(where, mapped, loop, None),
        *ratio(where, ours, group.named("C loop, CRC-32"), None),
        *ratio(where, ours, best(group, "mosaicml-streaming"), None),
        *ratio(where, ours, best(group, "litdata"), None),
    ]


def torch_figures(group: Group) -> list[Figure]:
    where, ours = "images, DataLoader", group.named("Dataset, BatchSampler")
    return [
        *ratio(where, ours, group.named("numpy.memmap"), 3),
        *ratio(where, ours, group.named("original-style Dataset"), 3),
        *ratio(where, ours, group.named("numpy.memmap, whole batches"), None),
        *ratio(where, group.named("Dataset, shuffle=True"), group.named("numpy.memmap"), None),
    ]


def weighted_figures(group: Group) -> list[Figure]:
    return ratio("images, weights", group.named("Loader, weights"), group.named("Loader, random"), 0.9)


def python_figures(group: Group) -> list[Figure]:
    where = "Python samples"
    return [
        *ratio(where, group.named("Loader, no threads"), group.named("DataLoader, no workers"), 1),
        *ratio(where, group.named("Loader, workers"), group.named("DataLoader, workers"), 1),
    ]


def normalised_figures(group: Group) -> list[Figure]:
    where = "photographs, normalised"
    return [
        *ratio(where, group.named("Loader, normalised"), best(group, "ffcv"), 1.3),
        *ratio(
            where,
            group.named("DataLoader, Dataset, normalised"),
            group.named("DataLoader, ImageFolder, normalised"),
            None,
        ),
    ]


def png_figures(group: Group) -> list[Figure]:
    return ratio("photographs, PNG", group.named("Loader, PNG"), group.named("Pillow alone, PNG"), 0.95)


BY_EPOCHS = {
    "a loader": loader_figures,
    "DataLoader": torch_figures,
    "weights": weighted_figures,
    "Python": python_figures,
}


def picture_figures(group: Group) -> list[Figure]:
    where, ours = "photographs", group.named("Loader, RandomResizedCrop")
    return [
        *ratio(where, ours, best(group, "ffcv"), 1),
        *ratio(where, ours, group.named("simplejpeg alone"), 0.95),
        *ratio(where, ours, group.named("our decoder alone"), None),
        *ratio(where, ours, group.named("DataLoader, Pillow"), 1.3),
        *ratio(where, ours, group.named("DataLoader, Pillow, draft"), None),
        *ratio(where, group.named("DataLoader, Dataset"), group.named("DataLoader, ImageFolder"), 1.5),
    ]


def gpu_figures(group: Group) -> list[Figure]:
    where, ours = f"{next(iter(group.of.values())).workload.workers} workers", group.named("Loader, nvImageCodec, GPU")
    return [
        *ratio(where, ours, group.named("Loader, CPU, copied"), None),
        *ratio(where, ours, group.named("nvImageCodec alone, GPU"), None),
        *ratio(where, group.named("Loader, nvImageCodec, CPU"), group.named("Loader, CPU"), None),
    ]


BY_CROPS = {"bytes": picture_figures, "normalised": normalised_figures, "PNG": png_figures, "GPU": gpu_figures}


def source_figures(group: Group, work: Any) -> list[Figure]:
    return ratio(describe(work), group.named("Loader"), group.named("DataLoader"), 1)


def cold_figures(group: Group, mean: int) -> list[Figure]:
    """Return the figures against the faster of the engine's ways."""
    return ratio(f"cold {size_name(mean)}", group.named("Loader"), group.best("limit"), 0.9)


def milliseconds(about: str, measurement: Measurement, target: float | None) -> Figure:
    return Figure(about, [1000 * seconds for seconds in measurement.seconds], target, at_most=True, unit=" ms")


def added(measurement: Measurement) -> list[float]:
    """Return the MB that the loader adds to the process and its workers together, in each round, without cached
    files.
    """
    workers = measurement.details.get("workers") or [[]] * len(measurement.seconds)
    own = (each["proportional"] for each in measurement.details["memory"])
    return [
        (mine + sum(each["proportional"] for each in theirs)) / MB for mine, theirs in zip(own, workers, strict=True)
    ]


def largest_worker(measurement: Measurement) -> list[float]:
    return [max(each["dirty"] for each in theirs) / MB for theirs in measurement.details["workers"]]


Memory = Callable[[Measurement], list[float]]


def memory(about: str, found: Measurement, of: Memory, target: float | None) -> Figure:
    return Figure(about, of(found), target, at_most=True, unit=" MB")


def more(about: str, many: Measurement, few: Measurement | None, of: Memory) -> list[Figure]:
    """Return the additional cost of many samples over few."""
    if few is None:
        return []
    values = [larger - smaller for larger, smaller in zip(of(many), of(few), strict=True)]
    return [Figure(f"{about} more than for {few.workload.samples:,}", values, None, at_most=True, unit=" MB")]


def worker_figures(m: Measurement, few: Measurement | None) -> list[Figure]:
    """Return the figures through torch's DataLoader: each of its workers takes memory, whatever it reads."""
    where = f"{m.workload.samples:,} samples, {m.workload.processes} workers"
    together, largest = f"{where}: memory of all", f"{where}: private memory of the largest worker"
    return [
        milliseconds(f"{where}: first batch of a DataLoader", m, None),
        memory(together, m, added, 100),
        *more(together, m, few, added),
        memory(largest, m, largest_worker, None),
        *more(largest, m, few, largest_worker),
    ]


def loader_start_figures(starts: Sequence[Measurement]) -> list[Figure]:
    """Return the figures of a Loader from the start of an epoch, and from later positions."""
    found: list[Figure] = []
    for m in starts:
        where, at = f"{m.workload.samples:,} samples", f"{m.workload.at:.0%}"
        found.append(milliseconds(f"{where}: first batch at {at} of the epoch", m, 100))
        if m is starts[0]:
            found.append(memory(f"{where}: memory of a Loader", m, added, None))
        else:
            values = [own / first for own, first in zip(m.seconds, starts[0].seconds, strict=True)]
            found.append(Figure(f"{where}: resumed at {at} / from the start", values, 1.1, at_most=True))
    return found


def start_figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return the figures for the largest number of samples."""
    starts = [m for m in measurements if isinstance(m.workload, workloads.Starts)]
    most = max((m.workload.samples for m in starts), default=0)
    few = next((m for m in starts if m.workload.processes and m.workload.samples < most), None)
    largest = [m for m in starts if m.workload.samples == most]
    found = loader_start_figures([m for m in largest if not m.workload.processes])
    return found + [figure for m in largest if m.workload.processes for figure in worker_figures(m, few)]


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    found = []
    for (_, work), group in groups(measurements).items():
        if isinstance(work, workloads.Epochs):
            found += BY_EPOCHS[work.through](group)
        elif isinstance(work, workloads.Crops):
            found += BY_CROPS[work.form](group)
        elif isinstance(work, workloads.Sources):
            found += source_figures(group, work)
        elif isinstance(work, workloads.ColdEpochs):
            found += cold_figures(group, work.mean)
    return found + start_figures(measurements)
