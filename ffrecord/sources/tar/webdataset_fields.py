"""Decoding of WebDataset's fields by the end of their names. Their content is never executed."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.fields.images.image_codec import convert_image, load_image
from ffrecord.fields.images.image_header import image_format
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.format.ffr_layout import hint_of

HEADER_MOST = 64 << 10  # most bytes of an array's description


def decode_field(field: str, data: npt.NDArray[np.uint8]) -> Any:
    """Decode a field by the text behind the last dot of its name.

    Without a decoder for it, return the bytes as they are.

    Raises:
        FormatError: the bytes are not of that kind.
        ImportError: the package that reads an image is not installed.
    """
    decoder = DECODERS.get(field.rpartition(".")[2])
    if decoder is None:
        return data
    try:
        return decoder(data.data)
    except FormatError as error:
        raise FormatError(f"field {field!r}: {error}") from None  # of a picture: it has the hint
    # RecursionError: JSON that is nested too deeply.
    except (ValueError, RecursionError, EOFError) as error:
        raise FormatError(f"field {field!r} of {len(data)} bytes: {error}{hint_of(data.data)}") from None


def _text(data: memoryview) -> str:
    return bytes(data).decode()


def _int(data: memoryview) -> int:
    return int(bytes(data))


def _json(data: memoryview) -> Any:
    return json.loads(bytes(data))


def _npy(data: memoryview) -> npt.NDArray[Any]:
    """Return a copy of an array that numpy.save wrote.

    The size in its header is compared with the bytes that are there.
    """
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    # Version 3 only adds names of fields beyond Latin-1.
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise FormatError(f"version of the array is {version}, expected (1, 0) or (2, 0)")
    try:
        shape, fortran, dtype = read(file, max_header_size=HEADER_MOST)
    except Exception as error:  # numpy parses a Python literal, which may raise almost anything
        raise FormatError(f"the description of the array cannot be read: {type(error).__name__}: {error}") from None
    if dtype.hasobject:
        raise FormatError("an array of Python objects may run any code when it is read: store numbers or text")
    left = len(data) - file.tell()
    # Ints of Python, which do not overflow, as those of numpy would.
    count = 1
    for side in shape:
        count *= side
    if min(shape, default=0) < 0 or count * dtype.itemsize != left:
        raise FormatError(
            f"an array of shape {list(shape)} and {dtype} has {left} bytes, expected {count * dtype.itemsize}"
        )
    # A copy is aligned, which a field inside a record need not be.
    flat = np.frombuffer(data, dtype, count, file.tell()).copy()
    return flat.reshape(shape[::-1]).transpose() if fortran else flat.reshape(shape)


def _image(data: memoryview) -> npt.NDArray[np.uint8]:
    """Decode to uint8 [H, W, 3], also a grey image. As in WebDataset, the content tells the format, not the name."""
    if image_format(data) == "JPEG":
        return decompress(data, grey=False)
    return np.array(convert_image(load_image(data)[0], "RGB"))


DECODERS: dict[str, Callable[[memoryview], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count"), _int),
    **dict.fromkeys(("json", "jsn"), _json),
    # TIFF stays bytes: RGB does not hold its numbers and bands.
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "bmp", "gif"), _image),
    "npy": _npy,
}
