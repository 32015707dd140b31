"""A training run of Lightning that writes what it has seen, as a program: python lightning_runs.py DIRECTORY CASE.

A case is JSON: "loader", "workers" and "batch" (of a Loader); "devices" and "strategy"; "every" (steps between
checkpoints; 0: at the end of an epoch, as by default), "limit" (batches of an epoch), "validate"; "resume" (a
checkpoint).

Rank r writes `seen-r.json` in DIRECTORY: for each step the epoch and its samples, and the samples of each validation.
The data are in DIRECTORY/data, or with "directory" in a case, beside it.
"""

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader as TorchLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from ffrecord.torch import BatchSampler, DataLoader, Dataset, IterableDataset, Loader, Sampler

EPOCHS, BATCH = 3, 3


def make_loader(kind: str, data: str, workers: int, seed: int = 1, batch: int = BATCH) -> Any:
    dataset: Dataset[Any] = Dataset(data)
    options: dict[str, Any] = {"num_workers": workers}
    if workers:
        options["multiprocessing_context"] = "fork"
    if kind == "Loader":
        return Loader(data, batch, seed=seed, num_workers=workers)
    if kind == "shuffle":
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(dataset, BATCH, shuffle=True, generator=generator, skippable=False, **options)
    if kind == "persistent":
        sampler = Sampler(dataset, seed=seed)
        return DataLoader(dataset, BATCH, sampler=sampler, skippable=False, persistent_workers=True, **options)
    if kind == "batches":
        return DataLoader(dataset, batch_sampler=BatchSampler(dataset, BATCH, seed=seed), skippable=False, **options)
    if kind == "stateful":
        return StatefulDataLoader(dataset, BATCH, sampler=Sampler(dataset, seed=seed), **options)
    if kind == "torch":
        return TorchLoader(dataset, BATCH, sampler=Sampler(dataset, seed=seed), **options)
    return DataLoader(dataset, BATCH, sampler=Sampler(dataset, seed=seed), skippable=False, **options)


class Iterables(lightning.LightningDataModule):
    """Loaders of iterables: a loader for each epoch, which the iterable is told."""

    def __init__(self, data: str, workers: int, validates: bool) -> None:
        super().__init__()
        self.data, self.workers = data, workers
        if not validates:
            self.val_dataloader = None  # type: ignore[method-assign]

    def loader(self, seed: int, epoch: int) -> Any:
        iterable = IterableDataset(Dataset[Any](self.data), BATCH, seed=seed, epoch=epoch)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if self.workers else {}
        return StatefulDataLoader(iterable, BATCH, num_workers=self.workers, **options)

    def train_dataloader(self) -> Any:
        return self.loader(1, self.trainer.current_epoch)

    def val_dataloader(self) -> Any:
        return self.loader(2, 0)


class Model(lightning.LightningModule):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self.layer, self.directory = torch.nn.Linear(1, 1), directory
        self.steps: list[Any] = []
        self.validations: list[list[int]] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.steps.append([self.current_epoch, batch["i"].tolist()])
        return self.layer(batch["i"].float()[:, None]).mean()

    def on_validation_start(self) -> None:
        self.validations.append([])

    def validation_step(self, batch: Any, _: int) -> None:
        self.validations[-1] += batch["i"].tolist()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_fit_end(self) -> None:
        seen = {"steps": self.steps, "validations": self.validations}
        Path(self.directory, f"seen-{self.global_rank}.json").write_text(json.dumps(seen))


def run(directory: str, case: dict[str, Any]) -> None:
    """One run of the case, from the beginning or from its checkpoint."""
    data, workers = str(Path(directory, "data")), case.get("workers", 0)
    given: dict[str, Any]
    if case["loader"] == "iterable":
        given = {"datamodule": Iterables(data, workers, case.get("validate", False))}
    else:
        # Made before the trainer has begun a process group, as in most scripts.
        given = {"train_dataloaders": make_loader(case["loader"], data, workers, batch=case.get("batch", BATCH))}
        if case.get("validate"):
            given["val_dataloaders"] = make_loader(case["loader"], data, workers, seed=2)
    every = case.get("every", 0)
    checkpoint = ModelCheckpoint(
        directory,
        filename="{epoch}-{step}",
        save_top_k=-1,
        every_n_train_steps=every or None,
        save_on_train_epoch_end=False if case.get("validate") else None,
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=case.get("devices", 1),
        strategy=case.get("strategy", "auto"),
        limit_train_batches=case.get("limit", 1.0),
        num_sanity_val_steps=2,
        use_distributed_sampler=case["loader"] == "shuffle",
        reload_dataloaders_every_n_epochs=int(case["loader"] == "iterable"),
        callbacks=[] if case.get("resume") else [checkpoint],
        enable_checkpointing=not case.get("resume"),
        default_root_dir=directory,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(directory), **given, ckpt_path=case.get("resume"), weights_only=False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Lightning has many
    logging.disable()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    for text in sys.argv[2:]:
        one = json.loads(text)
        run(os.path.join(sys.argv[1], one["directory"]) if "directory" in one else sys.argv[1], one)
    time.sleep(0.5)  # if a thread of gloo ends after Python, it aborts the process
