"""`ffrecord.open`: a record store over files of any known format."""

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    FFRecordError,
    FormatError,
    add_place_to_memory_errors,
    name_files,
)
from ffrecord.reading.paths import Source, check_types, is_remote
from ffrecord.reading.paths import expand as expand_ffr
from ffrecord.reading.shard_list import repeat_while_replaced
from ffrecord.reading.store import Store
from ffrecord.sources.detect import detect, is_packed_folder, is_torchrecord
from ffrecord.sources.files import with_suffix
from ffrecord.sources.registry import FORMATS, READERS, SUFFIXES
from ffrecord.system import urls
from ffrecord.system.values import describe_wrong, is_word

OPEN = "ffrecord.open"

# Suffixes of formats that cannot be read by URL.
OTHERS = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)


def open(source: Source, format: str | None = None, **options: Any) -> Store:
    """Open a file or directory of any known format, and read it in place.

    Args:
        source: a path, a glob pattern, a `file://` URI, or a list or tuple of these, all of one format; a list gives
            one store with the records of all. Or a URL, or several, of datasets of `.ffr` files, as in `FileReader`.
        format: one of `FORMATS`; None to find it out from the first file. Two formats must be named: "webdataset"
            (members of a tar grouped by key), since a tar is otherwise read member by member; and "path list" (lines of
            "path label"), since it looks like any other text.
        options: options of the reader of the format; see `ffrecord.sources`. All readers take `check_data`, `io`,
            `on_error` and `index_cache`: True keeps the index that the first opening made beside each file, as
            `<file>.<format>.ffindex`; a directory, made if missing, keeps it there; None keeps nothing. If it cannot
            be written, the log says so. Nothing is kept of a file that changed within the last 2 s on a file system
            with times in whole seconds, since a second change would not show.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: the format is unknown, or the file is damaged.
        ValueError: `format` is not in FORMATS, or a URI is of another machine, or a URL is of another format.
        TypeError: `source` has a wrong type, or the reader does not have an option.
        ImportError: a package is missing; the message names the extra that installs it.
    """
    return open_for(OPEN, source, format, options)


def open_for(caller: str, source: Source, format: str | None, options: Mapping[str, Any]) -> Store:
    """Open `source` for a public function `caller`, which passes on the options that it does not know."""
    paths = local_paths(source)
    check_format_name("format", format)
    try:
        if is_remote(paths):
            format = _remote_format(paths, format)
        known = detect_readable(paths) if format is None else format
        reader = _reader(known)
        # The first two parameters are the reader itself and the source.
        check_options(options, known, [*signature(reader.__init__).parameters][2:], caller)
        store: Store = _open_reader(reader, paths if isinstance(source, list | tuple) else paths[0], paths, options)
    # A list of mixed formats may fail in many ways: none of those messages would name the mixture.
    except (FFRecordError, ArgumentError) as error:
        if format is None:
            _refuse_mixture(paths, error)
        raise
    except MemoryError:
        with add_place_to_memory_errors(lambda: name_files([urls.redact(path) for path in paths])):
            raise
    return store


def _open_reader(reader: Any, source: Any, paths: list[str], options: Mapping[str, Any]) -> Any:
    """Construct the reader. If a URL is not a dataset, raise an error that names the format of its suffix."""
    try:
        return reader(source, **options)
    # Any URL is taken for a dataset at first, since its name may be anything: that of a zip fails only here. Nobody
    # need install a package to learn that.
    except (FileNotFoundError, ImportError):
        other = next((path for path in paths if is_remote(path) and urls.name_of(path).lower().endswith(OTHERS)), None)
        if other is None:
            raise
        raise _remote_error(other, None) from None


def _remote_error(url: str, format: str | None) -> ArgumentError:
    return ArgumentError(
        f"{urls.redact(url)}: only .ffr files can be read from a URL{f', not {format}' if format else ''}: copy it to "
        "this machine; ffrecord.convert makes .ffr files of it"
    )


def check_options(options: Iterable[str], format: str, known: Sequence[str], caller: str = OPEN) -> None:
    """Raise unless a format takes all `options`, which a function called `caller` passes on.

    Raises:
        ArgumentTypeError: the message names the option, and the valid ones.
    """
    for option in options:
        if option not in known:
            takes = f"{format} takes no option {option!r}"
            if caller != OPEN:
                takes = f"{caller} has no argument {option!r}, and its source, {format}, takes no such option"
            raise ArgumentTypeError(f"{takes}; it takes {', '.join(known)}")


def check_format_name(argument: str, format: object) -> None:
    """Raise TypeError unless a format is text, or None for any."""
    if format is not None and not isinstance(format, str):
        raise ArgumentTypeError(describe_wrong(argument, format, "str or None"))


def _reader(format: str) -> Any:
    if not is_word(format, READERS):
        raise ArgumentError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    # Imported at use: a program that reads one format does not load the others.
    module, _, name = READERS[format].partition(":")
    return getattr(import_module(module), name)


def _refuse_mixture(paths: list[str], error: Exception) -> None:
    """Raise FormatError from `error` if the paths are of more than one format."""
    first = ""
    for path in paths:
        try:
            found = detect(first_of([path]))
        # If a format cannot be told, the error of the caller stays.
        except (FFRecordError, OSError):
            return
        if first and found != first:
            raise FormatError(
                f"{path} is {found}, {paths[0]} is {first}: all files of a list must have one format"
            ) from error
        first = found


def local_paths(source: Source) -> list[str]:
    """Return the paths and patterns in `source`, with URIs converted to paths.

    Raises:
        TypeError, ValueError: see `open`.
    """
    return [_local(path) for path in check_types(source)]


def detect_readable(paths: list[str]) -> str:
    """Return the format of the first of `paths`, which must be readable in place.

    Raises:
        The exceptions of `detect`; ValueError: there are no paths; FormatError: Parquet.
    """
    found = detect_first(paths)
    if found == "parquet":
        raise FormatError(
            f"{first_of(paths)}: Parquet cannot be read in place; make a dataset of it with ffrecord.convert"
        )
    return found


def detect_first(paths: list[str]) -> str:
    """Return the format of the first of `paths`, or "parquet"."""
    if not paths:
        raise ArgumentError("there is nothing to open: the list is empty")
    if is_remote(paths):
        return _remote_format(paths, None)
    first = first_of(paths)
    found = repeat_while_replaced(first, lambda: detect(first))
    # The index of a packed folder is the last record of its last file.
    if found == "ffrecord" and repeat_while_replaced(paths, lambda: _are_packed_folder(paths)):
        return "packed folder"
    if found == "lmdb" and is_torchrecord(first):
        return "torchrecord"
    return found


def first_of(paths: list[str], suffixes: Sequence[str] = ()) -> str:
    """Return the first file or directory of `paths`.

    A pattern stands for its first match. With `suffixes`, a directory stands for its first file with one of them.
    """
    first = paths[0]
    # A name may contain brackets itself.
    if glob.has_magic(first) and not os.path.exists(first):
        # The smallest match: readers open matches in string order.
        first = min(glob.glob(first), default=first)
    if suffixes and os.path.isdir(first):
        return next(iter(with_suffix(first, suffixes)), first)
    return first


def _are_packed_folder(paths: list[str]) -> bool:
    """Tell whether the last of these `.ffr` files has the index of a packed folder, which they may form together.

    Raises:
        FormatError: they are not one folder.
    """
    files, shards = expand_ffr(paths, resolve=True)
    if any(shards):
        return False
    if len(files) > 1 and is_packed_folder(files[0]):
        raise FormatError(
            f"{files[0]} is a packed folder, which cannot be opened together with other files, here {len(files) - 1}: "
            "open it alone"
        )
    return is_packed_folder(files[-1])


def _remote_format(paths: list[str], format: str | None) -> str:
    """Return the format of URLs, which is always ours. The name does not tell, since a dataset may have any name.

    Raises:
        ArgumentError: another format was asked for.
    """
    if format not in (None, FORMATS[0]):
        raise _remote_error(paths[0], format)
    return FORMATS[0]


def _local(path: str) -> str:
    # A local file may have a name like a URI.
    return path if os.path.exists(path) else urls.local_path(path)
