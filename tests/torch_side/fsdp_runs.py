"""A training run with FSDP that writes what it has seen, as a program for torchrun: fsdp_runs.py DIRECTORY CASE.

A case is JSON: "batch" (samples of a rank), "workers", "stop" (steps until a checkpoint, after which the run ends;
null: 3 epochs), and "resume" (whether to go on there). The checkpoint is one of torch.distributed.checkpoint, with the
loader in it. Rank r writes `seen-r.json` in DIRECTORY: for each step the epoch and its samples; and the sum of the
model's weights. The data are in DIRECTORY/data.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ffrecord.torch import Loader

EPOCHS = 3


class Trained:
    """The model and optimizer as one stateful object of a checkpoint."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def run(directory: str, case: dict[str, Any]) -> None:
    """One run of the case, on the ranks of the process group."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Linear(8, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    loader = Loader(os.path.join(directory, "data"), case["batch"], seed=1, num_workers=case.get("workers", 0))
    kept = {"trained": Trained(model, optimizer), "loader": loader}
    place = os.path.join(directory, "checkpoint")
    if case.get("resume"):
        dcp.load(kept, checkpoint_id=place)
    steps: list[Any] = []
    while loader.epoch < EPOCHS and len(steps) != case.get("stop"):
        for batch in loader:
            optimizer.zero_grad()
            model(batch["i"].float()[:, None]).square().mean().backward()
            optimizer.step()
            steps.append([loader.epoch, batch["i"].tolist()])
            if len(steps) == case.get("stop"):
                dcp.save(kept, checkpoint_id=place)
                break
    total = 0.0
    for value in model.state_dict().values():
        assert isinstance(value, DTensor), "the model is not sharded"
        total += value.full_tensor().sum().item()
    Path(directory, f"seen-{get_rank()}.json").write_text(json.dumps({"steps": steps, "weights": total}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    init_process_group("gloo")
    for text in sys.argv[2:]:
        run(sys.argv[1], json.loads(text))
    destroy_process_group()
    time.sleep(0.5)  # if a thread of gloo ends after Python, it aborts the process
