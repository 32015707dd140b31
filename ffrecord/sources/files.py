"""The files that the `source` of a reader of another format stands for, and advice about those in no known format."""

import glob
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EISDIR, ENOENT
from itertools import islice

from ffrecord.errors import DAMAGE, ArgumentError, FormatError, MissingFileError, NotAFileError, plural
from ffrecord.format import ffr_layout as ffr
from ffrecord.format import manifest
from ffrecord.reading.paths import PathLike, Source, check_matches, check_type, resolve_directory
from ffrecord.sources.mds.index import INDEX_MOST
from ffrecord.sources.registry import IMAGES, SHARD, SUFFIXES, ends_as
from ffrecord.system import filesystems

logger = logging.getLogger("ffrecord")

CONVERTED = "pass its samples to ffrecord.convert, which takes any iterable"
PICTURE = 'it looks like a picture: open its directory, or pass [path, …] with format="path list"'

BEGINNINGS = (
    (b"\xff\xd8\xff", PICTURE),
    (b"\x89PNG\r\n", PICTURE),
    (b"\x93NUMPY", "it looks like an array of numpy: run `ffrecord write FILE OUT` to make samples of it"),
    (b"\x0a\x23\xd7\xce", f"it looks like RecordIO of MXNet, another format, which cannot be read here; {CONVERTED}"),
    (b"\xff\xff\xff\xff", "it may be Arrow: pass datasets.Dataset.from_file(FILE) to ffrecord.convert"),
    (b"PAR1", "it looks like a Parquet file that was cut: it begins with PAR1, but does not end with it"),
    (b"\x04\x22\x4d\x18", "it looks like lz4 data, which cannot be read here: decompress the file"),
    (b"ARROW1\0\0", "it looks like Arrow: pass datasets.Dataset.from_file(FILE) to ffrecord.convert"),
)
ROWS = "DatasetWriter(out).from_indexed_dataset(pandas.read_{}) writes its rows"
# Files that other libraries read, known by their names.
TABLES = (
    (
        (".csv",),
        f'{ROWS.format("csv(path)")}; if its lines are "path,label", pass format="path list"',
    ),
    ((".jsonl", ".ndjson"), ROWS.format("json(path, lines=True)")),
    ((".h5", ".hdf5"), "it may be HDF5: pass a dict of its arrays, read by h5py, to ffrecord.convert"),
    ((".pkl", ".pickle"), f"it may be a pickle, which is not loaded here; {CONVERTED}"),
)
SAVED = {"dataset_dict.json", "state.json"}  # written by datasets.save_to_disk
ENTRIES = 1000  # most entries of a directory that are looked at
DIRECTORIES = 20  # most directories below each entry that are searched for pictures
SHOWN = 5  # most datasets that a message names
FILES = 100  # most entries of a subdirectory that are looked at
LISTED = re.compile(r"[^\n]*\.[A-Za-z]{2,5}(?:[ \t]+|,)[^\n]*\S")  # a path and a label


def file_hint(path: str, head: bytes) -> str:
    """Return advice about a file with this name and these first bytes: "", or text that begins with "; "."""
    hint = ffr.hint_of(head)
    if hint:
        return hint
    for begins, said in BEGINNINGS:
        if head.startswith(begins):
            return f"; {said}"
    if ends_as(os.path.basename(path), SUFFIXES["tfrecord"]):
        return '; it has the name of a TFRecord, so its start may be damaged: pass format="tfrecord" to see how'
    if os.path.basename(path) == manifest.NAME:
        return f"; it lists the shards of a dataset: pass {os.path.dirname(path) or '.'!r}"
    for suffixes, said in TABLES:
        if path.lower().endswith(suffixes):
            return f"; {said}"
    # Editors on Windows put a mark at the start of a file, and end lines with CR LF.
    lines = head.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")[:2]
    if b"\0" not in head and any(LISTED.fullmatch(line) for line in lines):
        return '; if its lines are "path label", pass format="path list"'
    return ""


@contextmanager
def add_hint_to_errors(path: str) -> Iterator[None]:
    """Context manager that adds to a FormatError about a file that it is a Git LFS pointer or an HTML page."""
    try:
        yield
    except FormatError as error:
        hint = placeholder_hint(path)
        if not hint or hint in str(error):
            raise
        raise FormatError(f"{error}{hint}") from None


def placeholder_hint(path: str) -> str:
    """Return advice about a file in whose place something else came: "", or text that begins with "; "."""
    # Without OSError: the file's own error has been told.
    with suppress(OSError), open(path, "rb") as file:
        return ffr.hint_of(file.read(ffr.HINT_SIZE))
    return ""


def directory_hint(path: str, names: Sequence[str]) -> str:
    """Return advice about a directory with these names in it: "", or text that begins with "; "."""
    if not SAVED.isdisjoint(names):
        return "; it looks like a dataset of Hugging Face: pass datasets.load_from_disk(DIRECTORY) to ffrecord.convert"
    if said := _mds_hint(path, names):
        return said
    if not datasets_in(path, names):
        return _pictures_hint([os.path.join(path, name) for name in names[:ENTRIES] if not name.startswith(".")])
    found = _all_in(path, names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    noun, which = ("datasets", "one of them") if len(found) > 1 else ("dataset", "it")
    return f"; it contains the {noun} {', '.join(found[:SHOWN])}{more}: open {which}"


def datasets_in(path: str, names: Sequence[str]) -> list[str]:
    """Return the paths of subdirectories whose files make them datasets."""
    return [each for each in _visible(path, names) if _is_dataset(each)]


def _all_in(path: str, names: Sequence[str]) -> list[str]:
    """Return the paths of everything in a directory that may be a dataset: directories, files, folders of pictures."""
    suffixes = [end for ends in SUFFIXES.values() for end in ends]
    return [
        each
        for each in _visible(path, names)
        if _is_dataset(each) or ends_as(os.path.basename(each), suffixes) or holds_pictures(each)
    ]


def _visible(path: str, names: Sequence[str]) -> list[str]:
    return [os.path.join(path, name) for name in names[:ENTRIES] if not name.startswith(".")]


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a file; False if it cannot be said, as of a link that leads to itself."""
    try:
        return entry.is_file()
    except OSError:
        return False


def holds_pictures(directory: str) -> bool:
    """Tell whether `directory` is a directory in which at least half of the first files are pictures."""
    try:
        with os.scandir(directory) as entries:
            files = [entry.name for entry in islice(entries, FILES) if _is_file(entry) and entry.name[0] != "."]
    except OSError:
        return False
    return bool(files) and 2 * sum(name.lower().endswith(IMAGES) for name in files) >= len(files)


def _mds_hint(path: str, names: Sequence[str]) -> str:
    """Return advice about a directory that looks like an MDS dataset with a missing or invalid index."""
    shards = any(name.endswith((".mds", ".mds.zstd")) for name in names[:ENTRIES])
    if "index.json" not in names:
        return "; it has shards of MDS, but no index.json to list them" if shards else ""
    if not shards and _is_json(os.path.join(path, "index.json")):
        return ""  # an index.json of something else
    return '; it has shards of MDS, but index.json does not list them: pass format="mds" to see why'


def _pictures_hint(paths: Sequence[str]) -> str:
    """Return advice if there are pictures further down, but none directly in these directories."""
    for path in paths:
        # os.walk is lazy, so this bounds the search in a large tree.
        for directory, _, names in islice(os.walk(path), DIRECTORIES):
            if any(name.lower().endswith(IMAGES) for name in names):
                below = os.path.relpath(directory, path)
                return (
                    f'; there are pictures in {directory}: pass format="image folder" to give them the class '
                    f"{os.path.basename(path)!r}, not {below!r}, or open each directory"
                )
    return ""


def _is_json(path: str) -> bool:
    try:
        json.loads(manifest.read(path, INDEX_MOST))
    # RecursionError: JSON that is nested too deeply.
    except (ValueError, RecursionError):
        return False
    except OSError:
        return True  # it cannot be read, so it may be JSON
    return True


def _is_dataset(path: str) -> bool:
    """Tell whether a path is a directory with `.ffr` files, an LMDB environment, or an MDS dataset."""
    # Without OSError: a file, or a directory that cannot be read, is no dataset to open.
    with suppress(OSError), os.scandir(path) as entries:
        if any(os.path.exists(os.path.join(path, name)) for name in (manifest.NAME, "data.mdb")):
            return True
        names = [entry.name for entry in islice(entries, FILES)]
        mds = any(name.endswith((".mds", ".mds.zstd")) for name in names)
        return any(name.endswith(ffr.SUFFIX) for name in names) or (
            mds and os.path.exists(os.path.join(path, "index.json"))
        )
    return False


def missing_hint(path: str) -> str:
    """Return advice about a path where nothing is: "", or text that begins with "; "."""
    gone = filesystems.remark(path)
    if gone or "}" not in path.partition("{")[2]:
        return gone
    return '; braces are expanded only with format="webdataset": pass a list, or a pattern with *'


def expand(source: Source, suffixes: Sequence[str]) -> list[str]:
    """Return the files that `source` stands for.

    Args:
        source: a file with any name; a directory, which stands for its files with one of `suffixes`, in string order; a
            glob pattern, which stands for its matches, in string order; or a list or tuple of these, in the given
            order, repeats kept.
        suffixes: suffixes with their dots, compared without regard to case.

    Raises:
        TypeError: `source` has another type.
        FileNotFoundError, IsADirectoryError, ValueError (also AssertionError): a file is missing or not regular, or
            there is nothing to open.
    """
    given: list[PathLike] = list(source) if isinstance(source, list | tuple) else [source]  # type: ignore[list-item]
    files = [path for each in given for path in _expand_one(check_type(each), suffixes)]
    if not files:
        raise ArgumentError(f"there is nothing to open: the {type(source).__name__} is empty")
    for path in files:
        check_file(path)
    return files


def _expand_one(path: str, suffixes: Sequence[str]) -> list[str]:
    if os.path.isdir(path):
        found = with_suffix(resolve_directory(path), suffixes)
        if not found:
            raise ArgumentError(f"{path}: no file in this directory ends in {' or '.join(suffixes)}")
        warn_of_missing(found)
        return found
    # A name may contain brackets itself.
    if glob.has_magic(path) and not os.path.exists(path):
        directory, pattern = os.path.split(path)
        if directory and not glob.has_magic(directory):
            # Resolved, so that all matches are of one directory, wherever a link leads a moment later.
            found = sorted(glob.glob(os.path.join(glob.escape(resolve_directory(directory)), pattern)))
        else:
            # glob gives the order of the directory, which differs between machines.
            found = sorted(glob.glob(path))
        if not found:
            raise MissingFileError(ENOENT, f"no file matches {path!r}{filesystems.remark(path)}", path)
        check_matches(path, found)
        return found
    return [path]


def warn_of_missing(paths: Sequence[str]) -> None:
    """Log each dataset of which fewer files are there than their names say: `x-00000-of-00003` is one of three.

    Files of different directories belong to different datasets.
    """
    numbers: dict[tuple[str, str, int], set[int]] = {}  # (directory, pattern of the names, files) → numbers
    for directory, name in map(os.path.split, paths):
        for found in SHARD.finditer(name):
            pattern = f"{name[: found.start(1)]}…{name[found.end(1) :]}"
            numbers.setdefault((directory, pattern, int(found[2])), set()).add(int(found[1]))
    for (directory, pattern, total), there in numbers.items():
        if len(there) < total:
            files = plural(len(there), "file")
            said = "%s: it has %s called %s, expected %d"
            logger.warning(said, directory or ".", files, pattern, total, extra=DAMAGE)


def with_suffix(directory: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files of a directory with one of `suffixes`, in string order, without hidden ones."""
    with os.scandir(directory) as entries:
        # Hidden files may be unfinished copies: rsync gives them such names.
        return sorted(
            entry.path
            for entry in entries
            # The name first: to see that a link leads to a file, a system call is needed.
            if ends_as(entry.name, suffixes) and not entry.name.startswith(".") and entry.is_file()
        )


def check_file(path: str) -> None:
    """Raise unless `path` is a regular file."""
    try:
        mode = os.stat(path).st_mode  # once for all checks: another process may replace the file between two calls
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise MissingFileError(ENOENT, f"{path} does not exist{missing_hint(path)}", path) from None
    if stat.S_ISDIR(mode):
        raise NotAFileError(EISDIR, f"{path} is not a file", path)
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{path} is not a file")
