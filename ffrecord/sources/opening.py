"""`ffrecord.open`: whatever people have, as one kind of record store."""

import glob
import os
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.paths import Source, check_type
from ffrecord.sources.detect import detect, is_packed_folder, is_torchrecord
from ffrecord.store import Store

# Modules are imported when a file of theirs is opened.
READERS = {
    "ffrecord": "ffrecord.reader:FileReader",
    "packed folder": "ffrecord.sources.packed_folder:PackedFolderReader",
    "zip": "ffrecord.sources.zip:ZipReader",
    "tar": "ffrecord.sources.tar:TarReader",
    "webdataset": "ffrecord.sources.webdataset:WebDatasetReader",
    "tfrecord": "ffrecord.sources.tfrecord:TFRecordReader",
    "recordio": "ffrecord.sources.recordio:RecordIOReader",
    "lmdb": "ffrecord.sources.lmdb:LMDBReader",
    "torchrecord": "ffrecord.sources.torchrecord:TorchRecordReader",
    "beton": "ffrecord.sources.beton:BetonReader",
    "mds": "ffrecord.sources.mds:MDSReader",
    "image folder": "ffrecord.sources.image_folder:ImageFolderReader",
    "path list": "ffrecord.sources.path_list:PathListReader",
}
FORMATS = tuple(READERS)


def open(source: Source, format: str | None = None, **options: Any) -> Store:
    """Open a file or directory of any format known, to be read in place.

    Args:
        source: a path, a glob pattern, a `file://` URI, or a list or tuple of such that are all of one format: one
            store with the records of all.
        format: one of `FORMATS`; None to find out by what is in the first file. "webdataset" (members of a tar grouped
            by key) and "path list" (lines of "path label") must be asked for: a tar is one of members otherwise, and
            a list is a text like any other.
        options: of the reader of the format, as `ffrecord.sources` has them; all take `check_data`, `io`, `on_error`.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: of no known format, or damaged.
        ValueError: `format` is none of FORMATS, or a URI of another machine.
        TypeError: `source`, or an option the reader does not have.
        ImportError: a package is missing; names the extra that brings it.
    """
    given = source if isinstance(source, list | tuple) else [source]
    paths = [_local(check_type(each)) for each in given]
    if format is None:
        format = detected(paths)
    if format not in READERS:
        raise ArgumentError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    module, _, name = READERS[format].partition(":")
    store: Store = getattr(import_module(module), name)(paths if given is source else paths[0], **options)
    return store


def detected(paths: list[str]) -> str:
    """The format of what is named first.

    Raises:
        As `detect`; ValueError: there is nothing.
    """
    if not paths:
        raise ArgumentError("nothing to open in an empty list")
    first = paths[0]
    if glob.has_magic(first) and not os.path.exists(first):
        first = min(glob.glob(first), default=first)
    found = detect(first)
    if found == "ffrecord" and is_packed_folder(first):
        return "packed folder"
    if found == "lmdb" and is_torchrecord(first):
        return "torchrecord"
    if found == "parquet":
        raise FormatError(f"{first}: Parquet is not read in place; ffrecord.convert makes a dataset of it")
    return found


def _local(path: str) -> str:
    scheme, mark, rest = path.partition("://")
    if not mark or os.path.exists(path):
        return path
    if scheme.lower() != "file":
        raise ArgumentError(f"{path}: only files of this machine can be opened")
    host, slash, name = rest.partition("/")
    if host not in ("", "localhost"):
        raise ArgumentError(f"{path}: only files of this machine can be opened, not of {host}")
    return unquote(slash + name)
