"""Leftovers of an interrupted write in a dataset directory, as far as they concern readers.

If files are moved into a directory one by one, the manifest is written before them, so that readers notice missing
files. If the manifest is lost, the write log in the part directory still lists the files that were being moved.
"""

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from ffrecord.errors import UNFINISHED, FormatError
from ffrecord.format import manifest
from ffrecord.format.ffr_layout import SUFFIX
from ffrecord.system.atomic_file import PART_SUFFIX

INSIDE = f".dataset{PART_SUFFIX}"  # the part directory of a target that cannot be replaced by a rename
FINISHED = "finished"  # directory in it: the finished shards that have not been moved yet
WRITE_LOG = "ledger"  # file in it: the write log
WRITE_LOG_MAX = 64 << 20  # bytes; about 400,000 shards. A reader loads no more, whatever the size of the file


class Publishing(msgspec.Struct, tag="publishing"):
    """Last line of a write log: all files are complete and about to get their final names.

    Attributes:
        names: names of the files, in the order in which they are moved.
        before: fingerprint of the manifest before the write; None if there was none.
        after: fingerprint of the manifest after the write.
        skipped: number of all samples left out, including those after the last shard.
    """

    names: list[str]
    before: str | None
    after: str
    skipped: int = 0

    def __post_init__(self) -> None:
        for name in self.names:
            if name != manifest.NAME:
                manifest.check_shard_name(name)


def remark(directory: str) -> str:
    """Return an addition to an error about a directory or a shard in it: whether a write is unfinished there, or ""."""
    if os.path.isdir(os.path.join(directory, INSIDE)):
        return f"; {UNFINISHED}"
    return ""


def check_bare(directory: str, names: Collection[str]) -> None:
    """Raise FormatError if a directory without a manifest contains some of the shards of an interrupted write.

    Shards that were there before a write stay readable during the write and after its interruption.

    Args:
        directory: path of the directory.
        names: names of all files in the directory.

    Raises:
        FormatError: it contains such shards.
        OSError: the write log cannot be read at the moment.
    """
    if INSIDE not in names:
        return
    part = Path(directory) / INSIDE
    mark = _read_publication(str(part / WRITE_LOG))
    moved = [] if mark is None else [name for name in mark.names if name in names and name.endswith(SUFFIX)]
    moved = [name for name in moved if not os.path.lexists(part / FINISHED / name)]
    if moved:
        raise FormatError(
            f"{directory} has {moved[0]} of an interrupted write, and no {manifest.NAME} that says which shards are "
            f"missing; repeat the same call to continue, or remove {part} to read the shards that are there"
        )


def _read_publication(path: str) -> Publishing | None:
    """Return the last line of a write log if it announces a publication, else None."""
    try:
        lines = manifest.read(path, WRITE_LOG_MAX).splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, FormatError):
        return None  # there is no write log, or it belongs to another user who adds to shards that we may read
    try:
        return msgspec.json.decode(lines[-1], type=Publishing) if lines and lines[-1].endswith(b"\n") else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
