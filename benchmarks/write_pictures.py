"""A folder of JPEG files packed, beside the time that as many processes need to just read the files."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import coldness
import fio
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, take_turns, timed
from write_figures import BESIDE, CONVERTING, MORE, PACKING, PACKING_MORE, READING
from write_timing import MIB, fio_writing, settled

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.fields import IntField, JPEGField, schema_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class Folder:
    """The files as samples: the bytes of each, and the number of its photograph."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = sorted(root.glob("*/*.jpg"))
        names = sorted(path.name for path in root.iterdir())
        self.labels = [names.index(path.parent.name) for path in self.paths]
        self.size = sum(path.stat().st_size for path in self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def key(self, index: int) -> str:
        """Return the name of a sample."""
        return str(self.paths[index].relative_to(self.root))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.paths[index].read_bytes(), "label": self.labels[index]}


def photographs(smoke: bool = False) -> dict[str, Any] | None:
    """Return the photographs of examples/photographs.py, uint8 [H, W, 3] or [H, W]; None without the packages that ship
    them.

    Args:
        smoke: return drawings instead, without those packages, which take seconds to be imported.
    """
    if smoke and find_spec("PIL") is not None:
        return drawings()
    sys.path.append(str(EXAMPLES))
    try:
        import photographs
    except ImportError as error:
        print(f"NOT MEASURED: folders of pictures. {error} (the group `examples` has it).")
        return None
    finally:
        sys.path.remove(str(EXAMPLES))
    return dict(photographs.sources())


def drawings() -> dict[str, Any]:
    """Return one grey and one coloured drawing, as large as photographs."""
    grey = np.add.outer(np.arange(600), np.arange(800)).astype(np.uint8)
    return {"grey": grey, "colours": np.stack([grey, grey[::-1], 255 - grey], axis=-1)}


@dataclass(frozen=True)
class Windows:
    """The windows to cut out of photographs.

    Attributes:
        sides: smallest and largest side, pixels, as far as a photograph has them.
        quality: quality of the JPEG files in Pillow's scale.
    """

    sides: tuple[int, int] = (320, 512)
    quality: int = 95


PACKED = Windows()


def make(root: Path, images: dict[str, Any], work: workloads.Pictures, windows: Windows) -> None:
    """Write windows of different places and sizes, in a directory for each photograph."""
    from PIL import Image

    random = np.random.default_rng(work.seed)
    names = sorted(images)
    for name in names:
        (root / name).mkdir(parents=True)
    for number in range(work.files):
        name = names[number % len(names)]
        image = images[name]
        most = np.minimum(windows.sides[1], image.shape[:2])
        height, width = random.integers(np.minimum(windows.sides[0], most), most, endpoint=True)
        top, left = (int(random.integers(0, image.shape[axis] - side + 1)) for axis, side in enumerate((height, width)))
        window = Image.fromarray(image[top : top + height, left : left + width])
        window.save(root / name / f"{number:06}.jpg", quality=windows.quality)
    settled()


def read_all(paths: Sequence[Path]) -> None:
    for path in paths:
        path.read_bytes()


def read_by(processes: int, paths: Sequence[Path]) -> None:
    """Read the files with several processes, a part each, one after the other; nothing is done to the bytes."""
    context = get_context("fork")
    bounds = [len(paths) * process // processes for process in range(processes + 1)]
    parts = [context.Process(target=read_all, args=(paths[low:high],)) for low, high in pairwise(bounds)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def read_beside_fio(processes: int, folder: "Folder", directory: Path) -> float:
    """Return the seconds until both have ended, without the start of fio."""
    with fio_writing(folder.size // MIB * MIB, directory) as ended:
        return max(timed(lambda: read_by(processes, folder.paths))(), ended())


def evict(paths: Sequence[Path]) -> None:
    """Evict many files that this process has not mapped, without a search in its mappings."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if left := sum(coldness.resident(path) > 0 for path in paths):
        raise coldness.NotColdError(f"{left} of {len(paths)} files are in the page cache, expected none")


@dataclass(frozen=True)
class Packing:
    """The folder packed into shards that are synced to disk; checked each time, and deleted."""

    folder: Folder
    out: Path
    workers: int

    def pack(self) -> None:
        """Pack the folder as a dataset, as a user with these files would."""
        fields = {"image": JPEGField(as_bytes=True), "label": IntField()}
        writer = DatasetWriter(self.out, fields, num_workers=self.workers, progress=False)
        writer.from_indexed_dataset(self.folder)

    def convert(self) -> None:
        """Convert a folder of images, whose names become a column."""
        ffrecord.convert(self.folder.root, self.out, num_workers=self.workers, progress=False)

    def check(self) -> None:
        with FileReader(self.out) as reader:
            schema = schema_of(reader)
            if reader.n != len(self.folder) or schema is None:
                raise WrongAnswerError(f"{reader.n} samples, expected {len(self.folder)}")
            schema = schema.replace({"image": JPEGField(as_bytes=True)})
            for index, record in enumerate(reader):
                sample = {"key": self.folder.key(index), **schema.decode(record)}
                if sample != {"key": self.folder.key(index), **self.folder[index]}:
                    raise WrongAnswerError(f"sample {index} is not {self.folder.paths[index].name}")

    def timed(self, write: Callable[[], None]) -> Callable[[], float]:
        """Return the seconds of one way to write it; the result is checked."""

        def run() -> float:
            try:
                seconds = timed(write)()
                self.check()
            finally:
                shutil.rmtree(self.out, ignore_errors=True)
            return seconds

        return run


def prepared(state: Callable[[], None], run: Callable[[], float]) -> Callable[[], float]:
    """Return `run` with the files in the page cache or out of it, and nothing left to be written."""

    def prepare_and_run() -> float:
        settled()
        state()
        return run()

    return prepare_and_run


def measure_pictures(root: Path, out: Path, work: workloads.Pictures, rounds: int, cold: bool) -> list[Measurement]:
    folder = Folder(root)
    packing = Packing(folder, out, work.workers)
    ways = {
        READING: timed(lambda: read_by(work.workers, folder.paths)),
        PACKING: packing.timed(packing.pack),
        PACKING_MORE: packing.timed(replace(packing, workers=MORE).pack),
        CONVERTING: packing.timed(packing.convert),
    }
    if fio.installed() and folder.size >= MIB:
        ways[BESIDE] = lambda: read_beside_fio(work.workers, folder, root.parent)
    states = {"hot": lambda: read_all(folder.paths)} | ({"cold": lambda: evict(folder.paths)} if cold else {})
    found = []
    for cache, state in states.items():
        contestants = [Contestant(name, prepared(state, run), lambda: None) for name, run in ways.items()]
        for name, seconds in take_turns(contestants, rounds).items():
            role = {"role": "limit" if name in (READING, BESIDE) else "ours"}
            found.append(Measurement(name, work, seconds, folder.size, len(folder), cache, role))
    return found


@contextmanager
def made(
    directory: Path, work: workloads.Pictures, windows: Windows = PACKED, smoke: bool = False
) -> Iterator[Path | None]:
    """Return the folder, with `smoke` of drawings; None if it cannot be made here."""
    images = photographs(smoke)
    root = directory / "folder"
    try:
        if images is not None:
            make(root, images, work, windows)
        yield None if images is None else root
    finally:
        shutil.rmtree(root, ignore_errors=True)
