"""Datasets for the tests of `ffrecord.torch.Loader`."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ffrecord import FileReader, FileWriter
from ffrecord.fields import Schema
from ffrecord.format.extension import Extension


def fixed(i: int) -> tuple[np.ndarray, int]:
    """A sample of fixed size."""
    return np.full((2, 3), i, np.uint8), i


def mixed(i: int) -> dict[str, Any]:
    """One of varying size."""
    return {
        "id": i,
        "share": i / 4,
        "even": i % 2 == 0,
        "name": f"sample {i}",
        "half": torch.full((2,), i, dtype=torch.bfloat16),
        "tokens": np.arange(i % 4 + 1),
        "inner": {"pair": (np.float32(i), None)},
    }


def write(path: Path, samples: Iterable[Any], spoil: Callable[[int, bytes], bytes] | None = None) -> str:
    """A file of `samples` with their schema; `spoil` changes records, whose checksums are right nevertheless."""
    samples = list(samples)
    schema = Schema.infer(samples)
    with FileWriter(path, extension=Extension(schema=schema.to_builtins())) as writer:
        for i, sample in enumerate(samples):
            record = schema.encode(sample)
            writer.write_one(spoil(i, record) if spoil else record)
    return str(path)


def damage(path: str, *indices: int) -> None:
    """Flip a bit of those samples, so that their checksums do not match."""
    with FileReader(path) as reader:
        offsets = reader.get_offsets(0)
    with open(path, "r+b") as file:
        for index in indices:
            file.seek(offsets[index])
            (byte,) = file.read(1)
            file.seek(offsets[index])
            file.write(bytes([byte ^ 1]))


def child_processes() -> set[int]:
    """Of this process, zombies too. Other tests may have left some that end with it, such as a forkserver."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            found |= {int(path.parent.name)} if int(parent) == os.getpid() else set()
    return found


def ids(batches: Iterable[Any]) -> list[list[int]]:
    """The samples of each batch of `fixed` or `mixed` ones."""
    return [(batch["id"] if isinstance(batch, dict) else batch[1]).tolist() for batch in batches]


def flat(batches: Iterable[Any]) -> list[int]:
    return [i for batch in ids(batches) for i in batch]
