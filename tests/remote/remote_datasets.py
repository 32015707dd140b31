"""Datasets to be read by URL, and all that can be asked of a reader."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import builders
import ffr_twin
import numpy as np

from ffrecord import DatasetWriter, FileReader
from ffrecord.format import manifest
from ffrecord.reading.ffr_file import OpenedFile

SIZES = [(i * 7919) % 3000 if i % 40 else i * 150 for i in range(500)]


def samples(count: int = len(SIZES), seed: int = 5) -> list[bytes]:
    """Of 0 to 72 kB, all different."""
    return builders.records((SIZES * (1 + count // len(SIZES)))[:count], seed)


def write_dataset(directory: Path, data: list[bytes], per_shard: int = 70) -> Path:
    """Shards with a dataset.json; the second one is empty."""
    directory.mkdir(parents=True)
    parts = [data[start : start + per_shard] for start in range(0, len(data), per_shard)]
    parts.insert(1, [])
    shards = []
    for number, part in enumerate(parts):
        name = f"part {number:03}.ffr"
        builders.write(directory / name, ffr_twin.build(part))
        opened = OpenedFile(str(directory / name), check=True)
        opened.close()
        shards.append(manifest.Shard(name, opened.n, opened.size, opened.crc))
    manifest.save(str(directory), manifest.build(shards))
    return directory


NUMBERS = 120


def write_numbers(directory: Path) -> None:
    """Typed samples, of which each can be told to be whole."""
    samples = [{"number": i, "values": np.arange(i, i + 6, dtype=np.float32)} for i in range(NUMBERS)]
    DatasetWriter(directory, samples_per_shard=25, num_workers=0).from_indexed_dataset(samples)


def numbers_of(batches: Iterable[Any]) -> list[int]:
    """Of all samples in batches of tensors; each must have the values that belong to its number."""
    found: list[int] = []
    for batch in batches:
        numbers = batch["number"].numpy()
        assert np.array_equal(batch["values"].numpy(), numbers[:, None] + np.arange(6, dtype=np.float32))
        found += numbers.tolist()
    return found


def check_all(reader: FileReader, data: list[bytes], local: FileReader) -> None:
    """That every way to ask gives what it gives of the same dataset here."""
    n = len(data)
    assert len(reader) == n
    assert reader.fingerprint() == local.fingerprint()
    some = [*range(0, n, 7), 3, 3, -1, n - 1, 0, -n]
    wanted = [data[i] for i in some]
    arrays = reader.read(some)
    assert [array.tobytes() for array in arrays] == wanted
    assert all(array.flags.writeable and array.dtype == np.uint8 for array in arrays)
    for place, array in enumerate(arrays):  # none shares bytes with another
        array[:] = place % 251
    assert [set(array.tolist()) <= {place % 251} for place, array in enumerate(arrays)] == [True] * len(arrays)
    assert builders.unpack(reader.read_packed(some)) == wanted
    out = np.empty(sum(map(len, wanted)) + 5, np.uint8)
    packed = reader.read_packed(some, out=out)
    assert packed[0].base is out
    assert builders.unpack(packed) == wanted
    assert [array.tobytes() for array in reader] == data
    assert [array.tobytes() for array in reader.read_range(5, n - 3)] == data[5 : n - 3]
    assert [array.tobytes() for array in reader[10:60:3]] == data[10:60:3]
    assert reader[-2].tobytes() == data[-2]
    assert reader.read([]) == []
    batches = [some[i : i + 9] for i in range(0, len(some), 9)]
    got = [array.tobytes() for batch in reader.iter_batches(batches) for array in batch]
    assert got == wanted
    assert [builders.unpack(packed) for packed in reader.iter_batches(batches, packed=True)] == [
        [data[i] for i in batch] for batch in batches
    ]
    assert list(reader.bad_records()) == []
    assert reader.record_sizes(some).tolist() == [len(each) for each in wanted]
    for index in (0, n // 2, n - 1):
        assert reader.locate(index)[1] == local.locate(index)[1]
    for file in range(len(local.fnames)):
        assert reader.get_offsets(file).tolist() == local.get_offsets(file).tolist()
        assert reader.get_checksums(file).tolist() == local.get_checksums(file).tolist()
    reader.validate()
    assert reader.extension == local.extension


def columns_of(data: list[bytes], slots: list[tuple[int, int]]) -> list[Any]:
    """What `read_columns` must give."""
    return [[sample[offset : offset + size] for sample in data] for offset, size in slots]
