"""Fields of numpy arrays and torch tensors, of fixed or varying shape. This module never imports torch."""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.fields.dtypes import (
    BITS,
    BITS_VIEW,
    TORCH_DTYPES,
    array_dtype,
    as_array,
    dtype_repr,
    flatten_lists,
    spec_dtype,
    torch_dtype,
)
from ffrecord.fields.field import Array, Encoded, Field, Fixed, mismatch, register
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
from ffrecord.system.values import describe_wrong, is_tensor, tensor_shape, torch_dtype_name, with_article

# Kind of a dtype → types of the items of the lists that its fields take, beside scalars of numpy.
LIST_ITEMS: dict[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "c": (int, float, complex),
}


class ShapedField(Field):
    """The base of fields of arrays of one dtype.

    Attributes:
        shape: lengths of the axes; None for an axis that varies, or for any number of axes.
    """

    shape: Shape | None
    _fixed: bool  # kept here because each sample needs it

    def _take_shape(self, shape: Sequence[int | None] | None) -> None:
        """Set the shape of a new field. Its dtype must be known."""
        # The class is frozen; only a new object is changed here.
        object.__setattr__(self, "shape", check_shape(shape, self.storage.itemsize))
        object.__setattr__(self, "_fixed", self.fixed is not None)

    @property
    @abstractmethod
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype of the stored items."""

    @property
    def fixed(self) -> Fixed | None:
        return fixed_layout(self.storage, self.shape)

    def unstack(self, column: Array) -> list[Any]:
        return views(column)


@register
@dataclass(frozen=True, repr=False)
class NDArrayField(ShapedField):
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
        self._take_shape(shape)

    def __repr__(self) -> str:
        return f"NDArrayField({dtype_repr(self.dtype)}, {self.shape})"

    @property
    def expects(self) -> str:
        return with_article(f"{self.dtype} array of {shape_repr(self.shape)}")

    @property
    def storage(self) -> np.dtype[Any]:
        return self.dtype

    def encode(self, value: Any) -> Encoded:
        # The usual array passes by three comparisons. Varying shapes and other types take the long way.
        if type(value) is not np.ndarray or value.dtype != self.dtype or value.shape != self.shape:
            value = self._check(value)
        return to_bytes(value, self.shape, self._fixed)

    def _check(self, value: Any) -> Array:
        if isinstance(value, list):
            return self._from_list(value)
        if not isinstance(value, np.ndarray):
            raise TypeError(mismatch(self, value))
        # A masked array is an ndarray, so it needs a test of its own.
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(mismatch(self, value, "its mask would be lost: store value.data and value.mask"))
        if value.dtype != self.dtype:
            # Never cast: the user decides about precision.
            raise TypeError(mismatch(self, value, "convert the array with astype, or declare its dtype"))
        if not allows_shape(self.shape, value.shape):
            raise ValueError(mismatch(self, value, advise(NDArrayField, self.dtype, self.shape, value.shape)))
        # A subclass may have other methods; a plain array is what is stored.
        return np.asarray(value)

    def _from_list(self, value: list[Any]) -> Array:
        """Convert a list of numbers to an array of this field."""
        array = as_array(value, self.dtype, self.shape)
        if array is None:
            _, items = flatten_lists(value) or ((), [])
            wrong = [item for item in items if not self._takes_item(item)]
            if self.dtype.kind not in LIST_ITEMS:
                raise TypeError(mismatch(self, value, "pass an array"))
            if wrong:
                raise TypeError(f"a list with {mismatch(self, wrong[0], self._advise_item(wrong[0]))}")
            raise TypeError(
                mismatch(
                    self,
                    value,
                    f"a list needs rows of equal length, of numbers that {self.dtype} holds exactly; "
                    f"np.asarray(value, {self.dtype.name!r}) rounds",
                )
            )
        if not allows_shape(self.shape, array.shape):
            shape = advise(NDArrayField, self.dtype, self.shape, array.shape)
            raise ValueError(f"a list of shape {array.shape}, expected {self.expects}; {shape}")
        return array

    def _takes_item(self, item: Any) -> bool:
        """Tell whether lists for this field may have items of this type."""
        # Both are subclasses of others: bool of int, np.float64 of float.
        if isinstance(item, bool) or (isinstance(item, float) and self.dtype.kind in "iu"):
            return self.dtype.kind == "b"
        return isinstance(item, (*LIST_ITEMS.get(self.dtype.kind, ()), np.number))

    def _advise_item(self, item: Any) -> str:
        """Return what to do about an item that lists for this field may not have."""
        if isinstance(item, float) and self.dtype.kind in "iu":
            float64 = NDArrayField("float64", self.shape)
            return f"{float64!r} holds both; np.asarray(value, {self.dtype.name!r}) cuts off fractions"
        return "JSONField() holds lists of several kinds"

    def decode(self, data: memoryview) -> Array:
        return from_bytes(data, self.dtype, self.shape, self._fixed)

    def spec(self) -> dict[str, Any]:
        return {"dtype": self.dtype.str, "shape": shape_spec(self.shape)}

    @classmethod
    def from_spec(cls, spec: Any) -> "NDArrayField":
        return cls(**{**spec, "dtype": spec_dtype(spec.get("dtype")), "shape": spec_shape(spec)})


@register
@dataclass(frozen=True, repr=False)
class TensorField(ShapedField):
    """Torch tensors of one dtype. Their values are stored, but not device, gradient or subclass.

    `Schema.decode` returns them as numpy arrays: bfloat16, complex32 and float8 as unsigned integers of their bits.
    With its argument `tensor` it returns the result of that function.

    Args:
        dtype: the torch dtype or its name, such as "bfloat16".
        shape: lengths of the axes, as for NDArrayField.

    Raises:
        TypeError, ValueError: the dtype cannot be stored, or the shape is not valid.
    """

    kind: ClassVar[str] = "tensor"
    dtype: str
    shape: Shape | None
    _fixed: bool = attribute(init=False, compare=False)  # kept here because each sample needs it

    def __init__(self, dtype: Any, shape: Sequence[int | None] | None) -> None:
        object.__setattr__(self, "dtype", torch_dtype(dtype))
        self._take_shape(shape)

    def __repr__(self) -> str:
        return f"TensorField({self.dtype!r}, {self.shape})"

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(TORCH_DTYPES[self.dtype])

    @property
    def torch_dtype(self) -> str:
        return self.dtype

    @property
    def expects(self) -> str:
        return f"a torch {self.dtype} tensor of {shape_repr(self.shape)}"

    def encode(self, value: Any) -> Encoded:
        if not is_tensor(value) or torch_dtype_name(value) != self.dtype:
            raise TypeError(mismatch(self, value))
        shape = tensor_shape(value)
        if not allows_shape(self.shape, shape):
            raise ValueError(mismatch(self, value, advise(TensorField, self.dtype, self.shape, shape)))
        return to_bytes(tensor_items(value, self.dtype), self.shape, self._fixed)

    def decode(self, data: memoryview) -> Array:
        return from_bytes(data, self.storage, self.shape, self._fixed)

    def spec(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": shape_spec(self.shape)}

    @classmethod
    def from_spec(cls, spec: Any) -> "TensorField":
        if not isinstance(spec.get("dtype"), str):
            raise ValueError(describe_wrong("dtype", spec.get("dtype"), "the name of a torch dtype"))
        return cls(**{**spec, "shape": spec_shape(spec)})


def tensor_items(tensor: Any, dtype: str) -> Array:
    """Return the items of a torch tensor as a numpy array, which shares its memory if possible.

    Args:
        tensor: a tensor.
        dtype: name of its torch dtype.

    Raises:
        ValueError: the items are not in memory as numbers: sparse, quantized, meta.
    """
    # Attached to a graph, on a GPU or conjugated: `force` copies as needed.
    if tensor.is_meta:
        raise ValueError("the torch tensor is on the device 'meta', where tensors have no items: give it some")
    try:
        if dtype in BITS:
            # torch has the module imported, as there is a tensor.
            tensor = tensor.detach().view(getattr(sys.modules["torch"], BITS_VIEW[BITS[dtype]]))
        array: Array = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:  # NotImplementedError is a RuntimeError
        raise ValueError(
            f"the items of the torch tensor are not plain numbers in memory; convert it, as by to_dense(): {error}"
        ) from None
    # A tensor of bfloat16 has no NumPy dtype; its bits travel as integers.
    return array.view(TORCH_DTYPES[dtype]) if dtype in BITS else np.asarray(array, TORCH_DTYPES[dtype])
