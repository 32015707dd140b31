"""Checks of arguments that many functions have: words, iterables and paths."""

import os
from collections.abc import Container

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.system.values import describe_wrong


def check_iterable(name: str, value: object, items: str) -> None:
    """Raise ArgumentTypeError unless a value can be iterated; `items` says what it should give."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        raise ArgumentTypeError(describe_wrong(name, value, f"an iterable of {items}")) from None


def is_word(value: object, words: Container[str]) -> bool:
    """Tell whether a value is one of some words. Comparing others, such as arrays, could fail."""
    return isinstance(value, str) and value in words


def check_characters(name: str, path: str) -> str:
    """Return a path that the system can take.

    Raises:
        ValueError: it has a null character, or a part of a letter that no bytes stand for.
    """
    try:
        if "\0" not in path:
            os.fsencode(path)
            return path
    except UnicodeEncodeError:
        raise ArgumentError(f"{name} is {path!r}, expected a path without half letters (surrogates)") from None
    raise ArgumentError(f"{name} is {path!r}, expected a path without null characters")
