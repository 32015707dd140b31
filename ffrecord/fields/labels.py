"""Field of class labels, which keeps the names of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError, plural
from ffrecord.fields.describe import describe
from ffrecord.fields.field import register
from ffrecord.fields.scalars import IntField

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
        if isinstance(self.names, str) or not isinstance(self.names, Sequence):
            raise TypeError(f"names is {describe(self.names)}, expected a list of str")
        names = tuple(self.names)
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise TypeError(f"names has {describe(wrong[0])}, expected str only")
        odd = next((name for name in names if not name.isascii() and not _is_text(name)), None)
        if odd is not None:
            raise ValueError(f"names has {odd!r}, which UTF-8 does not hold")
        numbers = {name: number for number, name in enumerate(names)}
        if not names or len(numbers) != len(names):
            raise ValueError(
                f"{plural(len(names), 'name')}, {len(numbers)} different ones: expected one at least, each once"
            )
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
                raise ValueError(f"no class {value!r}; there are {len(self.names)}: {self!r}")
            return super().encode(number)
        data = super().encode(value)
        if not 0 <= value < len(self.names):
            raise ValueError(f"expected {self.expects}, found {describe(value)}")
        return data

    def decode(self, data: memoryview) -> int:
        number = super().decode(data)
        if not 0 <= number < len(self.names):
            raise FormatError(f"class {number} of {len(self.names)}")
        return number

    def unstack(self, column: np.ndarray[Any, Any]) -> list[Any]:
        if len(column) and (column.min() < 0 or column.max() >= len(self.names)):
            raise FormatError(f"classes {column.min()} to {column.max()} of {len(self.names)}")
        return list(column.tolist())

    def spec(self) -> dict[str, Any]:
        return {"names": list(self.names)}


def _is_text(name: str) -> bool:
    """Tell whether UTF-8 holds a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
