"""Files and directories that killed processes left beside an output path.

Commands report them and remove nothing: in a directory that others may write to, anybody can give such a name to
something else.
"""

import os
import stat
from contextlib import suppress

from ffrecord.cli.terminal.output import Output
from ffrecord.system.atomic_file import lock
from ffrecord.writing.recovery import has_journal, part_files

UNCHANGED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def report_leftovers(path: str, out: Output, name: str) -> None:
    """Remark on part files and part directories of `path` that no process holds any more.

    Args:
        path: output path of the command.
        out: output of the command.
        name: name of the command.
    """
    for part in find_leftovers(path):
        out.remark(f"ffrecord {name}: {part} was left by a process that was killed, and can be removed")


def find_leftovers(path: str) -> list[str]:
    """Return the part files and directories of `path` whose writers are gone.

    Parts that `recover` can restore are left out.
    """
    with suppress(OSError):
        return [part for part in part_files(os.path.realpath(path)) if not has_journal(part) and _is_abandoned(part)]
    return []


def _is_abandoned(part: str) -> bool:
    """Tell whether no process has locked a part. False where the file system has no locks: nobody can know there."""
    with suppress(OSError):
        mode = os.lstat(part).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            fd = os.open(part, UNCHANGED)
            try:
                return lock(fd, part)
            finally:
                os.close(fd)
    return False
