"""What to do with files and directories that `ffrecord.open` does not know, where that can be told."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from ffrecord.format import ffr_layout as ffr
from ffrecord.format import manifest
from ffrecord.sources.mds.index import INDEX_MOST
from ffrecord.sources.suffixes import IMAGES, SUFFIXES, ends_as
from ffrecord.system import filesystems

CONVERTED = "ffrecord.convert takes any iterable of samples"
PICTURE = 'a picture: open its directory, or [path, …] with format="path list"'

BEGINNINGS = (
    (b"\xff\xd8\xff", PICTURE),
    (b"\x89PNG\r\n", PICTURE),
    (b"\x93NUMPY", "an array of numpy: `ffrecord write FILE OUT` makes samples of it"),
    (b"\x0a\x23\xd7\xce", f"RecordIO of MXNet, which is another format and not read here; {CONVERTED}"),
    (b"\xff\xff\xff\xff", "perhaps Arrow: ffrecord.convert takes what datasets.Dataset.from_file gives"),
    (b"PAR1", "it begins as a Parquet file, whose last four bytes are PAR1, too: this one is cut"),
    (b"\x04\x22\x4d\x18", "compressed by lz4, which is not read here: decompress it"),
    (b"ARROW1\0\0", "Arrow: ffrecord.convert takes what datasets.Dataset.from_file gives"),
)
SAVED = {"dataset_dict.json", "state.json"}  # written by datasets.save_to_disk
ENTRIES = 1000  # of a directory that are looked at
DIRECTORIES = 20  # below each of them, in search of pictures
SHOWN = 5  # datasets in it
FILES = 100  # of a directory below it that are looked at
LISTED = re.compile(r"[^\n]*\.[A-Za-z]{2,5}(?:[ \t]+|,)[^\n]*\S")  # a path and a label


def of_file(path: str, head: bytes) -> str:
    """What to say of a file that is called and begins so: nothing, or what begins with "; "."""
    for begins, said in BEGINNINGS:
        if head.startswith(begins):
            return f"; {said}"
    if ends_as(os.path.basename(path), SUFFIXES["tfrecord"]):
        return '; a TFRecord by its name, so damaged at its start: open it with format="tfrecord" to see how'
    lines = head.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")[:2]
    if b"\0" not in head and any(LISTED.fullmatch(line) for line in lines):
        return '; if its lines are "path label", format="path list" reads them'
    return ""


def of_directory(path: str, names: Sequence[str]) -> str:
    """The same of a directory with these names in it."""
    if not SAVED.isdisjoint(names):
        return "; ffrecord.convert takes what datasets.load_from_disk of it gives"
    if said := _of_mds(path, names):
        return said
    if not datasets_in(path, names):
        return _of_pictures([os.path.join(path, name) for name in names[:ENTRIES] if not name.startswith(".")])
    found = _all_in(path, names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"; it holds the dataset{'s' if len(found) > 1 else ''} {', '.join(found[:SHOWN])}{more}"


def datasets_in(path: str, names: Sequence[str]) -> list[str]:
    """Return the directories in a directory that are datasets by the files in them."""
    return [each for each in _visible(path, names) if _is_dataset(each)]


def _all_in(path: str, names: Sequence[str]) -> list[str]:
    """Return what may be a dataset in a directory: also files, and directories of pictures."""
    suffixes = [end for ends in SUFFIXES.values() for end in ends]
    return [
        each
        for each in _visible(path, names)
        if _is_dataset(each) or ends_as(os.path.basename(each), suffixes) or holds_pictures(each)
    ]


def _visible(path: str, names: Sequence[str]) -> list[str]:
    return [os.path.join(path, name) for name in names[:ENTRIES] if not name.startswith(".")]


def holds_pictures(directory: str) -> bool:
    """Tell whether it is a directory in which at least half of the first files are pictures."""
    try:
        with os.scandir(directory) as entries:
            files = [entry.name for entry in islice(entries, FILES) if entry.is_file() and entry.name[0] != "."]
    except OSError:
        return False
    return bool(files) and 2 * sum(name.lower().endswith(IMAGES) for name in files) >= len(files)


def _of_mds(path: str, names: Sequence[str]) -> str:
    """The same of a directory that seems to be an MDS dataset, but for its index."""
    shards = any(name.endswith((".mds", ".mds.zstd")) for name in names[:ENTRIES])
    if "index.json" not in names:
        return "; it has shards of MDS, but no index.json that lists them" if shards else ""
    if not shards and _is_json(os.path.join(path, "index.json")):
        return ""  # of something else
    return '; an MDS dataset if index.json were one of MDS: open it with format="mds" to see what is wrong there'


def _of_pictures(paths: Sequence[str]) -> str:
    """The same where pictures are further down, and not in any of these directories themselves."""
    for path in paths:
        for directory, _, names in islice(os.walk(path), DIRECTORIES):
            if any(name.lower().endswith(IMAGES) for name in names):
                below = os.path.relpath(directory, path)
                return (
                    f'; there are pictures in {directory}: format="image folder" takes them for class '
                    f"{os.path.basename(path)!r}, not {below!r}; or open each directory"
                )
    return ""


def _is_json(path: str) -> bool:
    try:
        json.loads(manifest.read(path, INDEX_MOST))
    except (ValueError, RecursionError):
        return False
    except OSError:
        return True  # nobody knows
    return True


def _is_dataset(path: str) -> bool:
    """Tell whether it is a directory with `.ffr` files, an LMDB environment, or a dataset of MDS."""
    with suppress(OSError), os.scandir(path) as entries:
        if any(os.path.exists(os.path.join(path, name)) for name in (manifest.NAME, "data.mdb")):
            return True
        names = [entry.name for entry in islice(entries, FILES)]
        mds = any(name.endswith((".mds", ".mds.zstd")) for name in names)
        return any(name.endswith(ffr.SUFFIX) for name in names) or (
            mds and os.path.exists(os.path.join(path, "index.json"))
        )
    return False


def of_missing(path: str) -> str:
    """The same of a path where nothing is."""
    gone = filesystems.remark(path)
    if gone or "}" not in path.partition("{")[2]:
        return gone
    return '; braces are expanded with format="webdataset" only, elsewhere use a list, or a pattern with *'
