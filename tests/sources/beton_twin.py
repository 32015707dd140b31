"""A slow, obvious writer of .beton files, from their description alone: one struct after the other."""

import json
import struct
from typing import Any

import numpy as np

TYPES = {"float": 0, "int": 1, "image": 2, "bytes": 3, "array": 4, "json": 5, "tensor": 6, "custom": 255}
ALIGNED = ("float", "int", "array", "tensor")


def array_arguments(dtype: str, shape: tuple[int, ...]) -> bytes:
    described = json.dumps(np.dtype(dtype).descr).encode()
    axes = list(shape) + [0] * (32 - len(shape))
    return struct.pack("<32QQ", *axes, len(described)) + described


def values_of(kind: str, value: Any) -> bytes | None:
    """What the pages hold of a value; None: nothing."""
    if kind in ("array", "tensor"):
        return np.ascontiguousarray(value).tobytes()
    if kind == "json":
        return json.dumps(value).encode() + b"\0"
    if kind == "image":
        return value[0] if isinstance(value, tuple) else value.tobytes()
    return bytes(value) if kind == "bytes" else None


def metadata_of(kind: str, value: Any, pointer: int, size: int) -> bytes:
    if kind == "float":
        return struct.pack("<d", value)
    if kind == "int":
        return struct.pack("<q", value)
    if kind == "image":
        # A JPEG comes as (bytes, width, height), a raw image as an array.
        raw = not isinstance(value, tuple)
        width, height = (value.shape[1], value.shape[0]) if raw else value[1:]
        return struct.pack("<BHHQ", raw, width, height, pointer)
    if kind in ("array", "tensor"):
        return struct.pack("<Q", pointer)
    if kind == "custom":
        return value
    return struct.pack("<QQ", pointer, size)


def row_of(kinds: list[str], parts: list[bytes]) -> bytes:
    row = b""
    for kind, part in zip(kinds, parts, strict=True):
        if kind in ALIGNED:
            row += b"\0" * (-len(row) % 8)
        row += part
    return row + (b"\0" * (-len(row) % 8) if any(kind in ALIGNED for kind in kinds) else b"")


def beton(fields: dict[str, Any], samples: list[dict[str, Any]], page_size: int = 4096, order: Any = None) -> bytes:
    """The file of `samples`.

    Args:
        fields: name → kind, or for arrays and tensors (kind, dtype, shape).
        order: in which the values of the samples were put into the pages, as several workers would.
    """
    kinds = [field if isinstance(field, str) else field[0] for field in fields.values()]
    descriptors = b""
    for (name, field), kind in zip(fields.items(), kinds, strict=True):
        arguments = array_arguments(*field[1:]) if kind in ("array", "tensor") else b""
        descriptors += struct.pack("<B16s1024s", TYPES[kind], name.encode(), arguments)
    empty = row_of(
        kinds,
        [metadata_of(kind, _nothing(kind, samples, name), 0, 0) for name, kind in zip(fields, kinds, strict=True)],
    )
    rows_end = 24 + len(descriptors) + len(samples) * len(empty)
    data_start = -(-rows_end // page_size) * page_size
    pages, allocations, rows = b"", [], {}
    for index in range(len(samples)) if order is None else order:
        values = [values_of(kind, samples[index][name]) for name, kind in zip(fields, kinds, strict=True)]
        total = sum(len(value) for value in values if value is not None)
        assert total <= page_size
        if len(pages) % page_size + total > page_size:
            pages += b"\0" * (-len(pages) % page_size)
        parts = []
        for name, kind, value in zip(fields, kinds, values, strict=True):
            pointer = data_start + len(pages)
            if value is not None:
                allocations.append(struct.pack("<QQQ", index, pointer, len(value)))
                pages += value
            parts.append(metadata_of(kind, samples[index][name], pointer, len(value or b"")))
        rows[index] = row_of(kinds, parts)
    table = rows_end
    if allocations:
        pages += b"\0" * (-len(pages) % page_size)
        table = data_start + len(pages)
    header = struct.pack("<HHIQQ", 2, len(fields), page_size, len(samples), table)
    head = header + descriptors + b"".join(rows[index] for index in range(len(samples)))
    return head + (b"\0" * (data_start - rows_end) + pages if allocations else b"") + b"".join(allocations)


def _nothing(kind: str, samples: list[dict[str, Any]], name: str) -> Any:
    if kind == "custom":
        return samples[0][name] if samples else b""
    return np.zeros((1, 1, 3), np.uint8) if kind == "image" else 0
