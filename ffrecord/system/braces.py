"""Braces in names of files: what shells, and WebDataset, expand them to."""

import re
from collections.abc import Iterable, Sequence

from ffrecord.errors import ArgumentError

NAMES_MOST = 1_000_000
RANGE = re.compile(r"(-?[0-9]+|[a-zA-Z])\.\.(-?[0-9]+|[a-zA-Z])(?:\.\.-?([0-9]+))?")


def expand_braces(pattern: str) -> list[str]:
    """The names that `pattern` stands for, in order; itself if nothing in it is to be expanded.

    `{a,b}` is each of its parts; `{000..012}` each number from one to the other, both included, as wide as the wider
    one if one is padded with zeros; `{0..9..3}` every third; `{a..e}` letters. Braces may be nested and repeated: the
    last ones vary fastest.

    Raises:
        ArgumentError: these are more than NAMES_MOST.
    """
    return _expanded(pattern, pattern)


def _expanded(text: str, pattern: str) -> list[str]:
    names, start = [""], 0
    while (found := _braces(text, start)) is not None:
        opening, closing = found
        choices = _choices(text[opening + 1 : closing], pattern)
        names = _joined(names, [text[start:opening] + choice for choice in choices], pattern)
        start = closing + 1
    return [name + text[start:] for name in names]


def _joined(names: list[str], choices: list[str], pattern: str) -> list[str]:
    _check(len(names) * len(choices), pattern)
    return [name + choice for name in names for choice in choices]


def _check(count: int, pattern: str) -> None:
    if count > NAMES_MOST:
        raise ArgumentError(f"{pattern}: braces that stand for {count} names or more, expected at most {NAMES_MOST}")


def _braces(text: str, start: int) -> tuple[int, int] | None:
    """Where the next braces that belong together are."""
    opening = text.find("{", start)
    while opening >= 0:
        depth = 0
        for place in range(opening, len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return opening, place
        opening = text.find("{", opening + 1)
    return None


def _choices(inside: str, pattern: str) -> list[str]:
    """What braces around `inside` stand for."""
    found = RANGE.fullmatch(inside)
    if found and found[1].isalpha() == found[2].isalpha():
        return _range(found[1], found[2], int(found[3] or 1) or 1, pattern)
    parts = list(_commas(inside))
    if len(parts) == 1 and _seems_a_range(inside):
        return [f"{{{inside}}}"]
    names = [name for part in parts for name in _expanded(part, pattern)]
    _check(len(names), pattern)
    return names if len(parts) > 1 else [f"{{{name}}}" for name in names]


def _commas(inside: str) -> Iterable[str]:
    """The parts between commas that are not in braces themselves."""
    depth = start = 0
    for place, letter in enumerate(inside):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield inside[start:place]
            start = place + 1
    yield inside[start:]


def _seems_a_range(inside: str) -> bool:
    """Tell whether two dots are in it, not in braces themselves: nothing in what is no range is expanded then."""
    depth = 0
    for place, letter in enumerate(inside):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0 and inside.startswith("..", place) and place + 2 < len(inside):
            return True
    return False


def _range(first: str, last: str, step: int, pattern: str) -> list[str]:
    if first.isalpha():
        return [chr(place) for place in _numbers(ord(first), ord(last), step)]
    numbers = _numbers(int(first), int(last), step)
    _check(abs(int(last) - int(first)) // step + 1, pattern)
    padded = any(number.lstrip("-").startswith("0") and number.lstrip("-") != "0" for number in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}d}" for number in numbers]


def _numbers(first: int, last: int, step: int) -> Sequence[int]:
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
