"""Collation of samples that a user's function returned."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from ffrecord.errors import ArgumentError, describe_error
from ffrecord.system.values import describe
from ffrecord.torch.loading.columns import tensor_of
from ffrecord.torch.loading.ragged import Form, form_rows, is_named, stays_list, to_one_dtype

__all__ = ["UnevenError", "stack_samples"]

# Bytes of an array. numpy holds the GIL while it copies, but so does the making of a tensor of each array, for longer.
SMALL = 1 << 14
LAYOUT = attrgetter("dtype", "shape")

# Each type can hold the values of the types before it.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
PLAIN = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}  # the same of numpy


# What becomes tensors, or has them inside.
OF_TENSORS = (bool, int, float, complex, np.number, np.bool_, np.ndarray, torch.Tensor, list, tuple, Mapping)


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
        form: form of tensors of varying shape. Unless they stay a list, lists of numbers are such tensors in every
            batch: whether they vary must not depend on the batch.
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
        by_key = {key: _column(samples, key, f"{path}.{key}") for key in first}
        if len(set(map(type, samples))) > 1 or len(set(map(len, samples))) > 1:
            _check_mappings(samples, path)
        return {key: stack_samples(column, form, f"{path}.{key}") for key, column in by_key.items()}
    if isinstance(first, (tuple, list)):
        if len(set(map(type, samples))) > 1:
            _check_sequences(samples, path)
        name = path.removeprefix(".")
        if (is_named(form, name) or not stays_list(form, name)) and (arrays := arrays_of(samples)) is not None:
            return form(name, arrays)
        if len(set(map(len, samples))) > 1:
            return samples
        columns = [
            stack_samples(list(column), form, f"{path}[{i}]") for i, column in enumerate(zip(*samples, strict=True))
        ]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    return _leaf(samples, form, path.removeprefix("."))


def _check_mappings(samples: list[Any], path: str) -> None:
    """Check that all samples are mappings, and that none has a column that the first lacks: it would be lost.

    Raises:
        UnevenError: they are not alike.
    """
    first = samples[0]
    for place, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise _differing(samples, place, path)
        more = [key for key in sample if key not in first]
        if more:
            raise UnevenError(f"it has {_label(f'{path}.{more[0]}')}, which the first of the batch lacks", place)


def _check_sequences(samples: list[Any], path: str) -> None:
    """Check that all samples are lists or tuples, and that their fields have the same names, if they have names.

    Raises:
        UnevenError: they are not alike.
    """
    names = getattr(samples[0], "_fields", None)
    for place, sample in enumerate(samples):
        if not isinstance(sample, (tuple, list)) or getattr(sample, "_fields", None) != names:
            raise _differing(samples, place, path)


def _differing(samples: list[Any], place: int, path: str) -> UnevenError:
    here, first = describe(samples[place]), describe(samples[0])
    return UnevenError(f"{_label(path)} is {here}, but {first} in the first sample of the batch", place)


def arrays_of(values: list[Any]) -> list[torch.Tensor] | None:
    """Return lists of numbers, to any depth, as tensors of one dtype; None if they are something else.

    Lists without numbers have as many axes as the others; if there are no others, they are int64 [0].
    """
    if not all(type(value) is list and _are_numbers(value) for value in values):
        return None
    try:
        arrays = [np.array(value) for value in values]
    except ValueError:  # inner lists of different lengths
        return None
    full = [array for array in arrays if array.size]
    kind = np.result_type(*{array.dtype for array in full}) if full else np.dtype(np.int64)
    if kind.kind not in "bif" or any(array.dtype.kind not in "bif" for array in full):
        return None  # numbers beyond int64, whose message names them
    axes = full[0].ndim if full else 1
    return [
        torch.from_numpy(array.astype(kind, copy=False) if array.size else np.zeros((0,) * axes, kind))
        for array in arrays
    ]


def _are_numbers(value: list[Any]) -> bool:
    kinds = set(map(type, value))
    if kinds == {list}:
        return all(map(_are_numbers, value))
    return all(kind in NUMBERS or issubclass(kind, np.number | np.bool_) for kind in kinds)


def _column(samples: list[Any], key: Any, path: str) -> list[Any]:
    try:
        return [sample[key] for sample in samples]
    except (KeyError, TypeError, IndexError):
        pass  # found again below, with its place
    values = []
    for place, sample in enumerate(samples):
        try:
            values.append(sample[key])
        except (KeyError, TypeError, IndexError):
            what = "lacks it" if isinstance(sample, Mapping) else f"is {describe(sample)}"
            raise UnevenError(f"{_label(path)}: the first sample has it, this one {what}", place) from None
    return values


def _label(path: str) -> str:
    return f"column {path.removeprefix('.')!r}" if path else "it"


def _leaf(values: list[Any], form: Form, path: str) -> Any:
    try:
        return _stack_values(values, form, path)
    except ArgumentError:
        raise
    except OverflowError as error:
        place = next((i for i, value in enumerate(values) if isinstance(value, int) and not _fits(value)), 0)
        raise UnevenError(
            f"{_label(path)} is {describe(values[place])}, expected -2**63 <= int < 2**63: int64 holds no other", place
        ) from error
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        place = next((i for i, value in enumerate(values) if _kind(value) != _kind(values[0])), 0)
        found = f"{_label(path)} is {describe(values[place])}"
        if place:
            found += f", but {describe(values[0])} in the first sample of the batch"
        raise UnevenError(f"{found}: {describe_error(error)}", place) from error


def _fits(value: int) -> bool:
    """Tell whether an int64 can hold `value`."""
    return -(1 << 63) <= value < 1 << 63


def _kind(value: Any) -> Any:
    return type(value), getattr(value, "dtype", None)


def _stack_values(values: list[Any], form: Form, path: str) -> Any:
    first, kinds = values[0], set(map(type, values))
    alike = len(kinds) == 1
    if isinstance(first, torch.Tensor):
        return _stack_tensors(values, form, path)
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):  # a masked number is one, too
        raise TypeError("its mask would be lost: give value.data and value.mask, or value.filled()")
    numbers = type(first) in NUMBERS
    if numbers and alike:
        return torch.from_numpy(np.fromiter(values, PLAIN[type(first)], len(values)))
    if isinstance(first, np.generic) or (numbers and any(issubclass(kind, np.number) for kind in kinds)):
        found = np.array(values)
        if found.dtype.kind in "SU":
            if any(issubclass(kind, OF_TENSORS) for kind in kinds):
                raise TypeError("text and numbers make no tensor")  # NumPy would write numbers as text
            # NumPy would cut zeros at the end of a text or of bytes.
            return found if found.tolist() == values else values
        if found.dtype.kind != "O":
            return tensor_of(found)
        if isinstance(first, np.number | np.bool_) or numbers:
            raise TypeError("numpy has no type of numbers for all of these values")
        return values
    if isinstance(first, np.ndarray):
        if first.nbytes <= SMALL and alike and not is_named(form, path) and len(set(map(LAYOUT, values))) == 1:
            stacked = tensor_of(np.array(values))
            return stacked if isinstance(stacked, torch.Tensor) else values
        converted = [tensor_of(value if _is_shareable(value) else value.copy()) for value in values]
        return _stack_tensors(converted, form, path) if isinstance(converted[0], torch.Tensor) else values
    if not numbers:
        # The same values in another order would not make a batch, either.
        if any(issubclass(kind, OF_TENSORS) for kind in kinds):
            raise TypeError("values of these kinds together are neither a tensor nor a list")
        return values
    known = [dtype for kind, dtype in NUMBERS.items() if kind in kinds]
    return torch.tensor(values, dtype=known[-1] if len(known) == len(kinds) else None, device="cpu")


def _is_shareable(array: Any) -> bool:
    """Tell whether torch takes the memory of an array: it warns of read-only ones, such as those of np.frombuffer, and
    refuses reversed ones.
    """
    return bool(array.flags.writeable) and min(array.strides, default=0) >= 0


def _stack_tensors(tensors: list[torch.Tensor], form: Form, path: str) -> Any:
    tensors = to_one_dtype(tensors)
    if is_named(form, path) and all(isinstance(tensor, torch.Tensor) and tensor.dim() for tensor in tensors):
        return form_rows(tensors, form, path)
    try:
        return torch.stack(tensors)
    except RuntimeError:
        if all(tensor.shape == tensors[0].shape for tensor in tensors):
            raise
        # A list of tensors would share the memory of the samples, and a batch is its user's.
        return form(path, [tensor.clone() for tensor in tensors] if stays_list(form, path) else tensors)
