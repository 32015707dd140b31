"""Conversion of buffers that users pass as samples into bytes."""

import re
from typing import Any

import numpy as np


def as_bytes(data: Any) -> memoryview:
    """Return all bytes of a buffer in C order as a 1-D view; copy only if they are not contiguous in that order.

    Args:
        data: any object with the buffer protocol, and arrays of any dtype, shape and strides.

    Raises:
        TypeError: `data` has no buffer, or is an array of Python objects.
    """
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise TypeError(f"an array of {data.dtype} holds Python objects, not bytes")
        # asarray drops subclasses: a matrix always stays 2-D, and a view of a masked array is masked.
        data = np.ascontiguousarray(np.asarray(data))
        return data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"a sample must support the buffer protocol, not {type(data).__name__}") from None
    if "O" in re.sub(":[^:]*:", "", view.format):  # without the names of fields, which may contain an O
        raise TypeError(f"a buffer of format {view.format!r} holds Python objects, not bytes")
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    # numpy accepts every item format; memoryview.cast accepts only native ones.
    return np.frombuffer(view, np.uint8).data
