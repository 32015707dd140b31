"""Figures of reading and converting other formats with their targets, from the measurements of one run."""

from collections.abc import Sequence
from typing import Any

import workloads
from harness import Measurement
from read_figures import Figure, Group, figure_table, ratio, size_name
from write_figures import groups

KINDS = (
    workloads.Members,
    workloads.Contained,
    workloads.Decoded,
    workloads.Stream,
    workloads.Examples,
    workloads.Conversions,
)
STREAM_LIMIT = 1.0  # GB/s, of large records
STREAM_RATIOS = (
    ("stream_tfrecord mmap", "tfrecord", 2),
    ("stream_tfrecord", "tfrecord", 2),
    ("stream_tfrecord", "tfrecord, kept", None),
    ("stream_tfrecord", "the kernel's copy", None),
    ("TFRecordReader, packed batches", "tfrecord", 2),
    ("TFRecordReader, opened with its index, packed batches", "tfrecord", None),
    ("TFRecordReader, iterated", "tfrecord", 2),
    ("TFRecordReader, iterated", "tfrecord, kept", None),
    ("TFRecordReader, opened and iterated", "tfrecord", None),
)

__all__ = ["KINDS", "describe", "figure_table", "figures", "groups"]


def describe(work: Any) -> str:
    if isinstance(work, workloads.Members):
        return f"{work.files} members of a stored zip, {work.mean / 1000:g} kB, batches of {work.batch}"
    if isinstance(work, workloads.Contained):
        return f"cold, random batches of {work.batch}, {size_name(work.mean)}"
    if isinstance(work, workloads.Decoded):
        return f"{work.files} JPEG members of a zip to arrays"
    if isinstance(work, workloads.Stream):
        return f"TFRecord from front to back, records of {stream_size(work)}"
    if isinstance(work, workloads.Examples):
        return f"{work.count:,} tf.train.Examples with {work.values} floats, batches of {work.batch}"
    assert isinstance(work, workloads.Conversions)
    return f"{work.source} converted, {work.files:,} records of {work.mean / 1000:g} kB, {work.workers} workers"


def stream_size(work: workloads.Stream) -> str:
    return f"{work.mean // 1000} kB" if work.mean >= 10_000 else size_name(work.mean)


def stream_figures(group: Group, work: workloads.Stream) -> list[Figure]:
    where, ours = f"TFRecord, {stream_size(work)}", group.named("stream_tfrecord")
    rates = [] if ours is None else [ours.size / seconds / 1e9 for seconds in ours.seconds]
    limit = STREAM_LIMIT if work.mean > 50_000 else None
    ratios = [
        each
        for name, peer, target in STREAM_RATIOS
        for each in ratio(where, group.named(name), group.named(peer), target)
    ]
    return [*ratios, *([Figure(f"{where}: stream_tfrecord", rates, limit, unit=" GB/s")] if rates else [])]


def of_group(group: Group, work: Any) -> list[Figure]:
    if isinstance(work, workloads.Members):
        peer = group.named("zipfile.read")
        return [
            *ratio("zip", group.named("ZipReader.read"), peer, 9),
            *ratio("zip", group.named("ZipReader.read mmap"), peer, None),
            *ratio("zip", group.named("ZipReader.read_one"), peer, None),
        ]
    if isinstance(work, workloads.Contained):
        where, limit = f"cold {size_name(work.mean)}", group.named("ffrecord")
        targets = {"zip": 0.9, "tar": 0.9, "tfrecord": 0.9}
        return [f for name, m in group.of.items() for f in ratio(where, m, limit, targets.get(name))]
    if isinstance(work, workloads.Decoded):
        ours, alone = group.named("ZipReader.read_jpeg"), group.named("simplejpeg alone")
        batched = group.named("ZipReader.read_jpegs, one thread")
        return [
            *ratio("JPEG members", ours, alone, 0.95),
            *ratio("JPEG members", batched, group.named("simplejpeg alone, in batches"), 0.95),
            *ratio("JPEG members", batched, alone, None),
            *ratio("JPEG members", group.named("ZipReader.read_jpegs"), alone, None),
            *ratio("JPEG members", ours, group.named("zipfile, Pillow"), None),
        ]
    if isinstance(work, workloads.Stream):
        return stream_figures(group, work)
    if isinstance(work, workloads.Examples):
        where, ours = f"Examples, {work.values} floats", group.named("ExampleParser.parse_batch")
        return [
            *ratio(where, ours, group.named("google.protobuf, to arrays"), 3),
            *ratio(where, ours, group.named("google.protobuf, parsed only"), None),
        ]
    return ratio(work.source, group.named("convert"), group.named("DatasetWriter, from memory"), 0.7)


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    return [f for (_, work), group in groups(measurements).items() for f in of_group(group, work)]
