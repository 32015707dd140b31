"""The pixels that a box of an image needs, of files of any format, payloads of fields, and arrays."""

import struct
from typing import Any, NamedTuple

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.image_codec import ORIENTATION, TURNS, byte_pixels, load_image, turn
from ffrecord.fields.images.image_header import TAGS_MOST
from ffrecord.fields.images.jpeg_codec import MAGIC, SIDE_MAX
from ffrecord.fields.images.pixels import MODES, unpack_pixels
from ffrecord.system.requirements import require
from ffrecord.torch.images.boxes import Box
from ffrecord.torch.images.jpeg import ESCAPE, SCAN, SEGMENT, Choose, Size, decode_part

__all__ = ["ImagePart", "Sides", "array_of", "mask_pixels", "picture_of", "stored_box"]

Data = memoryview | Array  # a file or payload; or pixels
APP1 = 0xE1
EXIF = b"Exif\0\0"
SHORT = 3  # the type of the orientation in TIFF


class Sides(NamedTuple):
    """Height and width of an image in pixels, after it was turned."""

    height: int
    width: int


class ImagePart(NamedTuple):
    """Pixels that a box needs.

    Attributes:
        pixels: uint8 [h, w, 1 or 3], as they are stored.
        area: (top, left, height, width) of the box in `pixels`.
        orientation: EXIF orientation that turns the area upright.
        flip: exchange left and right after that.
        sides: of the whole image, after it was turned.
    """

    pixels: Array
    area: tuple[float, float, float, float]
    orientation: int
    flip: bool
    sides: Sides


def picture_of(data: Data, choose: Choose, size: Size, channels: int, exif: bool) -> ImagePart:
    """Decode the pixels that an image of `size` needs from the box that `choose(height, width)` returns.

    Args:
        data: an image file, a payload of a field of images, or pixels: uint8 [H, W] or [H, W, 1, 3 or 4].
        choose: function of height and width, after the image was turned, that returns the box.
        size: height and width of the result.
        channels: channels of the result, 3 or 1; the pixels may have 3 or 1.
        exif: find the EXIF orientation of files.

    Raises:
        FormatError: `data` is no image that can be read.
        ImportError: a package is not installed; names it.
    """
    found: list[Any] = []

    def note(height: int, width: int) -> Box:
        found.append(Sides(height, width))
        return choose(height, width)

    if not exif and not isinstance(data, np.ndarray) and data[:3] == MAGIC:  # the usual case, in the shortest way
        part = decode_part(data, note, size, channels)
        return ImagePart(part.pixels, part.area, 1, part.flip, found[-1])

    def box_of(height: int, width: int, orientation: int) -> Box:
        """Choose the box of an image with these stored sides; return it as it lies in the stored pixels."""
        if max(height, width) > SIDE_MAX:
            raise FormatError(f"an image has {width} x {height} pixels, expected sides of 1 to {SIDE_MAX}")
        sides = Sides(width, height) if TURNS[orientation][0] else Sides(height, width)
        box = choose(*sides)
        found[:] = orientation, box.flip, sides
        return stored_box(box, sides, orientation)

    if isinstance(data, np.ndarray):
        pixels, area = _array_pixels(data, box_of)
    elif data[:3] == MAGIC:
        orientation = jpeg_orientation(data)
        # The filter's result has the sides of `size` before the turn.
        turned = (size[1], size[0]) if TURNS[orientation][0] else size
        part = decode_part(data, lambda height, width: box_of(height, width, orientation), turned, channels)
        pixels, area = part.pixels, part.area
    elif len(data) and data[0] == 0:
        pixels, area = _plain_pixels(data, box_of, channels)
    else:
        pixels, area = _file_pixels(data, box_of, channels, exif)
    orientation, flip, sides = found
    return ImagePart(pixels, area, orientation, flip, sides)


def _array_pixels(array: Array, box_of: Any) -> tuple[Array, Any]:
    pixels = array[:, :, None] if array.ndim == 2 else array
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        expected = "pixels: uint8 [H, W] or [H, W, 1, 3 or 4]"
        raise FormatError(f"a {array.dtype} array {list(array.shape)}, expected {expected}")
    box = box_of(*pixels.shape[:2], 1)
    if pixels.shape[2] == 4 or not pixels.flags.c_contiguous:  # drop alpha, of the box only
        cut = pixels[box.top : box.top + box.height, box.left : box.left + box.width, :3]
        return np.ascontiguousarray(cut), (0, 0, box.height, box.width)
    return pixels, box.area()


def _plain_pixels(data: memoryview, box_of: Any, channels: int) -> tuple[Array, Any]:
    mode, pixels = unpack_pixels(data, tuple(MODES))
    box = box_of(*pixels.shape[:2], 1)
    if mode == "RGB":
        return pixels, box.area()
    height, width = pixels.shape[:2]
    native = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    image = require("PIL.Image", "image", f"pixels of mode {mode}").frombytes(mode, (width, height), native.tobytes())
    cut = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    return byte_pixels(cut, channels == 1), (0, 0, box.height, box.width)


def _file_pixels(data: memoryview, box_of: Any, channels: int, exif: bool) -> tuple[Array, Any]:
    boxes: list[Box] = []

    def choose(height: int, width: int, orientation: int) -> tuple[int, int, int, int]:
        box = box_of(height, width, orientation)
        boxes[:] = [box]
        return box.left, box.top, box.left + box.width, box.top + box.height

    image, _ = load_image(data, exif, choose)
    return byte_pixels(image, channels == 1), (0, 0, boxes[0].height, boxes[0].width)


def array_of(data: Data, exif: bool) -> Array:
    """Return the numbers of a mask: an array as it is; of a file, the stored numbers: colours of a palette by index.

    Args:
        data: a file or payload of a field of images, of one channel; or an array [..., H, W] of bools or numbers.
        exif: turn files by their EXIF orientation.

    Raises:
        FormatError: `data` is no image that can be read, or it has colours.
    """
    if isinstance(data, np.ndarray):
        if data.ndim < 2 or data.dtype.kind not in "biuf" or 0 in data.shape[-2:]:
            raise FormatError(f"a {data.dtype} array {list(data.shape)}, expected a mask [H, W] of numbers")
        return data
    if len(data) and data[0] == 0:
        mode, pixels = unpack_pixels(data, tuple(MODES))
        if mode not in ("I", "F"):
            raise FormatError(f"the plain pixels have mode {mode}, expected a mask of one channel")
        return pixels[:, :, 0]
    return mask_pixels(*load_image(data, exif))


def mask_pixels(image: Any, orientation: int) -> Array:
    """Return the stored numbers of a loaded PIL image, upright; see `array_of`.

    Raises:
        FormatError: it has colours.
    """
    if image.mode not in ("1", "L", "P", "I", "F") and not image.mode.startswith("I;16"):
        raise FormatError(f"the image has mode {image.mode}, expected a mask of one channel: 1, L, P, I;16, I or F")
    array = np.asarray(image)
    if image.mode == "1":  # Pillow's bits are bytes of 0 and 255
        array = (array.view(np.uint8) != 0).view(np.uint8)
    return turn(array.astype(np.uint16) if image.mode.startswith("I;16") else array, orientation)


def stored_box(box: Box, sides: Sides, orientation: int) -> Box:
    """Return a box of a turned image as it lies in the stored pixels, without its flip.

    Args:
        box: the box.
        sides: of the turned image.
        orientation: EXIF orientation, 1 to 8.
    """
    top, left, height, width, _ = box
    swap, down, across = TURNS[orientation]
    top = sides.height - top - height if down else top
    left = sides.width - left - width if across else left
    return Box(left, top, width, height) if swap else Box(top, left, height, width)


def jpeg_orientation(data: memoryview) -> int:
    """Return the EXIF orientation of a JPEG, 1 to 8; 1 if it has none."""
    at = 2
    try:
        while True:
            escape, marker, size = SEGMENT.unpack_from(data, at)
            if escape != ESCAPE or marker in (ESCAPE, SCAN) or size < 2:
                return 1
            at += SEGMENT.size
            if marker == APP1 and data[at : at + len(EXIF)] == EXIF:
                return _exif_orientation(data[at + len(EXIF) : at + size - 2])
            at += size - 2
    except (struct.error, IndexError, OverflowError):
        return 1


def _exif_orientation(data: memoryview) -> int:
    """Return the orientation in EXIF data, which is a TIFF."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None:
        return 1
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, at)
    for place in range(at + 2, at + 2 + 12 * min(count, TAGS_MOST), 12):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", data, place)
        if tag == ORIENTATION:
            return value if kind == SHORT and value in TURNS else 1
    return 1
