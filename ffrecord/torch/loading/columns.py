"""Decoding of records to the columns of a batch, or to its samples."""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.fields import (
    BytesField,
    Field,
    ImageField,
    ImageFileField,
    JPEGField,
    NDArrayField,
    OptionalField,
    RGBImageField,
    Schema,
    TensorField,
    ZstdField,
)
from ffrecord.fields.layout import RecordLayout, column_label
from ffrecord.system.values import describe_wrong
from ffrecord.torch.images import BoxDecoder
from ffrecord.torch.images.column_decoders import DECODERS, ColumnDecoders, Decoder
from ffrecord.torch.images.decoders import ImageDecoder
from ffrecord.torch.images.nvimgcodec import NVImageCodec
from ffrecord.torch.loading.ragged import Form, as_list, form_rows, is_named
from ffrecord.torch.loading.records import BatchRecords, Bytes, ColumnRecords, Offsets, PackedRecords, PlainRecords
from ffrecord.torch.tensors import as_tensor

__all__ = ["BatchColumns", "check_decoder", "names_of", "tensor_of"]

Seeds = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

PLAIN = "value"  # the column of files without schema; a schema of one value has the same name
FILES = (BytesField, ImageField, ImageFileField, JPEGField, RGBImageField)  # their payloads are images
ARRAYS = (NDArrayField, TensorField)


class BatchColumn:
    """One column to decode.

    Args:
        name: name of the column.
        position: position of the column in the layout of a record.
        field: field of the column; None for plain records.
        form: form of values of varying shape.
    """

    def __init__(self, name: str, position: int, field: Field | None, form: Form) -> None:
        self.name, self.position, self.form = name, position, form
        self._torch_dtype = None if field is None else field.torch_dtype

    def batch(self, records: BatchRecords, seeds: Seeds | None) -> Any:
        """Return the column of a batch.

        Raises:
            FormatError: bytes are not a value of the field.
        """
        return self._form(records.column(self.position))

    def samples(self, records: BatchRecords, seeds: Seeds | None) -> list[Any]:
        """Return the values one by one, as a dataset returns them.

        Raises:
            FormatError: bytes are not a value of the field.
        """
        values = records.values(self.position)
        return values if self._torch_dtype is None else [as_tensor(value, self._torch_dtype) for value in values]

    def _form(self, found: Any) -> Any:
        if isinstance(found, np.ndarray):
            made = tensor_of(found) if self._torch_dtype is None else as_tensor(found, self._torch_dtype)
            rows = is_named(self.form, self.name) and isinstance(made, torch.Tensor) and made.dim() > 1
            return form_rows(made.unbind(), self.form, self.name) if rows else made
        if self._torch_dtype is not None:
            return self.form(self.name, [as_tensor(value, self._torch_dtype) for value in found])
        if isinstance(found, list) and found and all(isinstance(value, np.ndarray) for value in found):
            tensors = [tensor_of(value) for value in found]
            return self.form(self.name, tensors) if isinstance(tensors[0], torch.Tensor) else tensors
        return found


class BatchColumns:
    """The columns to decode of each sample, and their structure.

    Args:
        schema: schema of the files; None for plain bytes.
        fields: argument of `Loader`.
        decode: column → decoder.
        form: form of values of varying shape.
        pin: make batches in pinned memory, if that takes no copy.
        library: library that decodes images in place of the CPU's decoder, or None.

    Attributes:
        names: names of the columns, in order.
        build: values in that order → batch or sample.
        record_size: bytes of every record if it has only columns of fixed size, else None.
        slots: (offset, size) of the columns, if `record_size` is not None.

    Raises:
        ArgumentError, ArgumentTypeError: there are no such columns, or a decoder's column does not hold JPEG images.
    """

    def __init__(
        self,
        schema: Schema | None,
        fields: Any = None,
        decode: Mapping[str, Decoder] | None = None,
        form: Form = as_list,
        pin: bool = False,
        library: NVImageCodec | None = None,
    ) -> None:
        self._recipe = (schema, fields, decode, form, pin, library)
        self.schema, wanted = _select(schema, fields)
        decoders = _check_decoders(self.schema, wanted, decode)
        self.names = tuple(wanted)
        self.build = operator.itemgetter(0) if self.schema is None else self.schema._builder_of(wanted)
        known: Mapping[str, Field] = {} if self.schema is None else self.schema.fields
        self._layout = RecordLayout(list(known.items()))
        self.columns = [BatchColumn(name, position, known.get(name), form) for name, position in wanted.items()]
        whole = [name for name in wanted if name not in decoders and _holds_images(known.get(name))]
        self._decoders = ColumnDecoders(decoders, form, pin, bool(whole), library)
        self.decodes = bool(decoders)
        self.record_size = None if self.schema is None else self.schema.record_size
        slots = {} if self.schema is None or self.record_size is None else self.schema.slots
        self._pin = pin
        self._places = [(each.position, known[each.name], slots[each.name]) for each in self.columns if slots]
        self.slots = [slot[:2] for _, _, slot in self._places]

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchColumns, self._recipe

    @property
    def effortless(self) -> bool:
        """True if batches need no Python work per sample: all columns have a fixed size and no conversion."""
        known = {} if self.schema is None else self.schema.fields
        return (
            not self.decodes
            and self.record_size is not None
            and all(type(known[name]).column is Field.column for name in self.names)
        )

    def memory(self, count: int) -> list[Bytes] | None:
        """Return pinned uint8 [count * size] to read into, for each of `slots`; None to use the reader's own memory."""
        if not self._pin:
            return None
        kind: dict[str, Any] = {"dtype": torch.uint8, "device": "cpu", "pin_memory": True}
        return [torch.empty(count * size, **kind).numpy() for _, size in self.slots]

    def records_from_columns(self, rows: Sequence[Bytes], count: int) -> ColumnRecords:
        """Return the k records that were read as `rows`, uint8 [k, size] for each of `slots`."""
        places = zip(self._places, rows, strict=True)
        return ColumnRecords({position: (field, slot, each) for (position, field, slot), each in places}, count)

    def records_from_packed(self, data: Bytes, offsets: Offsets, indices: Indices) -> BatchRecords:
        """Return the k records at `indices`, which lie back to back in `data`.

        Raises:
            FormatError: the size of a record contradicts the schema.
        """
        return PlainRecords(data, offsets) if self.schema is None else PackedRecords(self._layout, data, offsets)

    def values(self, records: BatchRecords, seeds: Seeds | None) -> list[Any]:
        """Return each column of the batch.

        Raises:
            FormatError: bytes are not a value of a field.
        """
        made = self._decode(records, seeds)
        return [made[column.name] if column.name in made else column.batch(records, seeds) for column in self.columns]

    def _decode(self, records: BatchRecords, seeds: Seeds | None, samples: bool = False) -> dict[str, Any]:
        """Return the columns with decoders."""
        if self.schema is None or not self.decodes:
            return {}
        fields, positions = self.schema.fields, {each.name: each.position for each in self.columns}

        def values_of(name: str) -> Sequence[Any]:
            if isinstance(fields[name], FILES) and isinstance(records, PackedRecords):
                return records.payloads(positions[name])
            return records.values(positions[name])

        return self._decoders.decode(
            values_of,
            records.count,
            seeds,
            lambda name: fields[name].fixed is None,
            lambda name: column_label(name, fields[name]),
            samples,
        )

    def samples(self, records: BatchRecords, seeds: Seeds | None) -> list[Any]:
        """Return the k samples with the decoded columns, as a dataset returns them.

        Raises:
            FormatError: bytes are not a value of a field.
        """
        if not self.columns:
            return [self.build(()) for _ in range(records.count)]
        made = self._decode(records, seeds, samples=True)
        found = [
            list(made[column.name]) if column.name in made else column.samples(records, seeds)
            for column in self.columns
        ]
        return [self.build(values) for values in zip(*found, strict=True)]

    def check(self, record: Bytes, index: int, seeds: Seeds | None) -> None:
        """Check that the columns of one record can be decoded.

        Raises:
            FormatError: they cannot; the message names the column.
        """
        if self.schema is None:
            return
        self._layout.sizes(record.data)
        records = self.records_from_packed(record, np.array([0, len(record)]), np.array([index]))
        self._decode(records, seeds, samples=True)
        for column in self.columns:
            if column.name in self._decoders:
                continue
            try:
                column.samples(records, seeds)
            except FormatError as error:
                raise FormatError(f"{column_label(column.name, self.schema.fields[column.name])}: {error}") from error


def _select(schema: Schema | None, fields: Any) -> tuple[Schema | None, dict[str, int]]:
    """Return the schema to read with, and the positions of the columns to decode."""
    if schema is None:
        if fields is not None:
            raise ArgumentError(
                describe_wrong(
                    "fields", fields, "None", "the files carry no schema, so they have no columns to choose from"
                )
            )
        return None, {PLAIN: 0}
    if fields is None:
        return schema, {name: i for i, name in enumerate(schema.columns)}
    names = names_of(fields)
    unknown = [name for name in names if name not in schema.fields]
    if unknown:
        raise ArgumentError(f"fields has {unknown[0]!r}, expected some of the columns {', '.join(schema.columns)}")
    if not names:
        raise ArgumentError(f"fields is empty, expected some of the columns {', '.join(schema.columns)}")
    if isinstance(fields, Mapping):
        schema = schema.replace({name: field for name, field in fields.items() if field is not None})
    return schema, {name: i for i, name in enumerate(schema.columns) if name in names}


def names_of(fields: Any) -> set[str]:
    """Return the names of columns in the argument `fields` of `Loader`."""
    names = None if isinstance(fields, str) or not hasattr(fields, "__iter__") else list(fields)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError(describe_wrong("fields", fields, "names of columns, or a dict of name → field or None"))
    if isinstance(fields, Mapping):
        for name, field in fields.items():
            if field is not None and not isinstance(field, Field):
                raise ArgumentTypeError(f"fields: {name} is {field!r}, expected a field or None")
    return set(names)


def _holds_images(field: Field | None) -> bool:
    """Tell whether a field is one of images: files of pictures, or arrays of pixels of several channels."""
    field = _unwrap(field)
    if isinstance(field, NDArrayField) and not isinstance(field, ImageField):
        return field.dtype == np.uint8 and field.shape is not None and len(field.shape) == 3
    return isinstance(field, ImageField | ImageFileField | JPEGField)


def _check_decoders(
    schema: Schema | None, wanted: Mapping[str, int], decode: Mapping[str, Decoder] | None
) -> Mapping[str, Decoder]:
    if decode is None:
        return {}
    if not isinstance(decode, Mapping):
        raise ArgumentTypeError(describe_wrong("decode", decode, "a dict of column → decoder"))
    for name, decoder in decode.items():
        if name not in wanted:
            raise ArgumentError(f"decode has {name!r}, expected some of the columns {', '.join(wanted)}")
        field = None if schema is None else schema.fields[name]
        boxes = isinstance(check_decoder(name, decoder), BoxDecoder)
        if not _is_decoded(field, boxes):
            expected = "boxes" if boxes else "images"
            raise ArgumentError(f"decode: {name} is {field or 'plain bytes'!r}, expected a column of {expected}")
    return decode


def _is_decoded(field: Any, boxes: bool) -> bool:
    """Tell whether decoders of boxes, or those of images and masks, take the values of a field."""
    return isinstance(_unwrap(field), ARRAYS if boxes else (*ARRAYS, *FILES))


def _unwrap(field: Any) -> Any:
    """Return the field of the values of an optional or compressed one; any other itself."""
    while isinstance(field, OptionalField | ZstdField):
        field = field.inner
    return field


def check_decoder(name: Any, decoder: Any) -> Decoder:
    """Check that the decoder of a column is one of `ffrecord.torch.images`, and return it."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"decode has {name!r}, expected names of columns, such as 'image' or '[0]'")
    if isinstance(decoder, type) and issubclass(decoder, ImageDecoder):
        raise ArgumentTypeError(
            f"decode: {name} is the class {decoder.__name__}, expected a decoder: {decoder.__name__}(size)"
        )
    if not isinstance(decoder, DECODERS):
        raise ArgumentTypeError(f"decode: {name} is {decoder!r}, expected one of ffrecord.torch.images")
    return decoder


def tensor_of(array: npt.NDArray[Any]) -> Any:
    """Return `array` as a tensor that shares its memory; the array itself if torch has no such dtype (text, times)."""
    if not _has_tensor_type(array.dtype):
        return array
    return torch.from_numpy(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


@functools.cache
def _has_tensor_type(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" and hasattr(torch, dtype.name)
