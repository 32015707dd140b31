"""What killed processes have left beside a place. It is told of and not removed: in a directory that others may write
to, anybody can give such a name to something else."""

import os
import stat
from contextlib import suppress

from ffrecord.cli.terminal.output import Output
from ffrecord.system.atomic_file import lock
from ffrecord.writing.recovery import has_journal, part_files

UNCHANGED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tell_of_left(path: str, out: Output, name: str) -> None:
    """Remark on part files and part directories of `path` that nobody holds any more.

    Args:
        name: of the command.
    """
    for part in left_beside(path):
        out.remark(f"ffrecord {name}: {part} was left by a process that was killed, and can be removed")


def left_beside(path: str) -> list[str]:
    """Part files and directories of `path` whose writers are gone, but for those that `recover` makes something of."""
    with suppress(OSError):
        return [part for part in part_files(os.path.realpath(path)) if not has_journal(part) and _is_left(part)]
    return []


def _is_left(part: str) -> bool:
    """Whether nobody has locked it; not where there are no locks, so that nobody can tell."""
    with suppress(OSError):
        mode = os.lstat(part).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            fd = os.open(part, UNCHANGED)
            try:
                return lock(fd, part)
            finally:
                os.close(fd)
    return False
