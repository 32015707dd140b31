"""The base class of fields, and the registry of their kinds.

A field converts one kind of value to bytes and back. Users add kinds by subclassing `Field`; see docs/fields.md.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import describe_int
from ffrecord.system.values import describe, describe_wrong

Encoded = bytes | bytearray | memoryview
Array = npt.NDArray[Any]

KINDS: dict[str, type["Field"]] = {}
STRUCTURES = ("dict", "tuple", "list")  # kinds of nodes that are not fields

SIZE_MAX = 2**63 - 1  # bytes; numpy and file offsets cannot count more

FieldType = TypeVar("FieldType", bound=type["Field"])


class Fixed(NamedTuple):
    """The layout of a field whose values all have the same size.

    Attributes:
        dtype: stored dtype of one element, with its byte order.
        shape: shape of one value; the values of a batch make a column `[k, *shape]`.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The size of one value in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Field:
    """One kind of value. A subclass is a frozen dataclass whose attributes are its parameters.

    A subclass defines `kind`, `expects`, `encode` and `decode`. It also defines `fixed` if all its values have the same
    size. If its parameters are not plain builtins, it also defines `spec` and `from_spec`. Fields have no state: many
    threads and processes use one field.

    Attributes:
        kind: name of the field in files, which never changes; choose one with a prefix of your own, such as
            "acme.audio".
        expects: description of the values that `encode` takes, for messages: "an int".
        fixed: layout of the values if they all have the same size, else None.
        torch_dtype: name of a torch dtype, such as "bfloat16", if `decode` returns the array of a tensor; else None.
    """

    kind: ClassVar[str]

    @property
    def expects(self) -> str:
        return f"a value of {self!r}"

    @property
    def fixed(self) -> Fixed | None:
        return None

    @property
    def torch_dtype(self) -> str | None:
        return None

    def encode(self, value: Any) -> Encoded:
        """Return the bytes of `value`.

        A memoryview must be flat and of format "B"; it is used before the next call.

        Raises:
            TypeError: `value` is not of this field.
            ValueError: `value` has the right type, but the field does not hold it.
            OSError: a path cannot be read, for fields that take paths.
        """
        raise NotImplementedError(f"{type(self).__name__}.encode")

    def decode(self, data: memoryview) -> Any:
        """Return the value of `data`.

        Allocate nothing by a number in `data` before you have compared it with a limit.

        Args:
            data: exactly the bytes that `encode` returned, as a flat view of the record; copy what you keep.

        Raises:
            FormatError: `encode` never returns such bytes.
        """
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def unstack(self, column: Array) -> list[Any]:
        """Return the k values of `column` [k, *shape], as `decode` returns them; called only if `fixed` is not None."""
        count = len(column)
        # A copy if the column is not contiguous, as `decode` takes flat bytes.
        flat = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
        # No division by zero for no values.
        return [self.decode(row.data) for row in flat.reshape(count, column.nbytes // max(count, 1))]

    def column(self, column: Array) -> Any:
        """Convert `column` [k, *shape] for `Schema.decode_columns`; called only if `fixed` is not None."""
        return column

    def collect(self, payloads: Sequence[memoryview]) -> Any:
        """Convert k values of varying size for `Schema.decode_columns`; called only if `fixed` is None."""
        return [self.decode(payload) for payload in payloads]

    def spec(self) -> dict[str, Any]:
        """Return the parameters as plain builtins that msgpack holds, for the schema of a file."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Field":
        """Return the field of a `spec` that comes from a file: any key and any value may be wrong.

        Raises:
            TypeError, ValueError, LookupError: parameters are unknown, wrong or missing.
        """
        return cls(**spec)


def register(cls: FieldType) -> FieldType:
    """Make files with fields of class `cls` readable in this process; a class decorator.

    Worker processes get fields by pickle, which imports the module of `cls`, and so registers it. With start methods
    "spawn" and "forkserver" a class of the main script works too, if the script has `if __name__ == "__main__"`.

    Raises:
        ValueError: `cls` has no `kind`, or another class has the same one.
        TypeError: `cls` is not a frozen dataclass itself, or lacks `encode` or `decode`.
    """
    kind = getattr(cls, "kind", None)
    if not isinstance(kind, str) or not kind or kind in STRUCTURES:
        raise ValueError(f"{cls.__qualname__}.kind is {kind!r}, expected a name of its own, such as 'acme.audio'")
    known = KINDS.get(kind)
    # A notebook cell that runs twice registers its class again.
    # Compared by name: a reloaded module has new classes with the same names.
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"field kind {kind!r} belongs to {known.__qualname__}; give {cls.__qualname__} another kind")
    _check_complete(cls)
    KINDS[kind] = cls
    return cls


def _check_complete(cls: type[Field]) -> None:
    # `is_dataclass` is true of every subclass, because the base is one. It does not show that parameters are known.
    # `vars`, not `hasattr`: the attribute of the base does not count.
    if "__dataclass_params__" not in vars(cls):
        raise TypeError(
            f"{cls.__qualname__} is not a frozen dataclass, so its parameters would be missing in the schema of files; "
            "put @dataclass(frozen=True) between @register and the class"
        )
    # A base in between may define them.
    missing = [name for name in ("encode", "decode") if getattr(cls, name) is getattr(Field, name)]
    if missing:
        raise TypeError(f"{cls.__qualname__} does not define {' and '.join(missing)}, which every field needs")


def mismatch(field: Field, value: Any, advice: str = "") -> str:
    """Return the sentence that says that `field` does not take `value`; whoever encodes names the column before it."""
    return f"{describe(value)}, expected {field.expects}" + (f"; {advice}" if advice else "")


def check_range(name: str, value: Any, low: int, high: int) -> None:
    """Check that a parameter is an int in [low, high].

    Raises:
        TypeError, ValueError: it is not.
    """
    # A bool is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(describe_wrong(name, value, "an int"))
    if not low <= value <= high:
        raise ValueError(f"{name} is {describe_int(value)}, expected {low} to {high}")
