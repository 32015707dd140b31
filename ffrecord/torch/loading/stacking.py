"""Collation of samples that a user's function returned."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ffrecord.errors import ArgumentError, describe_error
from ffrecord.system.values import describe
from ffrecord.torch.loading.columns import tensor_of
from ffrecord.torch.loading.ragged import Form, as_list

__all__ = ["UnevenError", "stack_samples"]

SMALL = 2048  # bytes of an array; numpy copies faster than torch, but holds the GIL

# Each type can hold the values of the types before it.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


class UnevenError(ValueError):
    """Values that do not make a tensor, or samples with different columns.

    Attributes:
        place: place of the sample that differs.
    """

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


def stack_samples(samples: list[Any], form: Form, path: str = "") -> Any:
    """Return a batch of k samples that have one structure.

    Args:
        samples: dicts, tuples (also named ones) and lists, whose leaves are tensors, arrays, numbers, anything.
        form: form of tensors of varying shape.
        path: path of these values in a sample, for messages.

    Returns:
        The same structure of tensors [k, …]: int64 for ints, float64 for floats or both; lists if torch has no type for
            the values.

    Raises:
        UnevenError: the samples differ in structure or dtype; the message names the column.
        ArgumentError: `form` refuses the tensors.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: stack_samples(_column(samples, key, f"{path}.{key}"), form, f"{path}.{key}") for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(sample) != len(first) for sample in samples):
            return samples
        columns = [
            stack_samples(list(column), form, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))
        ]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    return _leaf(samples, form, path.removeprefix("."))


def _column(samples: list[Any], key: Any, path: str) -> list[Any]:
    with contextlib.suppress(KeyError, TypeError, IndexError):
        return [sample[key] for sample in samples]
    values = []
    for place, sample in enumerate(samples):
        try:
            values.append(sample[key])
        except (KeyError, TypeError, IndexError):
            what = "lacks it" if isinstance(sample, Mapping) else f"is {describe(sample)}"
            raise UnevenError(f"{_label(path)}: the first sample has it, this one {what}", place) from None
    return values


def _label(path: str) -> str:
    return f"column {path.removeprefix('.')!r}" if path else "samples"


def _leaf(values: list[Any], form: Form, path: str) -> Any:
    try:
        return _stack_values(values, form, path)
    except ArgumentError:
        raise
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        place = next((i for i, value in enumerate(values) if _kind(value) != _kind(values[0])), 0)
        found = f"{_label(path)} is {describe(values[place])}"
        if place:
            found += f", but {describe(values[0])} in the first sample of the batch"
        raise UnevenError(f"{found}: {describe_error(error)}", place) from error


def _kind(value: Any) -> Any:
    return type(value), getattr(value, "dtype", None)


def _stack_values(values: list[Any], form: Form, path: str) -> Any:
    first = values[0]
    numbers = type(first) in NUMBERS
    if isinstance(first, np.generic) or (numbers and any(isinstance(value, np.number) for value in values)):
        return tensor_of(np.array(values))
    if isinstance(first, np.ndarray):
        if first.nbytes <= SMALL and len({(type(value), value.dtype, value.shape) for value in values}) == 1:
            stacked = tensor_of(np.array(values))
            return stacked if isinstance(stacked, torch.Tensor) else values
        # torch warns of memory that is read-only, such as that of np.frombuffer.
        converted = [tensor_of(value if value.flags.writeable else value.copy()) for value in values]
        if not isinstance(converted[0], torch.Tensor):
            return values
        values = converted
    if isinstance(values[0], torch.Tensor):
        try:
            return torch.stack(values)
        except RuntimeError:
            if all(value.shape == values[0].shape for value in values):
                raise
            # A list of tensors would share the memory of the samples, and a batch is its user's.
            return form(path, [value.clone() for value in values] if form is as_list else values)
    if not numbers:
        return values
    kinds = set(map(type, values))
    known = [dtype for kind, dtype in NUMBERS.items() if kind in kinds]
    return torch.tensor(values, dtype=known[-1] if len(known) == len(kinds) else None, device="cpu")
