"""A control group that limits memory, of version 1 or 2, where this process may create one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A group with a memory limit, which includes the page cache of its processes."""

    path: Path
    limit_file: str

    def limit(self, size: int | None) -> None:
        """Set the limit in bytes; None for no limit."""
        without = "max" if self.limit_file == "memory.max" else "-1"
        (self.path / self.limit_file).write_text(without if size is None else str(size))

    def join(self) -> None:
        """Move this process into the group. Memory that it has already is not counted."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))


def own(controller: str) -> str:
    """Return the path of this process's group below the root of a hierarchy; controller "" for version 2."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return next((path.lstrip("/") for _, names, path in lines if controller in names.split(",")), "")


@contextmanager
def group() -> Iterator[Group | None]:
    """Yield a new group, and delete it in the end; None if there is no memory controller that we may use."""
    for where, limit_file in (
        (ROOT / "memory" / own("memory"), "memory.limit_in_bytes"),
        (ROOT / own(""), "memory.max"),
    ):
        path = where / f"ffrecord-bench-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            if (path / limit_file).exists():
                yield Group(path, limit_file)
                return
        finally:
            with suppress(OSError):
                path.rmdir()
    yield None
