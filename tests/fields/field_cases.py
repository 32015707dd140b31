"""Strategies for schemas and their samples, and what it means that two samples are the same."""

import struct
import subprocess
import sys
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ffrecord.fields import (
    BoolField,
    BytesField,
    DecimalField,
    Field,
    FloatField,
    IntField,
    JSONField,
    ListField,
    MsgpackField,
    NDArrayField,
    NoneField,
    OptionalField,
    ScalarField,
    StrField,
    ZstdField,
)

DTYPES = ["|b1", "|u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<M8[ns]", ">m8[s]", "|S3", "<U2"]
SCALAR_DTYPES = ["|b1", "|u1", "<i2", "<u8", "<f2", "<f4", "<f8", "<c16", "<M8[D]", "<m8[us]"]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | TEXT
    | st.binary(max_size=6)
    | st.decimals()
    | st.sampled_from(SCALAR_DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, ())).map(lambda array: array[()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


PLAIN = (IntField(), FloatField(), BoolField(), StrField(), BytesField(), NoneField(), JSONField())


def fields() -> st.SearchStrategy[Field]:
    """Fields that need no library that may be missing, plain ones."""
    axes = st.lists(st.none() | st.integers(0, 3), max_size=3)
    return st.one_of(
        st.sampled_from((*PLAIN, DecimalField(), MsgpackField())),
        st.sampled_from(SCALAR_DTYPES).map(ScalarField),
        st.builds(NDArrayField, st.sampled_from(DTYPES), st.none() | axes),
    )


def nested_fields() -> st.SearchStrategy[Field]:
    """Those, and such as are around others."""
    return st.recursive(
        fields(), lambda inner: st.builds(OptionalField, inner) | st.builds(ListField, inner), max_leaves=3
    )


def all_fields() -> st.SearchStrategy[Field]:
    """Fields, compressed ones too where they can be."""
    return nested_fields() | st.builds(ZstdField, nested_fields()) if find_spec("zstandard") else nested_fields()


def trees() -> st.SearchStrategy[Any]:
    """What `Schema.of` takes."""
    keys = TEXT | st.sampled_from(["image", "a.b", "[0]", "value", ""])
    return st.recursive(
        all_fields(),
        lambda inner: (
            st.dictionaries(keys, inner, max_size=4)
            | st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
        ),
        max_leaves=6,
    )


def samples(tree: Any) -> st.SearchStrategy[Any]:
    """Samples of `tree`."""
    if isinstance(tree, Field):
        return values(tree)
    if isinstance(tree, dict):
        return st.tuples(*map(samples, tree.values())).map(lambda row: dict(zip(tree, row, strict=True)))
    children = st.tuples(*map(samples, tree))
    return children if isinstance(tree, tuple) else children.map(list)


def values(field: Field) -> st.SearchStrategy[Any]:
    """Values of `field`."""
    if isinstance(field, ZstdField):
        return values(field.inner)
    if isinstance(field, OptionalField):
        return st.none() | values(field.inner)
    if isinstance(field, ListField):
        return st.lists(values(field.inner), max_size=3)
    if isinstance(field, ScalarField):
        return hnp.arrays(field.dtype, ()).map(lambda array: array[()])
    if isinstance(field, NDArrayField):
        return shapes(field.shape).flatmap(lambda shape: hnp.arrays(field.dtype, shape))
    return {
        IntField: st.integers(-(2**63), 2**63 - 1),
        FloatField: st.floats(),
        BoolField: st.booleans(),
        StrField: TEXT,
        BytesField: st.binary(max_size=12),
        JSONField: JSON,
        MsgpackField: NESTED,
        DecimalField: st.decimals(),
        NoneField: st.none(),
    }[type(field)]


def shapes(shape: tuple[int | None, ...] | None) -> st.SearchStrategy[tuple[int, ...]]:
    if shape is None:
        return st.lists(st.integers(0, 3), max_size=3).map(tuple)
    return st.tuples(*(st.integers(0, 3) if axis is None else st.just(axis) for axis in shape))


@st.composite
def schemas_and_samples(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A tree of fields and one to four samples of it."""
    tree = draw(trees())
    return tree, draw(st.lists(samples(tree), min_size=1, max_size=4))


def same(a: Any, b: Any) -> bool:
    """Whether two samples have the same types, structure, order of keys and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype.str == b.dtype.str and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, Decimal):
        return str(a) == str(b)
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return bool(a == b)


def pack(records: list[bytes], before: bytes = b"", after: bytes = b"") -> tuple[Any, Any]:
    """`records` as `FileReader.read_packed` gives them, with other bytes around."""
    data = np.frombuffer(before + b"".join(records) + after, np.uint8)
    return data, np.cumsum([len(before), *map(len, records)])


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocker())
import numpy as np
from ffrecord.fields import ImageField, IntField, JPEGField, RGBImageField, Schema, ZstdField
try:
    {action}
except ImportError as error:
    print(error)
"""


def run_without(blocked: list[str], action: str) -> str:
    """What `action` prints, or the `ImportError` it ends in, where the modules `blocked` are not installed."""
    program = BLOCKED.format(blocked=blocked, action=action)
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
