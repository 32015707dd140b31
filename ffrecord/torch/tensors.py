"""Conversion of decoded columns to torch tensors."""

from typing import Any

import numpy.typing as npt
import torch

__all__ = ["as_tensor", "is_plain"]


def as_tensor(array: npt.NDArray[Any], dtype_name: str) -> torch.Tensor:
    """Return the tensor that was stored as `array`; they share memory.

    Args:
        array: array of any shape, writable and aligned. It has the numpy dtype of that name, or unsigned integers of
            its size if numpy has none (bfloat16 as uint16).
        dtype_name: name of the torch dtype, such as "float32".
    """
    if array.dtype.kind != "u":
        return torch.from_numpy(array)
    # Older releases of torch have no unsigned integers beyond uint8, so pass the bits as signed ones.
    dtype: torch.dtype = getattr(torch, dtype_name)
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(dtype)


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has only dtype, shape and values: dense, on the CPU, without gradient or flags."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_nested or tensor.is_quantized:
        return False
    return not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
