"""Checks of a loader's answers: every sample once, and the right pixels for each label."""

from pathlib import Path
from typing import Any

import numpy as np
from harness import WrongAnswerError
from loader_ways import Batches
from write_cifar import SHAPE, Cifar

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
EVERY = 20  # the pixels of one batch in this many are compared


def once_each(name: str, found: list[Any], expected: int) -> None:
    """Check that all labels of [0, expected) come once."""
    labels = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(labels) != expected or not np.array_equal(np.sort(labels), np.arange(expected)):
        raise WrongAnswerError(
            f"{name}: {len(labels)} samples, {len(np.unique(labels))} of them different, of {expected}"
        )


def shuffled(name: str, found: list[Any], order: Any) -> None:
    """Check that the order is shuffled: few neighbours of the file are neighbours here."""
    where = np.empty(len(order), np.int64)
    where[order] = np.arange(len(order))
    steps = np.diff(where[np.concatenate(found)])
    if np.mean(steps == 1) > 0.5:
        raise WrongAnswerError(f"{name}: {np.mean(steps == 1):.0%} of the samples follow their neighbour of the file")


def cifar(name: str, batches: Batches, directory: Path, work: Any) -> None:
    """Check that each image comes once, shuffled, with its own label."""
    found = cifar_labels(name, batches, directory, work)
    once_each(name, found, work.samples)
    shuffled(name, found, np.array(Cifar(directory, work.samples).labels))


def drawn(name: str, batches: Batches, directory: Path, work: Any) -> None:
    """Check that as many images come as there are, each with its own label; images may come again."""
    found = cifar_labels(name, batches, directory, work)
    if sum(map(len, found)) != work.samples:
        raise WrongAnswerError(f"{name}: {sum(map(len, found))} samples, expected {work.samples}")


def cifar_labels(name: str, batches: Batches, directory: Path, work: Any) -> list[Any]:
    """Return the labels of all batches; the pixels of some are compared."""
    data = Cifar(directory, work.samples)
    index_of = np.argsort(data.labels)
    found = []
    for number, (images, labels) in enumerate(batches):
        found.append(np.array(labels, np.int64))
        if number % EVERY == 0:
            expected = data.images[index_of[found[-1]]]
            if not np.array_equal(np.asarray(images).reshape(-1, *SHAPE), expected):
                raise WrongAnswerError(f"{name}: other pixels in batch {number}")
    return found


def normalised(name: str, batches: Batches, directory: Path, work: Any) -> None:
    """Check that numbers are float16 of normalised bytes, and the bytes as `pictures` does."""
    pictures(name, ((whole_bytes(name, images), labels) for images, labels in batches), directory, work)


def whole_bytes(name: str, images: Any) -> Any:
    """Return the bytes of normalised numbers [k, 3, H, W], of which float16 keeps three digits."""
    numbers = np.asarray(images)
    if numbers.dtype != np.float16 or numbers.shape[1] != 3:
        raise WrongAnswerError(f"{name}: {numbers.dtype} {numbers.shape}, expected float16 [k, 3, H, W]")
    mean, std = (np.array(each)[:, None, None] for each in (MEAN, STD))
    exact = (numbers.astype(np.float64) * std + mean) * 255
    rounded = exact.round()
    if np.abs(exact - rounded).max() > 0.3 or rounded.min() < 0 or rounded.max() > 255:
        raise WrongAnswerError(f"{name}: numbers that are no normalised bytes")
    return rounded.astype(np.uint8)


def pictures(name: str, batches: Batches, directory: Path, work: Any) -> None:
    """Check crops, which differ each time: the mean must be possible for a part of the picture."""
    bounds = np.load(directory / "bounds.npy")
    found = []
    for number, (images, labels) in enumerate(batches):
        found.append(np.array(labels, np.int64))
        crops = np.asarray(images)
        crops = crops if crops.shape[-1] == 3 else crops.transpose(0, 2, 3, 1)
        if crops.shape[1:] != (work.side, work.side, 3) or crops.dtype != np.uint8:
            raise WrongAnswerError(f"{name}: {crops.dtype} {crops.shape}, expected uint8 crops of {work.side}")
        means, low, high = crops.mean((1, 2)), *bounds[found[-1]].swapaxes(0, 1)
        if not ((means >= low) & (means <= high)).all():
            raise WrongAnswerError(f"{name}: a crop in batch {number} has colours that its picture has not")
    once_each(name, found, work.files)
    shuffled(name, found, np.arange(work.files))
