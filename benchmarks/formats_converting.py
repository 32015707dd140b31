"""Other formats converted into datasets by several processes, beside the same samples written from memory."""

import importlib
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import formats_data
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure, timed
from read_data import Records, make_records

import ffrecord

CONVERT, WRITE = "convert", "DatasetWriter, from memory"


@dataclass(frozen=True)
class Given:
    """A source as `ffrecord.convert` takes it.

    Attributes:
        source: path or dataset.
        options: options of its reader.
        is_typed: whether its readers take its bytes as arrays.
    """

    source: Any
    options: dict[str, Any] = field(default_factory=dict)
    is_typed: bool = False


def given(path: Path, format: str) -> Given:
    if format == "path list":
        return Given(path / formats_data.LIST, {"format": "path list"})
    if format == "huggingface":
        return Given(importlib.import_module("datasets").load_from_disk(str(path)))
    return Given(path, is_typed=format == "torchrecord")


def without_bytes(given: Given) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the column of bytes of each sample, and the other columns."""
    if not isinstance(given.source, Path) or given.source.suffix == ".parquet":  # which `open` does not read
        labels = (parquet_rows(given.source) if isinstance(given.source, Path) else given.source)["label"]
        yield from (("data", {"label": label}) for label in labels)
        return
    with ffrecord.open(given.source, **given.options) as store:
        for index in range(store.n):
            sample = store.sample(index)
            column = next(name for name, value in sample.items() if is_bytes(value))
            yield column, {name: value for name, value in sample.items() if name != column}


def parquet_rows(path: Path) -> dict[str, Any]:
    return dict(importlib.import_module("pyarrow.parquet").read_table(path, columns=["label"]).to_pydict())


class InMemory:
    """The samples that conversion makes, in memory that forked workers share."""

    def __init__(self, given: Given, records: Records) -> None:
        """Take the columns from a sample of the source, and the bytes from `records`."""
        samples = list(without_bytes(given))
        self.column, self.rest = samples[0][0], [rest for _, rest in samples]
        self.as_array = given.is_typed
        self.payload, self.starts = np.frombuffer(records.payload, np.uint8), records.starts.tolist()

    def __len__(self) -> int:
        return len(self.rest)

    def __getitem__(self, index: int) -> dict[str, Any]:
        low, high = self.starts[index], self.starts[index + 1]
        piece = self.payload[low:high]
        return {**self.rest[index], self.column: piece.copy() if self.as_array else piece.tobytes()}


def is_bytes(value: object) -> bool:
    return isinstance(value, bytes) or getattr(value, "dtype", None) == np.uint8


def converted(directory: Path, work: workloads.Conversions, rounds: int) -> list[Measurement]:
    records = make_records(workloads.Reads(work.mean, 1, work.files * work.mean, "sequential"))
    source = formats_data.make(directory, work.source, records)
    found = given(source, work.source)
    samples, number = InMemory(found, records), itertools.count()

    def convert(out: Path) -> None:
        ffrecord.convert(found.source, out, num_workers=work.workers, progress=False, **found.options)

    def write(out: Path) -> None:
        ffrecord.DatasetWriter(out, num_workers=work.workers, progress=False).from_indexed_dataset(samples)

    def run(how: Any) -> None:
        out = directory / f"out{next(number)}"
        how(out)
        outs.append(out)

    def cleaned(how: Any) -> float:
        seconds = timed(partial(run, how))()
        shutil.rmtree(outs.pop())
        return seconds

    def check(name: str, how: Any) -> None:
        run(how)
        expect(name, outs[-1], records)
        shutil.rmtree(outs.pop())

    outs: list[Path] = []
    contestants = [
        Contestant(name, partial(cleaned, how), partial(check, name, how))
        for name, how in ((CONVERT, convert), (WRITE, write))
    ]
    roles = {CONVERT: {"role": "ours"}, WRITE: {"role": "limit"}}
    size = len(records.payload)
    taken = measure(contestants, rounds)
    shutil.rmtree(source) if source.is_dir() else source.unlink()
    return [Measurement(name, work, each, size, records.n, "hot", roles[name]) for name, each in taken.items()]


def expect(name: str, out: Path, records: Records) -> None:
    """Check that every record's bytes are in its sample, in order."""
    with ffrecord.FileReader(out) as reader:
        if reader.n != records.n:
            raise WrongAnswerError(f"{name}: {reader.n} samples, expected {records.n}")
        for index, (sample, record) in enumerate(zip(reader, records, strict=True)):
            if record not in bytes(sample):
                raise WrongAnswerError(f"{name}: sample {index} is not what was written")
