"""What a user's function made of the samples of a batch → a batch of that structure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ffrecord.torch.loading.columns import tensor_of
from ffrecord.torch.loading.ragged import Form

__all__ = ["stacked"]

# Each can hold what comes before it.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def stacked(samples: list[Any], form: Form, path: str = "") -> Any:
    """A batch of k samples that have one structure.

    Args:
        samples: of dicts, tuples (named ones too) and lists, whose leaves are tensors, arrays, numbers, anything.
        form: what becomes of tensors of varying shape.
        path: of these values in a sample, for messages.

    Returns:
        That structure of tensors [k, …]: int64 of ints, float64 of floats or of both; of lists where torch has no such
        values.

    Raises:
        ValueError, KeyError, RuntimeError: the samples differ in structure or dtype.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: stacked([sample[key] for sample in samples], form, f"{path}.{key}") for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(sample) != len(first) for sample in samples):
            return samples
        columns = [stacked(list(column), form, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    return _leaf(samples, form, path.removeprefix("."))


def _leaf(values: list[Any], form: Form, path: str) -> Any:
    first = values[0]
    numbers = type(first) in NUMBERS
    if isinstance(first, np.generic) or (numbers and any(isinstance(value, np.number) for value in values)):
        return tensor_of(np.array(values))
    if isinstance(first, np.ndarray):
        converted = [tensor_of(value) for value in values]
        if not isinstance(converted[0], torch.Tensor):
            return values
        values = converted
    if isinstance(values[0], torch.Tensor):
        if any(value.shape != values[0].shape for value in values):
            return form(path, values)
        return torch.stack(values)
    if not numbers:
        return values
    kinds = set(map(type, values))
    known = [dtype for kind, dtype in NUMBERS.items() if kind in kinds]
    return torch.tensor(values, dtype=known[-1] if len(known) == len(kinds) else None)
