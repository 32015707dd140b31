"""Which columns samples have, as a few of them show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ffrecord.errors import ArgumentError
from ffrecord.fields import BytesField, JPEGField, JSONField, LabelField, NDArrayField, Schema
from ffrecord.fields.declare import declared
from ffrecord.fields.field import Field
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.jpeg_codec import MAGIC
from ffrecord.fields.jpeg_values import checked_frame
from ffrecord.fields.tree import Node, Tree

JPEG = JPEGField()
JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True)
class Facts:
    """What a source says of its columns, by name.

    Attributes:
        records: columns whose arrays are the bytes of something, not numbers.
        labels: names of the classes that the numbers of a column are.
        fields: of columns whose types the source says.
        suffixed: column → whether every name of it is that of a JPEG file; without an entry, values alone decide.
    """

    records: frozenset[str] = frozenset()
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    suffixed: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """How samples are stored.

    Attributes:
        schema: of the result.
        flat: columns whose arrays, 1-D and of uint8, become bytes, as their fields take no arrays for that.
    """

    schema: Schema
    flat: frozenset[str] = frozenset()

    def prepared(self, sample: Any, *, here: bool = False) -> Any:
        """The sample, as its fields take it; a dict may be changed in place.

        Args:
            here: it is encoded by this process, so that what does not pickle will do.
        """
        for name in self.flat:
            value = sample.get(name)
            if _is_flat(value):
                view = here and type(self.schema.fields.get(name)) is JPEGField
                sample[name] = value.data if view else value.tobytes()
        return sample


def chosen(samples: Sequence[Any], wanted: Any, facts: Facts) -> Columns:
    """The columns of a source.

    Args:
        samples: a few, from all over it.
        wanted: fields that the user asks for: a mapping, of some columns or of all; or what `Schema.of` takes.
        facts: what the source says.

    Raises:
        TypeError, ValueError: no columns fit the samples; a column that they do not have.
    """
    if isinstance(wanted, Schema):
        return Columns(wanted, _flat(samples, wanted.fields, facts))
    if not all(isinstance(sample, dict) for sample in samples):
        return Columns(Schema(infer_tree(samples)) if wanted is None else Schema.of(wanted))
    if wanted is not None and not isinstance(wanted, Mapping):
        raise ArgumentError(f"fields must be a mapping of columns to fields, or a Schema, not {type(wanted).__name__}")
    known = {
        **_loose(samples),
        **facts.fields,
        **{name: LabelField(names) for name, names in facts.labels.items()},
        **(wanted or {}),
    }
    strange = [name for name in wanted or {} if name not in samples[0]]
    if strange:
        raise ArgumentError(f"fields has {strange[0]!r}, which is no column; there are {', '.join(samples[0])}")
    flat = _flat(samples, known, facts)
    schema = Schema(_tree(samples, known, flat, facts))
    return Columns(schema, frozenset(name for name in flat if type(schema.fields.get(name)) is not BytesField))


def _tree(samples: Sequence[Any], known: Mapping[str, Any], flat: frozenset[str], facts: Facts) -> Node:
    """The columns of dicts, those that are not known inferred, in the order of the first one."""
    rest = [{name: _probe(each[name], name in flat) for name in each if name not in known} for each in samples]
    found = cast(Node, infer_tree(rest))
    inferred = dict(zip(found.keys, found.children, strict=True))
    for name, tree in inferred.items():
        if isinstance(tree, NDArrayField):
            inferred[name] = _relaxed(tree)
        if isinstance(tree, BytesField) and _are_jpegs([each[name] for each in rest], facts.suffixed.get(name)):
            inferred[name] = JPEG
    names = tuple(samples[0])
    children: list[Tree] = [_declared(known[name]) if name in known else inferred[name] for name in names]
    return Node("dict", names, tuple(children))


def _loose(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of JSON: other samples may have other keys and lengths there, and more of them no value."""
    found = {}
    for name in samples[0]:
        values = [sample.get(name) for sample in samples]
        if any(value is None or isinstance(value, dict | list) for value in values) and _are_json(values):
            found[name] = JSONField()
    return found


def _are_json(values: Sequence[Any]) -> bool:
    try:
        return all(JSONField().encode(value) for value in values)
    except (TypeError, ValueError):
        return False


def _relaxed(field: NDArrayField) -> NDArrayField:
    """Where one axis varies among a few samples, others may among all of them, but for channels."""
    if field.shape is None or None not in field.shape:
        return field
    kept = field.shape[-1:] if len(field.shape) > 2 else (None,)
    return NDArrayField(field.dtype, (*[None] * (len(field.shape) - 1), *kept))


def _declared(wanted: Any) -> Tree:
    return wanted if isinstance(wanted, Field) else declared(wanted)


def _probe(value: Any, flat: bool) -> Any:
    return value.tobytes() if flat and _is_flat(value) else value


def _flat(samples: Sequence[Any], known: Mapping[str, Any], facts: Facts) -> frozenset[str]:
    """Columns of flat uint8 arrays to be stored as bytes: the source says so, or their field takes no array."""
    if not all(isinstance(sample, dict) for sample in samples):
        return frozenset()
    found = set()
    for name in facts.records | known.keys():
        arrays = [sample[name] for sample in samples if _is_flat(sample.get(name))]
        if arrays and not (name in known and _takes(known[name], arrays[0])):
            found.add(name)
    return frozenset(found)


def _takes(field: Any, array: Any) -> bool:
    """Whether a field holds arrays like this, as they are."""
    if isinstance(field, NDArrayField):
        return True  # the right kind, even if this one has another shape
    try:
        return isinstance(field, Field) and field.encode(array) is not None
    except (TypeError, ValueError, OSError):
        return False


def _is_flat(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1


def _are_jpegs(values: Sequence[bytes], suffixed: bool | None) -> bool:
    """Whether all are JPEGs that can be decoded; and, where names are known, are called so everywhere."""
    return suffixed is not False and bool(values) and all(_is_jpeg(value) for value in values)


def _is_jpeg(value: bytes) -> bool:
    if not value.startswith(MAGIC):
        return False
    try:
        checked_frame(JPEG, value)
    except ValueError:
        return False
    return True


def labels_fit(samples: Sequence[Any], name: str) -> bool:
    """Whether a column is there, and of numbers."""
    return all(isinstance(each, dict) and isinstance(each.get(name), int | np.integer) for each in samples)
