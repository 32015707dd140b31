"""Ends of names by which the files of a format are found in a directory; what is in a file decides what it is."""

import re
from collections.abc import Sequence

SUFFIXES = {
    "tar": (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"),
    "zip": (".zip",),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"),
    "recordio": (".recordio", ".rio"),
    "beton": (".beton", ".ffcv"),
    "parquet": (".parquet", ".pq"),
}
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # what torchvision takes

SHARD = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}")  # as TensorFlow calls the files of a dataset
PARTITION = re.compile(r"([^=.][^=]*)=(.+)", re.DOTALL)  # as Hive calls the directories of one


def ends_as(name: str, suffixes: Sequence[str]) -> bool:
    """Tell whether the name of a file ends as one of a format, in whatever case.

    The number of a shard may follow the end: `x.tfrecord-00000-of-00003`; and files that are called by nothing else,
    as `train-00000-of-00003`, are TFRecords.
    """
    plain = SHARD.sub("", name.lower())
    bare = plain != name.lower() and "." not in plain and ".tfrecord" in suffixes
    return bare or plain.endswith(tuple(suffix.lower() for suffix in suffixes))


def partition_of(name: str) -> tuple[str, str] | None:
    """Return column and value that the name of a directory says, as `year=2024` does; None: it says none."""
    found = PARTITION.fullmatch(name)
    return None if found is None else (found[1], found[2])
