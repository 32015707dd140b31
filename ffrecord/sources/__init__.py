"""Files of other formats, read in place as record stores; `ffrecord.open` chooses the reader.

A reader's module is imported when the reader is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffrecord.sources.opening import FORMATS, open

if TYPE_CHECKING:
    from ffrecord.sources.beton import BetonReader
    from ffrecord.sources.examples import ExampleParser
    from ffrecord.sources.examples_encode import encode_example
    from ffrecord.sources.examples_features import FixedFeature, VarFeature
    from ffrecord.sources.lmdb import LMDBReader
    from ffrecord.sources.mds import MDSReader
    from ffrecord.sources.recordio import RecordIOReader
    from ffrecord.sources.recordio_writer import RecordIOWriter
    from ffrecord.sources.tar import TarReader
    from ffrecord.sources.tfrecord import TFRecordReader
    from ffrecord.sources.tfrecord_writer import TFRecordWriter
    from ffrecord.sources.torchrecord import TorchRecordReader
    from ffrecord.sources.webdataset import WebDatasetReader
    from ffrecord.sources.zip import ZipReader

_MODULES = {
    "BetonReader": "beton",
    "ExampleParser": "examples",
    "FixedFeature": "examples_features",
    "LMDBReader": "lmdb",
    "MDSReader": "mds",
    "RecordIOReader": "recordio",
    "RecordIOWriter": "recordio_writer",
    "TFRecordReader": "tfrecord",
    "TFRecordWriter": "tfrecord_writer",
    "TarReader": "tar",
    "TorchRecordReader": "torchrecord",
    "VarFeature": "examples_features",
    "WebDatasetReader": "webdataset",
    "ZipReader": "zip",
    "encode_example": "examples_encode",
}

__all__ = [
    "FORMATS",
    "BetonReader",
    "ExampleParser",
    "FixedFeature",
    "LMDBReader",
    "MDSReader",
    "RecordIOReader",
    "RecordIOWriter",
    "TFRecordReader",
    "TFRecordWriter",
    "TarReader",
    "TorchRecordReader",
    "VarFeature",
    "WebDatasetReader",
    "ZipReader",
    "encode_example",
    "open",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
