"""What users ask a `DatasetWriter` for, argument by argument: checked, or refused with what is wrong."""

import os
from collections.abc import Callable
from typing import Any, SupportsIndex, overload

import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import Schema
from ffrecord.processes.pool import usable_workers
from ffrecord.system import urls
from ffrecord.system.sizes import Size, parse_limit
from ffrecord.writing.file_writer import whole_number

MAX_SKIPPED = 1000


def directory(path: Any, argument: str = "path") -> str:
    """The path of a dataset, or what the argument of this name says."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{argument} must be str or os.PathLike, not {type(path).__name__}")
    if not name:
        raise ArgumentError(f"{argument} is empty")
    if "\0" in name:
        raise ArgumentError(f"{argument} is {name!r} with a null character, which no path has")
    if urls.lost_slash(name) and not os.path.isdir(name.partition("/")[0]):
        raise urls.without_slash(name)
    return name


def columns(fields: Any, serializer: Callable[[Any], Any] | None) -> Schema | None:
    """The schema that `fields` stand for."""
    if fields is not None and serializer is not None:
        raise ArgumentError("give fields or serializer, not both")
    if serializer is not None and not callable(serializer):
        raise ArgumentTypeError(f"serializer must be callable, not {type(serializer).__name__}")
    return fields if fields is None or isinstance(fields, Schema) else Schema.of(fields)


def one_cut(**cuts: Size | None) -> dict[str, int | None]:
    """Ways to cut into shards, by the names of their arguments, of which one may be given."""
    found = {name: _cut(name, value) for name, value in cuts.items()}
    given = [f"{name}={value}" for name, value in found.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"{' and '.join(given)} ask for different shards: give one of them")
    return found


def _cut(name: str, value: Any) -> int | None:
    """Return a number of samples or shards, or of bytes, which may be text."""
    return parse_limit(name, value) if name == "shard_size" else positive(name, value)


def appends(mode: str) -> bool:
    """Whether a mode is that of appending."""
    if mode not in ("create", "append"):
        raise ArgumentError(f"mode is {mode!r}, expected 'create' or 'append'")
    return mode == "append"


def limit_of_skipped(on_error: str, max_skipped: SupportsIndex | None) -> int | None:
    """How many samples may be left out; None for none, which is then an error."""
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    most = count("max_skipped", max_skipped)
    if on_error == "skip":
        return MAX_SKIPPED if most is None else most
    if most is not None:
        raise ArgumentError(f"max_skipped={most} needs on_error='skip'")
    return None


def patience(seconds: float | None) -> float | None:
    """Seconds after which a worker counts as stuck."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ArgumentTypeError(f"stuck_after must be a number of seconds or None, not {type(seconds).__name__}")
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"stuck_after is {seconds}, expected > 0 and finite")
    return float(seconds)


def workers(number: SupportsIndex) -> int:
    """How many processes that is."""
    found = whole_number("num_workers", number)
    if found < -1:
        raise ArgumentError(f"num_workers is {found}, expected -1 (one per usable CPU) or >= 0")
    return usable_workers() if found == -1 else found


def flag(name: str, value: Any) -> bool:
    """Yes or no; nothing else, as any text would be a yes."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"{name} must be True or False, not {type(value).__name__}")
    return bool(value)


def flag_or_none(name: str, value: Any) -> bool | None:
    """Yes, no, or as it comes."""
    return None if value is None else flag(name, value)


def count(name: str, value: SupportsIndex | None) -> int | None:
    """A number that may be 0."""
    number = None if value is None else whole_number(name, value)
    if number is not None and number < 0:
        raise ArgumentError(f"{name} is {number}, expected >= 0")
    return number


@overload
def positive(name: str, value: SupportsIndex) -> int: ...
@overload
def positive(name: str, value: SupportsIndex | None) -> int | None: ...
def positive(name: str, value: SupportsIndex | None) -> int | None:
    """A number that may not."""
    number = None if value is None else whole_number(name, value)
    if number is not None and number <= 0:
        raise ArgumentError(f"{name} is {number}, expected > 0")
    return number
