"""Files of other formats, read in place as record stores; `ffrecord.open` chooses the reader.

opening.py          `open`; registry.py: one row per format; detect.py: formats by content
files.py            the files of a source, and advice about those in no known format
index_file.py       indexes that are kept from one opening to the next
fallback_reader.py  readers with some records that the engine cannot read
inflated.py         files that are compressed as a whole
names.py            names in arrays; name_tree.py: as a tree; named_files.py: stores that have them
packed_folder.py    packed folders as such stores
archives.py         several archives and directories as one tree
unpacking.py        `unpack`
fsspec_files.py     archives as file systems of fsspec
_files.pyx          files of a directory, read several at once
beton/ images/ lmdb/ mds/ recordio/ tar/ tfrecord/ zip/   one folder per format

The module of a reader is imported at the first use of its name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffrecord.sources.opening import open as open
from ffrecord.sources.registry import FORMATS

if TYPE_CHECKING:
    from ffrecord.sources.archives import Archives
    from ffrecord.sources.beton.reader import BetonReader
    from ffrecord.sources.images.image_folder import ImageFolderReader
    from ffrecord.sources.images.path_list import PathListReader
    from ffrecord.sources.lmdb.reader import LMDBReader
    from ffrecord.sources.lmdb.torchrecord import TorchRecordReader
    from ffrecord.sources.mds.reader import MDSReader
    from ffrecord.sources.packed_folder import PackedFolderReader
    from ffrecord.sources.recordio.reader import RecordIOReader
    from ffrecord.sources.recordio.writer import RecordIOWriter
    from ffrecord.sources.tar.reader import TarReader
    from ffrecord.sources.tar.stream import iter_members, iter_samples
    from ffrecord.sources.tar.webdataset import WebDatasetReader
    from ffrecord.sources.tfrecord.examples import ExampleParser, SequenceParser, infer
    from ffrecord.sources.tfrecord.examples_encode import encode_example
    from ffrecord.sources.tfrecord.examples_features import (
        ExampleError,
        FeatureCountError,
        FeatureKindError,
        FixedFeature,
        MissingFeatureError,
        VarFeature,
    )
    from ffrecord.sources.tfrecord.reader import TFRecordReader
    from ffrecord.sources.tfrecord.sequential import stream_tfrecord
    from ffrecord.sources.tfrecord.writer import TFRecordWriter
    from ffrecord.sources.unpacking import unpack
    from ffrecord.sources.zip.reader import ZipReader

_MODULES = {
    "Archives": "archives",
    "BetonReader": "beton.reader",
    "ExampleError": "tfrecord.examples_features",
    "ExampleParser": "tfrecord.examples",
    "FeatureCountError": "tfrecord.examples_features",
    "FeatureKindError": "tfrecord.examples_features",
    "FixedFeature": "tfrecord.examples_features",
    "ImageFolderReader": "images.image_folder",
    "LMDBReader": "lmdb.reader",
    "MDSReader": "mds.reader",
    "MissingFeatureError": "tfrecord.examples_features",
    "PackedFolderReader": "packed_folder",
    "PathListReader": "images.path_list",
    "RecordIOReader": "recordio.reader",
    "RecordIOWriter": "recordio.writer",
    "SequenceParser": "tfrecord.examples",
    "TFRecordReader": "tfrecord.reader",
    "TFRecordWriter": "tfrecord.writer",
    "TarReader": "tar.reader",
    "TorchRecordReader": "lmdb.torchrecord",
    "VarFeature": "tfrecord.examples_features",
    "WebDatasetReader": "tar.webdataset",
    "ZipReader": "zip.reader",
    "encode_example": "tfrecord.examples_encode",
    "infer": "tfrecord.examples",
    "iter_members": "tar.stream",
    "iter_samples": "tar.stream",
    "stream_tfrecord": "tfrecord.sequential",
    "unpack": "unpacking",
}

# `open` is public, but not in `__all__`: `from ffrecord.sources import *` must not hide Python's own `open`.
__all__ = [
    "FORMATS",
    "Archives",
    "BetonReader",
    "ExampleError",
    "ExampleParser",
    "FeatureCountError",
    "FeatureKindError",
    "FixedFeature",
    "ImageFolderReader",
    "LMDBReader",
    "MDSReader",
    "MissingFeatureError",
    "PackedFolderReader",
    "PathListReader",
    "RecordIOReader",
    "RecordIOWriter",
    "SequenceParser",
    "TFRecordReader",
    "TFRecordWriter",
    "TarReader",
    "TorchRecordReader",
    "VarFeature",
    "WebDatasetReader",
    "ZipReader",
    "encode_example",
    "infer",
    "iter_members",
    "iter_samples",
    "stream_tfrecord",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
