"""What the footers of Parquet files say of their columns: types, classes, what is missing."""

import json
from typing import Any

from ffrecord.errors import FormatError
from ffrecord.inputs.arrow_types import Missing, children, leaves, plain_type, pyarrow, shown_by_nulls
from ffrecord.inputs.arrow_values import missing_in

UNKNOWN = (-1, -1)  # numbers, none of which is a class


class Nulls:
    """What is missing in the columns of files: by what the files say, or by looking where that does not tell.

    Args:
        skips: whether to do without row groups that cannot be read.

    Attributes:
        found: column → what is missing.
    """

    def __init__(self, skips: bool) -> None:
        self.found: dict[str, Missing] = {}
        self._skips = skips

    def add(self, schema: Any, file: Any) -> None:
        """Add what is missing in a file of this schema."""
        spans = _spans_of_columns(file)
        for each in schema:
            said = [_said(file, i, spans.get(each.name)) for i in range(file.num_row_groups)]
            if _is_null(each.type):
                said = [file.metadata.num_rows]
            unknown = [i for i, count in enumerate(said) if count is None or (count and not _is_flat(each.type))]
            total = Missing(sum(count or 0 for count in said) if _is_flat(each.type) else 0)
            if _is_required(each):
                unknown = []
            before = self.found.get(each.name, Missing())
            if unknown and shown_by_nulls(each.type) and not (before.values and before.inside):
                total = _plus(total, self._counted(file, each.name, unknown))
            self.found[each.name] = _plus(before, total)

    def _counted(self, file: Any, name: str, groups: list[int]) -> Missing:
        """Look into a column of some row groups."""
        total = Missing()
        for i in groups:
            try:
                # Without threads: a pool of theirs does not survive a fork.
                table = file.read_row_group(i, columns=[name], use_threads=False)
            except (pyarrow().ArrowException, OSError):
                if not self._skips:
                    raise
                continue
            total = _plus(total, missing_in(table.column(name)))
        return total


def _plus(one: Missing, other: Missing) -> Missing:
    """Add up what is missing."""
    return Missing(one.values + other.values, one.inside + other.inside)


def _is_flat(kind: Any) -> bool:
    """Tell whether values have no values inside."""
    return leaves(kind) == 1 and not children(plain_type(kind))


def _is_required(column: Any) -> bool:
    """Tell whether no value of a column, nor what is inside of one, may be missing."""
    kind = plain_type(column.type)
    inside = [kind.field(i) for i in range(kind.num_fields)] if children(kind) else []
    return not column.nullable and all(map(_is_required, inside))


def _spans_of_columns(file: Any) -> dict[str, range]:
    """Return which columns of a file, which are flat, make up each of those that users know; {} if nobody knows."""
    found, start = {}, 0
    for each in file.schema_arrow:
        found[each.name] = range(start, start + leaves(each.type))
        start = found[each.name].stop
    return found if start == file.metadata.num_columns else {}


def _said(file: Any, group: int, span: range | None) -> int | None:
    """Return how many values a row group says are missing in the flat columns of one; None: it does not say."""
    if span is None:
        return None
    statistics = [file.metadata.row_group(group).column(i).statistics for i in span]
    if any(each is None or not each.has_null_count for each in statistics):
        return None
    return sum(int(each.null_count) for each in statistics)


def joined(schema: Any, other: Any, first: str, path: str) -> Any:
    """Return the schema of files that have one or the other; a column of nulls only takes any type.

    Raises:
        FormatError: columns of other names or types; names them.
    """
    names, others = list(schema.names), list(other.names)
    if sorted(names) != sorted(others):
        strange = [f"{name!r} is only in {first}" for name in names if name not in others]
        strange += [f"{name!r} is only in {path}" for name in others if name not in names]
        raise FormatError(
            f"{path}: other columns than in {first}: {'; '.join(strange)}; give them the same, or convert these files "
            "apart"
        )
    kinds = [(each, other.field(each.name)) for each in schema]
    wrong = [
        f"{one.name!r} is {two.type} here and {one.type} there"
        for one, two in kinds
        if one.type != two.type and not (_is_null(one.type) or _is_null(two.type))
    ]
    if wrong:
        raise FormatError(
            f"{path}: columns of other types than in {first}: {'; '.join(wrong)}; give them one type, or convert these "
            "files apart"
        )
    for one, two in kinds:
        if _is_null(one.type):
            schema = schema.set(schema.get_field_index(one.name), two)
    return schema


def _is_null(kind: Any) -> bool:
    return bool(kind == pyarrow().null())


def widen(bounds: dict[str, tuple[int, int]], file: Any) -> None:
    """Take in the least and the greatest number of each column of integers; without an entry, nobody knows."""
    spans = _spans_of_columns(file)
    for i in range(file.num_row_groups):
        for name, span in spans.items():
            statistics = file.metadata.row_group(i).column(span.start).statistics if len(span) == 1 else None
            low, high = UNKNOWN
            if statistics is not None and statistics.has_min_max and isinstance(statistics.min, int):
                low, high = statistics.min, statistics.max
            before = bounds.get(name, (low, high))
            bounds[name] = min(low, before[0]), max(high, before[1])


def fitting(classes: dict[str, list[str]], bounds: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """Return the classes of columns of which all numbers are one: -1 for an unknown one is not."""
    return {
        name: names
        for name, names in classes.items()
        if bounds.get(name, UNKNOWN)[0] >= 0 and bounds.get(name, UNKNOWN)[1] < len(names)
    }


def classes_of(schema: Any) -> dict[str, list[str]]:
    """Return the names of classes, where Hugging Face's library wrote the file and left them."""
    try:
        said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = said.get("info", {}).get("features", {})
        return {
            name: [str(each) for each in feature["names"]]
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}
