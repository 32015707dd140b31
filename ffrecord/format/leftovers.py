"""What an interrupted write has left inside a dataset's directory, as far as readers must know of it.

Where files are moved into a directory one by one, the manifest is there before them, so that what is missing is
noticed. Should it be gone all the same, the ledger of the part directory still tells which files were being moved.
"""

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from ffrecord.errors import FormatError
from ffrecord.format import manifest
from ffrecord.format.ffr_layout import SUFFIX
from ffrecord.system.atomic_file import PART_SUFFIX

INSIDE = f".dataset{PART_SUFFIX}"  # the part directory of a target that cannot be replaced by a rename
FINISHED = "finished"  # in there: the shards that have not been moved yet
LEDGER = "ledger"
LEDGER_MAX = 64 << 20  # bytes; about 400,000 shards. What a reader takes in, whatever a file says


class Publishing(msgspec.Struct, tag="publishing"):
    """All is complete and about to get its final names: the last line of a ledger, if it is in there.

    Attributes:
        names: of the files, in the order in which they are moved.
        before: fingerprint of the manifest that is there before; None for none.
        after: of the one that is there afterwards.
        skipped: samples left out in all, those after the last shard's too.
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
    """What an error of a directory, or of a shard in it, adds if a write of it has not ended; else nothing."""
    if os.path.isdir(os.path.join(directory, INSIDE)):
        return f"; a write of {directory} was interrupted, or is going on: the same call again goes on from there"
    return ""


def check_bare(directory: str, names: Collection[str]) -> None:
    """Raise FormatError if a directory without a manifest holds some of the shards of an interrupted write.

    Those that were there before a write are read while it goes on, and after it was interrupted.

    Args:
        names: of all that is in the directory.

    Raises:
        FormatError: as said.
        OSError: the ledger cannot be read just now.
    """
    if INSIDE not in names:
        return
    part = Path(directory) / INSIDE
    mark = _mark(str(part / LEDGER))
    moved = [] if mark is None else [name for name in mark.names if name in names and name.endswith(SUFFIX)]
    moved = [name for name in moved if not os.path.lexists(part / FINISHED / name)]
    if moved:
        raise FormatError(
            f"{directory} holds {moved[0]} of a write that was interrupted, and no {manifest.NAME} that says what is "
            f"missing: the same call again goes on from there; what is there counts as all once {part} is removed"
        )


def _mark(path: str) -> Publishing | None:
    """The last line of a ledger, if it is of a publication."""
    try:
        lines = manifest.read(path, LEDGER_MAX).splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, FormatError):
        return None  # no ledger, or of somebody who adds to shards that we may read
    try:
        return msgspec.json.decode(lines[-1], type=Publishing) if lines and lines[-1].endswith(b"\n") else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
