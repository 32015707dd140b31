"""Schema: conversion of samples of one structure to records and back."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Any, Generic

import msgspec
import numpy as np

from ffrecord.errors import FormatError, plural
from ffrecord.fields.arrays import NDArrayField
from ffrecord.fields.batch import Batch, check_records, decode_each
from ffrecord.fields.blobs import BytesField, StrField
from ffrecord.fields.declare import declare_tree
from ffrecord.fields.field import Array, Field
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.layout import RecordLayout, Slot
from ffrecord.fields.scalars import BoolField, FloatField, IntField
from ffrecord.fields.spec import from_spec, to_spec
from ffrecord.fields.tree import CLASSES, Node, Tree, builder, flattener, leaves, replace_fields, select
from ffrecord.fields.zstd import same_bytes
from ffrecord.kernels._records import Branch, Leaf, Pieces
from ffrecord.system.sample_types import UNTOLD, Sample
from ffrecord.system.values import check_samples, describe_wrong

# Looked up by the exact class: a derived field may encode in another way.
KINDS: dict[type[Field], str] = {
    IntField: "int",
    FloatField: "float",
    BoolField: "bool",
    BytesField: "bytes",
    StrField: "str",
}


def pieces_encoder(tree: Tree, encode: Callable[[Any], bytes], explain: Callable[[list[Any]], None]) -> Pieces:
    """Return a function like `encode` that returns the same bytes in pieces.

    Args:
        tree: the fields of the samples.
        encode: returns the record of a sample.
        explain: `RecordLayout.explain`.
    """
    leaves: list[Leaf] = []
    return Pieces(_node(tree, leaves), leaves, encode, explain)


def _node(tree: Tree, leaves: list[Leaf]) -> Leaf | Branch:
    if not isinstance(tree, Field):
        return Branch(CLASSES[tree.kind], tree.keys, tuple(_node(child, leaves) for child in tree.children))
    leaf = _leaf(tree)
    leaves.append(leaf)
    return leaf


def _leaf(field: Field) -> Leaf:
    fixed = field.fixed
    # Exact class, see KINDS.
    if type(field) is NDArrayField and fixed is not None:
        return Leaf("array", field.encode, fixed.size, fixed.dtype, fixed.shape)
    return Leaf(KINDS.get(type(field), "other"), field.encode, None if fixed is None else fixed.size)


ToTensor = Callable[[Array, str], Any]


class Schema(Generic[Sample]):
    """The columns of a dataset, and the conversion of its samples to records and back.

    A schema is immutable, and threads may share it. Make one with `Schema.infer(samples)`, `Schema.of(fields)` or
    `schema_of(reader)`. Type checkers know the type of samples if you declare it: `schema: Schema[Picture] =
    Schema.of(…)`.

    Attributes:
        columns: names of the columns, in order.
        fields: column -> field.
        slots: column -> Slot of each fixed-size column, the place of its values in every record.
        fixed_size: bytes of the fixed-size columns, with which each record begins.
        record_size: bytes of every record if all columns have a fixed size, else None.
    """

    __orig_class__ = UNTOLD

    def __init__(self, tree: Tree) -> None:
        """Make a schema of a tree of fields; users call `Schema.of`."""
        if not isinstance(tree, Node | Field):
            raise TypeError(
                describe_wrong("tree", tree, "a tree of fields", "call Schema.of(fields) or Schema.infer(samples)")
            )
        named = list(leaves(tree))
        layout = RecordLayout(named)
        self._tree, self._layout = tree, layout
        self.columns: tuple[str, ...] = tuple(name for name, _ in named)
        self.fields: Mapping[str, Field] = dict(named)
        self.slots: Mapping[str, Slot] = {
            name: slot for name, slot in zip(self.columns, layout.slots, strict=True) if slot is not None
        }
        self.fixed_size = layout.fixed_size
        self.record_size: int | None = None if layout.variable else layout.fixed_size
        # Made once: each sample needs them.
        self._flatten, self._build = flattener(tree), builder(tree)
        self._encode, self._decode = layout.encoder(), layout.decoder()
        # Only tensors need a second step, so most schemas skip it.
        self._tensors = [(i, field.torch_dtype) for i, (_, field) in enumerate(named) if field.torch_dtype is not None]

    @classmethod
    def infer(cls, samples: Sequence[Any]) -> "Schema":
        """Infer the schema of `samples`. Arrays whose shapes differ become fields of varying shape.

        Args:
            samples: one or more; take them from all over a large dataset.

        Raises:
            TypeError: no field holds a value, or two samples have different kinds in a column; the message names the
                column.
            ValueError: there are no samples, values are out of range, or structures have different keys or lengths.
        """
        check_samples("samples", samples)
        if not isinstance(samples, Sized) or not hasattr(samples, "__getitem__") or isinstance(samples, Mapping):
            raise TypeError(describe_wrong("samples", samples, "a list of samples"))
        return cls(infer_tree(samples))

    @classmethod
    def of(cls, fields: Any) -> "Schema":
        """Return the schema of explicit `fields`.

        Args:
            fields: a Field, or a dict, tuple or list of fields, nested; None for a column that is always None.

        Raises:
            TypeError: something else is in `fields`.
            ValueError: a field's class is not registered, or there are too many columns.
        """
        return cls(declare_tree(fields))

    def replace(self, fields: Mapping[str, Field]) -> "Schema":
        """Return this schema with other fields for some columns, which read the same bytes in another way.

        Args:
            fields: column -> field of the same kind and layout, such as {"image": JPEGField(as_bytes=True)}.

        Raises:
            KeyError: there is no such column.
            ValueError: a field has another kind or layout.
        """
        for name, field in fields.items():
            old = self.fields[name]
            # Another kind would read garbage, without an error.
            if not same_bytes(old, field):
                raise ValueError(f"{name}: {field!r} cannot read values that {old!r} wrote")
        return Schema(replace_fields(self._tree, iter([fields.get(name, self.fields[name]) for name in self.columns])))

    def encode(self, sample: Sample) -> bytes:
        """Return the record of `sample`.

        Raises:
            TypeError: a value, or the structure, has another type than its column; the message names the column.
            ValueError: the type is right, but shape, length, keys or range are not.
            OSError: a path cannot be read, for a field that takes paths; the message names the column.
        """
        return self._encode(self._flatten(sample))

    def pieces(self) -> Pieces:
        """Return a function like `encode` for `_records.Records.append`, which copies a sample's memory directly."""
        return pieces_encoder(self._tree, self.encode, self._layout.explain)

    def decode(self, record: Any, tensor: ToTensor | None = None) -> Sample:
        """Return the sample of `record`. Its arrays are new, writable and aligned.

        Args:
            record: a uint8 array, or any contiguous buffer.
            tensor: function of (array, name of its torch dtype) that makes a tensor; None leaves tensors as arrays.

        Raises:
            FormatError: `record` is not of this schema; the message names the column.
        """
        values = self._decode(_flat_view(record))
        # Nothing to convert in most programs.
        if tensor is not None:
            for position, dtype in self._tensors:
                values[position] = tensor(values[position], dtype)
        sample: Sample = self._build(values)
        return sample

    def decode_batch(self, data: Array, offsets: Any, tensor: ToTensor | None = None) -> list[Sample]:
        """Return the k samples of k records, as `decode` returns them.

        Arrays are writable, and overlap neither each other nor `data`. Arrays of one column may share a piece of memory
        of up to 1 MiB, which lives as long as one of them: copy the arrays that you keep for long.

        Args:
            data: uint8, 1-D.
            offsets: ints [k + 1]; record i is data[offsets[i]:offsets[i + 1]].
            tensor: function of (array, name of its torch dtype) that makes a tensor; None leaves tensors as arrays.

        Raises:
            FormatError: a record is not of this schema; the message names its place in the batch, and the column.
            TypeError, ValueError: `data` and `offsets` are not such arrays, or offsets lie outside of `data`.
        """
        batch = Batch(self._layout, *check_records(data, offsets))
        columns = decode_each(batch, batch.values)
        if tensor is not None:
            for position, dtype in self._tensors:
                columns[position] = [tensor(array, dtype) for array in columns[position]]
        # No columns: as many empty samples as records.
        if not columns:
            return [self._build(()) for _ in range(batch.size)]
        return list(map(self._build, zip(*columns, strict=True)))

    def decode_columns(
        self, data: Array, offsets: Any, tensor: ToTensor | None = None, names: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return the columns of k records: columns of fixed size as arrays, without Python work per sample.

        Args:
            data, offsets: the records, as for `decode_batch`.
            tensor: function of (array, name of its torch dtype) that makes a tensor. It gets the array of a whole
                column if the shape is fixed. None leaves tensors as arrays.
            names: names of the wanted columns; None for all.

        Returns:
            column -> new array [k, *shape] if its size is fixed (before compression), else the list of its k values.
            A column that is always None is a list.
            `unflatten` converts them to a structure of columns that is shaped like a sample.

        Raises:
            FormatError, TypeError, ValueError: errors of `decode_batch`.
        """
        batch = Batch(self._layout, *check_records(data, offsets))
        wanted = [name for name in self.columns if names is None or name in names]
        columns = dict(zip(wanted, decode_each(batch, batch.column, names), strict=True))
        if tensor is None:
            return columns
        for position, dtype in self._tensors:
            name = self.columns[position]
            if name in columns:
                found = columns[name]
                # An array if the shape is fixed; a list of arrays otherwise.
                whole = isinstance(found, np.ndarray)
                columns[name] = tensor(found, dtype) if whole else [tensor(each, dtype) for each in found]
        return columns

    def unflatten(self, values: Sequence[Any]) -> Any:
        """Arrange `values`, one for each column, in the structure of a sample.

        Raises:
            ValueError: there are not as many values as columns.
        """
        if len(values) != len(self.columns):
            raise ValueError(f"values has {len(values)} items, expected {len(self.columns)}, one for each column")
        return self._build(values)

    def _builder_of(self, names: Collection[str]) -> Callable[[Sequence[Any]], Any]:
        """Return a function that arranges the values of some columns, in their order, as a sample of no others."""
        # Nothing is left if no column is wanted: then samples are empty dicts.
        tree = select(self._tree, (name in names for name in self.columns))
        return builder(Node("dict", (), ()) if tree is None else tree)

    def to_builtins(self) -> dict[str, Any]:
        """Return this schema as builtins that msgpack and JSON hold, with a version."""
        return to_spec(self._tree)

    @classmethod
    def from_builtins(cls, spec: Any) -> "Schema":
        """Return the schema that `to_builtins` described.

        Raises:
            FormatError: `spec` is something else, has a later version, or has a field that is not registered in this
                process.
        """
        try:
            return cls(from_spec(spec))
        except FormatError:
            raise
        # Anything may be wrong in a file, so it is an error of the format.
        except ValueError as error:
            raise FormatError(f"schema: {error}") from error

    def fingerprint(self) -> str:
        """Return 64 hex digits that are equal for equal schemas, in every process and every release that reads this
        version.
        """
        # Deterministic: the order of keys in a dict must not change the fingerprint.
        return hashlib.sha256(msgspec.msgpack.encode(self.to_builtins(), order="deterministic")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self._tree == other._tree if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._tree)

    def __reduce__(self) -> tuple[type["Schema[Any]"], tuple[Tree]]:
        # The encoders are closures, which do not pickle; the tree makes them again.
        return Schema, (self._tree,)

    def __repr__(self) -> str:
        rows = [("column", "field", "bytes")]
        for name, field in self.fields.items():
            rows.append((name, repr(field), str(self.slots[name].size) if name in self.slots else "varying"))
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        kind = "one value" if isinstance(self._tree, Field) else f"a {self._tree.kind}"
        size = "records of varying size" if self.record_size is None else f"records of {self.record_size} bytes"
        head = f"Schema of samples that are {kind}: {plural(len(self.columns), 'column')}, {size}"
        return "\n".join([head, *(f"  {name:{widths[0]}}  {field:{widths[1]}}  {size}" for name, field, size in rows)])


def _flat_view(record: Any) -> memoryview:
    try:
        view = memoryview(record)
    except TypeError:
        raise TypeError(describe_wrong("a record", record, "a buffer of bytes")) from None
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    # Flat bytes, whatever the dtype of the array was.
    return view.cast("B")  # raises TypeError unless contiguous


def schema_of(reader: Any) -> Schema | None:
    """Return the schema that the files of `reader` were written with; None if its samples are plain bytes.

    Args:
        reader: a FileReader.

    Raises:
        FormatError: this process cannot read the stored schema; the message names the file.
    """
    extension = reader.extension
    try:
        stored = None if extension is None else extension.schema
        return None if stored is None else Schema.from_builtins(stored)
    except FormatError as error:
        raise FormatError(f"{reader.fnames[0]}: {error}") from error
