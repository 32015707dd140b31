"""What a filter asks for, in words: numbers, ranges of them, names of classes, pieces of text.

matching.js is the same for a page that is exported, and so has no server to ask.
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
    """Says which values are wanted.

    Args:
        wanted: several things with commas between them: a number, `3..7`, or text. Text is found anywhere in a value,
            without regard to case; a class whose name it is alone counts alone.
        classes: names of the classes that the values are numbers of.

    Raises:
        ArgumentError: nothing is wanted.
    """

    def __init__(self, wanted: str, classes: list[str] | None) -> None:
        parts = [part.strip() for part in wanted.split(",") if part.strip()]
        if not parts:
            raise ArgumentError("a filter without anything to look for")
        self._spans = [span for part in parts for span in _spans(part, classes)]
        self._pieces = [part.casefold() for part in parts]

    def __call__(self, value: Any) -> bool:
        """Whether this one is."""
        if _is_number(value):
            return any(low <= value <= high for low, high in self._spans)
        text = value if isinstance(value, str) else short_text(value)
        return text is not None and any(piece in text.casefold() for piece in self._pieces)

    def places(self, values: Sequence[Any] | npt.NDArray[Any]) -> list[int]:
        """Where those that are wanted are; of arrays of numbers without looking at each."""
        if not isinstance(values, np.ndarray):
            return [place for place, value in enumerate(values) if self(value)]
        found = np.zeros(len(values), bool)
        for low, high in self._spans:
            found |= (low <= values) & (values <= high)
        return np.flatnonzero(found).tolist()


def compared(value: Any) -> dict[str, Any]:
    """What a filter compares of a value, for JSON: a "number", a "text" as far as a page has it, or neither."""
    if isinstance(value, Unreadable):
        return {"unreadable": True}
    if _is_number(value):
        return {"number": value.item() if isinstance(value, np.generic) else value}
    text = value if isinstance(value, str) else short_text(value)
    return {} if text is None else {"text": text[:TEXT_WHOLE]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)


def _spans(part: str, classes: list[str] | None) -> list[tuple[float, float]]:
    """The numbers that a part means: [low, high], both in."""
    if classes is not None:
        found = _classes(part.casefold(), [name.casefold() for name in classes])
        if found:
            return [(number, number) for number in found]
    if part.casefold() in TRUTH:
        return [(TRUTH[part.casefold()], TRUTH[part.casefold()])]
    low, mark, high = part.partition(SPAN)
    try:
        return [(float(low), float(high if mark else low))]
    except ValueError:
        return []  # then it is text


def _classes(part: str, names: list[str]) -> list[int]:
    """The numbers of the classes of that name, or else of those that have it in their names."""
    if part.isdecimal() and part not in names:
        return []
    return [number for number, name in enumerate(names) if name == part] or [
        number for number, name in enumerate(names) if part in name
    ]
