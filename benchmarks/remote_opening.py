"""A dataset of very many shards, and the facts that opening it must find."""

import os
from pathlib import Path

from harness import WrongAnswerError

from ffrecord import DatasetWriter, FileReader
from ffrecord.format import manifest

FILES = 10  # real files, of one sample each; the others are hard links to these
SIZE = 100  # bytes of a sample


def record(index: int) -> bytes:
    """Return a sample: the number of its file, and that of its shard."""
    return bytes([index % FILES]) * SIZE


def make(directory: Path, shards: int) -> Path:
    """Write a dataset of this many shards of one sample; most of them are other names of a few files."""
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
    """Compare the numbers of shards and samples, the place of each sample, and the contents of three.

    Raises:
        WrongAnswerError: something differs; the message has the number found.
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
