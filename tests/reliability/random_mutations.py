"""A program: random changes of small files, each then read. A crash is what it looks for, so tests run it in a child.

    PYTHONPATH=tests:tests/reliability python -m random_mutations COUNT SEED DIRECTORY

It prints how many changes it made, as JSON. Where one is read wrong, it says which; where it dies, the file `position`
of the directory does: the same seed makes the same changes.
"""

import json
import logging
import os
import struct
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import builders
import damage
import ffr_twin
import numpy as np
from damage import Mode, Outcome

from ffrecord import FFRecordError, FileReader

BLOCK = 1000  # changes of one file, one after the other
BYTES_MOST = 8
# Every kind of request: none, shared blocks, blocks of their own, several pieces.
LARGE_SIZES = (0, 3, 4096, 70_000, 1, 300_000)
FIELDS = struct.Struct("<Iq")


class Subject:
    """A file to be changed, and readers of it that were opened before, in every mode."""

    def __init__(self, path: Path, samples: list[bytes], data: bytes) -> None:
        self.path, self.samples, self.data = builders.write(path, data), samples, data
        self.start = len(data) - sum(map(len, samples))  # of the first sample
        self.opened = {mode: FileReader(self.path, mode.check, io=mode.io) for mode in damage.MODES}
        self._fd = os.open(self.path, os.O_RDWR)

    def write(self, data: bytes, places: list[int]) -> None:
        """Make the file `data`, which differs from what is there before the first sample and in `places`."""
        os.pwrite(self._fd, data[: self.start], 0)
        for place in places:
            if place >= self.start:
                os.pwrite(self._fd, data[place : place + 1], place)


def subjects(directory: Path) -> list[Subject]:
    """The small file, the same with an extension block, and one with samples of many pieces."""
    large = builders.records(LARGE_SIZES)
    return [
        Subject(directory / "plain.ffr", damage.SAMPLES, damage.PLAIN),
        Subject(directory / "extended.ffr", damage.SAMPLES, damage.EXTENDED),
        Subject(directory / "large.ffr", large, ffr_twin.build(large)),
    ]


def changes(random: np.random.Generator, start: int, size: int) -> Iterator[list[tuple[int, int]]]:
    """BLOCK times (place, value) of one to eight bytes: in a row or apart, most of them before the samples."""
    counts = random.integers(1, BYTES_MOST + 1, BLOCK).tolist()
    tops = np.where(random.random((BLOCK, 1)) < 0.7, start, size)
    places = (random.random((BLOCK, BYTES_MOST)) * (tops - BYTES_MOST)).astype(np.int64)
    in_a_row = random.random(BLOCK) < 0.3
    places[in_a_row] = places[in_a_row, :1] + np.arange(BYTES_MOST)
    values = random.integers(0, 256, (BLOCK, BYTES_MOST))
    often = random.choice([0, 1, 127, 128, 255, -1], (BLOCK, BYTES_MOST), p=[0.2, 0.05, 0.05, 0.05, 0.1, 0.55])
    values = np.where(often < 0, values, often)
    for count, place, value in zip(counts, places.tolist(), values.tolist(), strict=True):
        yield list(zip(place[:count], value[:count], strict=True))


def repair(data: bytearray, start: int) -> None:
    """Make checksums right again that would keep all else from being looked at."""
    n = FIELDS.unpack_from(data)[1]
    if not 0 <= n <= (start - 12) // 12:
        return
    end = 12 + 12 * n
    if start - end >= 40:
        size = struct.unpack_from("<Q", data, end + 24)[0]
        if size <= start - end - 40:
            struct.pack_into("<I", data, end + 8, zlib.crc32(data[end + 12 : end + 40 + size]))
    struct.pack_into("<I", data, 0, zlib.crc32(data[4:end]))


def opened_before(reader: FileReader, mode: Mode) -> Outcome:
    """What a reader makes of a file that was changed under it."""
    try:
        return [bytes(sample) for sample in damage.WAYS[mode.way](reader)]
    except FFRecordError as error:
        return error


def said(data: bytes, n: int, i: int) -> bytes | None:
    """Sample i of a file of n as its tables have it; None if they contradict the file."""
    offsets = 12 + 4 * n
    begin = struct.unpack_from("<q", data, offsets + 8 * i)[0]
    end = struct.unpack_from("<q", data, offsets + 8 * i + 8)[0] if i < n - 1 else len(data)
    return data[begin:end] if 12 + 12 * n <= begin <= end <= len(data) else None


def judge(found: Outcome, data: bytes, samples: list[bytes], mode: Mode, n: int) -> str:
    """What is wrong with an outcome; else what it is: an error, or samples."""
    if not isinstance(found, list):
        return "refused"
    if len(found) != n:
        return f"wrong: {len(found)} samples, the file says {n}"
    for i, each in enumerate(found):
        if isinstance(each, Exception):
            continue
        if each != said(data, n, i):
            return f"wrong: sample {i} is not what the tables say"
        # What passes the checks is what was written: a CRC-32 that is right by chance takes four billion changes.
        if mode.check and each != samples[i]:
            return f"wrong: sample {i} is not what was written"
    return "read"


def run(count: int, seed: int, directory: Path) -> Counter[str]:
    """Make `count` changes; how many were refused at open or in a batch, and how many files were read."""
    files, results = subjects(directory), Counter[str]()
    position = os.open(directory / "position", os.O_WRONLY | os.O_CREAT)
    for block in range(-(-count // BLOCK)):
        random = np.random.default_rng([seed, block])
        # Few blocks are of the large file, whose reads take longer than all else.
        subject = files[2 if block % 25 == 1 else block % 2]
        for k, changed in enumerate(changes(random, subject.start, len(subject.data))):
            number = BLOCK * block + k
            if number == count:
                break
            os.pwrite(position, f"change {number} of seed {seed}\n".encode(), 0)
            verdict = one(subject, changed, number)
            if verdict.startswith("wrong"):
                raise AssertionError(f"change {number} of seed {seed}, {changed} of {subject.path}: {verdict}")
            results[verdict] += 1
    return results


def one(subject: Subject, changed: list[tuple[int, int]], number: int) -> str:
    """Make a change, read the file in one mode, and undo it."""
    mode = damage.MODES[number % len(damage.MODES)]
    before, fixed = number // 32 % 2 == 0, number // 64 % 4 > 0
    data = bytearray(subject.data)
    for place, value in changed:
        data[place] = value
    if fixed:
        repair(data, subject.start)
    places = [place for place, _ in changed]
    damaged = bytes(data)
    subject.write(damaged, places)
    if before:
        found, n = opened_before(subject.opened[mode], mode), len(subject.samples)
    else:
        found, n = damage.read(subject.path, mode), FIELDS.unpack_from(damaged)[1]
    subject.write(subject.data, places)
    return judge(found, damaged, subject.samples, mode, n)


def main() -> None:
    """Do as the command line says."""
    warnings.filterwarnings("ignore", ".*old version ffrecord file")
    logging.disable()  # it would tell of every sample left out
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))


if __name__ == "__main__":
    main()
