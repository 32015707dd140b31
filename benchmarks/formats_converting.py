"""Other formats made datasets by several processes, beside the same samples written from memory."""

import itertools
import shutil
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


class InMemory:
    """The samples that conversion makes, in the memory that forked workers share."""

    def __init__(self, source: Path, format: str, records: Records) -> None:
        """The columns are those of a sample of the source; the bytes come from `records`."""
        with ffrecord.open(source) as store:
            first = store.sample(0)
            self.rest = [
                {name: value for name, value in store.sample(index).items() if not is_bytes(value)}
                for index in range(store.n)
            ]
        self.column = next(name for name, value in first.items() if is_bytes(value))
        self.payload, self.starts = np.frombuffer(records.payload, np.uint8), records.starts.tolist()

    def __len__(self) -> int:
        return len(self.rest)

    def __getitem__(self, index: int) -> dict[str, Any]:
        low, high = self.starts[index], self.starts[index + 1]
        return {**self.rest[index], self.column: self.payload[low:high].tobytes()}


def is_bytes(value: object) -> bool:
    return isinstance(value, bytes) or getattr(value, "dtype", None) == np.uint8


def converted(directory: Path, work: workloads.Conversions, rounds: int) -> list[Measurement]:
    records = make_records(workloads.Reads(work.mean, 1, work.files * work.mean, "sequential"))
    source = formats_data.make(directory, work.source, records)
    samples, number = InMemory(source, work.source, records), itertools.count()

    def convert(out: Path) -> None:
        ffrecord.convert(source, out, num_workers=work.workers, progress=False)

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
    """Every record's bytes, in order, somewhere in its sample."""
    with ffrecord.FileReader(out) as reader:
        if reader.n != records.n:
            raise WrongAnswerError(f"{name}: {reader.n} samples, expected {records.n}")
        for index, (sample, record) in enumerate(zip(reader, records, strict=True)):
            if record not in bytes(sample):
                raise WrongAnswerError(f"{name}: sample {index} is not what was written")
