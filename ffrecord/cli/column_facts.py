"""Facts about the columns of some samples."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ffrecord.cli.format_values import Classes, class_of, picture_kind, values_by_column

SHOWN_MOST = 5  # frequent values in the facts of a column


def describe_columns(samples: Iterable[Any], classes: Classes | None = None) -> dict[str, dict[str, Any]]:
    """Describe each column of some samples.

    Args:
        samples: decoded samples.
        classes: column → names of its classes. The facts of such a column name the classes.

    Returns:
        Column → facts: "kind", the number of "samples" that have it, and more, depending on the kind.
    """
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for name, value in values_by_column(sample).items():
            values.setdefault(name, []).append(value)
    return {name: describe_values(found, (classes or {}).get(name)) for name, found in values.items()}


def describe_values(values: Sequence[Any], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Describe the values of one column.

    Args:
        values: values of the column; None where a sample has none.
        names: names of the classes, if the values are class numbers.
    """
    there = [value for value in values if value is not None]
    told: dict[str, Any] = {"kind": kind_of(there), "samples": len(values)}
    if len(there) < len(values):
        told["missing"] = len(values) - len(there)
    if not there:
        return told
    if names is not None:
        called = [class_of(names, value) or str(value) for value in there]
        return {**told, "kind": "class", "classes": len(names)} | _distinct(called)
    if all(isinstance(value, bool | np.bool_) for value in there):
        return {**told, "true": sum(map(bool, there))}
    if all(isinstance(value, int | float | np.integer | np.floating) for value in there):
        return told | _numbers(np.array(there, np.float64)) | _distinct(there)
    if all(isinstance(value, str) for value in there):
        return told | _sizes([len(value) for value in there], "characters") | _distinct(there)
    if all(isinstance(value, bytes | bytearray | memoryview) or picture_kind(value) for value in there):
        return told | _sizes([len(value) for value in there], "bytes")
    if all(isinstance(value, np.ndarray) for value in there):
        return told | _arrays([value for value in there if not picture_kind(value)])
    return told


def kind_of(values: Sequence[Any]) -> str:
    """Return the types of values in words: with dtypes for arrays, with formats for image files."""
    return " or ".join(sorted({_kind_of_value(value) for value in values})) or "None"


def _kind_of_value(value: Any) -> str:
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return picture_kind(value) or kind


def _numbers(numbers: Any) -> dict[str, Any]:
    good = _finite(numbers)
    told = _not_finite(numbers.size - good.size)
    if good.size:
        told |= {
            "min": good.min().item(),
            "max": good.max().item(),
            "mean": good.mean().item(),
            "std": good.std().item(),
        }
    return told


def _finite(numbers: Any) -> Any:
    return numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers


def _not_finite(count: int) -> dict[str, Any]:
    return {"not finite": count} if count else {}


def _distinct(values: Sequence[Any]) -> dict[str, Any]:
    counter = Counter(values)
    frequent = {str(value): count for value, count in counter.most_common(SHOWN_MOST)}
    return {"distinct": len(counter)} | ({"frequent": frequent} if len(counter) < len(values) else {})


def _sizes(sizes: Sequence[int], unit: str) -> dict[str, Any]:
    return {f"min {unit}": min(sizes), f"max {unit}": max(sizes), f"mean {unit}": sum(sizes) / len(sizes)}


def _arrays(arrays: Sequence[Any]) -> dict[str, Any]:
    shapes = Counter(str(list(array.shape)) for array in arrays)
    told: dict[str, Any] = {"shapes": dict(shapes.most_common(SHOWN_MOST))}
    if len(shapes) > SHOWN_MOST:
        told["other shapes"] = len(shapes) - SHOWN_MOST
    numbers = [array for array in arrays if array.dtype.kind in "fiub"]
    good = [_finite(array) for array in numbers]
    told |= _not_finite(sum(array.size for array in numbers) - sum(array.size for array in good))
    filled = [array for array in good if array.size]
    if filled:
        sums = np.array([[array.min(), array.max(), array.mean(dtype=np.float64)] for array in filled], np.float64)
        told |= {"min": sums[:, 0].min().item(), "max": sums[:, 1].max().item(), "mean": sums[:, 2].mean().item()}
    return told
