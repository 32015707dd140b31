"""Collation of records like torch's default_collate, but without decoding samples: a tensor for each column."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torchs

from ffrecord.errors import add_note
from ffrecord.fields import BoolField, FloatField, IntField, NDArrayField, ScalarField, Schema, TensorField, ZstdField
from ffrecord.fields.field import Field
from ffrecord.fields.layout import Slot
from ffrecord.torch.samples import FIRST_TYPES, LazySamples, RowSamples, SampleRecords, as_plain
from ffrecord.torch.tensors import as_tensor
from ffrecord.torch.transfer import carry, copy_rows

__all__ = ["can_collate", "collate"]

NUMBERS = (BoolField, FloatField, IntField, NDArrayField, ScalarField)
STRUCTURES = tuple(FIRST_TYPES)


def collate(batch: list[Any]) -> Any:
    """Collate samples like torch's default_collate.

    If the samples come from `Dataset` and nothing has looked at them, each column of fixed size becomes a tensor,
    without an object per sample. default_collate itself does so too, the default of torch's own loader. Use this
    function to say so explicitly.

    Args:
        batch: one or more samples of the same structure.

    Returns:
        The result of default_collate: dicts of tensors for dicts, lists of tensors for tuples and lists; strings stay
            lists.

    Raises:
        As default_collate; a note names the column.
        FormatError: a record is not of its schema.
    """
    if type(batch) is LazySamples and batch.records is not None and not batch.looked:
        return _collate_records(batch.records, torchs.default_collate_fn_map)
    return default_collate(batch)


def can_collate(schema: Schema, names: tuple[str, ...] | None = None) -> bool:
    """Tell whether to collate records of `schema` without decoding: some column can become a tensor.

    Args:
        schema: schema of the records.
        names: names of the wanted columns; None for all.
    """
    fields = schema.fields if names is None else {name: schema.fields[name] for name in names}
    return isinstance(_template(schema, names), STRUCTURES) and any(map(_is_numeric, fields.values()))


def _collate_first(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Collate a batch whose first sample is one of FIRST_TYPES; default_collate calls this function."""
    fresh = type(batch) is LazySamples and batch.records is not None
    if collate_fn_map is torchs.default_collate_fn_map and _is_unchanged(collate_fn_map):
        if fresh:
            return _collate_records(batch.records, collate_fn_map)  # type: ignore[attr-defined]
        if type(batch) is RowSamples:
            return carry(torchs.collate(list(batch), collate_fn_map={**collate_fn_map, torch.Tensor: _join_rows}))
    return torchs.collate(list(map(as_plain, batch)), collate_fn_map=collate_fn_map)


def _join_rows(rows: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Return the tensor whose rows these are, without a copy; if there is none, a new one."""
    first, size = rows[0], rows[0].numel()
    storage = first.untyped_storage()
    whole = storage.nbytes() == len(rows) * size * first.element_size()
    if whole and all(
        row.storage_offset() == place * size and row.untyped_storage().data_ptr() == storage.data_ptr()
        for place, row in enumerate(rows)
    ):
        return first.as_strided((len(rows), *first.shape), (size, *first.stride()), 0)
    stack = _TORCH_FUNCTIONS[torch.Tensor]
    stacked: torch.Tensor = stack(rows, collate_fn_map=collate_fn_map)
    return stacked


# torch's functions for tensors and numbers. If a program has replaced one, its function decides.
_TORCH_FUNCTIONS = {
    kind: function
    for kind, function in torchs.default_collate_fn_map.items()
    if kind in (torch.Tensor, np.ndarray, int, float) or isinstance(kind, tuple)
}


def _is_unchanged(functions: Any) -> bool:
    """Tell whether tensors and numbers are collated by torch's own functions."""
    return all(functions.get(kind) is function for kind, function in _TORCH_FUNCTIONS.items())


for _first in FIRST_TYPES.values():
    torchs.default_collate_fn_map[_first] = _collate_first


def _collate_records(records: SampleRecords, functions: Any) -> Any:
    schema, names = records.schema, None if records.columns is None else records.columns.names
    columns = _fixed_columns(records)
    if columns is None:
        found = schema.decode_columns(records.data, records.offsets, tensor=as_tensor, names=names)
        columns = {name: _tensor_or_values(schema.fields[name], column) for name, column in found.items()}

    return carry(_build_batch(_template(schema, names), columns, functions))


# Not a closure in `_collate_records`: a recursive one would keep itself and the batch alive until garbage collection.
def _build_batch(node: Any, columns: Mapping[str, Any], functions: Any, in_dict: bool = True) -> Any:
    """Return a part of the batch: `node` with its collated columns instead of their names."""
    if isinstance(node, dict):
        return {key: _build_batch(child, columns, functions) for key, child in node.items()}
    if not isinstance(node, str):
        return [_build_batch(child, columns, functions, in_dict=False) for child in node]
    column = columns[node]
    if isinstance(column, torch.Tensor):
        return column
    try:
        # default_collate passes a tuple of values for items of lists and tuples. The difference shows if they are
        # strings.
        return torchs.collate(column if in_dict else tuple(column), collate_fn_map=functions)
    except Exception as error:  # it stays the error of default_collate
        add_note(error, f"This is column {node}.")
        raise


@lru_cache(maxsize=64)
def _template(schema: Schema, names: tuple[str, ...] | None) -> Any:
    """Return the structure of a sample with the wanted columns, with the name of a column in place of each value."""
    names = schema.columns if names is None else names
    return schema._builder_of(names)(names)


def _fixed_columns(records: SampleRecords) -> dict[str, torch.Tensor] | None:
    """Return a tensor for each wanted column if all are numbers of fixed size; None if they need a closer look."""
    schema, count = records.schema, len(records.offsets) - 1
    names = schema.columns if records.columns is None else records.columns.names
    fields, size = {name: schema.fields[name] for name in names}, schema.record_size
    if not size or not all(map(_is_numeric, fields.values())) or (np.diff(records.offsets) != size).any():
        return None
    start = int(records.offsets[0])
    rows = records.data[start : start + count * size].reshape(count, size)
    columns = {}
    for name, field in fields.items():
        slot = schema.slots[name]
        column = _column(rows[:, slot.offset : slot.offset + slot.size], slot, field)
        if column is None:
            return None
        columns[name] = column
    return columns


def _column(rows: Any, slot: Slot, field: Field) -> torch.Tensor | None:
    if slot.dtype.kind == "b" and rows.max(initial=0) > 1:
        return None  # damaged: decoding finds the place and raises
    dtype: Any = _torch_dtype(slot.dtype) if field.torch_dtype is None else getattr(torch, field.torch_dtype)
    column: torch.Tensor = copy_rows(rows).view(dtype)
    return column.view(len(rows), *slot.shape)


def _tensor_or_values(field: Field, column: Any) -> Any:
    """Return a column of `Schema.decode_columns` as a tensor, or as the list of its values if it cannot be one."""
    inner = field.inner if isinstance(field, ZstdField) else field
    if isinstance(column, torch.Tensor):
        return column
    if not isinstance(column, np.ndarray):
        return column
    return torch.from_numpy(column) if _is_numeric(inner) else inner.unstack(column)


def _is_numeric(field: Field) -> bool:
    """Tell whether default_collate always makes one tensor of the values of a field."""
    if field.fixed is None:
        return False
    if type(field) is ScalarField:
        return _takes_scalars(field.dtype)
    return type(field) is TensorField or (type(field) in NUMBERS and _torch_dtype(field.fixed.dtype) is not None)


@lru_cache(maxsize=64)
def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch dtype of the same numbers; None if there is none."""
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError):  # torch has no such dtype, or the byte order is foreign
        return None


@lru_cache(maxsize=64)
def _takes_scalars(dtype: np.dtype[Any]) -> bool:
    """Tell whether torch makes a tensor of numpy scalars, as default_collate asks. It refuses uint64, for example."""
    try:
        return torch.as_tensor([dtype.type(0)], device="cpu").dtype == _torch_dtype(dtype)
    except (TypeError, ValueError):
        return False
