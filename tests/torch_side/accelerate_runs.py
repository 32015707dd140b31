"""A training run of Accelerate that writes what it has seen, as a program: python accelerate_runs.py DIRECTORY CASE.

A case is JSON: "loader", "workers", "batch" (of a Loader), "stop" (steps until a checkpoint, after which the run ends;
null: 3 epochs), and "resume" (whether to go on there). Rank r writes `seen-r.json` in DIRECTORY. The data are in
DIRECTORY/data.
"""

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader as TorchLoader

from ffrecord.torch import BatchSampler, Dataset, Loader, Sampler

EPOCHS, BATCH = 3, 3


def make_loader(accelerator: Accelerator, case: dict[str, Any], data: str) -> Any:
    if case["loader"] == "Loader":
        return Loader(data, case.get("batch", BATCH), seed=1, num_workers=case["workers"])
    dataset: Dataset[Any] = Dataset(data)
    options: dict[str, Any] = {"num_workers": case["workers"]}
    if case["workers"]:
        options["multiprocessing_context"] = "fork"
    # Accelerate deals batches to the ranks itself.
    if case["loader"] == "batches":
        sampler = BatchSampler(dataset, BATCH, seed=1, num_replicas=1, rank=0)
        return accelerator.prepare(TorchLoader(dataset, batch_sampler=sampler, **options))
    return accelerator.prepare(
        TorchLoader(dataset, BATCH, sampler=Sampler(dataset, seed=1, num_replicas=1, rank=0), **options)
    )


def run(directory: str, case: dict[str, Any]) -> None:
    """One run of the case."""
    # A sampler of ours is none that Accelerate would have to seed.
    config = DataLoaderConfiguration(use_stateful_dataloader=case["loader"] == "stateful", use_seedable_sampler=False)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    loader = make_loader(accelerator, case, str(Path(directory, "data")))
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    steps: list[Any] = []
    epoch, done, place = 0, 0, Path(directory, "checkpoint.json")
    if case.get("resume"):
        saved = json.loads(place.read_text())
        epoch, done = saved["epoch"], saved["done"]
        if case["loader"] in ("Loader", "stateful"):
            loader.load_state_dict(saved["loader"])
    while epoch < EPOCHS:
        batches: Any = loader
        if case["loader"] != "Loader":
            loader.set_epoch(epoch)
            if done and case["loader"] != "stateful":
                batches = accelerator.skip_first_batches(loader, done)
        for batch in batches:
            model(batch["i"].float()[:, None]).mean().backward()
            steps.append([epoch, batch["i"].tolist()])
            done += 1
            if len(steps) == case.get("stop"):
                state = loader.state_dict() if case["loader"] in ("Loader", "stateful") else None
                finished = done == len(loader)
                here = {"epoch": epoch + finished, "done": 0 if finished else done, "loader": state}
                if accelerator.is_main_process:
                    place.write_text(json.dumps(here))
                break
        else:
            epoch, done = epoch + 1, 0
            continue
        break
    Path(directory, f"seen-{accelerator.process_index}.json").write_text(json.dumps({"steps": steps}))
    accelerator.end_training()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    for text in sys.argv[2:]:
        run(sys.argv[1], json.loads(text))
    time.sleep(0.5)  # if a thread of gloo ends after Python, it aborts the process
