"""Energon: WebDataset's tar files with an index, and a state that can be saved."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import newest_samples
import newest_webdataset
from loader_ways import Opened
from megatron import energon
from newest_torch import Resumed

BUFFER = newest_webdataset.BUFFER


@energon.stateless  # type: ignore[untyped-decorator]
def cook(sample: Any) -> Any:
    """Return a sample as it stands in the tar files."""
    return sample


class Encoder(energon.DefaultTaskEncoder):  # type: ignore[misc]
    """The steps from bytes to a batch."""

    decoder = None
    cookers = [energon.Cooker(cook)]  # noqa: RUF012

    def __init__(self, samples: newest_samples.Samples) -> None:
        super().__init__()
        self.samples = samples

    @energon.stateless  # type: ignore[untyped-decorator]
    def encode_sample(self, sample: Any) -> Any:
        return sample

    @energon.stateless  # type: ignore[untyped-decorator]
    def batch(self, samples: Any) -> Any:
        return self.samples.collate([(sample["bin"], int(sample["cls"])) for sample in samples])

    @energon.stateless  # type: ignore[untyped-decorator]
    def encode_batch(self, batch: Any) -> Any:
        return batch


def packed(directory: Path, work: Any) -> Path:
    """Return tar files of WebDataset, of which Energon has made an index."""
    out = directory / "energon"
    if not out.exists():
        out.mkdir()
        for path in map(Path, newest_webdataset.packed(directory, work)):
            (out / path.name).hardlink_to(path)
        command = [sys.executable, "-m", "megatron.energon.cli.main", "prepare", str(out), "--non-interactive"]
        given = ["--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--no-progress", "--num-workers", "2"]
        subprocess.run([*command, *given], check=True, stdout=subprocess.DEVNULL)
    return out


def made(directory: Path, work: Any, workers: int) -> Any:
    dataset = energon.get_train_dataset(
        str(packed(directory, work)),
        worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=workers),
        batch_size=work.batch,
        shuffle_buffer_size=BUFFER,
        max_samples_per_sequence=None,
        task_encoder=Encoder(newest_samples.of_work(directory, work)),
        repeat=False,
    )
    return energon.get_savable_loader(dataset)


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    loader = made(directory, work, workers)
    return Opened(lambda: loader)


def resumed(directory: Path, work: Any, workers: int, state: Any) -> Resumed:
    loader = made(directory, work, workers)
    if state is not None:
        loader.restore_state_rank(state)
    return iter(loader), loader.save_state_rank
