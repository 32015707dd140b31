"""The user's own functions, called with or without a seed."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ffrecord.errors import ArgumentTypeError
from ffrecord.system.values import describe_wrong

__all__ = ["UserFunction"]


class UserFunction:
    """A function of the user, called with a seed if it has a parameter for it.

    Args:
        name: name of the argument that it was passed as.
        function: a callable with one value. If it (of a torch module: its `forward`) has a parameter named `seed_name`,
            it gets the seed by keyword.
        seed_name: "seed" or "seeds".

    Raises:
        TypeError: `function` is not callable.
    """

    def __init__(self, name: str, function: Callable[..., Any], seed_name: str) -> None:
        if not callable(function):
            raise ArgumentTypeError(describe_wrong(name, function, "a callable"))
        self.name, self.function, self._seed_name = name, function, seed_name
        self.seeded = _has_parameter(function, seed_name)

    def __call__(self, value: Any, seed: Any) -> Any:
        """Return the function's result for `value`."""
        return self.function(value, **{self._seed_name: seed}) if self.seeded else self.function(value)


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    try:
        called = function.forward if isinstance(function, torch.nn.Module) else function
        found = inspect.signature(called).parameters.get(name)
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)
