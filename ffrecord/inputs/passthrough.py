"""Records of `.ffr` files: as they are, or with other fields for some columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from importlib import import_module
from typing import Any

from ffrecord.errors import ArgumentError
from ffrecord.fields import BytesField, JPEGField, LabelField, Schema, TensorField, schema_of
from ffrecord.fields.complete import overlay_fields
from ffrecord.fields.declare import declare_tree
from ffrecord.fields.field import Field, Fixed
from ffrecord.fields.tree import Node, Tree
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.stores import OfStore, all_of
from ffrecord.reader import FileReader


class VerbatimDataset(OfStore):
    """Records as they are, under the schema that they have.

    Attributes:
        columns: of the result; None for records without a schema.
    """

    def __init__(self, store: FileReader, schema: Schema | None) -> None:
        super().__init__(store)
        self.columns = None if schema is None else SampleColumns(Verbatim(schema))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [record.data for record in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[Any]:
        if len(indices) == 1:
            return [self.store.read_one(indices[0])]  # which says what is wrong, whatever `on_error` is
        return all_of(self.store, indices, self.store.read(indices))


class RetypedDataset(VerbatimDataset):
    """Samples of which some columns get other fields: these are decoded, all others stay the bytes that they are.

    Args:
        schema: of the files.
        fields: for some columns of dicts; or of all, as `Schema.of` takes them.

    Raises:
        ValueError: a column that there is not. TypeError: what is no field.
    """

    def __init__(self, store: FileReader, schema: Schema, fields: Any) -> None:
        super().__init__(store, None)
        old, new = schema._tree, _wanted(schema._tree, fields)
        reading, writing = _retyped(old, new)
        self._reading = Schema(reading)
        self.columns = SampleColumns(_Retyped(Schema(new), Schema(writing)))
        # Fields of tensors take nothing else.
        again = any(isinstance(field, TensorField) for field in self._reading.fields.values())
        self._tensor = import_module("ffrecord.torch.tensors").as_tensor if again else None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self._reading.decode(record, self._tensor) for record in self._read(indices)]


def _wanted(old: Tree, fields: Any) -> Tree:
    """Return all fields, of which a mapping may name some."""
    if isinstance(fields, Schema):
        return fields._tree
    if isinstance(fields, Mapping) and isinstance(old, Node) and old.kind == "dict":
        strange = [name for name in fields if name not in old.keys]
        if strange:
            raise ArgumentError(f"fields has {strange[0]!r}, which is no column; there are {', '.join(old.keys)}")
        return overlay_fields(old, declare_tree(fields))
    return declare_tree(fields)


def _retyped(old: Tree, new: Tree) -> tuple[Tree, Tree]:
    """Return what reads the records, and what encodes that: columns whose field stays are copied."""
    if old == new:
        return _kept(old), _kept(new)
    if isinstance(old, Node) and isinstance(new, Node) and _alike(old, new):
        # Of each child of the new one, its place in the old one.
        places = [old.keys.index(name) for name in new.keys] or list(range(len(new.children)))
        pairs = [_retyped(old.children[place], child) for place, child in zip(places, new.children, strict=True)]
        reading = [pairs[places.index(place)][0] for place in range(len(pairs))]
        return _each(old, reading), _each(new, [pair[1] for pair in pairs])
    return _read_as(old, new), new


def _alike(old: Node, new: Node) -> bool:
    return old.kind == new.kind and len(old.children) == len(new.children) and set(old.keys) == set(new.keys)


@dataclass(frozen=True)
class _KeptFields(Field):
    """The bytes that another field made, there and back; of no file."""

    inner: Field

    @property
    def fixed(self) -> Fixed | None:
        return self.inner.fixed

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class _Named(_KeptFields):
    """The names of classes, where another field numbers them otherwise; of no file."""

    def decode(self, data: memoryview) -> Any:
        field: Any = self.inner
        return field.names[field.decode(data)]


class Verbatim(Schema):
    """A schema of samples that are records of it already."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema._tree)

    def encode(self, sample: Any) -> bytes:
        return bytes(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return Verbatim, (Schema(self._tree),)


class _Retyped(Schema):
    """A schema that encodes as another one does."""

    def __init__(self, schema: Schema, writing: Schema) -> None:
        super().__init__(schema._tree)
        self._writing = writing

    def encode(self, sample: Any) -> bytes:
        return self._writing.encode(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Retyped, (Schema(self._tree), self._writing)


def of_reader(store: FileReader, fields: Any = None) -> VerbatimDataset:
    """The records of a reader of `.ffr` files, with fields for some columns."""
    schema = schema_of(store)
    if schema is None or not fields or (isinstance(fields, Schema) and fields == schema):
        return VerbatimDataset(store, schema)
    return RetypedDataset(store, schema, fields)


def _each(node: Node, children: Sequence[Tree]) -> Node:
    return Node(node.kind, node.keys, tuple(children))


def _kept(tree: Tree) -> Tree:
    return _KeptFields(tree) if isinstance(tree, Field) else _each(tree, [_kept(child) for child in tree.children])


def _read_as(old: Tree, new: Tree) -> Tree:
    """Return what reads a column that becomes another: JPEGs as bytes where these are wanted, classes by name."""
    if isinstance(old, Node):
        several = isinstance(new, Node) and len(new.children) == len(old.children)
        inner = new.children if isinstance(new, Node) and several else [new] * len(old.children)
        return _each(old, [_read_as(*pair) for pair in zip(old.children, inner, strict=True)])
    if isinstance(old, JPEGField) and isinstance(new, JPEGField | BytesField):
        return changed(old, as_bytes=True)
    if isinstance(new, Field):
        names, wanted = _class_names(old), _class_names(new)
        if names and wanted and names != wanted:
            if isinstance(old, LabelField):
                return _Named(old)
            raise ArgumentError(f"{old!r} and {new!r} have other classes, or in another order: declare the former")
    return old


def _class_names(field: Any) -> Sequence[str] | None:
    """Return the names of classes that a field, or the one inside of it, has."""
    while not isinstance(field, LabelField):
        field = getattr(field, "inner", None)
        if field is None:
            return None
    return field.names
