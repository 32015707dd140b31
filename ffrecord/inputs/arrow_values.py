"""Values of Arrow columns: Python objects, NumPy scalars and arrays, bytes of files."""

from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.inputs import arrow_types as kinds
from ffrecord.inputs.arrow_types import Missing, types
from ffrecord.system.requirements import require

Values = list[Any]


class RowError(FormatError):
    """The error of a row that is no sample.

    Attributes:
        place: place of the row in the table.
    """

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)
        self.place = place


def are_consecutive(places: Any) -> bool:
    """Tell whether rows follow each other, as they do in a conversion."""
    # The ends tell most of the others at once; NumPy finds the rest faster than Python.
    return bool(places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all())


def take_rows(table: Any, places: Any) -> Any:
    """Return the rows of a table at `places`, at least one: without a copy if they are consecutive."""
    if are_consecutive(places):
        return table.slice(int(places[0]), len(places))  # a slice shares the memory of the table
    try:
        return table.take(places)
    except kinds.pyarrow().ArrowNotImplementedError:  # `take` does not support string views and binary views
        return kinds.pyarrow().concat_tables([table.slice(int(place), 1) for place in places])


def decode(array: Any) -> Any:
    """Return an array without dictionaries, runs and extensions around its values."""
    while True:
        if kinds.is_extension(array.type):
            array = array.storage
        elif types().is_dictionary(array.type):
            array = _without_views(array).dictionary_decode()  # Arrow cannot decode a dictionary of views
        elif types().is_run_end_encoded(array.type):
            array = _compute().run_end_decode(array)
        else:
            return array


def _without_views(array: Any) -> Any:
    """Return a dictionary array whose values are no views, since Arrow cannot decode a dictionary of views."""
    views = {types().is_string_view: "large_string", types().is_binary_view: "large_binary"}
    name = next((name for fits, name in views.items() if fits(array.type.value_type)), None)
    if name is None:
        return array
    return type(array).from_arrays(array.indices, array.dictionary.cast(name))  # the indices stay as they are


def count_missing(column: Any) -> Missing:
    """Count the missing values of a table's column, and the missing items inside its values."""
    values = inside = 0
    for chunk in column.chunks:
        array = decode(chunk)
        values += array.null_count
        inside += _count_inside(array)
    return Missing(values, inside)


def _count_inside(array: Any) -> int:
    """Count the missing items inside the values that are there."""
    if kinds.is_list(array.type):
        return _count_all(array.flatten())
    if types().is_struct(array.type):  # flatten() counts the items of missing structs too
        return sum(_count_all(each) - int(array.null_count) for each in array.flatten())
    return (
        _count_all(_slice_range(array, array.items)) + _count_all(_slice_range(array, array.keys))
        if types().is_map(array.type)
        else 0
    )


def _count_all(array: Any) -> int:
    array = decode(array)
    return int(array.null_count) + _count_inside(array)


def _slice_range(maps: Any, inner: Any) -> Any:
    """Return the part of the keys, or items, that belongs to these maps."""
    offsets = maps.offsets
    # A slice of a map keeps the items of the whole array.
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return inner.slice(first, last - first)


def _compute() -> Any:
    return require("pyarrow.compute", "parquet", "reading Arrow tables")


# Python's values


def python_values(array: Any) -> Values:
    """Return the values of an array as Python objects, with NumPy scalars for times.

    Structs become dicts. Maps become lists of pairs, since keys may repeat and need not be text.
    """
    array = decode(array)
    # Not `to_pylist` for nested values: times inside would become Python objects of lower precision.
    if kinds.is_list(array.type):
        return _lists(array)
    if types().is_map(array.type):
        return _maps(array)
    if types().is_struct(array.type):
        return _structs(array)
    if kinds.is_time(array.type):
        # NumPy's times keep nanoseconds, which Python's do not.
        return scalar_values(array)
    values: Values = array.to_pylist()
    return values


def _lists(array: Any) -> Values:
    items = iter(python_values(array.flatten()))
    sizes = _compute().list_value_length(array).to_pylist()  # None for a missing list
    return [None if size is None else list(islice(items, size)) for size in sizes]


def _maps(array: Any) -> Values:
    both = zip(
        python_values(_slice_range(array, array.keys)), python_values(_slice_range(array, array.items)), strict=True
    )
    pairs = [list(pair) for pair in both]
    offsets = (array.offsets.to_numpy() - array.offsets[0].as_py()).tolist()
    parts = (pairs[first:last] for first, last in pairwise(offsets))
    # A missing map has no pairs, as an empty one.
    return [part if each else None for part, each in zip(parts, array.is_valid().to_pylist(), strict=True)]


def _structs(array: Any) -> Values:
    names = [each.name for each in array.type]
    columns = [python_values(array.field(i)) for i in range(len(names))]
    # A struct without columns still has rows.
    rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
    valid = array.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if each else None for row, each in zip(rows, valid, strict=True)]


# Others


def scalar_values(array: Any) -> Values:
    """Return the values of an array as NumPy scalars."""
    array = decode(array)
    return _fill_nulls(array, lambda there: list(there.to_numpy(zero_copy_only=False)))


def numbers_of(column: Any, dtype: Any) -> Any:
    """Return the numbers or times of a table's column as one new array of a dtype; None if some are missing."""
    # Values that are missing in a dictionary count only once it is decoded.
    parts = [decode(chunk) for chunk in column.chunks]
    if any(part.null_count for part in parts):
        return None
    return np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts]).astype(dtype, copy=False)


def find_bad_text(array: Any) -> int:
    """Return the place of the first value whose text is not UTF-8; 0 if there is none."""
    for place, value in enumerate(array):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return place
    return 0


def array_values(array: Any) -> Values:
    """Return each list of numbers as its own array."""
    array = decode(array)
    flat = decode(array.flatten())
    # NumPy would make NaN of a missing number, or floats of ints.
    if flat.null_count:
        place = next(place for place, value in enumerate(array.to_pylist()) if value is not None and None in value)
        raise RowError(place, "a list of numbers has a missing value; declare MsgpackField() for this column")
    numbers = flat.to_numpy(zero_copy_only=False)  # bools cannot do without a copy
    sizes = _compute().list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    parts = iter(np.split(numbers, np.cumsum(sizes)[:-1]) if len(sizes) else [])
    # A copy, so that one list does not keep the others alive.
    return [next(parts).copy() if each else None for each in array.is_valid().to_pylist()]


def tensor_values(array: Any) -> Values:
    """Return arrays of several dimensions: as Arrow has them, or as Hugging Face stores them."""
    if kinds.is_arrow_tensor(array.type):
        return _fill_nulls(array, lambda there: [np.ascontiguousarray(each) for each in there.to_numpy_ndarray()])
    dtype = np.dtype(array.type.value_type)
    return [None if value is None else np.asarray(value, dtype) for value in array.to_pylist()]


def _fill_nulls(array: Any, get: Callable[[Any], Values]) -> Values:
    """Return what `get` gives of the values that are there, and None for the others."""
    # The usual case, without a look at each value.
    if not array.null_count:
        return get(array)
    there = iter(get(array.drop_null()) if array.null_count < len(array) else [])
    return [next(there) if each else None for each in array.is_valid().to_pylist()]


def file_values(array: Any) -> Values:
    """Return the bytes of files that are in the table."""
    values: Values = decode(array).to_pylist()
    for place, value in enumerate(values):
        if value is not None and value["bytes"] is None and value["path"] is not None:
            # The path is of the machine that wrote the table, and may lead anywhere.
            raise RowError(
                place,
                f"the table has no bytes of a file, only its path {value['path']!r}; store the bytes in the table",
            )
    return [value and value["bytes"] for value in values]


def file_values_beside(array: Any) -> Values:
    """Return the bytes of files that are in the table, or at the paths it names."""
    return [value and _bytes_of(value) for value in decode(array).to_pylist()]


def with_files_beside(array: Any) -> Values:
    """Return Python's values; files inside of them have the bytes of those that the table names."""
    values = python_values(array)
    for value in values:
        _fill_files(value, array.type)
    return values


def _fill_files(value: Any, kind: Any) -> None:
    kind = kinds.plain_type(kind)
    if value is None or not (kinds.is_file(kind) or kinds.has_files_inside(kind)):
        return
    if kinds.is_file(kind):
        value["bytes"] = _bytes_of(value)
    elif types().is_struct(kind):
        for each in kind:
            _fill_files(value[each.name], each.type)
    elif types().is_map(kind):
        for pair in value:
            _fill_files(pair[1], kind.item_type)
    else:
        for item in value:
            _fill_files(item, kind.value_type)


def _bytes_of(value: dict[str, Any]) -> bytes | None:
    if value["bytes"] is not None or value["path"] is None:
        found: bytes | None = value["bytes"]
        return found
    # The user's own dataset names its own files; see `TableRows.beside`.
    with open(value["path"], "rb") as file:
        return file.read()


TAKES: dict[str, Callable[[Any], Values]] = {
    kinds.PYTHON: python_values,
    kinds.SCALARS: scalar_values,
    kinds.ARRAYS: array_values,
    kinds.TENSORS: tensor_values,
    kinds.FILES: file_values,
}
