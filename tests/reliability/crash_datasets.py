"""Interrupted: writing a dataset, going on with it, appending to it, dumping and converting into one."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders
import numpy as np
from crash_case import DONE, Case, Say, Tree, parse, record, tree

from ffrecord import FileReader
from ffrecord.cli import main as command
from ffrecord.conversion.converter import convert
from ffrecord.dataset_writer import DatasetWriter, encoder
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.fields import NDArrayField

encoder.PART_BYTES = 300  # of records of one size: three are written at a time, in tasks of seven


def of_line(line: str) -> bytes:
    return record(int(line))


def listed(directory: Path) -> list[bytes] | None:
    """The samples of a directory as readers see it; None for no dataset, or one that says that it misses some."""
    names = sorted(name for name in os.listdir(directory) if name[0] != ".") if directory.exists() else []
    if not names:
        return None
    if "dataset.json" in names:
        names = [shard["name"] for shard in json.loads((directory / "dataset.json").read_bytes())["shards"]]
    try:
        samples = [sample for name in names for sample in parse(directory / name)]
    except FileNotFoundError as error:
        with contextlib.suppress(FileNotFoundError):
            FileReader(directory).close()
            raise AssertionError("opened although a shard is missing") from error
        return None
    with FileReader(directory) as reader:
        assert builders.read_all(reader) == samples
    return samples


class Dataset(Case):
    """DatasetWriter into a new directory.

    Args:
        source: of the samples: "indexed", "list", "iterable".
        workers: processes, 0 for none.
        inside: whether the target is the working directory, into which files are moved one by one.
        resumed: whether another one was interrupted before and has left finished shards.
        alike: whether records have all one size, so that their places are foreseen.
    """

    def __init__(
        self,
        place: Path,
        *,
        source: str = "indexed",
        workers: int = 0,
        inside: bool = False,
        resumed: bool = False,
        alike: bool = False,
    ) -> None:
        super().__init__(place)
        self.samples = [record(i)[:4] * 30 if alike else record(i) for i in range(40)]
        self._fields = NDArrayField("uint8", (120,)) if alike else None
        self.target = place / "set"
        self.parallel = workers > 0
        self._source, self._workers, self._inside, self._resumed = source, workers, inside, resumed
        self._whole: Tree | None = None

    def prepare(self) -> None:
        if self._inside:
            self.target.mkdir()
        if self._resumed:

            class Ending(list[bytes]):
                def __getitem__(self, index: Any) -> Any:
                    if index == 25:
                        raise KeyError("not yet")
                    return super().__getitem__(index)

            with self._at_home(), contextlib.suppress(RuntimeError):
                self._write(Ending(self.samples), 0)
            assert any(name.endswith(".part") for name in os.listdir(self.target if self._inside else self.place))

    @contextlib.contextmanager
    def _at_home(self) -> Iterator[None]:
        home = os.getcwd()
        os.chdir(self.target if self._inside else self.place)
        try:
            yield
        finally:
            os.chdir(home)

    def _write(self, samples: list[bytes], workers: int, **options: Any) -> None:
        options |= {"samples_per_shard": 10, "num_workers": workers, "progress": False}
        writer = DatasetWriter(self.target, self._fields, **options)
        if self._source == "list":
            writer.from_list([str(i) for i in range(len(samples))], of_line, chunksize=7)
        elif self._source == "iterable":
            writer.from_iterable(iter(samples), chunksize=7)
        elif self._fields is not None:
            writer.from_indexed_dataset([np.frombuffer(sample, np.uint8) for sample in samples], chunksize=7)
        else:
            writer.from_indexed_dataset(samples, chunksize=7)

    def work(self, say: Say) -> None:
        with self._at_home():
            self._write(self.samples, self._workers)
        say(DONE)

    def check(self, said: int, synced: bool = False) -> None:
        there = listed(self.target)
        assert there == self.samples or (there is None and said < DONE), there
        assert set(self.names) <= {"set", ".set.part"}, self.names
        if not self._inside:
            assert there is not None or not self.target.exists() or not os.listdir(self.target)
        try:
            with self._at_home():
                self._write(self.samples, 0)
        except FileExistsError:
            # It died tidying up: the ledger was gone.
            assert there == self.samples and not os.path.exists(PartDirectory(str(self.target)).write_log_path)
        else:
            assert self.names == ["set"], self.names
        self._whole = self._whole or tree(self.target)
        assert tree(self.target) == self._whole
        assert listed(self.target) == self.samples


class Append(Case):
    """DatasetWriter with mode="append".

    Args:
        workers: processes, 0 for none.
        bare: whether what is there has no manifest.
    """

    def __init__(self, place: Path, *, workers: int = 0, bare: bool = False) -> None:
        super().__init__(place)
        self.base, self.more = [record(i) for i in range(20)], [record(i) for i in range(20, 50)]
        self.target = place / "set"
        self.parallel = workers > 0
        self._workers, self._bare = workers, bare
        self._whole: Tree | None = None

    def prepare(self) -> None:
        DatasetWriter(self.target, samples_per_shard=10, num_workers=0).from_indexed_dataset(self.base)
        if self._bare:
            (self.target / "dataset.json").unlink()

    def _write(self, workers: int) -> None:
        DatasetWriter(
            self.target, samples_per_shard=10, num_workers=workers, progress=False, mode="append"
        ).from_indexed_dataset(self.more, chunksize=7)

    def work(self, say: Say) -> None:
        self._write(self._workers)
        say(DONE)

    def check(self, said: int, synced: bool = False) -> None:
        there = listed(self.target)
        assert there == self.base + self.more or (there == self.base and said < DONE), there and len(there)
        left = PartDirectory(str(self.target), among_others=True)
        assert self.names == ["set"] and set(os.listdir(self.target)) >= {"PART_00000.ffr", "PART_00001.ffr"}
        if there == self.base or os.path.exists(left.write_log_path):
            self._write(0)
        shutil.rmtree(left.path, ignore_errors=True)
        self._whole = self._whole or tree(self.target)
        assert tree(self.target) == self._whole
        assert listed(self.target) == self.base + self.more


class Dump(Case):
    """`dump` into several files, into a directory that has others."""

    def __init__(self, place: Path, *, among: bool) -> None:
        super().__init__(place)
        self.samples = [record(i) for i in range(40)]
        self.target = place / "set"
        self._others = ["notes.txt"] if among else []

    parallel = True  # always

    def prepare(self) -> None:
        if self._others:
            self.target.mkdir()
            (self.target / self._others[0]).write_text("mine")

    def work(self, say: Say) -> None:
        dump(self.samples, self.target, 3)
        say(DONE)

    def _there(self) -> list[bytes] | None:
        names = os.listdir(self.target) if self.target.exists() else []
        if not [name for name in names if name[0] != "." and name not in self._others]:
            return None
        try:
            with FileReader(self.target) as reader:
                return builders.read_all(reader)
        except FileNotFoundError:
            assert "dataset.json" in names
            return None

    def check(self, said: int, synced: bool = False) -> None:
        there = self._there()
        assert there == self.samples or (there is None and said < DONE), there
        assert set(self.names) <= {"set", ".set.part"}, self.names
        if there is None:
            dump(self.samples, self.target, 3)
            assert sorted(os.listdir(self.target)) == [*(f"PART_{i:05}.ffr" for i in range(3)), *self._others]
        assert self._there() == self.samples


class Converted(Case):
    """`convert`, of a zip archive."""

    def __init__(self, place: Path, source: Path) -> None:
        super().__init__(place)
        self.target = place / "set"
        self._source = source
        self._whole: Tree | None = None

    def _write(self) -> None:
        convert(str(self._source), self.target, num_workers=0, samples_per_shard=5, progress=False)

    def prepare(self) -> None:
        """Nothing."""

    def work(self, say: Say) -> None:
        self._write()
        say(DONE)

    def check(self, said: int, synced: bool = False) -> None:
        there = tree(self.target) if self.target.exists() else {}
        assert there in ({}, self._whole or there) and (there or said < DONE)
        assert not there or "dataset.json" in there
        assert set(self.names) <= {"set", ".set.part"}, self.names
        try:
            self._write()
        except FileExistsError:
            assert there and not os.path.exists(PartDirectory(str(self.target)).write_log_path)
        else:
            assert self.names == ["set"], self.names
        self._whole = self._whole or tree(self.target)
        assert tree(self.target) == self._whole
        assert sum(len(parse(self.target / name)) for name in self._whole if name.endswith(".ffr")) == 12


class Split(Case):
    """`ffrecord split`, of a zip archive into two datasets."""

    def __init__(self, place: Path, source: Path) -> None:
        super().__init__(place)
        self._parts = [place / "train", place / "val"]
        self._source = source
        self._whole: list[Tree | None] | None = None

    def _write(self) -> int:
        given = ["split", str(self._source), f"{self._parts[0]}=8", f"{self._parts[1]}=rest", "--quiet"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            status = command([*given, "--samples-per-shard", "3", "--jobs", "1"])
        assert status == 0 or "or name another directory" in said.getvalue(), said.getvalue()
        return status

    def prepare(self) -> None:
        """Nothing."""

    def work(self, say: Say) -> None:
        assert self._write() == 0
        say(DONE)

    def _there(self) -> list[Tree | None]:
        return [tree(path) if path.exists() else None for path in self._parts]

    def check(self, said: int, synced: bool = False) -> None:
        there = self._there()
        assert None not in there or said < DONE
        assert self._whole is None or all(each in (None, whole) for each, whole in zip(there, self._whole, strict=True))
        assert set(self.names) <= {"train", "val", ".train.split", ".val.split"}, self.names
        if self._write():
            assert None not in there  # it died tidying up
        self._whole = self._whole or self._there()
        assert self._there() == self._whole
        assert [len(listed(path) or []) for path in self._parts] == [8, 4]
