"""FFRecord files: samples for deep learning, packed once, read in any order, in batches, checked."""

from importlib.metadata import version

from ffrecord import fields, fileio, order, package, utils
from ffrecord.conversion import convert, export
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import ChecksumError, FFRecordError, FormatError, MismatchError, WorkerError
from ffrecord.folder import PackedFolder
from ffrecord.folder_pack import pack_folder
from ffrecord.fsalign import checkFsAlign
from ffrecord.partition import Task, tasks
from ffrecord.reader import FileReader
from ffrecord.recovery import Recovered, recover
from ffrecord.sources.opening import open
from ffrecord.writer import FileWriter

__all__ = [
    "ChecksumError",
    "DatasetWriter",
    "FFRecordError",
    "FileReader",
    "FileWriter",
    "FormatError",
    "MismatchError",
    "PackedFolder",
    "Recovered",
    "Summary",
    "Task",
    "WorkerError",
    "checkFsAlign",
    "convert",
    "export",
    "fields",
    "fileio",
    "open",
    "order",
    "pack_folder",
    "package",
    "recover",
    "tasks",
    "utils",
]
__version__ = version("ffrecord")
