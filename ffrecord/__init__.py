"""FFRecord files: samples for deep learning, packed once, read in any order, in batches, checked."""

# msgspec and numpy import this from C while they are imported. Did Ctrl-C arrive just then, they would swallow the
# KeyboardInterrupt: numpy says that it is not installed right, and msgspec crashes later. Here it goes its way.
import datetime as _datetime  # noqa: F401
import os as _os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffrecord.system.compiled import check as _check

if TYPE_CHECKING:
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

    __version__: str

_check(_os.path.dirname(_os.path.abspath(__file__)))

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

MODULES = ("fields", "fileio", "order", "package", "utils")
# Where the other names are: loaded when asked for, or `import ffrecord` would take as long as all of them.
HOMES = {
    "conversion": ("convert", "export"),
    "dataset_writer": ("DatasetWriter", "Summary"),
    "errors": ("ChecksumError", "FFRecordError", "FormatError", "MismatchError", "WorkerError"),
    "folder": ("PackedFolder",),
    "folder_pack": ("pack_folder",),
    "fsalign": ("checkFsAlign",),
    "partition": ("Task", "tasks"),
    "reader": ("FileReader",),
    "recovery": ("Recovered", "recover"),
    "sources.opening": ("open",),
    "writer": ("FileWriter",),
}


def __getattr__(name: str) -> Any:
    """The attributes that are loaded when they are asked for."""
    if name in MODULES:
        return import_module(f"ffrecord.{name}")
    for module, names in HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"ffrecord.{module}"), name)
            return found
    if name == "__version__":
        found = globals()[name] = import_module("importlib.metadata").version("ffrecord")
        return found
    raise AttributeError(f"module 'ffrecord' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
