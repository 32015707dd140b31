"""Files of other formats, read in place as record stores; `ffrecord.open` chooses the reader.

A reader's module is imported when the reader is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffrecord.sources.opening import FORMATS
from ffrecord.sources.opening import open as open

if TYPE_CHECKING:
    from ffrecord.sources.archives import Archives
    from ffrecord.sources.beton import BetonReader
    from ffrecord.sources.examples import ExampleParser
    from ffrecord.sources.examples_encode import encode_example
    from ffrecord.sources.examples_features import FixedFeature, VarFeature
    from ffrecord.sources.examples_infer import infer
    from ffrecord.sources.examples_sequence import SequenceParser
    from ffrecord.sources.image_folder import ImageFolderReader
    from ffrecord.sources.lmdb import LMDBReader
    from ffrecord.sources.mds import MDSReader
    from ffrecord.sources.packed_folder import PackedFolderReader
    from ffrecord.sources.path_list import PathListReader
    from ffrecord.sources.recordio import RecordIOReader
    from ffrecord.sources.recordio_writer import RecordIOWriter
    from ffrecord.sources.tar import TarReader
    from ffrecord.sources.tar_stream import iter_members, iter_samples
    from ffrecord.sources.tfrecord import TFRecordReader
    from ffrecord.sources.tfrecord_sequential import stream_tfrecord
    from ffrecord.sources.tfrecord_writer import TFRecordWriter
    from ffrecord.sources.torchrecord import TorchRecordReader
    from ffrecord.sources.unpacking import unpack
    from ffrecord.sources.webdataset import WebDatasetReader
    from ffrecord.sources.zip import ZipReader

_MODULES = {
    "Archives": "archives",
    "BetonReader": "beton",
    "ExampleParser": "examples",
    "FixedFeature": "examples_features",
    "ImageFolderReader": "image_folder",
    "LMDBReader": "lmdb",
    "MDSReader": "mds",
    "PackedFolderReader": "packed_folder",
    "PathListReader": "path_list",
    "RecordIOReader": "recordio",
    "RecordIOWriter": "recordio_writer",
    "SequenceParser": "examples_sequence",
    "TFRecordReader": "tfrecord",
    "TFRecordWriter": "tfrecord_writer",
    "TarReader": "tar",
    "TorchRecordReader": "torchrecord",
    "VarFeature": "examples_features",
    "WebDatasetReader": "webdataset",
    "ZipReader": "zip",
    "encode_example": "examples_encode",
    "infer": "examples_infer",
    "iter_members": "tar_stream",
    "iter_samples": "tar_stream",
    "stream_tfrecord": "tfrecord_sequential",
    "unpack": "unpacking",
}

# `open` is public, but `from ffrecord.sources import *` leaves Python's own in its place.
__all__ = [
    "FORMATS",
    "Archives",
    "BetonReader",
    "ExampleParser",
    "FixedFeature",
    "ImageFolderReader",
    "LMDBReader",
    "MDSReader",
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
