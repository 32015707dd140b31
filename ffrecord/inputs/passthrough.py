"""Records of `.ffr` files: copied unchanged, or with other fields for some columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from importlib import import_module
from typing import Any

from ffrecord.errors import ArgumentError
from ffrecord.fields import BytesField, ImageFileField, JPEGField, Schema, TensorField, schema_of
from ffrecord.fields.declare import declare_tree, overlay_fields
from ffrecord.fields.field import Field, Fixed
from ffrecord.fields.labels import class_names_of
from ffrecord.fields.tree import Node, Tree
from ffrecord.inputs.classes import name_classes
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.stores import StoreSamples, check_complete
from ffrecord.reader import FileReader


class VerbatimDataset(StoreSamples):
    """Unchanged records, under the schema that they have.

    Attributes:
        columns: columns of the result; None for records without a schema.
    """

    def __init__(self, store: FileReader, schema: Schema | None) -> None:
        super().__init__(store)
        self.columns = None if schema is None else SampleColumns(Verbatim(schema))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [record.data for record in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[Any]:
        if len(indices) == 1:
            return [self.store.read_one(indices[0])]  # unlike `read`, it raises the error whatever `on_error` is
        return check_complete(self.store, indices, self.store.read(indices))


class RetypedDataset(VerbatimDataset):
    """Samples with other fields for some columns: these are decoded, all others keep their bytes.

    Args:
        schema: schema of the files.
        fields: fields for some columns of dicts; or for all, as `Schema.of` takes them.

    Raises:
        ValueError: a column that does not exist.
        TypeError: an object that is no field.
    """

    def __init__(self, store: FileReader, schema: Schema, fields: Any) -> None:
        super().__init__(store, None)
        reading, self.columns = retype(schema._tree, fields)
        self._reading, self._tensor = Schema(reading), tensors_of(reading)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self._reading.decode(record, self._tensor) for record in self._read(indices)]


def retype(old: Tree, fields: Any) -> tuple[Tree, SampleColumns]:
    """Return the tree that reads records, and the columns of the result: all others than those with a new field keep
    their bytes.

    Args:
        old: tree of the records.
        fields: as for `RetypedDataset`; or None.

    Raises:
        As `RetypedDataset`.
    """
    new = _wanted_tree(old, fields) if fields else old
    reading, writing = _retype(old, new)
    return reading, SampleColumns(_RetypedSchema(Schema(new), Schema(writing)))


def tensors_of(reading: Tree) -> Callable[[Any, str], Any] | None:
    """Return the function that makes the tensors of a tree; None if it has no field of tensors."""
    # Tensor fields take nothing but tensors. torch is imported only if a field needs it.
    again = any(isinstance(field, TensorField) for field in Schema(reading).fields.values())
    return import_module("ffrecord.torch.tensors").as_tensor if again else None


def _wanted_tree(old: Tree, fields: Any) -> Tree:
    """Return the tree of all fields; a mapping may name some."""
    # A Schema names all columns.
    if isinstance(fields, Schema):
        return fields._tree
    if isinstance(fields, Mapping) and isinstance(old, Node) and old.kind == "dict":
        # A name that is no column is a typing error.
        strange = [name for name in fields if name not in old.keys]
        if strange:
            raise ArgumentError(f"fields has {strange[0]!r}, expected some of the columns {', '.join(old.keys)}")
        return overlay_fields(old, declare_tree(fields))
    return declare_tree(fields)


def _retype(old: Tree, new: Tree) -> tuple[Tree, Tree]:
    """Return the trees that read the records and encode the result: a column with an unchanged field is copied."""
    # Equal fields: the bytes are copied, without decoding and encoding.
    if old == new:
        return _keep_bytes(old), _keep_bytes(new)
    if isinstance(old, Node) and isinstance(new, Node) and _same_shape(old, new):
        # The place in the old node of each child of the new one.
        # Columns may come in another order than they were.
        places = [old.keys.index(name) for name in new.keys] or list(range(len(new.children)))
        pairs = [_retype(old.children[place], child) for place, child in zip(places, new.children, strict=True)]
        # Back in the order of the old node, whose records are read.
        reading = [pairs[places.index(place)][0] for place in range(len(pairs))]
        return _with_children(old, reading), _with_children(new, [pair[1] for pair in pairs])
    return _reading_tree(old, new), new


def _same_shape(old: Node, new: Node) -> bool:
    return old.kind == new.kind and len(old.children) == len(new.children) and set(old.keys) == set(new.keys)


@dataclass(frozen=True)
class _KeptFields(Field):
    """A field that passes on the bytes of another one; never stored in a file."""

    inner: Field

    @property
    def fixed(self) -> Fixed | None:
        return self.inner.fixed

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class _ClassNameField(_KeptFields):
    """A field that reads class names, for a field that numbers the classes otherwise; never stored in a file."""

    def decode(self, data: memoryview) -> Any:
        return name_classes(self.inner.decode(data), class_names_of(self.inner) or ())


class Verbatim(Schema):
    """A schema for samples that are its records already."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema._tree)

    def encode(self, sample: Any) -> bytes:
        return bytes(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return Verbatim, (Schema(self._tree),)


class _RetypedSchema(Schema):
    """A schema that encodes as another one does."""

    def __init__(self, schema: Schema, writing: Schema) -> None:
        super().__init__(schema._tree)
        self._writing = writing

    def encode(self, sample: Any) -> bytes:
        return self._writing.encode(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return _RetypedSchema, (Schema(self._tree), self._writing)


def open_records(store: FileReader, fields: Any = None) -> VerbatimDataset:
    """Return the records of a reader of `.ffr` files, with fields for some columns."""
    schema = schema_of(store)
    # Nothing to change, so each record is copied as a whole.
    if schema is None or not fields or (isinstance(fields, Schema) and fields == schema):
        return VerbatimDataset(store, schema)
    return RetypedDataset(store, schema, fields)


def _with_children(node: Node, children: Sequence[Tree]) -> Node:
    return Node(node.kind, node.keys, tuple(children))


def _keep_bytes(tree: Tree) -> Tree:
    return (
        _KeptFields(tree)
        if isinstance(tree, Field)
        else _with_children(tree, [_keep_bytes(child) for child in tree.children])
    )


def _reading_tree(old: Tree, new: Tree) -> Tree:
    """Return the tree that reads a column with a new field: image files as bytes if these are wanted, classes by
    name."""
    if isinstance(old, Node):
        several = isinstance(new, Node) and len(new.children) == len(old.children)
        inner = new.children if isinstance(new, Node) and several else [new] * len(old.children)
        return _with_children(old, [_reading_tree(*pair) for pair in zip(old.children, inner, strict=True)])
    # A picture that stays a file is not decoded.
    if isinstance(old, JPEGField | ImageFileField) and isinstance(new, JPEGField | ImageFileField | BytesField):
        return changed(old, as_bytes=True)
    if isinstance(new, Field):
        names, wanted = class_names_of(old), class_names_of(new)
        # Numbers would keep their value and change their meaning.
        if names and wanted and names != wanted:
            return _ClassNameField(old)
    return old
