"""Writes that are interrupted, and what they have finished."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import WorkerError

N = 400


def record(index: int) -> bytes:
    return index.to_bytes(4, "little") * (1 + index * 7919 % 23)


class Stopping:
    """Plain or typed samples, of which number `at` cannot be had while `broken`."""

    def __init__(self, at: int | None = None, typed: bool = False, n: int = N) -> None:
        self.at, self.typed, self.n = at, typed, n
        self.asked: list[int] = []
        self.writer = os.getpid()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        if index == self.at:
            if os.getpid() != self.writer:
                time.sleep(0.1)  # for other workers to get on with what is before
            raise KeyError("not yet")
        return {"x": index, "name": record(index)} if self.typed else record(index)


def write(path: Path, dataset: Any, **options: Any) -> Summary:
    """Write with the options of the writer and of the call in one."""
    call = {name: options.pop(name) for name in ("indices", "chunksize", "shuffle_indices", "seed") if name in options}
    return DatasetWriter(path, **{"num_workers": 0, **options}).from_indexed_dataset(dataset, **call)


def interrupted(path: Path, at: int = 300, typed: bool = False, **options: Any) -> WorkerError:
    with pytest.raises(WorkerError, match=f"failed at sample {at}") as caught:
        write(path, Stopping(at, typed), **options)
    return caught.value


def kept_files(path: Path) -> list[Path]:
    return sorted((path.parent / f".{path.name}.part" / "finished").iterdir())


def ctrl_c(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt
