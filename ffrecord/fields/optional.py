"""Third-party modules that are not required."""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def optional(name: str) -> Any:
    """The module `name`, or None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def require(name: str, extra: str, purpose: str) -> Any:
    """The module `name`.

    Raises:
        ImportError: not installed; names the extra that brings it.
    """
    module = optional(name)
    if module is None:
        raise ImportError(f"{purpose} needs {name.partition('.')[0]}: pip install ffrecord[{extra}]", name=name)
    return module
