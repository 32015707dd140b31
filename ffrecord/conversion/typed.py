"""Records of `.ffr` files: as they are, or with other fields for some columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from ffrecord.conversion.columns import Columns
from ffrecord.conversion.stores import OfStore, all_of
from ffrecord.errors import ArgumentError
from ffrecord.fields import BytesField, JPEGField, Schema, schema_of
from ffrecord.fields.declare import declared
from ffrecord.fields.field import Field, Fixed
from ffrecord.fields.tree import Node, Tree
from ffrecord.reader import FileReader


class VerbatimDataset(OfStore):
    """Records as they are, under the schema that they have.

    Attributes:
        columns: of the result; None for records without a schema.
    """

    def __init__(self, store: FileReader, schema: Schema | None) -> None:
        super().__init__(store)
        self.columns = None if schema is None else Columns(_Verbatim(schema))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [record.data for record in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[Any]:
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
        old = schema._tree
        if isinstance(fields, Mapping) and isinstance(old, Node) and old.kind == "dict":
            strange = [name for name in fields if name not in old.keys]
            if strange:
                raise ArgumentError(f"fields has {strange[0]!r}, which is no column; there are {', '.join(old.keys)}")
            wanted = [declared(fields[name]) if name in fields else None for name in old.keys]
            self._reading = Schema(_each(old, [_read_as(*pair) for pair in zip(old.children, wanted, strict=True)]))
            self.columns = Columns(
                _Retyped(
                    Schema(_each(old, [new or tree for new, tree in zip(wanted, old.children, strict=True)])),
                    Schema(_each(old, [new or _kept(tree) for new, tree in zip(wanted, old.children, strict=True)])),
                )
            )
        else:
            new = fields._tree if isinstance(fields, Schema) else declared(fields)
            self._reading, self.columns = Schema(_read_as(old, new)), Columns(Schema(new))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self._reading.decode(record) for record in self._read(indices)]


@dataclass(frozen=True)
class _Kept(Field):
    """The bytes that another field made, there and back; of no file."""

    inner: Field

    @property
    def fixed(self) -> Fixed | None:
        return self.inner.fixed

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)


class _Verbatim(Schema):
    """A schema of samples that are records of it already."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema._tree)

    def encode(self, sample: Any) -> bytes:
        return bytes(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Verbatim, (Schema(self._tree),)


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
    return VerbatimDataset(store, schema) if schema is None or not fields else RetypedDataset(store, schema, fields)


def _each(node: Node, children: Sequence[Tree]) -> Node:
    return Node(node.kind, node.keys, tuple(children))


def _kept(tree: Tree) -> Tree:
    return _Kept(tree) if isinstance(tree, Field) else _each(tree, [_kept(child) for child in tree.children])


def _read_as(old: Tree, new: Tree | None) -> Tree:
    """What reads a column that is kept, or that becomes another: JPEGs as bytes where these are wanted."""
    if new is None:
        return _kept(old)
    if isinstance(old, Node):
        several = isinstance(new, Node) and len(new.children) == len(old.children)
        inner = new.children if isinstance(new, Node) and several else [new] * len(old.children)
        return _each(old, [_read_as(*pair) for pair in zip(old.children, inner, strict=True)])
    if isinstance(old, JPEGField) and isinstance(new, JPEGField | BytesField):
        return changed(old, as_bytes=True)
    return old
