"""Field of numpy arrays, of fixed or varying shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.fields.dtypes import array_dtype, dtype_repr, spec_dtype
from ffrecord.fields.field import Array, Encoded, Field, Fixed, mismatch, register
from ffrecord.fields.numbers import as_array
from ffrecord.fields.shapes import (
    Shape,
    advise,
    allows_shape,
    check_shape,
    fixed_layout,
    from_bytes,
    shape_repr,
    shape_spec,
    spec_shape,
    to_bytes,
    views,
)


@register
@dataclass(frozen=True, repr=False)
class NDArrayField(Field):
    """Numpy arrays of one dtype. A list of numbers is taken as an array if the dtype holds each number exactly.

    Args:
        dtype: dtype of the arrays: bool, numbers, datetime64, timedelta64, S or U, in either byte order.
        shape: lengths of the axes; None for an axis that varies. shape=None allows any number of axes. A batch of
            arrays of fixed shape is decoded at once.

    Raises:
        TypeError, ValueError: the dtype cannot be stored, or the shape is not valid.
    """

    kind: ClassVar[str] = "ndarray"
    dtype: np.dtype[Any]
    shape: Shape | None
    _fixed: bool = attribute(init=False, compare=False)  # kept here because each sample needs it

    def __init__(self, dtype: npt.DTypeLike, shape: Sequence[int | None] | None) -> None:
        object.__setattr__(self, "dtype", array_dtype(dtype))
        object.__setattr__(self, "shape", check_shape(shape, self.dtype.itemsize))
        object.__setattr__(self, "_fixed", self.fixed is not None)

    def __repr__(self) -> str:
        return f"NDArrayField({dtype_repr(self.dtype)}, {self.shape})"

    @property
    def expects(self) -> str:
        return f"a {self.dtype} array of {shape_repr(self.shape)}"

    @property
    def fixed(self) -> Fixed | None:
        return fixed_layout(self.dtype, self.shape)

    def encode(self, value: Any) -> Encoded:
        if type(value) is not np.ndarray or value.dtype != self.dtype or value.shape != self.shape:
            value = self._check(value)
        return to_bytes(value, self.shape, self._fixed)

    def _check(self, value: Any) -> Array:
        if isinstance(value, list):
            return self._from_list(value)
        if not isinstance(value, np.ndarray):
            raise TypeError(mismatch(self, value))
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(mismatch(self, value, "its mask would be lost: store value.data and value.mask"))
        if value.dtype != self.dtype:
            raise TypeError(mismatch(self, value, "convert it with astype, or declare that dtype"))
        if not allows_shape(self.shape, value.shape):
            raise ValueError(mismatch(self, value, advise(NDArrayField, self.dtype, self.shape, value.shape)))
        return np.asarray(value)

    def _from_list(self, value: list[Any]) -> Array:
        """Convert a list of numbers to an array of this field."""
        array = as_array(value, self.dtype, self.shape)
        if array is None:
            raise TypeError(
                mismatch(
                    self,
                    value,
                    f"a list is taken if it holds numbers, in rows of equal length, that {self.dtype} holds exactly; "
                    f"np.asarray(value, {self.dtype.name!r}) rounds",
                )
            )
        if not allows_shape(self.shape, array.shape):
            shape = advise(NDArrayField, self.dtype, self.shape, array.shape)
            raise ValueError(f"expected {self.expects}, found a list of shape {array.shape}; {shape}")
        return array

    def decode(self, data: memoryview) -> Array:
        return from_bytes(data, self.dtype, self.shape, self._fixed)

    def unstack(self, column: Array) -> list[Any]:
        return views(column)

    def spec(self) -> dict[str, Any]:
        return {"dtype": self.dtype.str, "shape": shape_spec(self.shape)}

    @classmethod
    def from_spec(cls, spec: Any) -> "NDArrayField":
        return cls(**{**spec, "dtype": spec_dtype(spec.get("dtype")), "shape": spec_shape(spec)})
