"""Values of samples as bytes of files, with the suffix of the file's name."""

import decimal
import io
import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields.describe import describe, is_image, is_tensor
from ffrecord.fields.images.image import PNG_MAGIC, PNG_MODES
from ffrecord.sources.registry import IMAGES
from ffrecord.system.buffers import as_bytes

# First bytes of a file → suffix of its name. Other bytes have the suffix BYTES.
MAGIC = ((b"\xff\xd8\xff", "jpg"), (PNG_MAGIC, "png"), (b"GIF8", "gif"))
BYTES, TEXT, NUMBER, JSON, ARRAY = "bin", "txt", "cls", "json", "npy"
# Other endings that fit a suffix. Bytes of unknown format may be any picture.
ENDINGS = {"jpg": ("jpeg", "jpe", "jfif"), "tif": ("tiff",), BYTES: tuple(end[1:] for end in IMAGES)}
TIFF_MODES = ("I", "F", "CMYK", "YCbCr", "LAB")


class Content(NamedTuple):
    """The content of a file.

    Attributes:
        data: its bytes.
        suffix: ending of its name, such as "jpg".
        kind: BYTES, TEXT, NUMBER, JSON or ARRAY. Columns of different kinds have different suffixes; pictures are
            BYTES.
    """

    data: bytes | memoryview
    suffix: str
    kind: str


def content_of(value: Any) -> Content:
    """Encode a value as a file, without loss.

    Raises:
        TypeError: no file holds values of this type.
        ValueError: no file holds this value.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return content_of_bytes(as_bytes(value))
    if isinstance(value, str):
        return Content(value.encode(errors="surrogateescape"), TEXT, TEXT)
    if isinstance(value, decimal.Decimal):
        return Content(str(value).encode(), TEXT, TEXT)
    check_unmasked(value)
    if _is_int(value):
        return Content(str(int(value)).encode(), NUMBER, NUMBER)
    if is_tensor(value):
        value = value.detach().cpu().numpy()  # pyright: ignore[reportAttributeAccessIssue]  # a tensor
    if isinstance(value, np.ndarray) or (
        isinstance(value, np.generic) and not isinstance(value, np.float64 | np.bool_)
    ):
        return Content(_encode_npy(np.asarray(value)), ARRAY, ARRAY)
    if is_image(value):
        return _encode_image(value)
    if isinstance(value, float) and not math.isfinite(value):
        return Content(_encode_npy(np.asarray(value)), ARRAY, ARRAY)  # JSON has no NaN and no infinity
    return Content(_encode_json(value), JSON, JSON)


def _is_int(value: Any) -> bool:
    """Tell whether a value is a whole number. numpy counts durations among them, but a file would lose their unit."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def content_of_bytes(data: bytes | memoryview) -> Content:
    """Return bytes as a file. Known pictures get their suffix."""
    head = bytes(data[:8])
    found = next((suffix for magic, suffix in MAGIC if head.startswith(magic)), BYTES)
    return Content(data, found, BYTES)


def fits(name: str, content: Content) -> bool:
    """Tell whether a name has an ending of such contents, in upper or lower case."""
    end = name.rpartition(".")[2].lower()
    return end == content.suffix or end in ENDINGS.get(content.suffix, ())


def check_unmasked(value: Any) -> None:
    """Refuse masked arrays: a file would keep the values under the mask, but no mask.

    Raises:
        TypeError: the value is a masked array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{describe(value)} is masked, and its mask would be lost: export its data and its mask as two columns"
        )


def _encode_npy(array: np.ndarray[Any, Any]) -> memoryview:
    if array.dtype.hasobject:
        raise TypeError(
            f"{describe(array)} holds Python objects, which only a pickle could keep: export numbers or text"
        )
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getbuffer()


def _encode_image(image: Any) -> Content:
    form = "PNG" if image.mode in PNG_MODES else "TIFF" if image.mode in TIFF_MODES else None
    if form is None:
        raise ArgumentError(f"{describe(image)}: neither PNG nor TIFF can keep this mode: convert the image")
    out = io.BytesIO()
    image.save(out, form)
    return Content(out.getbuffer(), {"PNG": "png", "TIFF": "tif"}[form], BYTES)


def _encode_json(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value, enc_hook=_to_builtin)
        same = bool(msgspec.json.decode(text) == value)
    except TypeError as error:
        raise ArgumentTypeError(f"{describe(value)} cannot be written as JSON: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"{describe(value)} cannot be written as JSON: {error}") from None
    # JSON would silently change some values: tuples to lists, NaN to null, the key 1 to "1". `JSONField` refuses
    # them in the same way.
    if not same:
        raise ArgumentError(
            f"JSON would change {describe(value)}: expected dicts with str keys, lists, str, finite numbers, bools and "
            "None"
        )
    return text


def _to_builtin(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | np.bool_) and not isinstance(value, np.timedelta64):
        return value.item()
    raise TypeError(f"it contains {describe(value)}")
