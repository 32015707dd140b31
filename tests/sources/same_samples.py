"""Samples compared with those that were written."""

import numpy as np


def same(found: object, expected: object) -> bool:
    """Whether a value is what was written, type and all; of a tuple its first item was."""
    if isinstance(expected, tuple):
        return found == expected[0]
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    return type(found) is type(expected) and found == expected


def assert_samples(found: list[dict], expected: list[dict]) -> None:
    """Samples are those that were written, column by column."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert set(one) == set(other)
        for name, value in other.items():
            assert same(one[name], value), name
