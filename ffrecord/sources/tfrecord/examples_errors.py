"""Errors about examples, and their messages."""

from ffrecord.errors import FormatError
from ffrecord.sources.tfrecord._examples import Fault

__all__ = ["ExampleError", "FeatureCountError", "FeatureKindError", "MissingFeatureError", "error_of"]

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
        return MissingFeatureError(f"{where}: it is missing, and has no default", key=key, index=fault.row, found=0)
    if fault.code == KIND:
        has, wanted = KINDS[found], KINDS[expected]
        message = f"{where}: it holds {has} values (kind {found}), expected {wanted} (kind {expected})"
        return FeatureKindError(message, key=key, index=fault.row, found=has, expected=wanted)
    if fault.code == COUNT:
        unit = "bytes" if fault.column in bytes_of else "values"
        message = f"{where}: it has {found} {unit}, expected {expected}"
        return FeatureCountError(message, key=key, index=fault.row, found=found, expected=expected)
    reason = WIRE.get(fault.code, "the record changed while it was read: {found} values, then {expected}")
    message = f"{where}: not an Example: at byte {fault.offset}: {reason.format(found=found, expected=expected)}"
    return ExampleError(message, key=key, index=fault.row, found=found, expected=expected)
