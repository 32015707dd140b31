"""Train on the handwritten digits with two processes, stop, go on with one, stop, and go on with three.

Every run begins where the one before it stopped, in the middle of an epoch. In the end all processes say which samples
they had: exits with status 1 unless these are every epoch exactly once, in the order that one process alone would have.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from digits import SEED, Network, digits, write
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

import ffrecord
import ffrecord.torch
from ffrecord.order import Random

CHECKPOINT = "checkpoint.pt"
BATCH = 96  # of all processes together, so that any number of them makes the same steps


class Run(NamedTuple):
    """One run: a number of processes for a number of steps; None to run to the end."""

    number: int
    ranks: int
    steps: int | None


RUNS = (Run(1, 2, 20), Run(2, 1, 4), Run(3, 3, None))


class Seen(NamedTuple):
    """The sample numbers that a process got in one step; the last `padding` of them only fill up the batch."""

    epoch: int
    indices: list[int]
    padding: int


def main() -> int:
    """Run the whole example; return 0 if every sample was seen as promised."""
    options = parse()
    started = time.perf_counter()
    directory = options.out / "ddp"
    shutil.rmtree(directory, ignore_errors=True)
    for name, samples in zip(("train", "test"), digits(), strict=True):
        write(samples, directory / name, workers=2)
    # Gloo resolves the machine's name to find the network, but the name may not resolve.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)  # more threads of all processes would slow each other down
    torch.manual_seed(SEED)
    save(directory, *untrained(), {})
    for run in RUNS:
        start_processes(work, (run, directory, options.epochs), nprocs=run.ranks, start_method="fork")
        print(f"run {run.number}: {run.ranks} ranks, {place(directory)}")
    print(f"accuracy: {accuracy(directory):.2%} of the test digits")
    wrong = [epoch for epoch in range(options.epochs) if not is_exact(directory, epoch)]
    print(f"all in {time.perf_counter() - started:.1f} s")
    if wrong:
        print(f"ddp.py: epochs {wrong} are not what one process would have seen", file=sys.stderr)
    return 1 if wrong else 0


def parse() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out = Path(os.path.relpath(Path(__file__).resolve().parents[1] / "out"))
    parser.add_argument("--out", type=Path, default=out, help="directory for ddp/, which is replaced")
    parser.add_argument(
        "--epochs", type=int, default=8, help="passes over the digits, 2 or more (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error("--epochs must be 2 or more")
    return options


# In each process


def work(rank: int, run: Run, directory: Path, epochs: int) -> None:
    """Run one process: load the checkpoint, train, save a checkpoint and the samples seen."""
    meeting = (directory / f"meeting-{run.number}").resolve()
    init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=run.ranks)
    try:
        # Rank and number of ranks are those of the process group. "pad": all ranks make as many steps.
        with ffrecord.torch.Loader(directory / "train", BATCH // run.ranks, seed=SEED, policy="pad") as loader:
            seen = list(train(loader, run, directory, epochs))
        (directory / f"seen-{run.number}-{rank}.json").write_text(json.dumps(seen))
    finally:
        destroy_process_group()


def train(loader: ffrecord.torch.Loader, run: Run, directory: Path, epochs: int) -> Iterator[Seen]:
    """Train from the checkpoint to the end of the run; return the samples of each step."""
    network, optimizer = untrained()
    saved = torch.load(directory / CHECKPOINT)
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    if saved["loader"]:
        loader.load_state_dict(saved["loader"])
    model = DistributedDataParallel(network)
    for _, batch in zip(range(run.steps or sys.maxsize), until(loader, epochs), strict=False):
        step(model, optimizer, batch, loader.batch_mask)
        yield Seen(loader.epoch, loader.batch_indices.tolist(), int((~loader.batch_mask).sum()))
    # All ranks have made the same number of steps, so the position of one is that of all.
    if get_rank() == 0:
        save(directory, network, optimizer, loader.state_dict())


def untrained() -> tuple[Network, torch.optim.Optimizer]:
    """Return a new network and its optimizer."""
    network = Network()
    return network, torch.optim.AdamW(network.parameters(), 0.003)


def save(directory: Path, network: Network, optimizer: torch.optim.Optimizer, loader: dict[str, Any]) -> None:
    """Write the checkpoint; `loader` is the state of the loader, empty for the start."""
    states = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader}
    torch.save(states, directory / CHECKPOINT)


def until(loader: ffrecord.torch.Loader, epochs: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the batches from the loader's position to the end of the last epoch."""
    while loader.epoch < epochs:
        yield from loader


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], mask: torch.Tensor
) -> None:
    """Do one step of training. Samples that only fill up the batch do not count."""
    losses = nn.functional.cross_entropy(model(batch["image"]), batch["label"], reduction="none")
    optimizer.zero_grad()
    ((losses * mask).sum() / mask.sum().clamp(min=1)).backward()
    optimizer.step()


# Afterwards


def place(directory: Path) -> str:
    """Return the position of the checkpoint."""
    state = torch.load(directory / CHECKPOINT)["loader"]
    return f"stopped in epoch {state['epoch']} at sample {state['position']}"


def is_exact(directory: Path, epoch: int) -> bool:
    """Print and return whether the processes of all runs together saw each epoch as a single process would."""
    with ffrecord.FileReader(directory / "train") as reader:
        n = len(reader)
    seen = [sample for run in RUNS for sample in seen_in(directory, run, epoch)]
    exact = seen == Random().indices(range(n), n, SEED, epoch).tolist()
    ranks = [run.ranks for run in RUNS if list(seen_in(directory, run, epoch))]
    print(f"epoch {epoch}: by {ranks} ranks, {len(seen)} samples, {len(set(seen))} distinct; exact: {exact}")
    return exact


def seen_in(directory: Path, run: Run, epoch: int) -> Iterator[int]:
    """Return the samples of an epoch that a run saw: step by step, rank by rank."""
    files = [directory / f"seen-{run.number}-{rank}.json" for rank in range(run.ranks)]
    steps_of_ranks = [[Seen(*each) for each in json.loads(file.read_text())] for file in files]
    for step_of_all in zip(*steps_of_ranks, strict=True):
        if step_of_all[0].epoch == epoch:
            for i in range(len(step_of_all[0].indices)):
                yield from (seen.indices[i] for seen in step_of_all if i < len(seen.indices) - seen.padding)


@torch.inference_mode()
def accuracy(directory: Path) -> float:
    """Return the share of test digits that the trained network gets right."""
    model = Network()
    model.load_state_dict(torch.load(directory / CHECKPOINT)["network"])
    model.eval()
    with ffrecord.torch.Loader(directory / "test", 64, order="sequential") as loader:
        right = [model(batch["image"]).argmax(1) == batch["label"] for batch in loader]
    return float(torch.cat(right).float().mean())


if __name__ == "__main__":
    sys.exit(main())
