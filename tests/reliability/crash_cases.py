"""Every write that crash tests interrupt, by name."""

import errno
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash_case import Case, record
from crash_datasets import Append, Converted, Dataset, Dump, Split
from crash_files import File, Recovery, Whole

from ffrecord import pack_folder
from ffrecord.conversion.exporter import export
from ffrecord.sources import RecordIOWriter, unpack
from ffrecord.system import atomic_directory, atomic_file


def folder(root: Path) -> Path:
    """A folder to be packed and converted."""
    shutil.rmtree(root, ignore_errors=True)
    for i in range(12):
        path = root / f"class {i % 3}" / f"{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record(i))
    return root


def archive(path: Path) -> Path:
    """A zip archive to be converted."""
    with zipfile.ZipFile(path, "w") as file:
        for i in range(12):
            file.writestr(f"{i:02}.bin", record(i))
    return path


def packed(path: Path, source: Path) -> Path:
    """A folder in one file, to be unpacked."""
    pack_folder(source, path)
    return path


def recordio(target: Path) -> None:
    """A RecordIO file of twelve records."""
    with RecordIOWriter(target) as writer:
        for i in range(12):
            writer.write(record(i))


class Columns:
    """Samples with columns, for export."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < 9:
            raise IndexError(index)
        return {"label": index, "data": record(index)}


def cases(root: Path, place: Path | None = None) -> dict[str, Callable[[], Case]]:
    """Everything that is interrupted, by name.

    Args:
        root: a directory for what is read.
        place: that which is written to; None for one in `root`.
    """
    at = place or root / "d"
    source, zipped = folder(root / "source"), archive(root / "source.zip")
    folded = packed(root / "source.ffr", source)

    def exported(name: str, occupied: bool = False, **options: Any) -> Callable[[], Case]:
        def write(target: Path) -> None:
            export(Columns(), target, num_workers=0, progress=False, **options)

        return lambda: Whole(at, name, write, occupied=occupied)

    def unpacked(**options: Any) -> Callable[[], Case]:
        return lambda: Whole(at, "u", lambda target: unpack(zipped, target), suffix=".unpacking", **options)

    def synced_one_by_one() -> Callable[[], Case]:
        def write(target: Path) -> None:
            """With no call that syncs a whole file system, as in some containers."""
            kept, atomic_directory._syncfs = atomic_directory._syncfs, lambda fd: errno.ENOSYS
            try:
                unpack(folded, target)
            finally:
                atomic_directory._syncfs = kept

        return lambda: Whole(at, "u", write, suffix=".unpacking")

    def file(**options: Any) -> Callable[[], Case]:
        return lambda: File(at, **options)

    def recovery(**options: Any) -> Callable[[], Case]:
        return lambda: Recovery(at, **options)

    def dataset(**options: Any) -> Callable[[], Case]:
        return lambda: Dataset(at, **options)

    return {
        "file": file(n=True, flush=False),
        "file, flushed": file(n=True, flush=True),
        "file of any n": file(n=False, flush=False),
        "file of any n, flushed": file(n=False, flush=True),
        "large file": file(n=True, flush=True, large=2_500_000),
        "large file of any n": file(n=False, flush=True, large=2_500_000),
        "file of 300 kB": file(n=True, flush=False, large=100_000),
        "file of 300 kB, any n": file(n=False, flush=True, large=100_000),
        "recovery": recovery(n=None, replace=True),
        "recovery of all": recovery(n=350, replace=False),
        "recovery, no room": recovery(n=353, replace=True),
        "recovery, much room": recovery(n=407, replace=False),
        "dataset": dataset(),
        "dataset of one size": dataset(alike=True),
        "dataset inside": dataset(inside=True),
        "dataset of lines": dataset(source="list"),
        "dataset of an iterable": dataset(source="iterable"),
        "dataset resumed": dataset(resumed=True),
        "dataset inside resumed": dataset(inside=True, resumed=True),
        "append": lambda: Append(at),
        "append to bare shards": lambda: Append(at, bare=True),
        "workers": dataset(workers=2),
        "workers, one size": dataset(workers=2, alike=True),
        "workers, lines": dataset(workers=2, source="list"),
        "workers, iterable": dataset(workers=2, source="iterable"),
        "workers, append": lambda: Append(at, workers=2),
        "dump": lambda: Dump(at, among=False),
        "dump among others": lambda: Dump(at, among=True),
        "packed folder": lambda: Whole(at, "p.ffr", lambda out: pack_folder(source, out), replaces=True),
        "converted": lambda: Converted(at, zipped),
        "zip": exported("a.zip"),
        "tar": exported("a.tar"),
        "TFRecord": exported("a.tfrecord"),
        "exported folder": exported("a", format="folder"),
        "exported folder, into a directory": exported("a", format="folder", occupied=True),
        "unpacked": unpacked(),
        "unpacked into a directory": unpacked(occupied=True),
        "unpacked, file by file": synced_one_by_one(),
        "saved": lambda: Whole(at, "page.html", lambda target: atomic_file.save_file(record(5) * 40, str(target))),
        "split": lambda: Split(at, zipped),
        "WebDataset shards": exported("a", format="webdataset", samples_per_shard=4),
        "WebDataset shards, into a directory": exported("a", True, format="webdataset", samples_per_shard=4),
        "RecordIO": lambda: Whole(at, "a.recordio", recordio),
    }
