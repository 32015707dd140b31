"""The samples that bench_newest.py packs in every format, and how their bytes become a batch.

A sample is (bytes, label). All peers make batches of bytes by `collate`, unless they have a faster way of their own.
"""

import importlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from loader_folder import Files
from write_cifar import SHAPE, Cifar

PIXELS = int(np.prod(SHAPE))
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of random crops; the usual defaults
TRIES = 10  # to find a crop that fits, as torchvision's RandomResizedCrop does
SHARDS = 8  # files of a format that is read from front to back

# Nobody writes in the arrays that some packages give.
warnings.filterwarnings("ignore", "The given NumPy array is not writable")

Row = tuple[Any, int]  # bytes, label


class Images:
    """Images of 32 x 32 x 3 bytes, each with an int, mapped from their files."""

    equal = PIXELS  # bytes of every sample

    def __init__(self, directory: Path, work: workloads.Epochs) -> None:
        self.data = Cifar(directory, work.samples)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Row:
        image, label = self.data[index]
        return image.tobytes(), label

    def collate(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        """Return the images uint8 [n, 32, 32, 3] and labels int64 [n] of a batch, as tensors."""
        return tensors(np.frombuffer(bytearray().join([row[0] for row in rows]), np.uint8), labels_of(rows))


class Photographs:
    """JPEG files, each with its number, decoded and cropped at random when a batch is made."""

    equal = 0  # bytes of every sample: they differ

    def __init__(self, directory: Path, work: workloads.Crops) -> None:
        self.files, self.side = Files(directory), work.side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Row:
        return self.files.paths[index].read_bytes(), index

    def collate(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        """Return the crops uint8 [n, side, side, 3] and labels int64 [n] of a batch, as tensors."""
        crops = np.empty((len(rows), self.side, self.side, 3), np.uint8)
        random = np.random.default_rng()
        for crop, (data, _) in zip(crops, rows, strict=True):
            decode(data, crop, random)
        torch = importlib.import_module("torch")
        return torch.from_numpy(crops), torch.from_numpy(labels_of(rows))


Samples = Images | Photographs


def of_work(directory: Path, work: Any) -> Samples:
    return Photographs(directory, work) if isinstance(work, workloads.Crops) else Images(directory, work)


def labels_of(rows: Sequence[Row]) -> Any:
    return np.array([row[1] for row in rows], np.int64)


def tensors(pixels: Any, labels: Any) -> tuple[Any, Any]:
    """Return tensors of images uint8 [n, 32, 32, 3] and of labels, which share the memory of arrays."""
    torch = importlib.import_module("torch")
    return torch.from_numpy(pixels.reshape(-1, *SHAPE)), torch.from_numpy(labels)


def numbered(samples: Samples) -> Iterator[Row]:
    return (samples[index] for index in range(len(samples)))


def decode(data: Any, crop: Any, random: Any) -> None:
    """Decode a JPEG file and write a random part of it, resized, in `crop`.

    No more pixels are decoded than needed: libjpeg gives a half, a quarter or an eighth of them.
    """
    cv2, jpeg = importlib.import_module("cv2"), importlib.import_module("simplejpeg")
    height, width = jpeg.decode_jpeg_header(data)[:2]
    left, top, wide, high = box(width, height, random)
    side = len(crop)
    least = (-(-height * side // high), -(-width * side // wide))
    pixels = jpeg.decode_jpeg(data, min_height=min(least[0], height), min_width=min(least[1], width))
    down, across = pixels.shape[0] / height, pixels.shape[1] / width
    rows = slice(round(top * down), max(round((top + high) * down), round(top * down) + 1))
    columns = slice(round(left * across), max(round((left + wide) * across), round(left * across) + 1))
    cv2.resize(pixels[rows, columns], (side, side), dst=crop, interpolation=cv2.INTER_LINEAR)


def box(width: int, height: int, random: Any) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a random part, as torchvision's RandomResizedCrop chooses it."""
    low, high = np.log(RATIO)
    for _ in range(TRIES):
        area = width * height * random.uniform(*SCALE)
        ratio = np.exp(random.uniform(low, high))
        wide, tall = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < tall <= height:
            return int(random.integers(0, width - wide + 1)), int(random.integers(0, height - tall + 1)), wide, tall
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def permuted(count: int, batch: int, random: Any) -> list[Any]:
    """Return the indices of each batch of a shuffled epoch."""
    order = random.permutation(count)
    return [order[first : first + batch] for first in range(0, count, batch)]
