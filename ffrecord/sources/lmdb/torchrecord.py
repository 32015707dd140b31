"""TorchRecord's databases: LMDB environments of `TensorProtos` messages, and the tensors in these messages."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import PathLike, Source, check_type, resolve_directory
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.lmdb.index import DATA, LMDBIndex, concatenate, index, names_of_databases
from ffrecord.sources.lmdb.pages import Pages
from ffrecord.sources.lmdb.reader import EnvironmentReader
from ffrecord.sources.names import name_as_text
from ffrecord.system import filesystems

Values = npt.NDArray[Any]

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types
PROTOS = 1
DIMS, DATA_TYPE, FLOATS, INTS, BYTES, STRINGS, NAME, DOUBLES, LONGS, SEGMENT = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
FLOAT, STRING, BYTE, HALF = 1, 4, 3, 12  # data types
# For each data type, the field with its values, and their dtype.
TYPES: dict[int, tuple[int, str]] = {
    FLOAT: (FLOATS, "<f4"),
    2: (INTS, "<i4"),
    BYTE: (BYTES, "u1"),
    5: (INTS, "?"),
    6: (INTS, "u1"),
    7: (INTS, "i1"),
    8: (INTS, "<u2"),
    9: (INTS, "<i2"),
    10: (LONGS, "<i8"),
    HALF: (INTS, "<f2"),
    13: (DOUBLES, "<f8"),
}
DELIMITED_FIELDS = (BYTES, STRINGS, NAME, SEGMENT)
# The wire type of one value of each field that may also be packed.
REPEATED = {DIMS: VARINT, FLOATS: FIXED32, INTS: VARINT, DOUBLES: FIXED64, LONGS: VARINT}
DIGITS_MOST = 19  # the digits of the largest int64
FEW_BYTES = 64  # bytes of packed numbers up to which a loop is faster than numpy
AXES_MOST = 64  # most axes of an array of numpy 2
NUMBER_MOST = 2**29 - 1  # highest number of a field


@dataclass
class Tensor:
    """One tensor of a message.

    Attributes:
        dims: dims as stored; empty for none. The default function of TorchRecord stores [width, height] of RGB pixels.
        data_type: data type as stored; 1, float, by default.
        values: 1-D array of all values, writable; bytes are a view of the message if that is writable. A list of bytes
            for strings.
        name: "" for none.
    """

    dims: list[int]
    data_type: int
    values: Values | list[bytes]
    name: str

    def in_shape(self) -> Values | list[bytes]:
        """Return the values in their shape; flat if no dims are stored.

        Raises:
            FormatError: the shape has another number of values, or is one that no array can have.
        """
        if not self.dims or isinstance(self.values, list):
            return self.values
        if len(self.dims) > AXES_MOST:
            raise FormatError(f"the tensor has {len(self.dims)} axes, expected at most {AXES_MOST}")
        if min(self.dims) < 0 or math.prod(self.dims) != len(self.values):
            raise FormatError(
                f"a tensor of shape {self.dims} has {len(self.values)} values, expected the product of its axes"
            )
        try:
            return self.values.reshape(self.dims)
        except ValueError as error:  # for [0, 2**62, 2**62], for example: numpy multiplies all axes but the 0
            raise FormatError(f"a tensor of shape {self.dims}: {error}") from None

    @property
    def is_picture(self) -> bool:
        """True if the values are RGB pixels, with dims [width, height]."""
        dims = self.dims
        return self.data_type == BYTE and len(dims) == 2 and min(dims) > 0 and 3 * dims[0] * dims[1] == len(self.values)

    def picture(self) -> Values:
        """Return RGB pixels, uint8 [height, width, 3]."""
        width, height = self.dims
        return np.asarray(self.values).reshape(height, width, 3)


def sample(message: Array) -> dict[str, Any]:
    """Parse a message into a sample.

    Args:
        message: uint8 [size].

    Returns:
        {"image": uint8 [height, width, 3], "label": int} if the message has RGB pixels and a number in ASCII, as the
        default function of TorchRecord stores them. Otherwise {"0": the first tensor, "1": the second, …}, each an
        array in its shape or a list of bytes.

    Raises:
        FormatError: it is not such a message; with the byte.
    """
    found = tensors(message)
    if len(found) == 2 and found[0].is_picture:
        label = _number(found[1])
        if label is not None:
            return {"image": found[0].picture(), "label": label}
    return {str(i): tensor.in_shape() for i, tensor in enumerate(found)}


def tensors(message: Array) -> list[Tensor]:
    """Parse the tensors of a message.

    Args:
        message: uint8 [n], a serialized TensorProtos.

    Raises:
        FormatError: it is none.
    """
    data = message.data
    protos = [
        (low, high)
        for number, wire, low, high in _fields(data, 0, len(data))
        if number == PROTOS and _check_delimited(wire, number)
    ]
    return [_tensor(data, low, high) for low, high in protos]


def _number(tensor: Tensor) -> int | None:
    """Return the number that a tensor has in ASCII; None for anything else."""
    if tensor.data_type != BYTE or tensor.dims or len(tensor.values) > DIGITS_MOST:
        return None
    text = bytes(np.asarray(tensor.values))
    return int(text) if text.removeprefix(b"-").isdigit() else None


def _tensor(data: memoryview, start: int, stop: int) -> Tensor:
    data_type, repeated, strings = FLOAT, {}, []  # type: ignore[var-annotated]
    content, name, partial = data[:0], data[:0], False
    for number, wire, low, high in _fields(data, start, stop):
        if number in REPEATED:
            if wire not in (REPEATED[number], DELIMITED):
                raise FormatError(f"field {number} at byte {low} has wire type {wire}, expected {REPEATED[number]}")
            # Protocol buffers may have a repeated field in several parts, each packed or not.
            repeated.setdefault(number, bytearray()).extend(data[low:high])
        elif number == DATA_TYPE and wire == VARINT:
            data_type = _varint(data, low, high)[0]
        elif number in DELIMITED_FIELDS and _check_delimited(wire, number):
            if number == BYTES:
                content = data[low:high]
            elif number == STRINGS:
                strings.append(bytes(data[low:high]))
            elif number == NAME:
                name = data[low:high]
            else:
                partial = True  # these values are a segment of a tensor with these dims
    values = strings if data_type == STRING else _values(data_type, content, repeated)
    dims = [] if partial else _few_varints(repeated.get(DIMS, b""))
    return Tensor(dims, data_type, values, str(name, "utf-8", "replace"))


def _values(data_type: int, content: memoryview, repeated: dict[int, bytearray]) -> Values:
    if data_type not in TYPES:
        raise FormatError(f"data type of the tensor is {data_type}, expected one of {sorted([*TYPES, STRING])}")
    number, dtype = TYPES[data_type]
    if number == BYTES:
        if not len(content):
            return np.empty(0, np.uint8)
        array = np.frombuffer(content, np.uint8)
        return array if array.flags.writeable else array.copy()
    stored = repeated.get(number, bytearray())
    if REPEATED[number] == VARINT:
        integers = _varints(stored)
        # A half float is stored as a number that has its bits.
        return integers.astype(np.uint16).view(dtype) if data_type == HALF else integers.view(np.int64).astype(dtype)
    size = np.dtype(dtype).itemsize
    if len(stored) % size:
        raise FormatError(f"field {number} has {len(stored)} bytes, expected a multiple of {size}")
    return np.frombuffer(stored, dtype).copy()


def _check_delimited(wire: int, number: int) -> bool:
    if wire != DELIMITED:
        raise FormatError(f"field {number} has wire type {wire}, expected {DELIMITED}")
    return True


def _fields(data: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message at [start, stop): number, wire type, start and end of the value."""
    at = start
    while at < stop:
        tag, low = _varint(data, at, stop)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            high = _varint(data, low, stop)[1]
        elif wire == DELIMITED:
            size, low = _varint(data, low, stop)
            high = low + size
        elif wire in (FIXED32, FIXED64):
            high = low + (4 if wire == FIXED32 else 8)
        else:
            raise FormatError(
                f"field {number} at byte {at} has wire type {wire}, which TensorProtos messages do not use"
            )
        if not 0 < number <= NUMBER_MOST:
            raise FormatError(f"field number at byte {at} is {number}, expected 1 to {NUMBER_MOST}")
        if high > stop:
            raise FormatError(f"field {number} at byte {at} ends at byte {high}, but its message at byte {stop}")
        yield number, wire, low, high
        at = high


def _varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return the number at a byte, and its end."""
    if at < stop and data[at] < 0x80:
        return data[at], at + 1  # nearly all have one byte
    value = 0
    # 64 bits take up to 10 bytes, of 7 bits each.
    for i in range(10):
        if at + i >= stop:
            break
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value & (2**64 - 1), at + i + 1
    raise FormatError(f"the number at byte {at} does not end")


def _varints(stored: "memoryview | bytes | bytearray") -> npt.NDArray[np.uint64]:
    """Return all numbers of packed bytes."""
    found = np.frombuffer(stored, np.uint8)
    ends = np.flatnonzero(found < 0x80)
    if not len(found):
        return np.empty(0, np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if not len(ends) or ends[-1] != len(found) - 1 or (ends - starts).max() >= 10:
        raise FormatError(f"in {len(found)} bytes of packed numbers, one number does not end")
    nth = np.arange(len(found)) - np.repeat(starts, ends - starts + 1)
    shifted = (found & 0x7F).astype(np.uint64) << (7 * nth).astype(np.uint64)
    return np.bitwise_or.reduceat(shifted, starts)


def _few_varints(stored: bytes | bytearray) -> list[int]:
    """Return packed numbers as int64s, by a loop: for some tens of them, it is faster than numpy."""
    if len(stored) > FEW_BYTES:
        return [int(each) for each in _varints(stored).view(np.int64)]
    found, at, view = [], 0, memoryview(stored)
    while at < len(stored):
        value, at = _varint(view, at, len(stored))
        # A negative number is stored as its two's complement.
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


ENVIRONMENT = re.compile(r"db(0|[1-9][0-9]*)")


class TorchRecordReader(EnvironmentReader):
    """The samples of TorchRecord, in the order of the list that they were written from, unless that was shuffled.

    A key is the database and the number in it, as stored: "db0/07". In each database, keys are padded to a width of its
    own, or not at all; their order is that of the numbers.

    `samples` decodes. It gives {"image": uint8 [height, width, 3], "label": int} for samples of TorchRecord's own
    function, otherwise {"0": …, "1": …}, the tensors, see `sources.lmdb.tensor_protos.sample`.

    Args:
        source: an environment with the databases db0, db1 …, as TorchRecord 0.1 writes it; or a directory of such
            environments without names inside, as 0.0 does. Or a list of either, in the given order.
        check_data, io, on_error, index_cache: see `LMDBReader`.

    Raises:
        FileNotFoundError, ValueError, TypeError, FormatError: see `LMDBReader`; also for databases with other names, a
            missing database, or keys that are not numbers.
    """

    format = "torchrecord"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
    ) -> None:
        options: dict[str, Any] = {"io": io, "on_error": on_error, "index_cache": index_cache}
        super().__init__(_environments(source), _index, check_data, **options)

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        return [
            self._decode_one(position, record) for position, record in zip(positions.tolist(), records, strict=True)
        ]

    def _decode_one(self, position: int, record: Array) -> dict[str, Any]:
        try:
            return sample(record)
        except FormatError as error:
            name, _ = self.locate(position)
            raise FormatError(f"Sample {position}: {name}: key {self.keys()[position]!r}: {error}") from None


def _environments(source: Source) -> list[PathLike]:
    """Return the environments of `source`."""
    given = list(source) if isinstance(source, list | tuple) else [source]
    return [environment for each in given for environment in _of_one(check_type(each))]


def _of_one(path: str) -> list[PathLike]:
    """Return the directories db0, db1 … of TorchRecord 0.0; for others, the path itself."""
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, DATA)):
        return [path]
    path = resolve_directory(path)
    found = [name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, DATA))]
    # Without any, the path itself, whose error says what is missing.
    return [os.path.join(path, name) for name in _in_order(path, found)] or [path]


def _in_order(path: str, names: list[str]) -> list[str]:
    """Return db0, db1 … by number."""
    expected = [f"db{i}" for i in range(len(names))]
    if sorted(names) != sorted(expected):
        strange = sorted(set(names) - set(expected))
        raise FormatError(f"{path}: databases are {strange[:3]}, expected db0 to db{len(names) - 1}")
    return expected


def _index(pages: Pages, index_cache: IndexCache) -> LMDBIndex:
    """Return the records of an environment, database by database, in the order of their numbers."""
    names = [name_as_text(name) for name in names_of_databases(pages)]
    if names:
        ordered = _in_order(pages.path, names)
        return concatenate([_database(pages, name.encode(), index_cache) for name in ordered])
    return _database(pages, None, index_cache)


def _database(pages: Pages, name: bytes | None, index_cache: IndexCache) -> LMDBIndex:
    found = index(pages, name, index_cache)
    blob, sizes = found.names.blob, np.diff(found.names.offsets)
    if ((blob < ord("0")) | (blob > ord("9"))).any():
        raise FormatError(f"{pages.path}: its keys are {found.names!r}, expected numbers, as TorchRecord writes them")
    if len(sizes) and sizes.min() != sizes.max():
        # LMDB keeps keys of one width in order. A longer key has a larger number than all shorter ones.
        found = found.reorder(np.argsort(sizes, kind="stable"))
    prefix = (
        name if name is not None else os.path.basename(os.path.dirname(filesystems.absolute_path(pages.path))).encode()
    )
    return found.add_prefix(prefix + b"/")
