"""Columns of samples, inferred from a few of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.fields import (
    BytesField,
    ImageFileField,
    JPEGField,
    JSONField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    Schema,
)
from ffrecord.fields.declare import complete_tree, declare_tree
from ffrecord.fields.dtypes import array_of_lists
from ffrecord.fields.field import Field
from ffrecord.fields.images.image_codec import is_known_kind
from ffrecord.fields.images.image_header import image_format
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.tree import Node, Tree
from ffrecord.inputs.classes import Classes, Renamed, find_renamed, name_classes
from ffrecord.system.values import describe_wrong

JPEG = JPEGField()
IMAGE_FILE = ImageFileField()
FILES = (JPEGField, ImageFileField)  # fields that take bytes of files, not arrays
JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif")
IMAGE_SUFFIXES = (*JPEG_SUFFIXES, ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about columns from their source, by name.

    Attributes:
        records: columns whose arrays are the bytes of something, not numbers.
        labels: names of the classes that the numbers of a column mean; all of them are numbers of classes.
        classes: names of the classes that the numbers in a column mean, where it has any.
        fields: fields of columns whose types the source knows.
        suffixed: column → the field that fits every file's name, None if there is none; without an entry, values alone
            decide.
        arrays: whether lists of numbers are meant as arrays, not as JSON.
    """

    records: frozenset[str] = frozenset()
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Mapping[str, Classes] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    suffixed: Mapping[str, Field | None] = field(default_factory=dict)
    arrays: bool = False


@dataclass(frozen=True)
class SampleColumns:
    """The columns of samples, and the way to store them.

    Attributes:
        schema: schema of the result.
        flat: columns whose 1-D uint8 arrays become bytes, because their fields take no arrays for that.
        optional: columns that samples may lack; they become None.
        renamed: class names in columns whose fields have other numbers for them.
    """

    schema: Schema
    flat: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    renamed: Mapping[str, Renamed] = field(default_factory=dict)

    def prepare(self, sample: Any, *, here: bool = False) -> Any:
        """Return a sample in the form that its fields take; a dict may be changed in place.

        Args:
            here: whether this process encodes it, so that it need not pickle.

        Raises:
            FormatError: a number is that of no class, and the source names the classes.
        """
        for name in self.optional:
            if name not in sample:
                sample[name] = None
        for name, renamed in self.renamed.items():
            try:
                sample[name] = name_classes(sample.get(name), renamed)
            except FormatError as error:
                raise FormatError(f"column {name!r}: {error}") from None
        for name in self.flat:
            value = sample.get(name)
            if _is_flat(value):
                # A view is enough for encoding here; to another process it is pickled, so it has to be bytes.
                view = here and type(self.schema.fields.get(name)) in FILES
                sample[name] = value.data if view else value.tobytes()
        return sample


def choose_columns(
    samples: Sequence[Any], wanted: Any, facts: ColumnFacts, sample_names: Sequence[str] | None = None
) -> SampleColumns:
    """Return the columns of a source.

    Args:
        samples: a few samples, from all over it.
        wanted: fields from the user: a mapping, of some columns or of all; or a value that `Schema.of` takes.
        facts: facts from the source.
        sample_names: the name of each sample for messages; None if only their order is known.

    Raises:
        TypeError, ValueError: no columns fit the samples; a column that they do not have.
    """
    # The user has decided everything; only the form of values is left.
    if isinstance(wanted, Schema):
        flat = _flat_columns(samples, wanted.fields, facts)
        return SampleColumns(wanted, flat, _optional_columns(wanted, []), _find_renamed(wanted, facts))
    # Samples that are no dicts have no names of columns.
    if not all(isinstance(sample, dict) for sample in samples):
        return SampleColumns(Schema(infer_tree(samples, sample_names)) if wanted is None else Schema.of(wanted))
    if wanted is not None and not isinstance(wanted, Mapping):
        raise ArgumentTypeError(describe_wrong("fields", wanted, "a mapping of columns to fields, or a Schema"))
    # In the order of their first occurrence.
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    # Later ones win: the samples, the source, its class names, the user.
    known = {
        **_loose_fields(samples, names, facts),
        **facts.fields,
        **{name: LabelField(classes) for name, classes in facts.labels.items()},
        **(wanted or {}),
    }
    unseen = [name for name in wanted or {} if name not in names]
    # An optional column may be missing in all samples that were looked at.
    strange = [name for name in unseen if not isinstance(known[name], OptionalField)]
    if strange:
        raise ArgumentError(f"fields has {strange[0]!r}, expected some of the columns {', '.join(names)}")
    flat = _flat_columns(samples, known, facts)
    schema = Schema(_build_tree(samples, names + unseen, known, flat, facts, sample_names))
    # `BytesField` takes flat arrays by itself.
    bare = frozenset(name for name in flat if type(schema.fields.get(name)) is not BytesField)
    missing = [name for sample in samples for name in set(names) - sample.keys()]
    return SampleColumns(schema, bare, _optional_columns(schema, missing), _find_renamed(schema, facts))


def _find_renamed(schema: Schema, facts: ColumnFacts) -> dict[str, Renamed]:
    labels: dict[str, Classes] = {name: tuple(names) for name, names in facts.labels.items()}
    return find_renamed_columns(schema, {**facts.classes, **labels})


def find_renamed_columns(schema: Schema, known: Mapping[str, Classes]) -> dict[str, Renamed]:
    """Return the source's class names in each column whose field has other names, or another order, at any depth.

    Args:
        schema: schema of the result.
        known: class names in columns of the source.
    """
    tree = schema._tree
    # Only dicts have columns by name.
    if not isinstance(tree, Node) or tree.kind != "dict":
        return {}
    children = dict(zip(tree.keys, tree.children, strict=True))
    found = {name: find_renamed(classes, children[name]) for name, classes in known.items() if name in children}
    return {name: renamed for name, renamed in found.items() if renamed is not None}


def _optional_columns(schema: Schema, missing: Sequence[str]) -> frozenset[str]:
    """Return the columns that samples may lack: some do, or the fields are declared so."""
    return frozenset(missing) | {name for name, field in schema.fields.items() if isinstance(field, OptionalField)}


def _build_tree(
    samples: Sequence[Any],
    names: Sequence[str],
    known: Mapping[str, Any],
    flat: frozenset[str],
    facts: ColumnFacts,
    sample_names: Sequence[str] | None,
) -> Node:
    """Return the tree of the columns of dicts; infer the columns that are not known."""
    # Without the known ones, whose values may fit no inferred field.
    rest = [{name: _as_probe(each[name], name in flat) for name in each if name not in known} for each in samples]
    found = cast(Node, infer_tree(rest, sample_names))
    inferred = dict(zip(found.keys, found.children, strict=True))
    for name, tree in inferred.items():
        if isinstance(tree, NDArrayField):
            # A few samples show some shapes only.
            inferred[name] = _relax_shape(tree)
        if isinstance(tree, BytesField):
            # Bytes may be pictures, which decode on reading.
            values = [each[name] for each in rest]
            named = name in facts.suffixed
            inferred[name] = _field_of_files(values, named, facts.suffixed.get(name)) or tree
    children: list[Tree] = [
        complete_tree(
            _declare(known[name]),
            [each[name] for each in samples if name in each],
            None
            if sample_names is None
            else [called for called, each in zip(sample_names, samples, strict=True) if name in each],
        )
        if name in known
        else inferred[name]
        for name in names
    ]
    return Node("dict", tuple(names), tuple(children))


def _loose_fields(samples: Sequence[dict[str, Any]], names: Sequence[str], facts: ColumnFacts) -> dict[str, Field]:
    """Return fields for columns whose other samples may differ: in keys and lengths, missing values, or larger
    numbers.
    """
    found = {}
    for name in names:
        values = [_as_probe(sample.get(name), name in facts.records) for sample in samples]
        field = (_array_field(values) if facts.arrays else None) or loose_field(values)
        if field is not None:
            found[name] = field
    return found


def _array_field(values: Sequence[Any]) -> Field | None:
    """Return the field of lists of numbers, whose lengths may differ more than among a few samples."""
    found = array_of_lists(values) if values and all(isinstance(value, list) for value in values) else None
    return None if found is None else _relax_shape(NDArrayField(*found))


def loose_field(values: Sequence[Any]) -> Field | None:
    """Return a field for values that are missing, or differ in structure or length: `JSONField` if it stores all of
    them.

    Returns:
        None if the values are of other kinds, or no field stores them.
    """
    # Nothing loose here: the usual inference does better.
    if not any(value is None or isinstance(value, dict | list) or _is_huge(value) for value in values):
        return None
    # JSON first: it holds any structure, and can be read by people.
    if _are_json(values):
        return JSONField()
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        inner = loose_field(there) or _leaf_field(there)
        return None if inner is None else OptionalField(inner)
    # Some are lists and others are not.
    if not all(isinstance(value, list) for value in values):
        return None
    items = [item for value in values for item in value]
    inner = loose_field(items) or _leaf_field(items)
    return None if inner is None else ListField(inner)


def _is_huge(value: Any) -> bool:
    """Return whether a number does not fit an `IntField`."""
    return type(value) is int and not -(1 << 63) <= value < 1 << 63


def _leaf_field(values: Sequence[Any]) -> Field | None:
    """Return the field of values without structure; None if there is none, or not one for all."""
    try:
        tree = infer_tree(values)
    except (TypeError, ValueError):
        return None
    if isinstance(tree, NDArrayField):
        return _relax_shape(tree)
    # A field that torch can stack needs no looser one.
    return tree if isinstance(tree, Field) and tree.torch_dtype is None else None


def _are_json(values: Sequence[Any]) -> bool:
    try:
        return all(JSONField().encode(value) for value in values)  # by trying it: NaN, bytes and large ints are refused
    except (TypeError, ValueError):
        return False


def _relax_shape(field: NDArrayField) -> NDArrayField:
    """Return a field where all axes but channels vary, if one axis varies among a few samples."""
    if field.shape is None or None not in field.shape:
        return field
    # The last axis of three or more is the channels, which do not vary.
    kept = field.shape[-1:] if len(field.shape) > 2 else (None,)
    return NDArrayField(field.dtype, (*[None] * (len(field.shape) - 1), *kept))


def _declare(wanted: Any) -> Tree:
    return wanted if isinstance(wanted, Field) else declare_tree(wanted)


def _as_probe(value: Any, flat: bool) -> Any:
    return value.tobytes() if flat and _is_flat(value) else value


def _flat_columns(samples: Sequence[Any], known: Mapping[str, Any], facts: ColumnFacts) -> frozenset[str]:
    """Return the columns whose flat uint8 arrays are stored as bytes: the source says so, or their field takes no
    array.
    """
    if not all(isinstance(sample, dict) for sample in samples):
        return frozenset()
    found = set()
    for name in facts.records | known.keys():
        arrays = [sample[name] for sample in samples if _is_flat(sample.get(name))]
        # The field decides: JPEG fields take bytes, array fields take arrays.
        if arrays and not (name in known and _accepts(known[name], arrays[0])):
            found.add(name)
    return frozenset(found)


def _accepts(field: Any, array: Any) -> bool:
    """Return whether a field stores arrays like this one unchanged."""
    if isinstance(field, NDArrayField):
        return True  # the right kind, even if this array has another shape
    try:
        return isinstance(field, Field) and field.encode(array) is not None
    # Fields of images may try to decode and fail.
    except (TypeError, ValueError, OSError):
        return False


def _is_flat(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1


def _field_of_files(values: Sequence[bytes], named: bool, suffixed: Field | None) -> Field | None:
    """Return the field of image files that can be decoded; None if they are other bytes.

    All values are such files; or all names are those of images, and one value is such a file. The other values are then
    broken or rare, and each is reported with its name, also if it is not among those probed.

    Args:
        values: the bytes of some files.
        named: whether files have names.
        suffixed: field that fits all names, or None.
    """
    found = [_field_of_file(value) for value in values]
    # A name that is no picture's: then bytes stay bytes.
    if (named and suffixed is None) or not any(found) or not (named or all(found)):
        return None
    return IMAGE_FILE if IMAGE_FILE in found or suffixed == IMAGE_FILE else JPEG


def _field_of_file(value: bytes) -> Field | None:
    if not is_known_kind(value):
        return None
    # The first bytes tell JPEG from the others.
    field = JPEG if image_format(value) == "JPEG" else IMAGE_FILE
    try:
        # The field itself decides if it can read the file.
        field.encode(value)
    except ValueError:
        return None
    return field


def labels_fit(samples: Sequence[Any], name: str) -> bool:
    """Return whether a column exists and has numbers."""
    values = [each.get(name) if isinstance(each, dict) else None for each in samples]
    return all(isinstance(value, int | np.integer) and not isinstance(value, np.timedelta64) for value in values)
