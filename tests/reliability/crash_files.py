"""Interrupted: writing one `.ffr` file, recovering it, and whatever else appears under one name at once."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import builders
import ffr_twin
from crash_case import DONE, OLD, Case, Say, Tree, parse, tree

from ffrecord import FileReader, FileWriter, recover


def left_of_file(names: list[str], name: str) -> None:
    """What a killed FileWriter leaves is recognisable: a part file, its journal, and a copy being made of the part."""
    left = [each for each in names if each != name]
    assert all(each.startswith(f".{name}.") and each.endswith((".part", ".journal")) for each in left), left
    parts = [each for each in left if each.endswith(".part")]
    assert len(parts) <= 1 + any(each.endswith(".journal") for each in left) and len(left) <= 3, left


class File(Case):
    """FileWriter, over an old file.

    Args:
        n: whether it is told the number of samples.
        flush: whether it flushes in between.
        large: size of samples that fill its buffers.
    """

    def __init__(self, place: Path, *, n: bool, flush: bool, large: int = 5000) -> None:
        super().__init__(place)
        # Samples before, over and behind the border of a buffer, and more of them than 4096 bytes of tables hold.
        self.samples = builders.records([100, large, 0, large, *[7] * 400, min(large, 70_000), 1])
        self.path = place / "a.ffr"
        self._n, self._flushes = n, (3, 3, 200, 406) if flush else ()
        self._undisturbed: bytes | None = None

    def prepare(self) -> None:
        self.path.write_bytes(ffr_twin.build(OLD))

    def write(self, say: Say = lambda number: None) -> None:
        with FileWriter(self.path, len(self.samples) if self._n else None) as writer:
            for i, sample in enumerate(self.samples):
                for _ in range(self._flushes.count(i)):
                    writer.flush()
                    say(i)
                writer.write_one(sample)

    def work(self, say: Say) -> None:
        self.write(say)
        say(DONE)

    def check(self, said: int, synced: bool = False) -> None:
        published = parse(self.path)
        assert published == self.samples or (published == OLD and said < DONE), len(published)
        left_of_file(self.names, "a.ffr")
        if published == OLD:
            self._recover(said)
        else:
            check_tidied(self.path, self.samples)
        assert self.names == ["a.ffr"], self.names
        self.write()
        whole = self.path.read_bytes()
        self._undisturbed = self._undisturbed or whole
        assert whole == self._undisturbed and parse(self.path) == self.samples and self.names == ["a.ffr"]
        assert not self._n or whole == ffr_twin.build(self.samples)

    def _recover(self, flushed: int) -> None:
        try:
            found = recover(self.path, replace=True)
        except FileNotFoundError:
            assert flushed == 0, f"{flushed} flushed samples are lost"
            return
        assert found.samples >= flushed and found.damaged == 0, (found, flushed)
        assert parse(self.path) == self.samples[: found.samples]
        FileReader(self.path).close()


def check_tidied(path: Path, samples: list[bytes]) -> None:
    """The file is there whole: what else is left goes, and is no reason to complain."""
    with contextlib.suppress(FileNotFoundError):
        assert recover(path)[1:3] == (len(samples), sum(map(len, samples)))
    assert parse(path) == samples


class Recovery(Case):
    """`recover`, of what a killed writer had flushed.

    Args:
        n: number of samples that the writer was told; None for none.
        replace: whether there is an old file to be replaced.
    """

    FLUSHED = 350

    def __init__(self, place: Path, *, n: int | None, replace: bool) -> None:
        super().__init__(place)
        self.samples = builders.records([100, 1000, 0, 1000, *[7] * 349])
        self.path = place / "a.ffr"
        self._n, self._replace = n, replace

    def prepare(self) -> None:
        if self._replace:
            self.path.write_bytes(ffr_twin.build(OLD))
        child = os.fork()
        if child == 0:
            writer = FileWriter(self.path, self._n)
            writer.write_many(self.samples[: self.FLUSHED])
            writer.flush()
            if self._n != self.FLUSHED:
                writer.write_many(self.samples[self.FLUSHED :])
            os.kill(os.getpid(), 9)
        os.waitpid(child, 0)

    def work(self, say: Say) -> None:
        found = recover(self.path, replace=self._replace)
        assert found.samples == self.FLUSHED
        say(DONE)

    def check(self, said: int, synced: bool = False) -> None:
        wanted = self.samples[: self.FLUSHED]
        there = parse(self.path) if self.path.exists() else OLD
        assert there == wanted or (there == OLD and said < DONE), len(there)
        left_of_file(self.names, "a.ffr")
        if there == OLD:
            assert self.path.exists() == self._replace
            assert recover(self.path, replace=self._replace)[1] == self.FLUSHED
        else:
            check_tidied(self.path, wanted)
        assert parse(self.path) == wanted and self.names == ["a.ffr"], self.names


class Whole(Case):
    """Something that appears under one name at once, given by what writes it.

    Args:
        replaces: whether a file is there before.
        occupied: whether an empty directory is there before.
        suffix: of the hidden name that a killed writer leaves.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        write: Callable[[Path], object],
        *,
        replaces: bool = False,
        occupied: bool = False,
        suffix: str = ".part",
    ) -> None:
        super().__init__(place)
        self.target = place / name
        self._write, self._suffix = write, suffix
        self._before_it: Tree | bytes | None = ffr_twin.build(OLD) if replaces else {} if occupied else None
        self._whole: Tree | bytes | None = None

    def prepare(self) -> None:
        if isinstance(self._before_it, bytes):
            self.target.write_bytes(self._before_it)
        elif self._before_it is not None:
            self.target.mkdir()

    def work(self, say: Say) -> None:
        self._write(self.target)
        say(DONE)

    def _there(self) -> Tree | bytes | None:
        if self.target.is_dir():
            return tree(self.target)
        return self.target.read_bytes() if self.target.exists() else None

    def check(self, said: int, synced: bool = False) -> None:
        if self._whole is None:
            with contextlib.ExitStack() as stack:
                beside = self.place.with_name(f"{self.place.name} beside")
                stack.callback(shutil.rmtree, beside, ignore_errors=True)
                beside.mkdir()
                kept, self.target = self.target, beside / self.target.name
                self._write(self.target)
                self._whole, self.target = self._there(), kept
        before = self._before_it
        there, name = self._there(), self.target.name
        assert there == self._whole or (there == before and said < DONE), f"{name} is neither old nor whole"
        left = [each for each in self.names if each != name]
        assert all(each.startswith(f".{name}.") and each.endswith(self._suffix) for each in left), left
        assert len(left) <= 1, left
        if there == before:
            self._write(self.target)
        assert self._there() == self._whole
