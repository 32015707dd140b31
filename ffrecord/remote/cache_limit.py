"""How much a cache may hold, as people write it → bytes."""

import re

from ffrecord.errors import ArgumentError, ArgumentTypeError

UNITS = {"": 1, "B": 1}
UNITS |= {f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGTP")}
UNITS |= {f"{letter}IB": 1024 ** (power + 1) for power, letter in enumerate("KMGTP")}
WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
MOST = 2**63 - 1


def parse_limit(limit: int | str | None) -> int | None:
    """Bytes; None for no limit.

    Args:
        limit: bytes, or text such as "100GB", "1.5 TB", "64 GiB": B, kB, MB, GB, TB, PB are powers of 1000, KiB to PiB
            of 1024, in any case of letters.

    Raises:
        TypeError: it is of another type.
        ValueError: it is none of these, less than one byte, or more than a file system can have.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | str):
        raise ArgumentTypeError(f"cache_limit must be an int, a str or None, not {type(limit).__name__}")
    size = limit if isinstance(limit, int) else _written(limit)
    if not 0 < size <= MOST:
        raise ArgumentError(f"cache_limit is {limit!r}, expected 1 byte to {MOST} bytes")
    return size


def _written(text: str) -> int:
    found = WRITTEN.fullmatch(text)
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ArgumentError(f"cache_limit is {text!r}, expected bytes or text such as '100GB', '1.5 TB' or '64 GiB'")
    whole, _, fraction = found[1].partition(".")
    # By integers: a float of many digits would be rounded.
    return int(whole) * unit + int(fraction or 0) * unit // int("1" + "0" * len(fraction))
