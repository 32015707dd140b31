"""Suffixes by which the files of a format are found in a directory. The content of a file decides its format."""

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
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as in torchvision

SHARD = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}")  # in names of TensorFlow for the files of a dataset
PARTITION = re.compile(r"([^=.][^=]*)=(.+)", re.DOTALL)  # names of Hive for the directories of a dataset


def ends_as(name: str, suffixes: Sequence[str]) -> bool:
    """Tell whether the name of a file has one of the suffixes of a format, in upper or lower case.

    The number of a shard may follow the suffix: `x.tfrecord-00000-of-00003`. A name without a suffix and with such a
    number, as `train-00000-of-00003`, means TFRecord.
    """
    plain = SHARD.sub("", name.lower())
    bare = plain != name.lower() and "." not in plain and ".tfrecord" in suffixes
    return bare or plain.endswith(tuple(suffix.lower() for suffix in suffixes))


def partition_of(name: str) -> tuple[str, str] | None:
    """Return (column, value) from the name of a directory such as `year=2024`; None for other names."""
    found = PARTITION.fullmatch(name)
    return None if found is None else (found[1], found[2])
