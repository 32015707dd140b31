"""Field of class labels, which keeps the names of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import mismatch, register
from ffrecord.fields.scalars import IntField
from ffrecord.system.values import REPR_MAX, describe_wrong, explain_surrogate

NAMES_SHOWN = 3  # names in a repr


@register
@dataclass(frozen=True, repr=False)
class LabelField(IntField):
    """The number of a class, as int64. Takes ints in [0, number of names), and names; both come back as ints.

    Args:
        names: names of the classes, by number; all different. The schema of each file keeps them, in at most 1 MiB.

    Raises:
        TypeError, ValueError: `names` is empty, contains something that is not a str, or contains a name twice.
    """

    kind: ClassVar[str] = "label"
    names: Sequence[str]

    def __post_init__(self) -> None:
        # A str is a sequence of str.
        if isinstance(self.names, str) or not isinstance(self.names, Sequence):
            raise TypeError(describe_wrong("names", self.names, "a list of str"))
        names = tuple(self.names)
        if not names:
            raise ValueError("names is empty, expected at least one name")
        for i, name in enumerate(names):
            _check_name(f"names[{i}]", name)
        # Of a name that comes twice, the last number stays, which tells the first place.
        numbers = {name: number for number, name in enumerate(names)}
        if len(numbers) != len(names):
            twice = next(i for i, name in enumerate(names) if numbers[name] != i)
            raise ValueError(
                f"names[{twice}] and names[{numbers[names[twice]]}] are both {names[twice][:REPR_MAX]!r}, expected "
                "each name once"
            )
        # Frozen, so set this way; the dict makes names quick to find.
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_numbers", numbers)

    def __repr__(self) -> str:
        more = ", …" if len(self.names) > NAMES_SHOWN else ""
        return f"LabelField([{', '.join(map(repr, self.names[:NAMES_SHOWN]))}{more}])"

    @property
    def expects(self) -> str:
        return f"an int in [0, {len(self.names)}), or the name of a class"

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            number = self._numbers.get(value)  # type: ignore[attr-defined]
            if number is None:
                raise ValueError(f"there is no class {value[:REPR_MAX]!r}, expected one of {len(self.names)}: {self!r}")
            return super().encode(number)
        # The base checks the type; here only the range is left.
        data = super().encode(value)
        if not 0 <= value < len(self.names):
            raise ValueError(mismatch(self, value))
        return data

    def decode(self, data: memoryview) -> int:
        number = super().decode(data)
        if not 0 <= number < len(self.names):
            raise FormatError(f"the class is {number}, expected 0 to {len(self.names) - 1}")
        return number

    def unstack(self, column: np.ndarray[Any, Any]) -> list[Any]:
        # One look at smallest and largest instead of each value.
        if len(column) and (column.min() < 0 or column.max() >= len(self.names)):
            raise FormatError(f"classes go from {column.min()} to {column.max()}, expected 0 to {len(self.names) - 1}")
        return list(column.tolist())

    def spec(self) -> dict[str, Any]:
        return {"names": list(self.names)}


def class_names_of(field: Any) -> tuple[str, ...] | None:
    """Return the class names of a field, or of the one inside of it, to any depth; None if it has none."""
    while not isinstance(field, LabelField):
        field = getattr(field, "inner", None)
        if field is None:
            return None
    return tuple(field.names)


def describe_other_class(here: Sequence[str] | None, there: Sequence[str] | None) -> str:
    """Return a text to append: the first class that differs, and what to do; "" if none does, or one has no classes."""
    if here is None or there is None or here == there:
        return ""
    # One list may be longer; then the first extra class differs.
    place = next(i for i, (one, two) in enumerate(zip_longest(here, there)) if one != two)
    one, two = (repr(each[place]) if place < len(each) else "none" for each in (here, there))
    return (
        f" (class {place} is {one}, there {two}); write one of them again with the field of the other: "
        "ffrecord.DatasetWriter(path, fields=...) matches classes by name"
    )


def _check_name(place: str, name: Any) -> None:
    """Check that a name can be stored.

    Raises:
        TypeError: it is not a str.
        ValueError: UTF-8 cannot encode it.
    """
    if not isinstance(name, str):
        raise TypeError(describe_wrong(place, name, "str"))
    # Most names are ASCII, which UTF-8 always holds.
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{place}: {explain_surrogate(error)}") from None
