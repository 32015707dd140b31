"""Features of Examples, inferred from some of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples_errors import KINDS, ExampleError, FeatureKindError, error_of
from ffrecord.sources.tfrecord.examples_features import Feature, FixedFeature, VarFeature
from ffrecord.system.buffers import as_bytes

DTYPES = {1: "string", 2: "float32", 3: "int64"}
Facts = dict[str, list[tuple[int, int]]]  # name → (kind, count of values) for each occurrence


def describe(record: Any, index: int = 0, lists: bool = False) -> Facts:
    """Describe one record: its features, or its lists of features with one pair for each step.

    Raises:
        ExampleError: it is not an Example.
    """
    try:
        return _examples.describe(np.frombuffer(as_bytes(record), np.uint8), 2 if lists else 1)
    except _examples.Fault as fault:
        fault.row = index
        raise error_of(fault, ()) from None


def infer(records: Any) -> dict[str, Feature]:
    """Infer features from records, for an `ExampleParser` of a file without a description.

    A feature that each record has, with the same number of values, becomes a `FixedFeature`: of shape () for one value,
    and of (count,) for more. Every other feature becomes a `VarFeature`. Bytes become "string": the file does not
    contain shapes.

    Args:
        records: one record, as any buffer, or several. A fixed feature is a guess from these: more records, from all
            over the file, make the guess better.

    Returns:
        Name → feature, in the order of the first record; further names of later records follow.

    Raises:
        FeatureKindError: a feature has different kinds in two records.
        ExampleError: a record is not an Example; or it is a SequenceExample, whose lists would be lost.
        ArgumentError: there are no records.
    """
    facts = [_features(record, index) for index, record in enumerate(_several(records))]
    if not facts:
        raise ArgumentError("features cannot be inferred: there are no records")
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: feature for name in names if (feature := _feature(name, facts)) is not None}


def first_list(record: Any) -> str | None:
    """Return the name of one of the record's lists; None for an Example, which has none.

    Parsers of Examples accept both.
    """
    try:
        return next(iter(describe(record, lists=True)), None)
    except ExampleError:
        return None  # the field with that number is something else, which every parser skips


def _features(record: Any, index: int) -> Facts:
    facts = describe(record, index)
    key = first_list(record)
    if key is not None:
        raise ExampleError(
            f"example {index} is a SequenceExample: it has the list {key!r}; read it with "
            "ffrecord.sources.SequenceParser",
            key=key,
            index=index,
        )
    return facts


def _several(records: Any) -> Sequence[Any]:
    single = isinstance(records, bytes | bytearray | memoryview) or (
        isinstance(records, np.ndarray) and records.dtype != object
    )
    return [records] if single else list(records)


def _feature(name: str, facts: list[Facts]) -> Feature | None:
    """Return the feature with a name; None if it has no values anywhere."""
    found = [each.get(name, [(0, 0)]) for each in facts]
    kind = _kind(name, ([pair[0] for pair in pairs] for pairs in found))
    if kind == 0:
        return None
    counts = {pairs[0][1] for pairs in found}
    if len(counts) > 1 or 0 in counts:
        return VarFeature(DTYPES[kind])
    count = found[0][0][1]
    return FixedFeature(DTYPES[kind], () if count == 1 else (count,))


def _kind(name: str, kinds: Iterable[list[int]]) -> int:
    """Return the one kind that a feature has; 0 if it never has one."""
    known, since = 0, 0
    for index, each in enumerate(kinds):
        for kind in each:
            if kind and known and kind != known:
                has, before = KINDS[kind], KINDS[known]
                message = (
                    f"example {index}, feature {name!r}: it holds {has} values, but {before} values in example {since}"
                )
                raise FeatureKindError(message, key=name, index=index, found=has, expected=before)
            if kind and not known:
                known, since = kind, index
    return known
