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


def install(extra: str) -> str:
    """What to type for it, in any shell: some take brackets that are not quoted for a pattern."""
    return f"pip install 'ffrecord[{extra}]'"


def require(name: str, extra: str, purpose: str, needed: str | None = None) -> Any:
    """The module `name`.

    Args:
        extra: that brings it, or one of those that would do.
        purpose: what for.
        needed: what to say is needed, where it is not just this package.

    Raises:
        ImportError: not installed; names the extra.
    """
    module = optional(name)
    if module is None:
        raise ImportError(f"{purpose} needs {needed or name.partition('.')[0]}: {install(extra)}", name=name)
    return module
