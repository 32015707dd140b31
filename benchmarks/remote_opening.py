"""A dataset of very many shards, and what one who opens it has to find."""

import os
from pathlib import Path

from harness import WrongAnswerError

from ffrecord import DatasetWriter, FileReader
from ffrecord.format import manifest

FILES = 10  # that there are, of one sample each; the others are names of these
SIZE = 100  # bytes of a sample


def record(index: int) -> bytes:
    """What a sample is: its file has a number, and so has its shard."""
    return bytes([index % FILES]) * SIZE


def make(directory: Path, shards: int) -> Path:
    """A dataset of so many, each with a sample, of which most are other names of a few files."""
    directory.mkdir()
    few = directory / "few"
    writer = DatasetWriter(few, num_workers=0, samples_per_shard=1, progress=False)
    writer.from_indexed_dataset([record(index) for index in range(min(shards, FILES))])
    written = manifest.load(str(few))
    assert written is not None
    listed = []
    for number in range(shards):
        shard, name = written.shards[number % FILES], f"part-{number:06}.ffr"
        os.link(few / shard.name, directory / name)
        listed.append(manifest.Shard(name, shard.samples, shard.size, shard.crc))
    manifest.save(str(directory), manifest.build(listed, written.schema))
    return directory


def check(name: str, reader: FileReader, shards: int) -> None:
    """Compare how many there are of shards and of samples, where each sample is, and three of them.

    Raises:
        WrongAnswerError: something is another; the number that was found is in it.
    """
    found = len(reader.fnames), len(reader)
    if found != (shards, shards):
        raise WrongAnswerError(f"{name}: {found[0]:,} shards and {found[1]:,} samples, expected {shards:,} of each")
    for index in range(shards):
        path, inside = reader.locate(index)
        if (path, inside) != (reader.fnames[index], 0):
            raise WrongAnswerError(f"{name}: sample {index} is sample {inside} of {path}, expected 0 of that number")
    for index in (0, shards // 2, shards - 1):
        if reader.read_one(index).tobytes() != record(index):
            raise WrongAnswerError(f"{name}: sample {index} has other bytes")
