"""The folder of JPEG files that bench_loader.py crops: needs nothing that is not in every environment."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

BLOCK, MARGIN = 16, 12  # pixels; of 256 values


class Files:
    """The files as samples: the bytes of each, and its number as the label."""

    def __init__(self, directory: Path) -> None:
        self.paths = sorted(directory.glob("folder/*/*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return {"image": self.paths[index].read_bytes(), "label": index}

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(path.stat().st_size for path in self.paths)


def decoded(data: bytes) -> Any:
    """uint8 [H, W, 3]."""
    from PIL import Image

    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def bounds(image: Any) -> Any:
    """[2, 3]: the least and the most that the mean of a large part of a picture can be, in each channel."""
    height, width = (side // BLOCK * BLOCK for side in image.shape[:2])
    blocks = image[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3).mean((1, 3))
    return np.stack([blocks.min((0, 1)) - MARGIN, blocks.max((0, 1)) + MARGIN])


def save_bounds(directory: Path) -> None:
    """What crops are checked against."""
    files = Files(directory)
    np.save(directory / "bounds.npy", np.stack([bounds(decoded(files[i]["image"])) for i in range(len(files))]))
