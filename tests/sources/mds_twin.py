"""A slow, obvious writer of MDS datasets, from their description alone."""

import bz2
import decimal
import gzip
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest

SCALARS = {"int": "<i8", "int8": "<i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "<u1"}
SCALARS |= {"uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8"}
CODES = {"uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "float16": 18, "uint32": 32, "int32": 33, "float32": 34}
CODES |= {"uint64": 64, "int64": 65, "float64": 66}


def zstd(data: bytes) -> bytes:
    """By the package, without which a test skips."""
    zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
    return bytes(zstandard.ZstdCompressor().compress(data))


COMPRESS = {
    "zstd": zstd,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "br": lambda data: bytes(cramjam.brotli.compress(data)),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


def encoded(encoding: str, value: Any) -> bytes:
    name, *static = encoding.split(":")
    if name in SCALARS:
        return np.array(value, SCALARS[name]).tobytes()
    if name == "ndarray":
        return array_bytes(value, static)
    if name.startswith(("list[", "jpeg")) and isinstance(value, list):
        items = b"".join(value)
        head = struct.pack(f"<{1 + len(value)}I", len(value), *map(len, value))
        return (b"\0\0\0\0" if name.startswith("list[") else b"") + head + items
    if name == "json":
        return json.dumps(value).encode()
    if isinstance(value, (int, float, decimal.Decimal)):
        return str(value).encode()
    return value.encode() if isinstance(value, str) else value


def array_bytes(value: np.ndarray, static: list[str]) -> bytes:
    head = b""
    if not static:
        head += bytes([CODES[value.dtype.name]])
    if len(static) < 2:
        width = next(i for i in range(4) if max(value.shape) < 1 << (8 << i))
        head += bytes([value.ndim << 2 | width]) + np.array(value.shape, f"<u{1 << width}").tobytes()
    return head + value.tobytes()


def size_of(encoding: str) -> int | None:
    name, *static = encoding.split(":")
    if name in SCALARS:
        return np.dtype(SCALARS[name]).itemsize
    if len(static) == 2:
        return int(np.prod([int(axis) for axis in static[1].split(",")])) * np.dtype(static[0]).itemsize
    return None


def shard_bytes(columns: dict[str, str], samples: list[dict[str, Any]]) -> bytes:
    names = sorted(columns)
    described = json.dumps(
        {
            "column_names": names,
            "column_encodings": [columns[name] for name in names],
            "column_sizes": [size_of(columns[name]) for name in names],
        }
    ).encode()
    bodies = []
    for sample in samples:
        values = [encoded(columns[name], sample[name]) for name in names]
        sizes = [len(value) for name, value in zip(names, values, strict=True) if size_of(columns[name]) is None]
        bodies.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
    offsets = [4 + 4 * (len(samples) + 1) + len(described)]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    return struct.pack(f"<{1 + len(offsets)}I", len(samples), *offsets) + described + b"".join(bodies)


def write_mds(
    directory: Path,
    columns: dict[str, str],
    samples: list[dict[str, Any]],
    per_shard: int = 3,
    compression: str | None = None,
    hashes: tuple[str, ...] = (),
) -> Path:
    """Write a dataset; its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    shards = []
    for number, first in enumerate(range(0, len(samples), per_shard)):
        part = samples[first : first + per_shard]
        shards.append(write_shard(directory, f"shard.{number:05}.mds", columns, part, compression, hashes))
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return directory


def write_shard(directory, name, columns, samples, compression, hashes) -> dict[str, Any]:
    def file(name: str, data: bytes) -> dict[str, Any]:
        return {
            "basename": name,
            "bytes": len(data),
            "hashes": {each: hashlib.new(each, data).hexdigest() for each in hashes},
        }

    data = shard_bytes(columns, samples)
    zipped = None
    if compression is None:
        (directory / name).write_bytes(data)
    else:
        packed = COMPRESS[compression.partition(":")[0]](data)
        zipped = file(f"{name}.{compression.partition(':')[0]}", packed)
        (directory / zipped["basename"]).write_bytes(packed)
    return {
        "version": 2,
        "format": "mds",
        "samples": len(samples),
        "column_names": sorted(columns),
        "column_encodings": [columns[each] for each in sorted(columns)],
        "column_sizes": [size_of(columns[each]) for each in sorted(columns)],
        "compression": compression,
        "hashes": list(hashes),
        "size_limit": None,
        "raw_data": file(name, data),
        "zip_data": zipped,
    }
