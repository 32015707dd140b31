"""Pack the handwritten digits that scikit-learn ships, train a small network on the shards, save a picture of it.

It trains twice, through `ffrecord.torch.Loader` and through torch's own DataLoader, in the same order. Exits with
status 1 if the network gets less than 97 % of the test digits right, or if the two differ.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader

import ffrecord
import ffrecord.torch

SEED = 0
WANTED = 0.97
SHOWN = (6, 12)  # rows and columns of the picture's grid
BATCH = 64
# Margins by hand: a layout that matplotlib works out draws everything twice.
GRID = {"left": 0.02, "right": 0.98, "bottom": 0.02, "top": 0.89, "wspace": 0.1, "hspace": 0.35}
COURSE = {"left": 0.16, "right": 0.97, "bottom": 0.09, "top": 0.96, "hspace": 0.08}
BELOW = {"textcoords": "offset points", "ha": "right", "va": "top"}

Samples = list[dict[str, Any]]
Batches = ffrecord.torch.Loader | DataLoader[Any]


class Epoch(NamedTuple):
    """The mean loss per training sample, and the share of test digits that were right."""

    loss: float
    accuracy: float


class Tested(NamedTuple):
    """The test digits in order: uint8 [n, 8, 8], and int64 [n] twice."""

    images: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float((self.labels == self.predictions).mean())


def main() -> int:
    """Run the whole example; return 0 if the accuracy is high enough."""
    options = parse()
    started = time.perf_counter()
    torch.set_num_threads(1)  # so small a network gains nothing from more threads, and they would slow down the workers
    shards = options.out / "digits"
    shutil.rmtree(shards, ignore_errors=True)
    for name, samples in zip(("train", "test"), digits(), strict=True):
        write(samples, shards / name, options.workers)
        read(shards / name)
    with loader(shards / "train", shuffle=True) as training, loader(shards / "test", shuffle=False) as testing:
        history, tested = train("ffrecord.torch.Loader", training, testing, options.epochs)
        print(f"         {training.stats().verdict}")
    workers = options.workers
    training, testing = torch_loader(shards / "train", workers, shuffle=True), torch_loader(shards / "test", workers)
    _, again = train("torch's DataLoader", training, testing, options.epochs)
    print(f"accuracy: {tested.accuracy:.2%} of {len(tested.labels)} test digits")
    draw(tested, history, options.out / "digits.png")
    print(f"picture: {options.out / 'digits.png'}")
    print(f"all in {time.perf_counter() - started:.1f} s")
    if tested.accuracy < WANTED:
        print(f"digits.py: accuracy {tested.accuracy:.2%}, expected at least {WANTED:.0%}", file=sys.stderr)
        return 1
    if not np.array_equal(tested.predictions, again.predictions):
        print(f"digits.py: accuracy {tested.accuracy:.2%} and {again.accuracy:.2%}, expected the same", file=sys.stderr)
        return 1
    return 0


def parse() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out = Path(os.path.relpath(Path(__file__).resolve().parents[1] / "out"))
    parser.add_argument("--out", type=Path, default=out, help="directory for digits.png and digits/, which is replaced")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training digits (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes to write and to load (default: %(default)s)")
    options = parser.parse_args()
    if options.epochs < 1 or options.workers < 0:
        parser.error("--epochs must be 1 or more, --workers 0 or more")
    return options


def digits() -> tuple[Samples, Samples]:
    """Return the digits as samples, four fifths for training and one for testing, each with its share of every
    label.
    """
    data = load_digits()
    samples = [
        {"image": image, "label": int(label)}
        for image, label in zip(data.images.astype(np.uint8), data.target, strict=True)
    ]
    train, test = train_test_split(samples, test_size=0.2, random_state=SEED, stratify=data.target)
    return train, test


def write(samples: Samples, directory: Path, workers: int) -> None:
    """Pack samples into shards; the columns and their types are inferred."""
    writer = ffrecord.DatasetWriter(directory, num_workers=workers, samples_per_shard=256)
    print(f"written: {writer.from_indexed_dataset(samples)}")


def read(directory: Path) -> None:
    """Read all records in random order, in batches, checked, and say how fast."""
    with ffrecord.FileReader(directory) as reader:
        order = np.random.default_rng(SEED).permutation(len(reader))
        started = time.perf_counter()
        size = sum(len(record) for at in range(0, len(order), BATCH) for record in reader.read(order[at : at + BATCH]))
        seconds = time.perf_counter() - started
        files = len(reader.fnames)
    speed = f"{len(order) / seconds:,.0f} samples/s, {size / 1e6 / seconds:.1f} MB/s"
    print(f"read:    {len(order)} samples from {files} files in random batches of {BATCH}, {speed}")


class Network(nn.Module):
    """Two convolutions and a linear layer: uint8 [k, 8, 8] in 0 … 16 → logits [k, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 4 * 4, 10)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch."""
        return self.layers(images[:, None].float() / 16 - 0.5)


def loader(directory: Path, *, shuffle: bool) -> ffrecord.torch.Loader:
    """Return our loader: its threads put whole batches into tensors."""
    return ffrecord.torch.Loader(directory, BATCH, "random" if shuffle else "sequential", seed=SEED)


def torch_loader(directory: Path, workers: int, *, shuffle: bool = False) -> DataLoader[Any]:
    """Return torch's DataLoader with the same order; each worker reads whole batches."""
    dataset = ffrecord.torch.Dataset(directory)
    return DataLoader(
        dataset,
        batch_sampler=ffrecord.torch.BatchSampler(dataset, BATCH, shuffle=shuffle, seed=SEED),
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(
            SEED
        ),  # otherwise it would use the generator that the network trains with
    )


def train(name: str, training: Batches, testing: Batches, epochs: int) -> tuple[list[Epoch], Tested]:
    """Train a network; return the course of training and its answers for the test digits."""
    torch.manual_seed(SEED)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=epochs, steps_per_epoch=len(training))
    history = []
    started = time.perf_counter()
    for _ in range(epochs):
        loss = one_epoch(model, training, optimizer, schedule)
        tested = test(model, testing)
        history.append(Epoch(loss, tested.accuracy))
    seconds = time.perf_counter() - started
    parameters = sum(each.numel() for each in model.parameters())
    print(f"trained: {parameters:,} parameters, {epochs} epochs, loss {loss:.4f}, {seconds:.1f} s with {name}")
    return history, tested


def one_epoch(model: Network, training: Batches, optimizer: Any, schedule: Any) -> float:
    """Train on every digit once; return the mean loss."""
    model.train()
    total, count = 0.0, 0
    for batch in training:
        loss = nn.functional.cross_entropy(model(shifted(batch["image"])), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(batch["label"])
        count += len(batch["label"])
    return total / count


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Return the batch [k, 8, 8], moved by at most one pixel in each direction."""
    down, right = torch.randint(0, 3, (2,)).tolist()
    return nn.functional.pad(images, (1, 1, 1, 1))[:, down : down + 8, right : right + 8]


@torch.inference_mode()
def test(model: Network, testing: Batches) -> Tested:
    """Return the network's answer for each test digit."""
    model.eval()
    found = [(batch["image"], batch["label"], model(batch["image"]).argmax(1)) for batch in testing]
    return Tested(*(torch.cat(column).numpy() for column in zip(*found, strict=True)))


def draw(tested: Tested, history: list[Epoch], path: Path) -> None:
    """Draw the picture: a grid of test digits with the network's answers, and the course of training."""
    figure = Figure(figsize=(13.5, 6.2))
    left, right = figure.subfigures(1, 2, width_ratios=(2, 1))
    draw_digits(left, tested)
    draw_history(right, history)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_digits(figure: Any, tested: Tested) -> None:
    """Draw test digits chosen at random and every wrong one, as far as there is room."""
    wrong = np.flatnonzero(tested.labels != tested.predictions)
    others = np.random.default_rng(SEED).permutation(np.flatnonzero(tested.labels == tested.predictions))
    shown = np.sort(np.concatenate([wrong, others])[: SHOWN[0] * SHOWN[1]])
    right = f"{tested.accuracy:.1%} of {len(tested.labels)} test digits right"
    figure.suptitle(f"{right}; {len(shown)} of them, the {len(wrong)} wrong in red")
    for axes, i in zip(figure.subplots(*SHOWN, gridspec_kw=GRID).flat, shown, strict=False):
        label, prediction = tested.labels[i], tested.predictions[i]
        axes.imshow(tested.images[i], cmap="gray_r", vmin=0, vmax=16)
        axes.set(xticks=[], yticks=[])
        mark = i in wrong
        axes.set_title(f"{prediction}, is {label}" if mark else f"{prediction}", fontsize=9, pad=3)
        axes.title.set(color="crimson" if mark else "black", weight="bold" if mark else "normal")
        for spine in axes.spines.values():
            spine.set(color="crimson" if mark else "0.8", linewidth=2.5 if mark else 1)


def draw_history(figure: Any, history: list[Epoch]) -> None:
    """Draw loss and accuracy over the epochs."""
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw=COURSE)
    epochs = range(1, len(history) + 1)
    above.plot(epochs, [epoch.loss for epoch in history], color="tab:blue", marker=".")
    above.set(yscale="log", ylabel="training loss (cross entropy)")
    below.plot(epochs, [100 * epoch.accuracy for epoch in history], color="tab:green", marker=".")
    below.axhline(100 * WANTED, color="0.5", linestyle="--", linewidth=1)
    below.annotate(f"{WANTED:.0%} wanted", (len(history), 100 * WANTED), (0, -3), color="0.4", fontsize=8, **BELOW)
    below.set(xlabel="epoch", ylabel="test digits right, %", ylim=(None, 100.5))
    below.xaxis.get_major_locator().set_params(integer=True)
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
