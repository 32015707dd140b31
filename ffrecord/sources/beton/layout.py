"""The layout of FFCV's .beton files, version 2: parsing of the header and the field descriptors.

    0           24 B        header: version u16 = 2, fields F u16, page size u32, samples n u64, offset of the table u64
    24          1041 B x F  field descriptors: type u8, name (16 bytes, zeros after it), arguments (1,024 bytes)
    24 + 1041 F n x row     metadata, one row for each sample
    ...                     zeros up to a multiple of the page size; then the pages, which hold the values of any size
    table       24 B x A    allocations: sample u64, offset u64, size u64; to the end of the file

A row has the structs of its fields, laid out by C rules: numbers and offsets of arrays at multiples of 8, the others
packed. There is no checksum.
"""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError

VERSION = 2
HEADER = struct.Struct("<HHIQQ")
DESCRIPTOR = np.dtype([("type", "u1"), ("name", "V16"), ("arguments", "V1024")])
ALLOCATION = np.dtype([("sample", "<u8"), ("offset", "<u8"), ("size", "<u8")])

FLOAT, INT, IMAGE, BYTES, ARRAY, JSON, TENSOR, CUSTOM = 0, 1, 2, 3, 4, 5, 6, 255
KINDS = {FLOAT: "float", INT: "int", IMAGE: "image", BYTES: "bytes", ARRAY: "array", JSON: "json", TENSOR: "array"}
POINTER = np.dtype([("offset", "<u8"), ("size", "<u8")])
METADATA = {
    "float": np.dtype("<f8"),
    "int": np.dtype("<i8"),
    "image": np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("offset", "<u8")]),
    "bytes": POINTER,
    "array": np.dtype("<u8"),
    "json": POINTER,
}
JPEG, RAW = 0, 1  # modes of an image

SHAPE_MOST = 1 << 40  # most bytes of an array in a file without samples
ARRAY_HEAD = struct.Struct("<32QQ")  # axes, zeros after the last one; bytes of JSON that follow: dtype.descr
SIMPLE_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SUV]\d{1,9}|[mM]8(?:\[\w+\])?)")


@dataclass(frozen=True)
class BetonField:
    """A column of a .beton file.

    Attributes:
        name: name of the column. If fields have equal names, all but the first get "_" and their place at the end.
        kind: "float", "int", "image", "bytes", "array", "json", or "custom".
        column: name in `BetonLayout.row`.
        dtype, shape: dtype and shape of the values of an "array"; None and () for others.
        size: bytes of the value of an "array"; 0 for others.
    """

    name: str
    kind: str
    column: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    size: int = 0

    @property
    def has_data(self) -> bool:
        """True if its values lie in the pages; False also for "custom", where that is unknown."""
        return self.kind in ("image", "bytes", "array", "json")


@dataclass(frozen=True)
class BetonLayout:
    """The content of the header and the descriptors.

    Attributes:
        fields: the fields in order.
        n: number of samples.
        row: dtype of the metadata of a sample.
        rows_start, data_start, table_start: offsets in the file of the metadata, of the first page, of the allocations.
        page_size: bytes of a page.
        allocations: number of allocations.
    """

    fields: tuple[BetonField, ...]
    n: int
    row: np.dtype[Any]
    rows_start: int
    data_start: int
    table_start: int
    page_size: int
    allocations: int


def descriptors_size(head: bytes, size: int) -> int:
    """Return the bytes of the field descriptors of a file of `size` bytes that begins with `head`.

    Raises:
        FormatError: not such a file, of another version, or unfinished.
    """
    if len(head) < HEADER.size:
        raise FormatError(f"it is not a .beton file: it has {len(head)} bytes, expected at least {HEADER.size}")
    version, count, page_size, _, table = HEADER.unpack_from(head)
    if version != VERSION:
        raise FormatError(f"it is not a .beton file of a known version: version is {version}, expected {VERSION}")
    if not _power_of_two(page_size):
        raise FormatError(f"it is not a .beton file: page size is {page_size}, expected a power of 2")
    if count == 0:
        raise FormatError("it is not a .beton file: it has no fields")
    needed = HEADER.size + count * DESCRIPTOR.itemsize
    if needed > size:
        raise FormatError(f"{count} field descriptors end at offset {needed}, but the file has {size} bytes")
    if table == 0:
        raise FormatError(
            "it is unfinished: its writer stopped before it wrote the table of allocations; write the file again"
        )
    if not needed <= table <= size:
        raise FormatError(f"the table of allocations begins at offset {table}, but the file has {size} bytes")
    return int(needed) - HEADER.size


def parse(head: bytes, descriptors: bytes, size: int, custom: Mapping[str, npt.DTypeLike]) -> BetonLayout:
    """Parse the layout of a file of `size` bytes.

    Args:
        head: its first 24 bytes.
        descriptors: the bytes behind them, as many as `descriptors_size` says.
        custom: dtype of the metadata of fields with a class of the user's own, by name.

    Raises:
        FormatError: the numbers do not fit each other or the file; or the dtype of a custom field is missing.
        ValueError: `custom` names a field that is not custom.
    """
    _, _, page_size, n, table_start = HEADER.unpack_from(head)
    described = np.frombuffer(descriptors, DESCRIPTOR)
    fields = _fields(described, size, n)
    row = _row(fields, custom)
    rows_start = HEADER.size + len(descriptors)
    rows_end = rows_start + n * row.itemsize
    if rows_end > table_start:
        raise FormatError(
            f"{n} rows of metadata of {row.itemsize} bytes end at offset {rows_end}, "
            f"but the table of allocations begins at offset {table_start}"
        )
    if (size - table_start) % ALLOCATION.itemsize:
        raise FormatError(
            f"the table of allocations has {size - table_start} bytes from offset {table_start}, expected a multiple "
            f"of {ALLOCATION.itemsize}"
        )
    data_start = -(-rows_end // page_size) * page_size
    count = (size - table_start) // ALLOCATION.itemsize
    return BetonLayout(fields, n, row, rows_start, data_start, table_start, page_size, count)


def _power_of_two(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _fields(described: npt.NDArray[np.void], size: int, n: int) -> tuple[BetonField, ...]:
    fields: list[BetonField] = []
    names: set[str] = set()
    for place, (number, raw, arguments) in enumerate(described.tolist()):
        name = _name(raw, place)
        name = name if name not in names else f"{name}_{place}"
        if name in names:
            raise FormatError(f"field {place}: its name {name!r} occurs twice, expected each name once")
        if number not in KINDS and number != CUSTOM:
            raise FormatError(f"field {place}, {name!r}: type is {number}, expected one of {[*KINDS, CUSTOM]}")
        names.add(name)
        kind = KINDS.get(number, "custom")
        if kind != "array":
            fields.append(BetonField(name, kind, f"f{place}"))
            continue
        dtype, shape = _array(arguments, f"field {place}, {name!r}")
        # Leave out axes of 0: numpy multiplies all other axes, and fails if their product is too large.
        item = dtype.itemsize * math.prod(axis for axis in shape if axis)
        if item > (size if n else SHAPE_MOST) or not item:
            raise FormatError(f"field {place}, {name!r}: its arrays have {item} bytes, but the file has {size}")
        fields.append(BetonField(name, kind, f"f{place}", dtype, shape, 0 if 0 in shape else item))
    return tuple(fields)


def _name(raw: bytes, place: int) -> str:
    try:
        return raw.partition(b"\0")[0].decode("ascii")
    except UnicodeDecodeError:
        raise FormatError(f"field {place}: name is {raw!r}, expected ASCII characters") from None


def _array(arguments: bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    *axes, length = ARRAY_HEAD.unpack_from(arguments)
    while axes and axes[-1] == 0:
        axes.pop()
    text = arguments[ARRAY_HEAD.size : ARRAY_HEAD.size + length]
    if len(text) != length:
        raise FormatError(f"{where}: its dtype has {length} bytes, expected at most {len(arguments) - ARRAY_HEAD.size}")
    try:
        described = msgspec.json.decode(text, type=list[tuple[str, str]])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        described = []
    # Before numpy parses it, which accepts far more.
    if len(described) != 1 or not SIMPLE_DTYPE.fullmatch(described[0][1]):
        raise FormatError(f"{where}: dtype is {text[:80]!r}, expected one simple dtype")
    try:
        return np.dtype(described[0][1]), tuple(axes)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{where}: dtype is {text[:80]!r}, expected one simple dtype: {error}") from None


def _row(fields: tuple[BetonField, ...], custom: Mapping[str, npt.DTypeLike]) -> np.dtype[Any]:
    known = dict(custom)
    parts = []
    for field in fields:
        if field.kind == "custom" and field.name not in known:
            raise FormatError(
                f"field {field.name!r} has a custom class, so the size of its metadata is unknown; pass "
                f"custom={{{field.name!r}: dtype of its metadata}}"
            )
        dtype = np.dtype(known.pop(field.name)) if field.kind == "custom" else METADATA[field.kind]
        if dtype.hasobject or not dtype.itemsize:
            raise ArgumentError(f"custom[{field.name!r}] is {dtype}, expected a dtype of a fixed number of bytes")
        parts.append((field.column, dtype))
    if known:
        raise ArgumentError(f"custom has {sorted(known)}, expected only fields of custom classes")
    return np.dtype(parts, align=True)
