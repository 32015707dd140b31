"""Pack a folder of JPEG photographs, read random batches by name, by index and decoded, and save one as a picture.

The photographs are those that scikit-learn and scikit-image ship, cut into many. What is read is compared with the
files first; then each way of reading is timed beside opening the same files one by one. All of it is in the page cache
by then: the times say what reading costs besides the disk, on this machine.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from skimage import data as photographs
from sklearn.datasets import load_sample_images

import ffrecord
import ffrecord.torch
from ffrecord.fields import IntField, JPEGField

SEED = 0
SIDES = (96, 256)  # smallest and largest side of a crop, pixels
QUALITY = 90
SHOWN = (4, 8)  # rows and columns of the picture
SKIMAGE = (
    *("astronaut", "brick", "camera", "cat", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "moon", "retina", "rocket", "stereo_motorcycle"),
)

Images = dict[str, np.ndarray]
Batches = list[list[int]]


class Measured(NamedTuple):
    """One way to read all samples in random batches, with the seconds of each round."""

    what: str
    seconds: list[float]


class Folder:
    """The JPEG files of a folder as samples: the file's bytes, and the number of its directory."""

    def __init__(self, root: Path) -> None:
        self.names = sorted(str(path.relative_to(root)) for path in root.glob("*/*.jpg"))
        self.labels = sorted(path.name for path in root.iterdir())
        self.root = root

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> dict[str, Any]:
        name = self.names[i]
        return {"image": (self.root / name).read_bytes(), "label": self.labels.index(name.split("/")[0])}


def main() -> int:
    """Run the whole example."""
    options = parse()
    place = options.out / "photographs"
    shutil.rmtree(place, ignore_errors=True)
    crop(sources(), place / "folder", options.crops)
    folder = Folder(place / "folder")
    pack(folder, place, options.workers)
    with (
        ffrecord.PackedFolder(place / "folder.ffr") as packed,
        ffrecord.FileReader(place / "shards") as reader,
        ffrecord.torch.Dataset(place / "shards") as dataset,
    ):
        check(folder, packed, reader, dataset)
        compare(folder, packed, reader, dataset, options)
        draw(dataset, folder.labels, options.out / "photographs.png")
    print(f"picture: {options.out / 'photographs.png'}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out = Path(os.path.relpath(Path(__file__).resolve().parents[1] / "out"))
    add = parser.add_argument
    add("--out", type=Path, default=out, help="directory for photographs.png and photographs/, which is replaced")
    add("--crops", type=int, default=200, help="JPEG files to cut from each photograph (default: %(default)s)")
    add("--batch", type=int, default=64, help="samples read at a time (default: %(default)s)")
    add("--rounds", type=int, default=5, help="times each way of reading is measured (default: %(default)s)")
    add("--workers", type=int, default=2, help="processes to write with (default: %(default)s)")
    options = parser.parse_args()
    if min(options.crops, options.batch, options.rounds) < 1 or options.workers < 0:
        parser.error("--crops, --batch and --rounds must be 1 or more, --workers 0 or more")
    return options


# Files


def sources() -> Images:
    """Return name → uint8 [H, W, 3], or [H, W] if grey."""
    sample = load_sample_images()
    found = {Path(name).stem: image for name, image in zip(sample.filenames, sample.images, strict=True)}
    for name in SKIMAGE:
        image = getattr(photographs, name)()
        found[name.removeprefix("stereo_")] = image[0] if isinstance(image, tuple) else image
    return found


def crop(images: Images, root: Path, count: int) -> None:
    """Save `count` windows of each image, of different places and sizes, as root/NAME/NUMBER.jpg."""
    random = np.random.default_rng(SEED)
    for name, image in sorted(images.items()):
        (root / name).mkdir(parents=True)
        windows: set[tuple[int, ...]] = set()
        while len(windows) < count:
            sides = random.integers(SIDES[0], SIDES[1], 2, endpoint=True)
            corner = random.integers(0, np.array(image.shape[:2]) - sides, endpoint=True)
            windows.add((*corner.tolist(), *sides.tolist()))
        for number, (top, left, height, width) in enumerate(sorted(windows)):
            window = Image.fromarray(image[top : top + height, left : left + width])
            window.save(root / name / f"{number:04}.jpg", quality=QUALITY)


def pack(folder: Folder, place: Path, workers: int) -> None:
    """Pack the folder twice: once unchanged, and once as typed shards."""
    distinct = len({(folder.root / name).read_bytes() for name in folder.names})
    print(f"folder:  {len(folder)} JPEG files ({distinct} distinct) cut from {len(folder.labels)} photographs")
    started = time.perf_counter()
    ffrecord.pack_folder(folder.root, place / "folder.ffr")
    seconds, size = time.perf_counter() - started, (place / "folder.ffr").stat().st_size
    print(f"packed:  {place / 'folder.ffr'}: {size / 1e6:.1f} MB in {seconds:.1f} s")
    fields = {"image": JPEGField(), "label": IntField()}
    writer = ffrecord.DatasetWriter(place / "shards", fields, num_workers=workers, shard_size=8 << 20)
    print(f"written: {writer.from_indexed_dataset(folder)}")


def check(folder: Folder, packed: Any, reader: Any, dataset: Any) -> None:
    """Raise unless all three ways return the contents of the files."""
    for i, name in enumerate(folder.names):
        expected = folder[i]
        record, sample = reader.read_one(i).tobytes(), dataset[i]
        same = packed.read_one(name).tobytes() == expected["image"] and record.endswith(expected["image"])
        if not (same and sample["label"] == expected["label"] and (sample["image"] == decode(expected["image"])).all()):
            raise RuntimeError(f"{name}: not what was packed")
    print(f"checked: {len(folder)} samples, by name, by index and decoded, equal their files")


def decode(jpeg: bytes) -> np.ndarray:
    """Return the pixels, by the decoder that the dataset uses."""
    return JPEGField().decode(memoryview(jpeg))


# Times


def compare(folder: Folder, packed: Any, reader: Any, dataset: Any, options: argparse.Namespace) -> None:
    """Measure and print the table."""
    paths = [folder.root / name for name in folder.names]
    ways: dict[str, Callable[[list[int]], Sequence[Any]]] = {
        "bytes: files opened one by one": lambda batch: [paths[i].read_bytes() for i in batch],
        "bytes: PackedFolder.read, by name": lambda batch: packed.read([folder.names[i] for i in batch]),
        "bytes: FileReader.read, by index": reader.read,
        "pixels: files opened one by one": lambda batch: [decode(paths[i].read_bytes()) for i in batch],
        "pixels: ffrecord.torch.Dataset": lambda batch: dataset[batch],
    }
    print(f"random batches of {options.batch}, all samples once, median of {options.rounds} rounds (least, most)")
    size = sum(path.stat().st_size for path in paths)
    for measured in measure(ways, len(folder), options.batch, options.rounds):
        rates = [len(folder) / seconds for seconds in measured.seconds]
        spread = f"({min(rates):,.0f}, {max(rates):,.0f})"
        print(
            f"  {measured.what:34} {median(rates):>9,.0f} samples/s  {spread:22} "
            f"{size / 1e6 / median(measured.seconds):>7,.0f} MB/s of JPEG"
        )


def measure(
    ways: dict[str, Callable[[list[int]], Sequence[Any]]], count: int, size: int, rounds: int
) -> list[Measured]:
    """Measure each way, in turns, so that other work of the machine affects all alike."""
    random = np.random.default_rng(SEED)
    results = [Measured(what, []) for what in ways]
    for _ in range(rounds):
        order = random.permutation(count).tolist()
        batches = [order[at : at + size] for at in range(0, count, size)]
        for result in results:
            result.seconds.append(timed(ways[result.what], batches))
    return results


def timed(read: Callable[[list[int]], Sequence[Any]], batches: Batches) -> float:
    """Return the seconds to read all batches."""
    started = time.perf_counter()
    for batch in batches:
        if len(read(batch)) != len(batch):
            raise RuntimeError(f"not {len(batch)} samples")
    return time.perf_counter() - started


# Picture


def draw(dataset: Any, labels: list[str], path: Path) -> None:
    """Draw a contact sheet of a random batch."""
    rows, columns = SHOWN
    order = np.random.default_rng(SEED).permutation(len(dataset))[: rows * columns]
    figure = Figure(figsize=(1.6 * columns, 1.8 * rows), layout="constrained")
    figure.suptitle(f"ffrecord.torch.Dataset: a batch of {len(order)} of {len(dataset)} samples")
    grid = figure.subplots(rows, columns)
    for axes in grid.flat:
        axes.axis("off")
    for axes, i, sample in zip(grid.flat, order, dataset[order], strict=False):
        axes.imshow(sample["image"], cmap="gray", vmin=0, vmax=255)
        height, width = sample["image"].shape[:2]
        axes.set_title(f"{labels[sample['label']]}\n{i}: {width} × {height}", fontsize=7.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    sys.exit(main())
