"""Descriptions of the features to parse from an example, and errors about examples that differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord._examples import Fault
from ffrecord.system.values import describe_wrong

__all__ = [
    "ExampleError",
    "Feature",
    "FeatureCountError",
    "FeatureKindError",
    "Features",
    "FixedFeature",
    "MissingFeatureError",
    "Ragged",
    "RaggedStrings",
    "VarFeature",
    "error_of",
]

KINDS = {1: "bytes", 2: "float", 3: "int64"}
WIRE = {
    1: "a number is cut: {found} bytes are left, expected at least {expected}",
    2: "a varint has more than {expected} bytes",
    3: "field number is {found}, expected 1 to {expected}",
    4: "wire type is {found}, expected 0, 1, 2 or 5 (groups cannot be read)",
    5: "a field has {found} bytes, but {expected} are left",
    6: "packed numbers have {found} bytes, expected a multiple of {expected}",
    7: "a key of {found} bytes is not UTF-8",
}
ABSENT, KIND, COUNT, CHANGED = 11, 12, 13, 14


class ExampleError(FormatError):
    """A record is not an Example: its bytes are damaged, or of another format.

    Attributes (None if unknown, and after crossing a process; the message contains them all):
        key: the feature.
        index: the example, in the batch; from a reader, among all of its records.
        found, expected: the two numbers, or kinds.
    """

    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        index: int | None = None,
        found: int | str | None = None,
        expected: int | str | None = None,
    ) -> None:
        super().__init__(message)
        self.key, self.index, self.found, self.expected = key, index, found, expected

    def of_record(self, index: int, name: str) -> "ExampleError":
        """Return the error for a record that has an index and a name, instead of a place in a batch."""
        reason = str(self).removeprefix(f"example {self.index}").removeprefix(": ").removeprefix(", ")
        message = f"Sample {index}: {name}: {reason}"
        return type(self)(message, key=self.key, index=index, found=self.found, expected=self.expected)


class MissingFeatureError(ExampleError):
    """An example lacks a feature that has no default."""


class FeatureKindError(ExampleError):
    """A feature has another kind than requested."""


class FeatureCountError(ExampleError):
    """A feature has another number of values than requested."""


def error_of(fault: Fault, keys: tuple[bytes, ...], bytes_of: frozenset[int] = frozenset()) -> ExampleError:
    """Return the error for a fault.

    Args:
        keys: names of the features, as UTF-8.
        bytes_of: places of the features that count bytes (uint8) among the keys.
    """
    where = f"example {fault.row}"
    key = keys[fault.column].decode() if fault.column >= 0 else None
    if key is not None:
        where += f", feature {key!r}" + (f", step {fault.step}" if fault.step >= 0 else "")
    found, expected = fault.found, fault.expected
    if fault.code == ABSENT:
        return MissingFeatureError(
            f"{where}: it is missing, and has no default; give its FixedFeature a default",
            key=key,
            index=fault.row,
            found=0,
        )
    if fault.code == KIND:
        has, wanted = KINDS[found], KINDS[expected]
        message = f"{where}: it holds {has} values (kind {found}), expected {wanted} (kind {expected})"
        return FeatureKindError(message, key=key, index=fault.row, found=has, expected=wanted)
    if fault.code == COUNT:
        unit = "bytes" if fault.column in bytes_of else "values"
        message = f"{where}: it has {found} {unit}, expected {expected}"
        return FeatureCountError(message, key=key, index=fault.row, found=found, expected=expected)
    # CHANGED is the one code without a text of its own.
    reason = WIRE.get(fault.code, "the record changed while it was read: {found} values, then {expected}")
    message = f"{where}: it is not an Example: at byte {fault.offset}: {reason.format(found=found, expected=expected)}"
    return ExampleError(message, key=key, index=fault.row, found=found, expected=expected)


CODES = {
    "int64": _examples.INT64,
    "float32": _examples.FLOAT32,
    "uint8": _examples.UINT8,
    "string": _examples.STRING,
}
DTYPES: dict[str, np.dtype[Any]] = {
    "int64": np.dtype("<i8"),
    "float32": np.dtype("<f4"),
    "uint8": np.dtype("u1"),
    "string": np.dtype("O"),
}
MOST = 1 << 46  # most values of one row: more than any machine has, and products with it do not overflow


class Ragged(NamedTuple):
    """Rows with any number of values: row i is values[offsets[i]:offsets[i + 1]].

    Attributes:
        values: [v] int64, float32 or uint8.
        offsets: [k + 1] int64, from 0 to v.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]


class RaggedStrings(NamedTuple):
    """Rows with any number of strings.

    String j is data[value_offsets[j]:value_offsets[j + 1]], and row i has the strings from row_offsets[i] to
    row_offsets[i + 1].

    Attributes:
        data: uint8.
        value_offsets: [v + 1] int64.
        row_offsets: [k + 1] int64, from 0 to v.
    """

    data: npt.NDArray[np.uint8]
    value_offsets: npt.NDArray[np.int64]
    row_offsets: npt.NDArray[np.int64]


@dataclass(frozen=True)
class FixedFeature:
    """A feature with the same number of values in every example.

    Args:
        dtype: "int64", "float32", "string" (each value a `bytes`), or "uint8": the joined bytes of a feature, as
            numbers.
        shape: shape of the values of one example; for "uint8", of its bytes.
        default: value for examples without the feature; in the shape, or one value for all of it. None: an example
            without it is an error.

    Raises:
        ArgumentError: another dtype; a shape that is not a tuple of ints >= 0; or a default that does not fit.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    default: Any = None

    def __post_init__(self) -> None:
        # A frozen dataclass refuses plain assignment.
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        shape = _shape(self.shape)
        object.__setattr__(self, "shape", shape)
        if any(size < 0 for size in shape) or prod(shape) > MOST:
            raise ArgumentError(f"shape is {shape}, expected dimensions >= 0 and at most {MOST} values")
        # A wrong default shows now, not at the first example without the feature.
        self._row()

    @property
    def size(self) -> int:
        """Number of values of one example."""
        return prod(self.shape)

    def wanted_arguments(self) -> tuple[int, int, Any]:
        """Return the arguments of `_examples.Wanted`, except for the name."""
        return CODES[self.dtype], self.size, self._row()

    def _row(self) -> Any:
        """Return the default of a whole row: the bytes of numbers, or a list of strings."""
        if self.default is None:
            return None
        try:
            if self.dtype == "string":
                # `object`, since strings of numpy lose zeros at their end.
                return [_as_bytes(value) for value in np.broadcast_to(np.array(self.default, object), self.shape).flat]
            array = np.array(self.default)
            if not np.can_cast(array.dtype, DTYPES[self.dtype], "same_kind") and not _holds(array, DTYPES[self.dtype]):
                raise ValueError(f"its dtype is {array.dtype}")
            return np.broadcast_to(array, self.shape).astype(DTYPES[self.dtype]).tobytes()
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"default {self.default!r} does not fit {self.dtype} {self.shape}: {error}") from error


@dataclass(frozen=True)
class VarFeature:
    """A feature with any number of values, none if it is absent.

    Batches give `Ragged` and, for strings, `RaggedStrings`.

    Args:
        dtype: see `FixedFeature`. "uint8" gives the joined bytes of a feature: for files such as JPEG, one in each
            example.

    Raises:
        ArgumentError: another dtype.
    """

    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    def wanted_arguments(self) -> tuple[int, int, Any]:
        """Return the arguments of `_examples.Wanted`, except for the name."""
        return CODES[self.dtype], -1, None


Feature = FixedFeature | VarFeature
Features = Mapping[str, Feature]


def dtype_name(dtype: Any) -> str:
    """Return one of the four names, also for a numpy dtype."""
    try:
        name = dtype if dtype in CODES else np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in CODES:
        raise ArgumentError(f"dtype is {dtype!r}, expected one of {', '.join(map(repr, CODES))}")
    return str(name)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(index(size) for size in shape)
    except TypeError:
        raise ArgumentError(f"shape is {shape!r}, expected a tuple of ints, such as (3,)") from None


def compile_features(features: Features) -> _examples.Wanted:
    """Return the features in the form for the compiled parser.

    Raises:
        ArgumentError: it is not a mapping from names to features.
    """
    for key, feature in features.items():
        if not isinstance(key, str) or not isinstance(feature, FixedFeature | VarFeature):
            raise ArgumentError(
                f"features[{key!r}] is {feature!r}, expected a FixedFeature or VarFeature for each name"
            )
    return _examples.Wanted([(key.encode(), *feature.wanted_arguments()) for key, feature in features.items()])


def counts_bytes(features: Features) -> frozenset[int]:
    """Return the places of the features that count bytes, and not values."""
    return frozenset(i for i, feature in enumerate(features.values()) if feature.dtype == "uint8")


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(describe_wrong("a string", value, "bytes or str"))
    return value


def _holds(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype holds numbers of another kind exactly, as uint8 holds 0."""
    return array.dtype.kind in "biuf" and bool((array.astype(dtype) == array).all())
