"""What is fuzzed: one module for each family of formats, each with a list TARGETS.

A module imports ffrecord inside its functions only: the fuzzer rewrites modules as they are imported.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FAMILIES = (
    *("ffr", "writing", "folders", "zips", "tars", "tfrecords", "examples", "recordios", "lmdbs", "betons", "mdss"),
    *("indexes", "columns", "lists", "pictures", "opening"),
)
TESTS = Path(__file__).resolve().parents[2]
GOLDEN = TESTS / "golden"
SCRATCH = "FFRECORD_FUZZ_SCRATCH"
READ_MOST = 12  # records of an input that are read

Run = Callable[[memoryview], object]


class Scratch:
    """A folder in memory, where inputs lie as files. Leaving a `with` closes them, and removes it."""

    def __init__(self) -> None:
        # A process that dies leaves it behind: whoever started it says where, and removes that.
        above = os.environ.get(SCRATCH) or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.folder = Path(tempfile.mkdtemp(prefix="ffrecord-fuzz-", dir=above))
        self._files: list[File] = []

    def file(self, name: str) -> "File":
        """One whose content changes from input to input."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._files.append(File(str(path)))
        return self._files[-1]

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class File:
    """A file that is written again and again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def fd(self) -> int:
        return self._fd

    def put(self, data: "bytes | bytearray | memoryview") -> str:
        """Make that its content; its path."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)
        return self.path

    def close(self) -> None:
        """Close it; nothing is put there any more."""
        os.close(self._fd)


@dataclass(frozen=True)
class Target:
    """A parser, or several in a row.

    Attributes:
        name: of it.
        prepare: given a Scratch, gives the function that is called with each input; it may raise what ffrecord's
            documentation says, and nothing else.
        seeds: sound inputs, and some that are not.
        modules: Python modules of ffrecord that tell where they come by.
        compiled: modules whose constants are worth a try, too.
        accepted: names of classes in `ffrecord.errors` that are documented besides FFRecordError and OSError.
        size_most: bytes of an input.
        memory_most: bytes of one piece of memory, where it may be more than the fuzzer thinks right.
    """

    name: str
    prepare: Callable[[Scratch], Run]
    seeds: Callable[[Path], Iterable[bytes]]
    modules: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    size_most: int = 1 << 15
    memory_most: int = 64 << 20


def target_of(name: str) -> Target:
    """The target called so, which may be one that the fuzzer is tested by."""
    return {**targets(), **targets(["planted"])}[name]


def targets(families: Sequence[str] = FAMILIES) -> dict[str, Target]:
    """All, by name."""
    found = [target for family in families for target in import_module(f"fuzz.targets.{family}").TARGETS]
    return {target.name: target for target in found}


def refused() -> tuple[type[BaseException], ...]:
    """What any reader may raise for what is in a file. Without zstandard, that it is missing."""
    from ffrecord import FFRecordError

    return (FFRecordError, OSError) if find_spec("zstandard") else (FFRecordError, OSError, ImportError)


def drain(store: Any) -> None:
    """Read records of an open store, each by itself and all together, and close it."""
    wrong = refused()
    try:
        chosen = list(range(min(len(store), READ_MOST)))
        for read in (store.read, store.samples):
            for index in chosen:
                try:
                    read([index])
                except wrong:
                    continue
        with contextlib.suppress(wrong):
            store.read_packed(chosen)
    finally:
        store.close()
