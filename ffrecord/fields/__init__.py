"""Typed columns: conversion of Python samples to bytes and back, and of batches of records to columns.

    field.py      the base class of fields, and the registry of kinds
    scalars.py    int, float, bool, None, numpy scalars
    labels.py     class labels and their names
    blobs.py      str, bytes, JSON
    decimals.py   decimal numbers
    packed.py     nested values that JSON does not hold
    arrays.py     numpy arrays; shapes.py, dtypes.py and numbers.py help
    tensors.py    torch tensors
    images/       PIL images, JPEG images, RGB images
    zstd.py       any of these, compressed
    inner.py      fields around another field; values that may be None
    lists.py      lists of any length
    tree.py       the structure around the fields: dict, tuple, list
    layout.py     the places of columns in a record; encoding and decoding of one record
    batch.py      many records at once
    infer.py      structure and fields from probe samples
    declare.py    structure and fields from explicit fields
    complete.py   structure and fields from both
    spec.py       structure and fields as plain builtins
    schema.py     `Schema`, which joins them

docs/fields.md specifies the bytes. This package never imports torch. It imports Pillow, simplejpeg and zstandard only
where a field needs them.
"""

from ffrecord.fields.arrays import NDArrayField
from ffrecord.fields.blobs import BytesField, JSONField, StrField
from ffrecord.fields.decimals import DecimalField
from ffrecord.fields.field import Field, Fixed, register
from ffrecord.fields.images.image import ImageField
from ffrecord.fields.images.rgb import JPEGField, RGBImageField
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
