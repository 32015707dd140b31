"""A training run of transformers' Trainer that writes what it has seen: python huggingface_runs.py DIRECTORY CASE.

A case is JSON: "loader", "workers", "batch" (samples of a rank), "accumulate" (batches of a step), "resume" (the step
of a checkpoint; one is made after each step). With "directory" the data are in this directory inside DIRECTORY, else in
DIRECTORY itself: in its folder "data". Rank r writes `seen-r.json` there: for each batch its epoch and samples.
"""

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ffrecord.torch import BatchSampler, Dataset, Loader, Sampler, collate

EPOCHS = 3


class Model(torch.nn.Module):
    """A linear layer. It notes the samples that it is trained with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.batches: list[list[int]] = []

    def forward(self, i: torch.Tensor) -> dict[str, torch.Tensor]:
        self.batches.append(i.tolist())
        return {"loss": self.layer(i.float()[:, None]).mean()}


class Epochs(TrainerCallback):
    """Note at which batch each epoch begins, and call a function with its number."""

    def __init__(self, model: Model, tell: Callable[[int], None]) -> None:
        self.model, self.tell = model, tell
        self.begun: list[tuple[int, int]] = []

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # `state.epoch` counts from the beginning of an epoch if a Loader goes on within it.
        epoch = self.begun[-1][1] + 1 if self.begun else EPOCHS * state.global_step // state.max_steps
        self.begun.append((len(self.model.batches), epoch))
        self.tell(epoch)


class LoaderState(TrainerCallback):
    """Save the state of a loader beside each checkpoint."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            path = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}", "loader.json")
            path.write_text(json.dumps(self.loader.state_dict()))


class OwnSampler(Trainer):
    """The order is that of our sampler; Accelerate deals its batches to the ranks."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        super().__init__(train_dataset=dataset, **options)
        self.sampler = Sampler(dataset, seed=1, num_replicas=1, rank=0)

    def _get_train_sampler(self, *_: Any) -> Any:
        return self.sampler


class OwnBatches(Trainer):
    """The batches are those of our batch sampler, in torch's loader; Accelerate deals them to the ranks."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        super().__init__(train_dataset=dataset, **options)
        size = self.args.train_batch_size
        self.sampler = BatchSampler(dataset, size, seed=1, num_replicas=1, rank=0)

    def get_train_dataloader(self) -> Any:
        workers = self.args.dataloader_num_workers
        loader = TorchLoader(
            self.train_dataset,
            batch_sampler=self.sampler,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        return self.accelerator.prepare(loader)


class OwnLoader(Trainer):
    """The batches are those of a Loader, which is its own rank."""

    def __init__(self, loader: Loader, **options: Any) -> None:
        super().__init__(**options)
        self.loader = loader

    def get_train_dataloader(self) -> Any:
        return self.loader


def make_trainer(directory: str, case: dict[str, Any], model: Model) -> Trainer:
    kind, data = case["loader"], str(Path(directory, "data"))
    arguments = TrainingArguments(
        str(Path(directory, "out")),
        per_device_train_batch_size=case.get("batch", 3),
        gradient_accumulation_steps=case.get("accumulate", 1),
        num_train_epochs=EPOCHS,
        save_strategy="steps",
        save_steps=1,
        seed=5,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        remove_unused_columns=False,
        dataloader_num_workers=case.get("workers", 0),
        ignore_data_skip=kind == "Loader",
    )
    options: dict[str, Any] = {"model": model, "args": arguments, "data_collator": collate}
    if kind == "Loader":
        loader = Loader(data, arguments.train_batch_size, seed=1, num_workers=case.get("workers", 0))
        if case.get("resume"):
            place = Path(arguments.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{case['resume']}", "loader.json")
            loader.load_state_dict(json.loads(place.read_text()))
        return OwnLoader(loader, callbacks=[LoaderState(loader)], **options)
    dataset: Dataset[Any] = Dataset(data)
    if kind == "trainer":
        return Trainer(train_dataset=dataset, **options)
    return (OwnSampler if kind == "sampler" else OwnBatches)(dataset, **options)


def run(directory: str, case: dict[str, Any]) -> None:
    """One run of the case."""
    model = Model()
    trainer = make_trainer(directory, case, model)
    tells = case["loader"] in ("sampler", "batches") and case.get("tells", True)
    callback = Epochs(model, trainer.sampler.set_epoch if tells else lambda epoch: None)
    trainer.add_callback(callback)
    step = case.get("resume")
    trainer.train(resume_from_checkpoint=str(Path(trainer.args.output_dir, f"checkpoint-{step}")) if step else None)
    steps: list[Any] = []
    ends = [begin for begin, _ in callback.begun[1:]] + [len(model.batches)]
    for (begin, epoch), end in zip(callback.begun, ends, strict=True):
        steps += [[epoch, batch] for batch in model.batches[begin:end]]
    Path(directory, f"seen-{trainer.args.process_index}.json").write_text(json.dumps({"steps": steps}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    for text in sys.argv[2:]:
        one = json.loads(text)
        run(os.path.join(sys.argv[1], one["directory"]) if "directory" in one else sys.argv[1], one)
    time.sleep(0.5)  # if a thread of gloo ends after Python, it aborts the process
