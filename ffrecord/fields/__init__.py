"""Typed columns: conversion of Python samples to bytes and back, and of batches of records to columns.

    field.py      the base class of fields, and the registry of kinds
    scalars.py    int, float, bool, None, decimal numbers, numpy scalars
    labels.py     class labels and their names
    blobs.py      str, bytes, JSON, nested values that JSON does not hold
    arrays.py     numpy arrays and torch tensors; shapes.py and dtypes.py help
    images/       PIL images, image files, JPEG images, RGB images
    zstd.py       any of these, compressed
    inner.py      fields around another field: values that may be None, lists of any length
    tree.py       the structure around the fields: dict, tuple, list
    layout.py     the places of columns in a record; encoding and decoding of one record
    batch.py      many records at once
    infer.py      structure and fields from probe samples
    declare.py    structure and fields from explicit fields, or from both
    spec.py       structure and fields as plain builtins
    schema.py     `Schema`, which joins them

docs/fields.md specifies the bytes. This package never imports torch. It imports Pillow, simplejpeg and zstandard only
where a field needs them.
"""

from ffrecord.fields.arrays import NDArrayField, TensorField
from ffrecord.fields.blobs import BytesField, JSONField, MsgpackField, StrField
from ffrecord.fields.field import Field, Fixed, register
from ffrecord.fields.images.image import ImageField
from ffrecord.fields.images.image_file import ImageFileField
from ffrecord.fields.images.rgb import JPEGField, RGBImageField
from ffrecord.fields.inner import ListField, OptionalField
from ffrecord.fields.labels import LabelField
from ffrecord.fields.layout import Slot
from ffrecord.fields.scalars import BoolField, DecimalField, FloatField, IntField, NoneField, ScalarField
from ffrecord.fields.schema import Schema, schema_of
from ffrecord.fields.zstd import ZstdField

__all__ = [
    "BoolField",
    "BytesField",
    "DecimalField",
    "Field",
    "Fixed",
    "FloatField",
    "ImageField",
    "ImageFileField",
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
