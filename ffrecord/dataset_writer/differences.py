"""Two descriptions made of builtins, compared: what differs, in words."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

SHOWN = 60  # characters of a value
ABSENT = "nothing"


def differences(before: Any, now: Any) -> list[str]:
    """Where two values of builtins differ, each as "path was this, is that"; tuples count as lists."""
    return list(_differences(_plain(before), _plain(now), ""))


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            yield from _differences(before.get(key, ...), now.get(key, ...), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(now, list):
        for number, (one, other) in enumerate(itertools.zip_longest(before, now, fillvalue=...)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif before != now or type(before) is not type(now):
        yield f"{path} was {_shown(before)}, is {_shown(now)}"


def _shown(value: Any) -> str:
    text = ABSENT if value is ... else repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
