"""In a child: mount a file system that nobody else sees, and read and write on it. KIND DIRECTORY read|change"""

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import builders
import children
import numpy as np
import situations
from written_datasets import files_in, read_all

from ffrecord import DatasetWriter, FileReader, FileWriter, PackedFolder, convert, export, pack_folder, recover
from ffrecord.errors import WorkerError

SAMPLES = builders.records([0, 1, 511, 3000, 70_000, 300_000, 4096] * 10)
IMAGE_SIZE = 400 << 20  # what btrfs and xfs want at least


def said(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cannot: {command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def mount(kind: str, directory: Path) -> Path:
    """A directory on a file system of that kind, which is gone with this process, however that ends; or "here"."""
    if kind == "here":
        return directory
    try:
        children.own_mounts()
    except OSError as error:
        sys.exit(f"cannot: {error}")
    place, other = directory / "mounted", directory / "other"
    place.mkdir()
    other.mkdir()
    if kind == "overlay":
        for name in ("upper", "work"):
            (directory / name).mkdir()
        write(other / "a.ffr", SAMPLES)
        options = f"lowerdir={other},upperdir={directory}/upper,workdir={directory}/work"
        said("mount", "-t", "overlay", "overlay", "-o", options, place)
    elif kind == "tmpfs":
        said("mount", "-t", "tmpfs", "-o", "size=64m", "none", place)
    elif kind == "nfs":
        said("exportfs", "-o", "rw,no_root_squash,fsid=1", f"localhost:{other}")
        said("mount", "-t", "nfs", f"localhost:{other}", place)
    else:
        _mount_image(*kind.split(), directory / "image", place)
    return place


def _mount_image(name: str, sector: str, image: Path, place: Path) -> None:
    with open(image, "wb") as file:
        file.truncate(IMAGE_SIZE)
    device = said("losetup", "--find", "--show", "--sector-size", sector, image)
    try:
        said(f"mkfs.{name}", "-q", device)
        said("mount", device, place)
    finally:
        said("losetup", "--detach", device)  # as soon as it is not mounted any more


def write(path: Path, samples: list[bytes], n: int | None = None) -> None:
    with FileWriter(path, n) as writer:
        for sample in samples:
            writer.write_one(sample)


def names(place: Path) -> set[str]:
    """What is there, but for what mkfs made."""
    return set(os.listdir(place)) - {"lost+found"}


# Works: each gets a directory of the file system


def read(place: Path) -> None:
    """In every mode; prints the engine that each ends with."""
    for io in builders.IO_MODES:
        read_by(place, io)


def read_by(place: Path, io: str) -> None:
    """Shuffled, ahead and in sequence, cached and not."""
    path = place / "a.ffr"
    if not path.exists():
        write(path, SAMPLES, len(SAMPLES))
    lower = place.with_name("other") / "a.ffr"
    evicted = [str(each) for each in (path, lower) if each.exists()]
    random = np.random.default_rng(0)
    with FileReader(path, io=io) as reader:
        for turn in range(40):
            if turn in (0, 10, 20) and "tmpfs" not in reader.stats().engines:
                situations.evict(*evicted)
            indices = random.integers(0, len(SAMPLES), 40)
            assert builders.unpack(reader.read_packed(indices)) == [SAMPLES[i] for i in indices]
        (engine,) = reader.stats().engines.items()
        for packed in reader.iter_batches([range(70)] * 5, packed=True):
            assert builders.unpack(packed) == SAMPLES
        assert [sample.tobytes() for sample in reader] == SAMPLES
    print(*engine, sep=": ")


def replace(place: Path) -> None:
    """An open reader keeps the old file; what is cut is an error."""
    write(place / "a.ffr", SAMPLES)
    for io in ("auto", "pread", "direct"):
        with FileReader(place / "a.ffr", io=io) as reader:
            write(place / "a.ffr", SAMPLES[::-1])
            assert builders.read_all(reader) == SAMPLES
        write(place / "a.ffr", SAMPLES)
        with FileReader(place / "a.ffr", io=io) as reader:
            os.truncate(place / "a.ffr", int(reader.get_offsets(0)[33]))
            assert [bytes(sample) for sample in reader.read(range(33))] == SAMPLES[:33]
            try:
                reader.read(range(40))
            except OSError as error:
                assert "a.ffr" in str(error)
            else:
                sys.exit("a cut file was no error")
        write(place / "a.ffr", SAMPLES)
    assert names(place) == {"a.ffr"}


def killed(work: Callable[[], None]) -> None:
    """Have a process killed that does it."""

    def child() -> None:
        work()
        os.kill(os.getpid(), signal.SIGKILL)

    assert children.in_child(child) == -signal.SIGKILL


def files(place: Path) -> None:
    """Writers that know how many samples come, and that do not; killed ones, and what is recovered."""
    for n in (len(SAMPLES), None):
        write(place / "a.ffr", SAMPLES, n)
        with FileReader(place / "a.ffr") as reader:
            reader.validate()
            assert builders.read_all(reader) == SAMPLES

        def flush(n: int | None = n) -> None:
            writer = FileWriter(place / "b.ffr", n)
            for sample in SAMPLES[:40]:
                writer.write_one(sample)
            writer.flush()
            writer.write_one(SAMPLES[40])
            os.kill(os.getpid(), signal.SIGKILL)

        killed(flush)
        assert not (place / "b.ffr").exists()
        assert recover(place / "b.ffr").samples >= 40
        with FileReader(place / "b.ffr") as reader:
            assert builders.read_all(reader) == SAMPLES[: reader.n]
        assert names(place) == {"a.ffr", "b.ffr"}
        os.unlink(place / "b.ffr")


class Failing:
    """Samples, of which one cannot be had once."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def __len__(self) -> int:
        return len(SAMPLES)

    def __getitem__(self, i: int) -> bytes:
        if i == self.at:
            raise KeyError(i)
        return SAMPLES[i]


def datasets(place: Path) -> None:
    """Many processes; an interrupted write gone on with; appended; converted, exported, packed."""
    options = {"samples_per_shard": 9, "num_workers": 2}
    DatasetWriter(place / "one", samples_per_shard=9, num_workers=0).from_indexed_dataset(SAMPLES)
    try:
        DatasetWriter(place / "set", **options).from_indexed_dataset(Failing(50), chunksize=3)
    except WorkerError:
        DatasetWriter(place / "set", **options).from_indexed_dataset(Failing(None), chunksize=3)
    assert files_in(place / "set") == files_in(place / "one")
    DatasetWriter(place / "set", mode="append", **options).from_indexed_dataset(SAMPLES[:20])
    assert read_all(place / "set") == [*SAMPLES, *SAMPLES[:20]]
    export(place / "one", place / "one.zip", verify=True)
    convert(place / "one.zip", place / "again", num_workers=2, verify=True)
    export(place / "again", place / "folder", "folder")
    pack_folder(place / "folder", place / "packed.ffr")
    with PackedFolder(place / "packed.ffr") as packed:
        assert len(packed.list()) == len(SAMPLES)
    left = {"one", "set", "one.zip", "again", "folder", "packed.ffr"}
    assert names(place) - {"a.ffr"} == left, names(place)


def full(place: Path) -> None:
    """A disk without room is an error, and leaves nothing."""
    room = shutil.disk_usage(place).free
    if room > 1 << 30:
        return
    try:
        with FileWriter(place / "large.ffr") as writer:
            for _ in range(room // (8 << 20) + 16):
                writer.write_one(bytes(8 << 20))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        sys.exit("no error on a full disk")
    assert "large.ffr" not in "".join(names(place))


def nearly_full(place: Path) -> None:
    """What fits is written, by many processes into many shards, although each would like to have room ahead of it."""
    room = shutil.disk_usage(place).free
    if room > 1 << 30:
        return
    sample, count = np.arange(10_000, dtype=np.uint16).view(np.uint8), int(room * 0.94) // 20_000
    writer = DatasetWriter(place / "large", samples_per_shard=1000, num_workers=4)
    assert writer.from_indexed_dataset([sample] * count).samples == count
    with FileReader(place / "large") as reader:
        assert np.array_equal(reader.read([count - 1])[0], sample)
    shutil.rmtree(place / "large")


def change(place: Path) -> None:
    """Everything else, each in a directory of its own."""
    for work in (replace, files, datasets, full, nearly_full):
        (place / work.__name__).mkdir()
        work(place / work.__name__)


if __name__ == "__main__":
    logging.disable()
    kind, directory, work = sys.argv[1:]
    {"read": read, "change": change}[work](mount(kind, Path(directory)))
