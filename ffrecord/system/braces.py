"""Brace expansion in file names, as shells and WebDataset do it."""

import os
import re
from collections.abc import Iterable, Sequence

from ffrecord.errors import ArgumentError

NAMES_MOST = 1_000_000
RANGE = re.compile(r"(-?[0-9]+|[a-zA-Z])\.\.(-?[0-9]+|[a-zA-Z])(?:\.\.-?([0-9]+))?")


def expand_braces(pattern: str) -> list[str]:
    """Return the names that `pattern` stands for, in order; `[pattern]` if it contains nothing to expand.

    `{a,b}` stands for each of its parts. `{000..012}` stands for each number of the range, both ends included; if one
    end is padded with zeros, all numbers have the width of the wider end. `{0..9..3}` stands for every third number,
    `{a..e}` for letters. Braces may be nested and repeated: the last ones vary fastest.

    Raises:
        ArgumentError: the pattern stands for more than NAMES_MOST names.
    """
    return _expand(pattern, pattern)


def expand_path(path: str) -> list[str]:
    """Return the names that a path stands for, as `expand_braces` does; itself if such a file exists."""
    return [path] if "{" not in path or os.path.exists(path) else expand_braces(path)


def _expand(text: str, pattern: str) -> list[str]:
    names, start = [""], 0
    while (found := _find_braces(text, start)) is not None:
        opening, closing = found
        choices = _choices(text[opening + 1 : closing], pattern)
        names = _append_choices(names, [text[start:opening] + choice for choice in choices], pattern)
        start = closing + 1
    return [name + text[start:] for name in names]


def _append_choices(names: list[str], choices: list[str], pattern: str) -> list[str]:
    _check(len(names) * len(choices), pattern)
    return [name + choice for name in names for choice in choices]


def _check(count: int, pattern: str) -> None:
    if count > NAMES_MOST:
        raise ArgumentError(f"{pattern}: its braces stand for {count} names or more, expected at most {NAMES_MOST}")


def _find_braces(text: str, start: int) -> tuple[int, int] | None:
    """Return the positions of the next pair of braces from `start` on."""
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
    """Return the names that braces around `inside` stand for."""
    found = RANGE.fullmatch(inside)
    if found and found[1].isalpha() == found[2].isalpha():
        return _range(found[1], found[2], int(found[3] or 1) or 1, pattern)
    parts = list(_split_at_commas(inside))
    names = [name for part in parts for name in _expand(part, pattern)]
    _check(len(names), pattern)
    return names if len(parts) > 1 else [f"{{{name}}}" for name in names]


def _split_at_commas(inside: str) -> Iterable[str]:
    """Yield the parts between commas that are not inside inner braces."""
    depth = start = 0
    for place, letter in enumerate(inside):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield inside[start:place]
            start = place + 1
    yield inside[start:]


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
