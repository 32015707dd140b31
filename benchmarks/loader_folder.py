"""The folder of JPEG files that bench_loader.py crops; it needs no package that some environment lacks."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

BLOCK, MARGIN = 16, 12  # pixels; of 256 values


class Files:
    """The files as samples: the bytes of each, and its number as the label."""

    def __init__(self, directory: Path, suffix: str = "jpg") -> None:
        self.paths = sorted(directory.glob(f"folder/*/*.{suffix}"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return {"image": self.paths[index].read_bytes(), "label": index}

    @property
    def size(self) -> int:
        """Size of all files, bytes."""
        return sum(path.stat().st_size for path in self.paths)


def decoded(data: bytes) -> Any:
    """Return the pixels, uint8 [H, W, 3]."""
    from PIL import Image

    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def write_pngs(directory: Path, count: int) -> None:
    """Write the first pictures as PNG files, too, with the same numbers."""
    from PIL import Image

    for path in Files(directory).paths[:count]:
        Image.fromarray(decoded(path.read_bytes())).save(path.with_suffix(".png"), compress_level=6)


def bounds(image: Any) -> Any:
    """Return [2, 3]: the smallest and largest possible mean of a large part of a picture, in each channel."""
    height, width = (side // BLOCK * BLOCK for side in image.shape[:2])
    blocks = image[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3).mean((1, 3))
    return np.stack([blocks.min((0, 1)) - MARGIN, blocks.max((0, 1)) + MARGIN])


def save_bounds(directory: Path) -> None:
    """Save the bounds that crops are checked against."""
    files = Files(directory)
    np.save(directory / "bounds.npy", np.stack([bounds(decoded(files[i]["image"])) for i in range(len(files))]))
