"""The same records in files with typed columns, beside a label: written by the formats' packages, or by hand."""

import importlib
import json
import struct
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from read_data import Records

SHARD = 64_000_000  # bytes of a file of MDS, about
PAGE = 8 << 20  # of a .beton file, as FFCV has it


def write_mds(path: Path, records: Records) -> None:
    """Write shards of 64 MB with a column of bytes and one of ints."""
    path.mkdir()
    described = json.dumps(
        {"column_names": ["data", "label"], "column_encodings": ["bytes", "int"], "column_sizes": [None, 8]}
    ).encode()
    shards, bodies = [], []
    for index, record in enumerate(records):
        bodies.append(struct.pack("<I", len(record)) + record + struct.pack("<q", index % 10))
        if index == records.n - 1 or sum(map(len, bodies)) >= SHARD:
            shards.append(mds_shard(path / f"shard.{len(shards):05}.mds", described, bodies))
            bodies = []
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def mds_shard(path: Path, described: bytes, bodies: list[bytes]) -> dict[str, Any]:
    offsets = [4 + 4 * (len(bodies) + 1) + len(described)]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    head = struct.pack(f"<{1 + len(offsets)}I", len(bodies), *offsets)
    path.write_bytes(head + described + b"".join(bodies))
    raw = {"basename": path.name, "bytes": offsets[-1], "hashes": {}}
    said = json.loads(described)
    return {"version": 2, "format": "mds", "samples": len(bodies), "compression": None, "hashes": []} | {
        "raw_data": raw,
        "zip_data": None,
        "size_limit": SHARD,
        **said,
    }


def write_beton(path: Path, records: Records) -> None:
    """Write bytes and ints in pages of 8 MiB, as one worker fills them."""
    fields = [(3, b"data"), (1, b"label")]
    descriptors = b"".join(struct.pack("<B16s1024s", kind, title, b"") for kind, title in fields)
    rows_end = 24 + len(descriptors) + 24 * records.n
    at = start = -(-rows_end // PAGE) * PAGE
    rows, allocations = [], []
    with path.open("wb") as file:
        for index, record in enumerate(records):
            if at % PAGE + len(record) > PAGE:
                at = -(-at // PAGE) * PAGE
            rows.append(struct.pack("<QQq", at, len(record), index % 10))
            allocations.append(struct.pack("<QQQ", index, at, len(record)))
            file.seek(at)
            file.write(record)
            at += len(record)
        table = -(-at // PAGE) * PAGE
        file.seek(table)
        file.write(b"".join(allocations))
        file.seek(0)
        file.write(struct.pack("<HHIQQ", 2, len(fields), PAGE, records.n, table) + descriptors + b"".join(rows))
    assert start < table


def write_torchrecord(path: Path, records: Records) -> None:
    """Write four databases of messages with the bytes and a label, as caffe2's TensorProtos."""
    lmdb = importlib.import_module("lmdb")
    room = 2 * len(records.payload) + 200 * records.n + (16 << 20)
    bounds = [records.n * part // 4 for part in range(5)]
    with lmdb.open(str(path), map_size=room, max_dbs=4, sync=False) as database:
        for part, (low, high) in enumerate(pairwise(bounds)):
            of = database.open_db(b"db%d" % part)
            with database.begin(write=True, db=of) as transaction:
                for place, record in enumerate(islice(records, low, high)):
                    key = b"%0*d" % (len(str(high - low)), place)
                    transaction.put(key, tensors(record, b"%d" % (place % 10)), append=True)


def tensors(record: bytes, label: bytes) -> bytes:
    """Return a TensorProtos of a row of bytes and of a label, both as byte_data."""
    picture = field(1, varint(len(record))) + field(2, varint(3)) + sized(5, record)
    return sized(1, picture) + sized(1, field(2, varint(3)) + sized(5, label))


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3) + value


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def arrow_table(records: Records) -> Any:
    pa = importlib.import_module("pyarrow")
    return pa.table({"data": pa.array(list(records), pa.large_binary()), "label": [i % 10 for i in range(records.n)]})


def write_parquet(path: Path, records: Records) -> None:
    """Write row groups of 1000; not compressed, because random bytes would not shrink."""
    importlib.import_module("pyarrow.parquet").write_table(
        arrow_table(records), path, row_group_size=1000, compression="none", use_dictionary=False
    )


def write_huggingface(path: Path, records: Records) -> None:
    importlib.import_module("datasets").Dataset(arrow_table(records)).save_to_disk(str(path))
