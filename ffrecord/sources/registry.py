"""The formats that `ffrecord.open` knows: one row for each, with its reader and its suffixes.

Suffixes find the files of a format in a directory. The content of a file decides its format: see `detect.CHECKS`.
This module imports no reader, so that readers can import it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple


class SourceFormat(NamedTuple):
    """A format.

    Attributes:
        name: name for `ffrecord.open` and on the command line.
        reader: "module:class"; the module is imported when a file of the format is opened. None if the format can only
            be converted.
        suffixes: ends of the names of its files, in lower case; empty if they have none of their own.
    """

    name: str
    reader: str | None
    suffixes: tuple[str, ...] = ()


ROWS = (
    SourceFormat("ffrecord", "ffrecord.reader:FileReader"),
    SourceFormat("packed folder", "ffrecord.sources.packed_folder:PackedFolderReader"),
    SourceFormat("zip", "ffrecord.sources.zip.reader:ZipReader", (".zip",)),
    SourceFormat(
        "tar",
        "ffrecord.sources.tar.reader:TarReader",
        (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"),
    ),
    SourceFormat("webdataset", "ffrecord.sources.tar.webdataset:WebDatasetReader"),
    SourceFormat(
        "tfrecord",
        "ffrecord.sources.tfrecord.reader:TFRecordReader",
        (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"),
    ),
    SourceFormat("recordio", "ffrecord.sources.recordio.reader:RecordIOReader", (".recordio", ".rio")),
    SourceFormat("lmdb", "ffrecord.sources.lmdb.reader:LMDBReader"),
    SourceFormat("torchrecord", "ffrecord.sources.lmdb.torchrecord:TorchRecordReader"),
    SourceFormat("beton", "ffrecord.sources.beton.reader:BetonReader", (".beton", ".ffcv")),
    SourceFormat("mds", "ffrecord.sources.mds.reader:MDSReader"),
    SourceFormat("image folder", "ffrecord.sources.images.image_folder:ImageFolderReader"),
    SourceFormat("path list", "ffrecord.sources.images.path_list:PathListReader"),
    SourceFormat("parquet", None, (".parquet", ".pq")),
)
READERS = {row.name: row.reader for row in ROWS if row.reader is not None}
FORMATS = tuple(READERS)
# In alphabetical order, in which messages name the formats of a mixed directory.
SUFFIXES = {row.name: row.suffixes for row in sorted(ROWS) if row.suffixes}
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as in torchvision

SHARD = re.compile(r"-([0-9]{5,})-of-([0-9]{5,})")  # in names of TensorFlow for the files of a dataset
PARTITION = re.compile(r"([^=.][^=]*)=(.*)", re.DOTALL)  # names of Hive for the directories of a dataset


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
