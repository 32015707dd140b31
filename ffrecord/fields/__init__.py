"""Typed columns: how a Python sample becomes bytes and back, and how a batch of records becomes columns.

    field.py     what a field is; registry of kinds
    scalars.py   int, float, bool, None, numpy scalars; labels.py: class labels and their names
    blobs.py     str, bytes, JSON
    decimals.py  decimal numbers
    packed.py    nested values that JSON does not hold
    arrays.py    numpy arrays; their shapes in shapes.py, their dtypes in dtypes.py
    tensors.py   torch tensors
    images.py    PIL images
    jpeg.py      JPEG images
    rgb.py       RGB images, as plain pixels or JPEG
                 pixels.py: plain pixels and limits; jpeg_values.py, jpeg_header.py: what is a JPEG;
                 jpeg_codec.py: its pixels
    zstd.py      any of these, compressed; optional_values.py: or None; lists.py: any number of them; inner.py: what
                 the latter have in common
    tree.py      the structure around the fields: dict, tuple, list
    layout.py    where each column is in a record; one record there and back
    batch.py     many records at once
    infer.py     probe samples -> structure and fields; declare.py: explicit fields -> the same
    spec.py      structure and fields <-> plain builtins
    schema.py    Schema, which joins them

docs/fields.md is the specification of the bytes. torch is never imported here; Pillow, simplejpeg and zstandard only
where used.
"""

from ffrecord.fields.arrays import NDArrayField
from ffrecord.fields.blobs import BytesField, JSONField, StrField
from ffrecord.fields.decimals import DecimalField
from ffrecord.fields.field import Field, Fixed, register
from ffrecord.fields.images.image import ImageField
from ffrecord.fields.images.jpeg import JPEGField
from ffrecord.fields.images.rgb import RGBImageField
from ffrecord.fields.inner import OptionalField
from ffrecord.fields.labels import LabelField
from ffrecord.fields.layout import Slot
from ffrecord.fields.lists import ListField
from ffrecord.fields.packed import MsgpackField
from ffrecord.fields.scalars import BoolField, FloatField, IntField, NoneField, ScalarField
from ffrecord.fields.schema import Schema, schema_of
from ffrecord.fields.tensors import TensorField
from ffrecord.fields.zstd import ZstdField

__all__ = [
    "BoolField",
    "BytesField",
    "DecimalField",
    "Field",
    "Fixed",
    "FloatField",
    "ImageField",
    "IntField",
    "JPEGField",
    "JSONField",
    "LabelField",
    "ListField",
    "MsgpackField",
    "NDArrayField",
    "NoneField",
    "OptionalField",
    "RGBImageField",
    "ScalarField",
    "Schema",
    "Slot",
    "StrField",
    "TensorField",
    "ZstdField",
    "register",
    "schema_of",
]
