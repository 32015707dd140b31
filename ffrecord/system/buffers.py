"""Whatever users hand over as bytes → all of its bytes."""

import re
from typing import Any

import numpy as np


def as_bytes(data: Any) -> memoryview:
    """All bytes of a buffer, in C order, as a 1-D view; copied only where they do not lie so.

    Args:
        data: anything with the buffer protocol, and arrays of any dtype, shape and strides.

    Raises:
        TypeError: no buffer, or an array of Python objects.
    """
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise TypeError(f"an array of {data.dtype} holds Python objects, not bytes")
        # asarray: a matrix stays 2-D whatever its shape is set to, a masked array's view is masked.
        data = np.ascontiguousarray(np.asarray(data))
        return data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"a sample must support the buffer protocol, not {type(data).__name__}") from None
    if "O" in re.sub(":[^:]*:", "", view.format):  # names of fields do not count
        raise TypeError(f"a buffer of format {view.format!r} holds Python objects, not bytes")
    if view.nbytes == 0:
        return memoryview(b"")
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    # numpy takes any item format, memoryview.cast only native ones.
    return np.frombuffer(view, np.uint8).data
