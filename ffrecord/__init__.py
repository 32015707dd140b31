"""FFRecord files: pack the samples of a training set once, then read them in any order, in batches, with checksums."""

# msgspec and numpy import datetime from C while they are imported themselves. If Ctrl-C arrived just then, they would
# swallow the KeyboardInterrupt: numpy would claim a broken installation, and msgspec would crash later. Imported here,
# before them, it lets the KeyboardInterrupt pass.
import datetime as _datetime  # noqa: F401
import os as _os
import sys as _sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Older ones fail below with an error that does not say why.
if _sys.version_info < (3, 10):  # noqa: UP036
    raise ImportError("ffrecord needs Python 3.10 or newer, and this is {}.{}".format(*_sys.version_info[:2]))

from ffrecord.system.requirements import check as _check

if TYPE_CHECKING:
    # `as` tells type checkers that a name is public though `__all__` leaves it out.
    from ffrecord import fields as fields
    from ffrecord import fileio as fileio
    from ffrecord import order as order
    from ffrecord import package as package
    from ffrecord import utils as utils
    from ffrecord.conversion import convert as convert
    from ffrecord.conversion import export as export
    from ffrecord.dataset_writer import DatasetWriter
    from ffrecord.dataset_writer import Summary as Summary
    from ffrecord.errors import ChecksumError, FFRecordError, FormatError, MismatchError, WorkerError
    from ffrecord.folders.folder import PackedFolder
    from ffrecord.folders.folder_pack import pack_folder
    from ffrecord.reader import FileReader
    from ffrecord.reading.partition import Task as Task
    from ffrecord.reading.partition import tasks as tasks
    from ffrecord.sources.opening import open as open
    from ffrecord.system.filesystems import checkFsAlign
    from ffrecord.writing.file_writer import FileWriter
    from ffrecord.writing.recovery import Recovered as Recovered
    from ffrecord.writing.recovery import recover as recover

    __version__: str

_check(_os.path.dirname(_os.path.abspath(__file__)))

# The names of `from ffrecord import *`, the first line of many programs written for 1.x. Names that such programs use
# for their own things (`open`, `utils`, `tasks`) are public too, but are left out here: see `__dir__`.
__all__ = [
    "ChecksumError",
    "DatasetWriter",
    "FFRecordError",
    "FileReader",
    "FileWriter",
    "FormatError",
    "MismatchError",
    "PackedFolder",
    "WorkerError",
    "checkFsAlign",
    "pack_folder",
]

MODULES = ("fields", "fileio", "order", "package", "utils")
# The modules of the public names. Each is loaded at its first use, because importing all of them would be slow.
HOMES = {
    "conversion": ("convert", "export"),
    "dataset_writer": ("DatasetWriter", "Summary"),
    "errors": ("ChecksumError", "FFRecordError", "FormatError", "MismatchError", "WorkerError"),
    "folders.folder": ("PackedFolder",),
    "folders.folder_pack": ("pack_folder",),
    "system.filesystems": ("checkFsAlign",),
    "reading.partition": ("Task", "tasks"),
    "reader": ("FileReader",),
    "writing.recovery": ("Recovered", "recover"),
    "sources.opening": ("open",),
    "writing.file_writer": ("FileWriter",),
}


def __getattr__(name: str) -> Any:
    """Load an attribute of the package at its first use."""
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
    """Return the public names and the names that every module has."""
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *MODULES, *(name for names in HOMES.values() for name in names), "__version__"})
