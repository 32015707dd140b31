"""Very many files: one file under very many names."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory of tmpfs, where a file may have any number of names; skips where there is none."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or os.statvfs(shared).f_favail < 2_200_000:
        pytest.skip("no tmpfs at /dev/shm with room for two million names")
    directory = shared / f"ffrecord-many-{os.getpid()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def many_names(directory: Path, name: str, count: int) -> list[str]:
    """More names of a file, of which it has the first one now."""
    stem, suffix = name.split("-")[0], Path(name).suffix
    made = [f"{stem}-{number:07}{suffix}" for number in range(count)]
    os.rename(directory / name, directory / made[0])
    for each in made[1:]:
        os.link(directory / made[0], directory / each)
    return made
