"""Values that users pass: their bytes, their description for messages, and tests for foreign types that do not import
their packages.
"""

import re
import sys
from typing import Any

import numpy as np

REPR_MAX = 60  # characters of a value in a message


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


def describe(value: Any) -> str:
    """Describe `value` in a few words, however large it is."""
    # Before int: bool is one.
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array of shape {value.shape}"
    if isinstance(value, np.generic):
        return f"numpy {type(value).__name__} {_short_repr(value)}"
    if is_tensor(value):
        if value.is_nested:
            return f"a nested torch {torch_dtype_name(value)} tensor"
        return f"a torch {torch_dtype_name(value)} tensor of shape {tuple(value.shape)}"
    if is_image(value):
        return f"a PIL image of mode {value.mode} and size {value.size}"
    if isinstance(value, int):
        # A huge int would take long to print.
        return f"int {value}" if value.bit_length() <= 128 else f"an int of {value.bit_length()} bits"
    if isinstance(value, (str, float)):
        return f"{type(value).__name__} {_short_repr(value)}"
    if isinstance(value, (bytes, bytearray, dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def explain_surrogate(error: UnicodeEncodeError) -> str:
    """Return the sentence that says which character keeps a text from being stored."""
    return f"UTF-8 cannot encode character {error.start} of the text: {error.reason}"


def _short_repr(value: Any) -> str:
    # Cut before `repr`, which would escape all of a long text.
    text = repr(value[:REPR_MAX] if isinstance(value, str) else value)
    return text if len(text) <= REPR_MAX else f"{text[:REPR_MAX]}…"


def is_tensor(value: Any) -> bool:
    """Tell whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")  # nobody can have made a tensor before torch was imported
    return torch is not None and isinstance(value, torch.Tensor)


def torch_dtype_name(tensor: Any) -> str:
    """Return the name of a torch tensor's dtype, such as "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def tensor_shape(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a torch tensor.

    Raises:
        ValueError: the tensor is nested, so it has no shape.
    """
    if tensor.is_nested:
        raise ValueError("a nested tensor has no shape; store its parts, list(tensor.unbind())")
    return tuple(tensor.shape)


def is_image(value: Any) -> bool:
    """Tell whether `value` is a PIL image, without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")  # nobody can have made an image before Pillow was imported
    return pillow is not None and isinstance(value, pillow.Image)
