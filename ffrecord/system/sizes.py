"""Sizes as text: one rule for every argument that is a number of bytes, and numbers of bytes for people."""

import re
from typing import Any, SupportsIndex, TypeAlias

from ffrecord.errors import ArgumentError, ArgumentTypeError, describe_int
from ffrecord.system.values import describe_wrong, whole_number

Size: TypeAlias = SupportsIndex | str

LETTERS = "KMGTP"
UNITS = {"": 1, "B": 1}
UNITS |= {f"{letter}{end}": 1000**power for power, letter in enumerate(LETTERS, 1) for end in ("", "B")}
UNITS |= {f"{letter}{end}": 1024**power for power, letter in enumerate(LETTERS, 1) for end in ("I", "IB")}
SHOWN = ("kB", "MB", "GB", "TB", "PB", "EB")  # powers of 1000
WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
DIGITS_MOST = 100  # characters of a size written as text
MOST = 2**63 - 1  # bytes


def parse_size(name: str, value: Any, *, least: int = 1) -> int:
    """Return the number of bytes of a size argument.

    Args:
        name: name of the argument, for messages.
        value: bytes, or text such as "500M", "100GB", "1.5 TB" or "64 GiB". K, M, G, T and P are powers of 1000; with
            an i behind them they are powers of 1024. A B may follow. Case does not matter.
        least: smallest allowed number of bytes.

    Raises:
        ArgumentTypeError: `value` is neither a whole number nor text.
        ArgumentError: the text is no size, or the size is less than `least` or more than a file may have.
    """
    if isinstance(value, str):
        size = _parse_text(name, value)
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(describe_wrong(name, value, "an int or a str"))
    else:
        size = whole_number(name, value)
    if not least <= size <= MOST:
        shown = repr(value) if isinstance(value, str) else describe_int(size)
        raise ArgumentError(f"{name} is {shown}, expected {least} to {MOST} bytes")
    return size


def parse_limit(name: str, value: Any, *, least: int = 1) -> int | None:
    """Return the number of bytes of a limit, as `parse_size` does; None for no limit."""
    return None if value is None else parse_size(name, value, least=least)


def format_size(size: float) -> str:
    """Return a number of bytes with three digits and a unit: 1.23 MB is 1,230,000 bytes."""
    if size < 1000:
        return f"{size:.0f} B"
    power = next((power for power in range(1, len(SHOWN)) if size < 999.5 * 1000**power), len(SHOWN))
    return f"{size / 1000**power:.3g} {SHOWN[power - 1]}"


def _parse_text(name: str, text: str) -> int:
    found = WRITTEN.fullmatch(text) if len(text) <= DIGITS_MOST else None
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ArgumentError(
            f"{name} is {text[:DIGITS_MOST]!r}, expected bytes or text such as '500M', '1.5 TB' or '64 GiB'"
        )
    whole, _, fraction = found[1].partition(".")
    # Integer arithmetic: a float with many digits would be rounded.
    part = int(fraction or 0) * unit // int("1" + "0" * len(fraction))
    return int(whole) * unit + part
