"""The filter: it finds numbers, ranges of numbers, names of classes, and pieces of text.

client.js does the same in an exported page, which has no server to ask.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.cli.viewer.cells import TEXT_WHOLE, short_text
from ffrecord.cli.viewer.records import Unreadable
from ffrecord.errors import ArgumentError

SPAN = ".."
TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


class Matcher:
    """A test of values.

    Args:
        wanted: one or more conditions with commas between them: a number, a range `3..7`, or text. Text may be anywhere
            in a value, in upper or lower case. If text is the whole name of a class, only that class counts.
        classes: names of the classes, if the values are class numbers.

    Raises:
        ArgumentError: there is no condition.
    """

    def __init__(self, wanted: str, classes: list[str] | None) -> None:
        parts = [part.strip() for part in wanted.split(",") if part.strip()]
        if not parts:
            raise ArgumentError("the filter is empty; enter values or text to look for")
        self._spans = [span for part in parts for span in _parse_spans(part, classes)]
        self._pieces = [part.casefold() for part in parts]

    def __call__(self, value: Any) -> bool:
        """Tell whether a value meets one of the conditions."""
        if _is_number(value):
            return any(low <= value <= high for low, high in self._spans)
        text = value if isinstance(value, str) else short_text(value)
        return text is not None and any(piece in text.casefold() for piece in self._pieces)

    def places(self, values: Sequence[Any] | npt.NDArray[Any]) -> list[int]:
        """Return the positions of the values that meet a condition. Arrays of numbers are compared as a whole."""
        if not isinstance(values, np.ndarray):
            return [place for place, value in enumerate(values) if self(value)]
        found = np.zeros(len(values), bool)
        for low, high in self._spans:
            found |= (low <= values) & (values <= high)
        return np.flatnonzero(found).tolist()


def comparable_value(value: Any) -> dict[str, Any]:
    """Return the part of a value that the filter compares, for JSON: "number", "text" or neither."""
    if isinstance(value, Unreadable):
        return {"unreadable": True}
    if _is_number(value):
        return {"number": value.item() if isinstance(value, np.generic) else value}
    text = value if isinstance(value, str) else short_text(value)
    return {} if text is None else {"text": text[:TEXT_WHOLE]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)


def _parse_spans(part: str, classes: list[str] | None) -> list[tuple[float, float]]:
    """Return the ranges of numbers that a condition means: [low, high], both included."""
    if classes is not None:
        found = _find_classes(part.casefold(), [name.casefold() for name in classes])
        if found:
            return [(number, number) for number in found]
    if part.casefold() in TRUTH:
        return [(TRUTH[part.casefold()], TRUTH[part.casefold()])]
    low, mark, high = part.partition(SPAN)
    try:
        return [(float(low), float(high if mark else low))]
    except ValueError:
        return []  # the condition is text


def _find_classes(part: str, names: list[str]) -> list[int]:
    """Return the numbers of the classes with this name, or else of those whose names contain it."""
    if part.isdecimal() and part not in names:
        return []
    return [number for number, name in enumerate(names) if name == part] or [
        number for number, name in enumerate(names) if part in name
    ]
