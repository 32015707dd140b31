"""Encodings of the columns of MDS samples, and the layout of a sample made of them."""

import decimal
import json
import math
import pickle
import re
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields.images.image import ImageField
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.reading.batch_forms import Array, as_values, gather_pieces
from ffrecord.sources.mds.index import SHARD_MOST, WORD, MDSColumns

Decode = Callable[[memoryview], Any]

SCALARS = {name: np.dtype(name).newbyteorder("<") for name in (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"), *("float16", "float32", "float64"),
)}  # fmt: skip
# Codes of dtypes in arrays that contain their dtype: bits, + 1 if signed, + 2 if floating point.
DTYPES = {
    code: SCALARS[name]
    for code, name in (
        *((8, "uint8"), (9, "int8"), (16, "uint16"), (17, "int16"), (18, "float16"), (32, "uint32"), (33, "int32")),
        *((34, "float32"), (64, "uint64"), (65, "int64"), (66, "float64")),
    )
}
AXIS = {code: np.dtype(f"<u{1 << code}") for code in range(4)}
STATIC = re.compile(r"(\w+)(?::(\d{1,18}(?:,\d{1,18})*))?")  # 18 digits fit into int64

# Mode of PIL → dtype of a channel, channels.
PIXELS = {
    **dict.fromkeys(("L", "P"), ("|u1", 1)),
    **dict.fromkeys(("LA", "La", "PA"), ("|u1", 2)),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), ("|u1", 3)),
    **dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK"), ("|u1", 4)),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
    "I;16": ("<u2", 1),
    "I;16L": ("<u2", 1),
    "I;16B": (">u2", 1),
}
IMAGE_HEAD = struct.Struct("<III")  # width, height, bytes of the mode's name
COUNT = struct.Struct("<I")


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of the values of a column.

    Attributes:
        name: name in index.json.
        size: bytes of each value; None if they vary.
        decode: makes a value from its bytes. Raises FormatError, or the ValueError of the value's own type.
        dtype, shape: dtype and shape of values that are numbers or arrays of fixed shape; None and () for others.
    """

    name: str
    size: int | None
    decode: Decode
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()


def encoding(name: str, images: bool, allow_pickle: bool) -> ColumnEncoding:
    """Return the encoding with a name.

    Args:
        images: decode JPEG and PNG to arrays; otherwise they stay bytes.
        allow_pickle: load pickles.

    Raises:
        FormatError: the encoding is unknown.
    """
    if name == "int":
        return ColumnEncoding(name, 8, _int, SCALARS["int64"])
    if name in SCALARS:
        dtype = SCALARS[name]
        return ColumnEncoding(name, dtype.itemsize, lambda data: _scalar(data, dtype), dtype)
    if name == "ndarray" or name.startswith("ndarray:"):
        return _ndarray(name)
    if name == "pkl":
        return ColumnEncoding(name, None, _unpickle if allow_pickle else _refuse_pickle)
    simple = {**PLAIN, **(DECODED if images else COMPRESSED)}
    if name not in simple:
        known = sorted([*simple, *SCALARS, "int", "ndarray", "pkl"])
        raise FormatError(f"encoding is {name[:200]!r}, expected one of {', '.join(known)}")
    return ColumnEncoding(name, None, simple[name])


def _int(data: memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


def _scalar(data: memoryview, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(data, dtype, 1)[0]


def _str(data: memoryview) -> str:
    return str(data, "utf-8")


def _json(data: memoryview) -> Any:
    try:
        return json.loads(_str(data))
    except RecursionError:
        raise FormatError("its JSON is nested too deeply") from None


def _decimal(data: memoryview) -> decimal.Decimal:
    try:
        return decimal.Decimal(_str(data))
    except decimal.InvalidOperation:
        raise FormatError(f"{bytes(data[:40])!r} is not a decimal number") from None


def _unpickle(data: memoryview) -> Any:
    try:
        return pickle.loads(data)
    except MemoryError:
        raise
    except Exception as error:  # the classes in it may raise anything
        raise FormatError(f"its pickle of {len(data)} bytes cannot be loaded: {error!r}") from error


def _refuse_pickle(data: memoryview) -> Any:
    raise FormatError(
        f"a pickle of {len(data)} bytes may run any code when it is read: leave the column out with columns=, "
        "or pass allow_pickle=True if you trust its writer"
    )


# Arrays


def _ndarray(name: str) -> ColumnEncoding:
    static = name.partition(":")[2]
    if not static:
        return ColumnEncoding(name, None, _array_of_any)
    found = STATIC.fullmatch(static)
    if found is None or found[1] not in SCALARS:
        wanted = f"ndarray:dtype:axes with a dtype of {', '.join(SCALARS)}"
        raise FormatError(f"encoding is {name[:200]!r}, expected {wanted}")
    dtype = SCALARS[found[1]]
    if found[2] is None:
        return ColumnEncoding(name, None, lambda data: _array_of_dtype(data, dtype))
    shape = tuple(map(int, found[2].split(",")))
    try:
        np.empty((0, *shape), dtype)  # `columns` makes arrays of this shape
    except ValueError as error:
        raise FormatError(f"encoding is {name[:200]!r}: {error}") from None
    _check_shape(dtype, shape)
    size = dtype.itemsize * math.prod(shape)
    return ColumnEncoding(name, size, lambda data: _array(data, dtype, shape), dtype, shape)


def _array_of_any(data: memoryview) -> npt.NDArray[Any]:
    if not len(data) or data[0] not in DTYPES:
        raise FormatError(f"dtype of an array is {bytes(data[:1])!r}, expected one of {', '.join(map(str, DTYPES))}")
    return _array_of_dtype(data[1:], DTYPES[data[0]])


def _array_of_dtype(data: memoryview, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if not len(data):
        raise FormatError("an array has no shape")
    count, axis = data[0] >> 2, AXIS[data[0] & 3]
    end = 1 + count * axis.itemsize
    if end > len(data):
        raise FormatError(f"an array of {count} axes has {len(data)} bytes, expected at least {end}")
    return _array(data[end:], dtype, tuple(np.frombuffer(data, axis, count, 1).tolist()))


def _check_shape(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise FormatError for a shape that no shard can contain."""
    # Leave out axes of 0: numpy multiplies all other axes, and fails if their product is too large.
    most = dtype.itemsize * math.prod(axis for axis in shape if axis)
    if most > SHARD_MOST:
        raise FormatError(
            f"an array of shape {shape} and {dtype.name} has up to {most} bytes, a shard at most {SHARD_MOST}"
        )


def _array(data: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    expected = dtype.itemsize * math.prod(shape)
    if len(data) != expected:
        raise FormatError(f"an array of shape {shape} and {dtype.name} has {len(data)} bytes, expected {expected}")
    _check_shape(dtype, shape)
    # A copy is aligned, and does not keep the memory of its batch alive.
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


# Images


def _pixels(data: memoryview) -> npt.NDArray[Any]:
    """Return the pixels of a stored PIL image: [height, width] or [height, width, channels]."""
    if len(data) < IMAGE_HEAD.size:
        raise FormatError(f"an image has {len(data)} bytes, expected at least {IMAGE_HEAD.size}")
    width, height, length = IMAGE_HEAD.unpack_from(data)
    # No mode has more characters, but the file may state any length.
    mode = bytes(data[IMAGE_HEAD.size : IMAGE_HEAD.size + min(length, 8)]).decode("latin-1")
    pixels = data[IMAGE_HEAD.size + length :]
    if mode == "1":
        return _bits(pixels, width, height)
    if mode not in PIXELS:
        raise FormatError(f"mode of an image is {mode!r}, expected one of 1, {', '.join(PIXELS)}")
    kind, channels = PIXELS[mode]
    return _array(pixels, np.dtype(kind), (height, width, channels) if channels > 1 else (height, width))


def _bits(pixels: memoryview, width: int, height: int) -> npt.NDArray[np.bool_]:
    """Return the pixels of an image of one bit each. Rows begin at whole bytes, with the highest bit first."""
    rows = _array(pixels, np.dtype(np.uint8), (height, -(-width // 8)))
    if not rows.size:
        return np.empty((height, width), np.bool_)
    return np.unpackbits(rows, axis=1, count=width).astype(np.bool_)


def _jpeg(data: memoryview) -> npt.NDArray[Any]:
    return decompress(data, grey=True)


def _png(data: memoryview) -> npt.NDArray[Any]:
    image = ImageField().decode(data)
    # Convert an image with a palette: an array of indices would lose the colours.
    return np.array(image.convert("RGBA" if "transparency" in image.info else "RGB") if image.mode == "P" else image)


def _list(data: memoryview, decode: Decode) -> list[Any]:
    return _items(data[COUNT.size :], decode)  # the first word is reserved


def _items(data: memoryview, decode: Decode) -> list[Any]:
    if len(data) < COUNT.size:
        raise FormatError(f"a list has {len(data)} bytes, expected at least {COUNT.size} for the number of its items")
    count = COUNT.unpack_from(data)[0]
    head = COUNT.size * (1 + count)
    if head > len(data):
        raise FormatError(f"a list of {count} items has {len(data)} bytes, expected at least {head}")
    ends = np.frombuffer(data, "<u4", count, COUNT.size).cumsum(dtype=np.int64) + head
    total = int(ends[-1]) if count else head
    if total != len(data):
        raise FormatError(f"a list of {count} items has {len(data)} bytes, expected {total}")
    # Without items there is no end, but still `head`.
    return [decode(data[low:high]) for low, high in zip([head, *ends.tolist()[:-1]], ends.tolist(), strict=bool(count))]


def _decoder_of(split: Callable[[memoryview, Decode], list[Any]], decode: Decode) -> Decode:
    return lambda data: split(data, decode)


PLAIN: dict[str, Decode] = {
    "bytes": bytes,
    "str": _str,
    "json": _json,
    "str_int": lambda data: int(_str(data)),
    "str_float": lambda data: float(_str(data)),
    "str_decimal": _decimal,
    "pil": _pixels,
    "list[pil]": _decoder_of(_list, _pixels),
}


def _images(jpeg: Decode, png: Decode) -> dict[str, Decode]:
    return {
        "jpeg": jpeg,
        "png": png,
        "list[jpeg]": _decoder_of(_list, jpeg),
        "list[png]": _decoder_of(_list, png),
        "jpeg_array": _decoder_of(_items, jpeg),
        "jpegarray": _decoder_of(_items, jpeg),
    }


COMPRESSED = _images(bytes, bytes)
DECODED = _images(_jpeg, _png)


Table = npt.NDArray[np.int64]


class MDSLayout:
    """The columns of a shard, ready to decode.

    Args:
        columns: the columns in index.json.
        wanted: names of the columns to decode, in this order; all if None.
        decode: decode JPEG and PNG to arrays.
        allow_pickle: load pickles.

    Attributes:
        encodings: encodings of all columns.
        wanted: places of the wanted columns.

    Raises:
        FormatError: an encoding is unknown, or its values have another size than in the index.
        ValueError: `wanted` names a column that does not exist.
    """

    def __init__(self, columns: MDSColumns, wanted: Sequence[str] | None, decode: bool, allow_pickle: bool) -> None:
        self.names = columns.column_names
        self.encodings = [encoding(name, decode, allow_pickle) for name in columns.column_encodings]
        for name, each, size in zip(self.names, self.encodings, columns.column_sizes, strict=True):
            if each.size != size:
                found, said = ("varying sizes" if one is None else f"{one} bytes" for one in (each.size, size))
                raise FormatError(f"column {name!r}: values of {each.name} have {found}, the index says {said}")
        chosen = self.names if wanted is None else list(wanted)
        unknown = [name for name in chosen if name not in self.names]
        if unknown or len(set(chosen)) != len(chosen):
            raise ArgumentError(f"columns are {chosen}, expected some of {', '.join(self.names)}, each once")
        self.wanted = [self.names.index(name) for name in chosen]
        self._varying = [place for place, each in enumerate(self.encodings) if each.size is None]
        self._head = struct.Struct(f"<{len(self._varying)}I")
        self._fixed = sum(each.size or 0 for each in self.encodings)

    def sample(self, record: Array, needed: Collection[str] | None = None) -> dict[str, Any]:
        """Return the values of the wanted columns in one sample.

        Args:
            record: bytes of the sample.
            needed: names of columns; others are left as bytes. None: all columns are decoded.

        Raises:
            FormatError: the bytes are not such a sample.
        """
        bounds, data = self._bounds(record.data), record.data
        found = {}
        for place in self.wanted:
            name, value = self.names[place], data[bounds[place] : bounds[place + 1]]
            found[name] = self.value(place, value) if needed is None or name in needed else value
        return found

    def _bounds(self, record: memoryview) -> list[int]:
        head = self._head.size
        # A record that is too short for its sizes is refused below.
        sizes = iter(self._head.unpack_from(record) if len(record) >= head else ())
        bounds = [head]
        for each in self.encodings:
            bounds.append(bounds[-1] + (next(sizes, 0) if each.size is None else each.size))
        if bounds[-1] != len(record):
            raise FormatError(f"the record has {len(record)} bytes, its columns have {bounds[-1]}")
        return bounds

    def starts(self, data: Array, offsets: Table) -> tuple[Table, int]:
        """Return (starts, wrong) for k packed samples.

        starts: int64 [columns + 1, k], the start of each value, and the end of the last one. wrong: the place of the
        first invalid sample, or -1.
        """
        head = self._head.size
        sizes = np.diff(offsets)
        # Before sizes are gathered, since those of a short sample would lie outside of it.
        small = np.flatnonzero(sizes < head + self._fixed)
        if len(small):
            return np.empty((0, 0), np.int64), int(small[0])
        words = gather_pieces(data, offsets[:-1], head).view(WORD) if head else np.empty((len(sizes), 0), WORD)
        bounds = np.empty((len(self.encodings) + 1, len(sizes)), np.int64)
        bounds[0] = offsets[:-1] + head
        for place, each in enumerate(self.encodings):
            size = words[:, self._varying.index(place)] if each.size is None else each.size
            bounds[place + 1] = bounds[place] + size
        wrong = np.flatnonzero(bounds[-1] != offsets[1:])
        return bounds, int(wrong[0]) if len(wrong) else -1

    def column(self, place: int, data: Array, bounds: Table) -> npt.NDArray[Any] | None:
        """Return the values of column `place` as one array [k, ...] if they are numbers of one shape, else None."""
        each: ColumnEncoding = self.encodings[place]
        if each.dtype is None or each.size is None:
            return None
        return as_values(gather_pieces(data, bounds[place], each.size), each.dtype, each.shape)

    def cuts(self, place: int, data: Array, bounds: Table) -> list[memoryview]:
        """Return the bytes of column `place` in k samples."""
        bounds_of = zip(bounds[place].tolist(), bounds[place + 1].tolist(), strict=True)
        return [data.data[low:high] for low, high in bounds_of]

    def value(self, place: int, data: memoryview) -> Any:
        """Decode one value of column `place`; raise FormatError if it is invalid."""
        try:
            return self.encodings[place].decode(data)
        # Also UnicodeDecodeError, and what `int` and `float` raise.
        except ValueError as error:
            raise FormatError(f"column {self.names[place]!r}: {error}") from None
