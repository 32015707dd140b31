"""Encoding of Python values or columns as serialized Examples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.reading.batch_forms import Packed
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples_batch import Column
from ffrecord.sources.tfrecord.examples_features import Ragged, RaggedStrings
from ffrecord.system.values import as_bytes, describe_wrong, explain_surrogate

NONE, BYTES, FLOAT, INT64 = range(4)  # kinds
Table = npt.NDArray[np.int64]
Source = tuple[bytes, int, npt.NDArray[np.uint8], Table, Table]
EMPTY = np.zeros(1, np.int64)
LARGE = 1 << 63


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialize one `tf.train.Example`.

    Args:
        features: name → value. Ints and bools, alone or in lists and arrays of any shape, become an Int64List; floats
            become a FloatList of the nearest float32; `bytes` and `str` (as UTF-8) become a BytesList. Arrays are
            flattened, in C order. An array of uint8 becomes one value with its bytes, which `FixedFeature("uint8",
            shape)` reads. None is left out. An empty list becomes a feature without a kind, which counts as absent for
            parsers.

    Returns:
        The message, with entries in the order of `features`.

    Raises:
        ArgumentTypeError: `features` is not a mapping.
        ArgumentError: a name is not a `str`; a value has another type, or does not fit into int64 or float32.
    """
    if not isinstance(features, Mapping):
        raise ArgumentTypeError(describe_wrong("features", features, "a mapping of names to values"))
    sources = [_of_values(key, *_values(key, value)) for key, value in features.items() if value is not None]
    data, _ = _examples.encode(sources, 1)
    return data.tobytes()


def encode_batch(columns: Mapping[str, Column | Sequence[Any]]) -> Packed:
    """Serialize whole columns as Examples without the GIL. This is the inverse of `ExampleParser.parse_batch`.

    Args:
        columns: name → column of k rows: arrays [k, ...] as in `encode_example` (uint8 [k, ...] with a further
            dimension is one value of bytes for each row), lists of `bytes` or `str`, `Ragged`, `RaggedStrings`.

    Returns:
        uint8 data and int64 offsets [k + 1], as `read_packed` returns records.

    Raises:
        ArgumentTypeError: `columns` is not a mapping.
        ArgumentError: columns have different lengths; a value is one that `encode_example` refuses; or offsets descend
            or leave their values.
    """
    if not isinstance(columns, Mapping):
        raise ArgumentTypeError(describe_wrong("columns", columns, "a mapping of names to columns"))
    counts = {key: _rows(column) for key, column in columns.items()}
    if len(set(counts.values())) > 1:
        raise ArgumentError(f"columns have different numbers of rows: {counts}")
    k = next(iter(counts.values()), 0)
    return _examples.encode([_of_column(key, column, k) for key, column in columns.items()], k)


def _values(key: str, value: Any) -> tuple[int, Any]:
    """Return the kind, and an array of numbers or a list of `bytes`."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return BYTES, [_string(key, value)]
    if isinstance(value, list | tuple):
        if not value:
            return NONE, []
        # numpy would make text of the numbers beside strings; here they are refused.
        if any(isinstance(each, bytes | bytearray | memoryview | str) for each in value):
            return BYTES, [_string(key, each) for each in value]
    array = _array(key, value)
    if array.dtype.kind in "OSU":
        return BYTES, [_string(key, each) for each in array.ravel().tolist()]
    if array.dtype == np.uint8 and array.ndim:
        return BYTES, [array.tobytes()]
    return _numbers(key, array)


def _string(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ArgumentError(f"feature {key!r}: {explain_surrogate(error)}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ArgumentError(f"feature {key!r} has {type(value).__name__} among strings, expected bytes or str")


def _array(key: str, value: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of different lengths, among others
        raise ArgumentError(f"feature {key!r} cannot become an array: {error}") from error
    # numpy keeps ints that fit no type of 64 bits as objects, and makes doubles of those that fit no type together.
    large = isinstance(value, list | tuple) and array.dtype.kind == "f" and bool((np.abs(array) >= LARGE).any())
    if array.dtype == object or large:
        for each in np.asarray(value, object).ravel().tolist():
            if isinstance(each, int) and not -LARGE <= each < LARGE:
                raise ArgumentError(f"feature {key!r} has an int of {each.bit_length()} bits, which int64 cannot hold")
    return array


def _numbers(key: str, array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    if array.dtype.kind in "biu":
        if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
            raise ArgumentError(
                f"feature {key!r} has {array.max()}, expected at most {(1 << 63) - 1}, the largest int64"
            )
        return INT64, array.astype("<i8").ravel()
    if array.dtype.kind != "f":
        raise ArgumentError(f"feature {key!r} has {array.dtype} values, expected ints, floats, bytes or str")
    # Checked below, where numpy would only warn.
    with np.errstate(over="ignore"):
        numbers = array.astype("<f4").ravel()
    # Finite numbers beyond float32 became infinite.
    lost = np.isinf(numbers) & ~np.isinf(array.ravel())
    if lost.any():
        raise ArgumentError(f"feature {key!r} has {array.ravel()[lost][0]}, which float32 cannot hold")
    return FLOAT, numbers


def _name(key: str) -> bytes:
    if not isinstance(key, str):
        raise ArgumentTypeError(describe_wrong("name of a feature", key, "str"))
    return key.encode()


def _of_values(key: str, kind: int, values: Any) -> Source:
    """Return a source with one row."""
    rows = np.array([0, len(values)], np.int64)
    if kind == BYTES:
        data, starts = _join(values)
        return _name(key), kind, data, rows, starts
    return _name(key), kind, np.asarray(values).view(np.uint8), rows, EMPTY


def _join(strings: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Table]:
    starts = np.zeros(len(strings) + 1, np.int64)
    np.cumsum([len(each) for each in strings], out=starts[1:])
    return np.frombuffer(b"".join(strings), np.uint8), starts


def _rows(column: Any) -> int:
    if isinstance(column, Ragged):
        return len(column.offsets) - 1
    return len(column.row_offsets) - 1 if isinstance(column, RaggedStrings) else len(column)


def _of_column(key: str, column: Any, k: int) -> Source:
    if isinstance(column, RaggedStrings):
        return _name(key), BYTES, *_tables(column.data, column.row_offsets, column.value_offsets)
    if isinstance(column, Ragged):
        return _of_ragged(key, column, k)
    array = _array(key, _strings(column))
    count = array.size // max(k, 1)
    rows = np.arange(k + 1, dtype=np.int64) * count
    if array.dtype.kind in "OSU":
        data, starts = _join([_string(key, each) for each in array.ravel().tolist()])
        return _name(key), BYTES, data, rows, starts
    if array.dtype == np.uint8 and array.ndim > 1:
        return _name(key), BYTES, np.ascontiguousarray(array).ravel(), np.arange(k + 1, dtype=np.int64), rows
    kind, numbers = _numbers(key, array)
    return _name(key), kind, numbers.view(np.uint8), rows, EMPTY


def _of_ragged(key: str, column: Ragged, k: int) -> Source:
    values = _array(key, column.values)
    # Numbers of uint8 are one value of bytes for each row.
    if values.dtype == np.uint8:
        return _name(key), BYTES, *_tables(values, np.arange(k + 1), column.offsets)
    kind, numbers = _numbers(key, values)
    return _name(key), kind, *_tables(numbers.view(np.uint8), column.offsets, EMPTY)


def _tables(values: Any, rows: Any, starts: Any) -> tuple[npt.NDArray[np.uint8], Table, Table]:
    data = np.frombuffer(as_bytes(values), np.uint8)
    return data, np.require(rows, np.int64, ["C", "A"]), np.require(starts, np.int64, ["C", "A"])


def _strings(column: Any) -> Any:
    """Return a list of strings as an object array: numpy's own strings lose zeros at their end."""
    if isinstance(column, np.ndarray) or not any(isinstance(each, bytes | str) for each in column):
        return column
    array = np.empty(len(column), object)
    array[:] = column
    return array
