"""What test_errno_sweep.py has done again and again: everything that puts files under their names."""

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import builders
import children
import ffr_twin
import numpy as np
import other_readers
from sweeping import Change, Fault

from ffrecord import FileReader, FileWriter, pack_folder, recover
from ffrecord.dataset_writer import DatasetWriter, encoder
from ffrecord.errors import WorkerError
from ffrecord.fields import NDArrayField
from ffrecord.sources.recordio.writer import RecordIOWriter
from ffrecord.sources.tfrecord.writer import TFRecordWriter
from ffrecord.system import named_calls

OLD = [b"old"]
encoder.PART_BYTES = 300  # of records of one size: three are written at a time
# Whose failing need not be told: nothing that was promised depends on it, or the same is had in another way.
ASKED = ("stat", "lstat", "fstat", "fstatfs", "statx", "listdir", "scandir", "fcntl", "posix_fadvise", "madvise")
SPARED = ("unlink", "rmdir", "flock", "mmap", "munmap", "malloc", "pthread_create", "preadv2", "io_setup", "io_destroy")
HARMLESS = frozenset((*ASKED, *SPARED))
# Asked again after a signal.
AGAIN = frozenset(
    ("open", "read", "pread", "pwrite", "fsync", "ftruncate", "fchmod", "readv", "sync_file_range", "fallocate")
)
# What a file system answers that has no such call.
REFUSED = {
    "sync_file_range": (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM),
    "fallocate": (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM),
    "link": named_calls.WITHOUT_LINKS,  # the file is renamed then
    "posix_fallocate": (errno.EINTR, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM),
}


def told(site: str, change: Change, error: BaseException | None, place: Path) -> None:
    """An error is the one of the call, and names what it is of; only where nothing is lost may there be none."""
    number = change.value
    if change.action != "fail":
        assert error is None, repr(error)
    elif error is None:
        again = number == errno.EINTR and site in AGAIN
        assert site in HARMLESS or again or number in REFUSED.get(site, ()), "the error was lost"
    elif isinstance(error, MemoryError):
        assert site in ("malloc", "mmap")
    else:
        assert isinstance(error, OSError) and isinstance(error, RuntimeError), repr(error)
        assert error.errno == number and place.name in str(error), error


class Fresh:
    """In a directory that is made anew each time."""

    beside: Sequence[Fault] = ()

    def __init__(self, directory: Path, samples: list[bytes]) -> None:
        self.directory, self.samples = directory, samples
        self.path = directory / "a.ffr"

    def prepare(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()

    def left(self) -> list[str]:
        return [name for name in os.listdir(self.directory) if name != self.path.name]

    def nothing_left(self, site: str) -> None:
        left = self.left()
        assert not left or site == "unlink", left


class Writing(Fresh):
    """One file, over an old one."""

    def __init__(self, directory: Path, samples: list[bytes], n: int | None, flush: bool) -> None:
        super().__init__(directory, samples)
        self.n, self.flush = n, flush

    def prepare(self) -> None:
        super().prepare()
        self.path.write_bytes(ffr_twin.build(OLD))

    def do(self) -> None:
        with FileWriter(self.path, self.n) as writer:
            for i, sample in enumerate(self.samples):
                if self.flush and i in (3, 200):
                    writer.flush()
                writer.write_one(sample)

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is not None or not self.flush or site != "close":  # of a journal or of a file that was moved away
            told(site, change, error, self.path)
        if error is None or "is in place" in str(error):
            self.compare()
        else:
            assert ffr_twin.parse(self.path.read_bytes()) == OLD
        if error is not None and self.flush and "is in place" in str(error):
            self.recover_after_a_crash()
        self.nothing_left(site)

    def recover_after_a_crash(self) -> None:
        """One that undoes the publication: what was flushed can be had back."""
        (journal,) = (path for path in self.directory.iterdir() if path.suffix == ".journal")
        part = journal.with_suffix(".part")
        if part.exists():
            self.path.write_bytes(ffr_twin.build(OLD))
        else:
            self.path.rename(part)
        samples = recover(self.path, replace=True).samples
        assert samples >= 200 and ffr_twin.parse(self.path.read_bytes()) == self.samples[:samples]

    def compare(self) -> None:
        assert ffr_twin.parse(self.path.read_bytes()) == self.samples


class Recovering(Fresh):
    """What a killed writer left."""

    def prepare(self) -> None:
        super().prepare()

        def dies() -> None:
            writer = FileWriter(self.path)
            writer.write_many(self.samples)
            writer.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        assert children.in_child(dies) == -signal.SIGKILL

    def do(self) -> None:
        recover(self.path)

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is not None:
            assert isinstance(error, OSError | MemoryError), repr(error)
            with contextlib.suppress(FileNotFoundError):  # all was done but the tidying up
                recover(self.path)
            assert self.path.exists()
        elif site not in ("open", "close"):  # of a file that is there already, which is no reason to complain
            told(site, change, error, self.path)
        assert ffr_twin.parse(self.path.read_bytes()) == self.samples
        self.nothing_left(site)


class Packing(Fresh):
    """A folder, over an old file."""

    def prepare(self) -> None:
        super().prepare()
        self.path.write_bytes(ffr_twin.build(OLD))
        for i, sample in enumerate(self.samples):
            inside = self.directory / "folder" / str(i % 3)
            inside.mkdir(parents=True, exist_ok=True)
            (inside / str(i)).write_bytes(sample)

    def do(self) -> None:
        pack_folder(self.directory / "folder", self.path)

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is not None:
            told(site, change, error, self.directory)
        published = error is None or "is in place" in str(error)
        found = ffr_twin.parse(self.path.read_bytes())
        assert sorted(found[:-1]) == sorted(self.samples) if published else found == OLD

    def left(self) -> list[str]:
        return [name for name in super().left() if name != "folder"]


class Dataset(Fresh):
    """A directory of shards: made, or added to."""

    def __init__(self, directory: Path, samples: list[bytes], options: dict[str, Any], appends: bool) -> None:
        super().__init__(directory, samples)
        self.path = directory / "set"
        self.options, self.appends = {"samples_per_shard": 10, "progress": False, **options}, appends
        super().prepare()
        self.write()
        self.before = self.visible()
        self.write(mode="append")
        self.after = self.visible()
        if not appends:
            self.before, self.after = {}, self.before

    def visible(self) -> dict[str, bytes]:
        """Without what an interrupted write left for the next one."""
        return {path.name: path.read_bytes() for path in self.path.glob("[!.]*")} if self.path.exists() else {}

    def write(self, **more: Any) -> None:
        given: Any = self.samples
        if "fields" in self.options:
            given = [np.frombuffer(sample, np.uint8) for sample in given]
        DatasetWriter(self.path, **self.options, **more).from_indexed_dataset(given)

    def prepare(self) -> None:
        super().prepare()
        if self.appends:
            self.write()

    def do(self) -> None:
        self.write(**{"mode": "append"} if self.appends else {})

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, WorkerError | MemoryError):
            assert isinstance(error, OSError), repr(error)
            assert error.errno == change.value or site in ("stat", "lstat"), error
            # What was only read has no more to say when its closing fails.
            named = (str(self.directory), "could not be started", "shared memory")
            assert site == "close" or any(name in str(error) for name in named), error
        if error is None or "is in place" in str(error):
            assert self.visible() == self.after
        else:
            assert self.visible() != self.after
        if self.appends:
            # Where a move cannot be undone there are files more, but the manifest lists none of them.
            with FileReader(self.path) as reader:
                assert builders.read_all(reader) in (self.samples, self.samples * 2)
        elif self.visible() not in (self.before, self.after):
            raise AssertionError(sorted(self.visible()))
        if error is not None:
            self.do()  # as whoever is told so does, and finds what is in place already
        assert self.visible() == self.after
        with FileReader(self.path) as reader:
            assert builders.read_all(reader) == self.samples * (1 + self.appends)


class OtherFormat(Fresh):
    """A file of another format, over an old one."""

    def __init__(self, directory: Path, samples: list[bytes], kind: str) -> None:
        super().__init__(directory, samples)
        self.path, self.kind = directory / f"a.{kind}", kind

    def prepare(self) -> None:
        super().prepare()
        with self.writer() as writer:
            writer.write(b"old")

    def found(self) -> list[bytes]:
        read = other_readers.of_tfrecord if self.kind == "tfrecord" else other_readers.of_recordio
        return read(self.path)

    def compare(self) -> None:
        assert self.found() == self.samples

    def writer(self, **options: Any) -> Any:
        if self.kind == "tfrecord":
            return TFRecordWriter(self.path)
        return RecordIOWriter(self.path, "A", **options)  # which other_readers can read

    def do(self) -> None:
        with self.writer() as writer:
            for sample in self.samples:
                writer.write(sample)

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        told(site, change, error, self.path)
        published = error is None or "is in place" in str(error)
        assert self.found() == (self.samples if published else OLD)
        self.nothing_left(site)


class Added(OtherFormat):
    """Records added to a file of RecordIO."""

    def do(self) -> None:
        try:
            writer = self.writer(mode="append")
        except ValueError:  # where nobody can tell that it is a file
            raise OSError(errno.EINVAL, f"{self.path} is no file") from None
        with writer:
            for sample in self.samples:
                writer.write(sample)
                writer.flush()

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is None and site != "close":
            told(site, change, error, self.path)
        elif error is not None:
            assert isinstance(error, MemoryError | OSError | ValueError), repr(error)
        if error is None:
            self.compare()
        else:
            found = self.found()
            assert found == (OLD + self.samples)[: len(found)]

    def compare(self) -> None:
        assert self.found() == OLD + self.samples


def works(directory: Path) -> dict[str, Callable[[], Fresh]]:
    """All of them by name; they make something when they are made."""
    many = builders.records([100, 0, 5000, *[7] * 400, 1])
    few = builders.records([i * 10 for i in range(25)])
    alike, field = builders.records([120] * 25), NDArrayField("uint8", (120,))
    return {
        "file of n": lambda: Writing(directory, many, len(many), False),
        "file of n, flushed": lambda: Writing(directory, many, len(many), True),
        "file": lambda: Writing(directory, many, None, False),
        "file, flushed": lambda: Writing(directory, many, None, True),
        "recover": lambda: Recovering(directory, many),
        "pack": lambda: Packing(directory, few[:7]),
        "dataset": lambda: Dataset(directory, few, {"num_workers": 0}, False),
        "dataset of workers": lambda: Dataset(directory, few, {"num_workers": 2, "start_method": "fork"}, False),
        "dataset of one size": lambda: Dataset(directory, alike, {"num_workers": 0, "fields": field}, False),
        "dataset of one size, workers": lambda: Dataset(
            directory, alike, {"num_workers": 2, "start_method": "fork", "fields": field}, False
        ),
        "append": lambda: Dataset(directory, few, {"num_workers": 0}, True),
        "tfrecord": lambda: OtherFormat(directory, few, "tfrecord"),
        "recordio": lambda: OtherFormat(directory, few, "recordio"),
        "recordio, appended": lambda: Added(directory, few[:5], "recordio"),
    }
