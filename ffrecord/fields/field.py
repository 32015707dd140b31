"""What a field is: one kind of value, to bytes and back. Users add kinds by subclassing `Field`; see docs/fields.md."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.fields.describe import describe

Encoded = bytes | bytearray | memoryview
Array = npt.NDArray[Any]

KINDS: dict[str, type["Field"]] = {}
STRUCTURES = ("dict", "tuple", "list")  # the kinds that are not fields

SIZE_MAX = 2**63 - 1  # bytes; what numpy and file offsets can count

FieldType = TypeVar("FieldType", bound=type["Field"])


class Fixed(NamedTuple):
    """The layout of a field whose values all have the same size.

    Attributes:
        dtype: of one element as it is stored, byte order included.
        shape: of one value; the values of a batch make a column `[k, *shape]`.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return self.dtype.itemsize * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Field:
    """One kind of value. A subclass is a frozen dataclass whose attributes are its parameters.

    A subclass gives `kind`, `expects`, `encode`, `decode`, and `fixed` where all its values have the same size.
    Where its parameters are not plain builtins, also `spec` and `from_spec`. Fields have no state: one is used by many
    threads and processes.

    Attributes:
        kind: its name in files, for ever; choose one with a prefix of your own, such as "acme.audio".
        expects: what `encode` takes, for messages: "an int".
        fixed: layout of its values if they have all the same size, else None.
        torch_dtype: where `decode` gives the array of a torch tensor, the name of its dtype: "bfloat16"; else None.
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
        """The bytes of `value`; a memoryview must be flat and of format "B", and is used before the next call.

        Raises:
            TypeError: not a value of this field.
            ValueError: of the right type, but outside what the field holds.
            OSError: a path that cannot be read, for fields that take paths.
        """
        raise NotImplementedError(f"{type(self).__name__}.encode")

    def decode(self, data: memoryview) -> Any:
        """The value of `data`, exactly the bytes `encode` gave, as a flat view of the record; copy what you keep.

        Raises:
            FormatError: bytes that `encode` never gives. Nothing is allocated by a number that was not compared first.
        """
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def unstack(self, column: Array) -> list[Any]:
        """The k values of `column` [k, *shape], as `decode` gives them; only called where `fixed` is not None."""
        count = len(column)
        flat = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
        return [self.decode(row.data) for row in flat.reshape(count, column.nbytes // max(count, 1))]

    def column(self, column: Array) -> Any:
        """What `Schema.decode_columns` gives for `column` [k, *shape]; only called where `fixed` is not None."""
        return column

    def collect(self, payloads: Sequence[memoryview]) -> Any:
        """What `Schema.decode_columns` gives for k values of varying size; only called where `fixed` is None."""
        return [self.decode(payload) for payload in payloads]

    def spec(self) -> dict[str, Any]:
        """The parameters as plain builtins that msgpack holds, for the schema of a file."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Field":
        """The field of a `spec`, which comes from a file: any key and any value may be wrong.

        Raises:
            TypeError, ValueError, LookupError: unknown, wrong or missing parameters.
        """
        return cls(**spec)


def register(cls: FieldType) -> FieldType:
    """Make files with fields of class `cls` readable in this process; a class decorator.

    Raises:
        ValueError: no `kind`, or one that another class has.
        TypeError: no frozen dataclass itself, or `encode` or `decode` is missing.
    """
    kind = getattr(cls, "kind", None)
    if not isinstance(kind, str) or not kind or kind in STRUCTURES:
        raise ValueError(f"{cls.__qualname__}.kind is {kind!r}, expected a name of its own")
    known = KINDS.get(kind)
    # The same class again is what a notebook cell run twice does.
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"field kind {kind!r} is {known.__qualname__} already, not {cls.__qualname__}")
    _check_complete(cls)
    KINDS[kind] = cls
    return cls


def _check_complete(cls: type[Field]) -> None:
    # Its base is a dataclass, so `is_dataclass` is true of every subclass, though it knows nothing of its parameters.
    if "__dataclass_params__" not in vars(cls):
        raise TypeError(
            f"{cls.__qualname__} is no frozen dataclass, so its parameters would be missing in the schema of files;"
            " put @dataclass(frozen=True) between @register and the class"
        )
    missing = [name for name in ("encode", "decode") if getattr(cls, name) is getattr(Field, name)]
    if missing:
        raise TypeError(f"{cls.__qualname__} does not define {' and '.join(missing)}, which every field needs")


def mismatch(field: Field, value: Any, advice: str = "") -> str:
    """The sentence that `value` is not one of `field`."""
    return f"expected {field.expects}, found {describe(value)}" + (f"; {advice}" if advice else "")


def check_range(name: str, value: Any, low: int, high: int) -> None:
    """Refuse a parameter that is no int in [low, high].

    Raises:
        TypeError, ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {describe(value)}, expected an int")
    if not low <= value <= high:
        raise ValueError(f"{name} is {describe(value)}, expected {low} to {high}")
