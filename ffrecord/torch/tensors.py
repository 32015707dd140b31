"""Decoded columns as torch tensors."""

from typing import Any

import numpy.typing as npt
import torch

__all__ = ["as_tensor", "is_plain"]


def as_tensor(array: npt.NDArray[Any], dtype_name: str) -> torch.Tensor:
    """The tensor that was stored as `array`; they share memory.

    Args:
        array: any shape, writable and aligned; of the numpy dtype of that name, or where numpy has none, of the
            unsigned integers of its size (bfloat16 as uint16).
        dtype_name: of the torch dtype, such as "float32".
    """
    if array.dtype.kind != "u":
        return torch.from_numpy(array)
    # Older torch has no unsigned integers beyond uint8, so the bits go as signed ones.
    dtype: torch.dtype = getattr(torch, dtype_name)
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(dtype)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is dtype, shape and values, and nothing else."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_nested or tensor.is_quantized:
        return False
    return not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
