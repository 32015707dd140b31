"""Reading of image files of any format by Pillow: checked, bounded, and converted to arrays."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.image_header import Data, ImageHeader, image_format, read_image_header
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.fields.images.pixels import not_of_kind, too_large
from ffrecord.system.requirements import import_optional, require

# Image.open has a limit that belongs to the program, and warns below it: each format is opened by its plugin.
PLUGINS: dict[str, Callable[[], Any]] = {
    "JPEG": lambda: require("PIL.JpegImagePlugin", "image", "a JPEG").JpegImageFile,
    "PNG": lambda: require("PIL.PngImagePlugin", "image", "a PNG").PngImageFile,
    "GIF": lambda: require("PIL.GifImagePlugin", "image", "a GIF").GifImageFile,
    "BMP": lambda: require("PIL.BmpImagePlugin", "image", "a BMP").BmpImageFile,
    "WebP": lambda: require("PIL.WebPImagePlugin", "image", "a WebP").WebPImageFile,
    "TIFF": lambda: require("PIL.TiffImagePlugin", "image", "a TIFF").TiffImageFile,
}
FORMATS = "JPEG, PNG, WebP, TIFF, BMP or GIF"
GREY = ("1", "L", "LA", "La")
NUMBERS = ("I", "F")  # grey of int32 and float32
ORIENTATION = 0x0112  # tag of EXIF and TIFF
Box = tuple[int, int, int, int]  # left, top, right, bottom
Choose = Callable[[int, int, int], Box]  # of height, width and orientation of the stored image

# EXIF orientation → (exchange rows and columns first, then top and bottom, then left and right).
TURNS = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def turn(pixels: Array, orientation: int) -> Array:
    """Return a view of `pixels` [h, w, …], upright; `orientation` is that of EXIF, 1 to 8."""
    swap, down, across = TURNS[orientation]
    # Swapping first: the flips are of the turned picture.
    pixels = pixels.swapaxes(0, 1) if swap else pixels
    return pixels[:: -1 if down else 1, :: -1 if across else 1]


def check_image_header(data: Data) -> ImageHeader:
    """Read the header of an image file, and compare its pixels with its bytes before memory is allocated.

    Raises:
        FormatError: the format is not one of FORMATS, there is no readable header, or it claims too many pixels.
    """
    header = read_image_header(data)
    if header is None:
        kind = image_format(data)
        readable = f"the {kind} of {len(data)} bytes has no readable header"
        raise FormatError(not_of_kind(data, FORMATS) if kind is None else readable)
    # What a file can hold at most; see `PER_BYTE`.
    limit = header.pixels_max(len(data))
    wrong = too_large(f"a {header.format} of {len(data)} bytes and", header.width, header.height, limit)
    if wrong:
        raise FormatError(wrong)
    return header


def load_image(data: Data, exif: bool = False, choose: Choose | None = None) -> tuple[Any, int]:
    """Load an image file, the first frame or page of several.

    Args:
        data: the file.
        exif: find out the orientation that EXIF (in TIFF, its tag) says.
        choose: function of height, width and orientation that returns the box to cut out; None for all.

    Returns:
        (the loaded PIL image as it is stored, its orientation or 1).

    Raises:
        FormatError: `data` is not an image file that Pillow reads.
        ImportError: Pillow is not installed.
    """
    header = check_image_header(data)
    try:
        image = _open(data, header.format)
        # Before loading, which removes the tag.
        said = image.tag_v2.get(ORIENTATION, 1) if header.format == "TIFF" else 1
        image.load()
        if header.format == "TIFF":
            # Newer releases of Pillow turn a TIFF while they load it, and remove the tag. Turn it back.
            turned = said in TURNS and said != 1 and image.tag_v2.get(ORIENTATION) is None
            image = _turn_back(image, said) if turned else image
        elif exif:
            # Read from the loaded image: some formats have EXIF behind the pixels.
            said = _said_by_exif(image)
        orientation = said if exif and said in TURNS else 1
        # The header was believed for the limit, so the pixels must be as many.
        if (image.width, image.height) != (header.width, header.height):
            sides, said = f"{image.width} x {image.height}", f"{header.width} x {header.height}"
            raise FormatError(f"the {header.format} has {sides} pixels, but its header says {said}")
        if choose is not None:
            box = choose(image.height, image.width, orientation)
            # Cutting out everything would copy all pixels.
            whole = box == (0, 0, image.width, image.height)
            image = image if whole else image.crop(box)
    except (MemoryError, ImportError, FormatError):
        raise
    except Exception as error:  # Pillow does not document the errors that bad bytes raise
        raise FormatError(f"Pillow cannot read a {header.format} of {len(data)} bytes: {error}") from error
    return image, orientation


def _said_by_exif(image: Any) -> Any:
    """Return what EXIF says about the orientation; 1 if it is damaged, as for a JPEG."""
    try:
        # Orientation is a help; a damaged EXIF block must not cost the image.
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # Pillow does not document the errors that bad bytes raise
        return 1


def is_known_kind(data: Data) -> bool:
    """Tell whether Pillow knows the kind of pixels of an image file; True if Pillow is not installed.

    TIFF may have any number of channels of any type, such as bands of satellites.
    """
    kind = image_format(data)
    if kind != "TIFF" or import_optional("PIL.TiffImagePlugin") is None:
        return kind is not None
    try:  # only TIFF needs a closer look
        # Pillow refuses an unknown kind of pixels when it opens the file.
        _open(data, kind)
    except Exception:  # Pillow does not document the errors that other files raise
        return False
    return True


def _open(data: Data, kind: str) -> Any:
    return PLUGINS[kind]()(io.BytesIO(data))


def _turn_back(image: Any, orientation: int) -> Any:
    """Return a TIFF as it is stored, if Pillow has turned it by `orientation`."""
    transpose = require("PIL.Image", "image", "a TIFF").Transpose
    undone = {
        2: transpose.FLIP_LEFT_RIGHT,
        3: transpose.ROTATE_180,
        4: transpose.FLIP_TOP_BOTTOM,
        5: transpose.TRANSPOSE,
        6: transpose.ROTATE_90,
        7: transpose.TRANSVERSE,
        8: transpose.ROTATE_270,
    }
    return image.transpose(undone[orientation])


def image_array(image: Any) -> Array:
    """Return the pixels of a loaded PIL image: [H, W] of grey ones, else uint8 [H, W, 3], RGB.

    Grey of 16 bits gives uint16, modes I and F give int32 and float32; palettes give their colours, 1 bit gives 0 and
    255. Alpha is dropped.

    Raises:
        FormatError: Pillow does not convert the mode.
    """
    if image.mode.startswith("I;16"):
        # NumPy gives the byte order of the file; the copy is native.
        return np.asarray(image).astype(np.uint16)
    if image.mode in NUMBERS:
        return np.array(image)  # a copy, which is writable
    return np.array(convert_image(image, "L" if image.mode in GREY else "RGB"))


def byte_pixels(image: Any, grey: bool) -> Array:
    """Return the pixels of a loaded PIL image as uint8 [h, w, 1 or 3]: one channel if it is grey, or `grey` is set.

    Grey of 16 bits keeps its upper 8.

    Raises:
        FormatError: the mode has numbers without a range (I, F), or Pillow does not convert it.
    """
    if image.mode.startswith("I;16"):
        return (np.asarray(image) >> 8).astype(np.uint8)[:, :, None]
    if image.mode in NUMBERS:
        raise FormatError(f"numbers of mode {image.mode} have no range, expected 8 or 16 bits")
    pixels = np.asarray(convert_image(image, "L" if grey or image.mode in GREY else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)


def convert_image(image: Any, mode: str) -> Any:
    """Return a loaded PIL image in mode L or RGB; transparency is dropped.

    Raises:
        FormatError: Pillow does not convert its mode.
    """
    if image.mode == mode:
        return image
    image.info.pop("transparency", None)  # else Pillow warns that it is lost
    try:
        if mode == "L" and image.mode not in (*GREY, "RGB", "RGBA", "P"):
            image = image.convert("RGB")
        return image.convert(mode)
    except ValueError as error:
        raise FormatError(f"Pillow cannot convert mode {image.mode} to {mode}: {error}") from error


def decode_image_file(data: Data) -> Array:
    """Return the pixels of an image file as a writable array; see `image_array`.

    Raises:
        FormatError: `data` is not an image file that can be read.
        ImportError: Pillow is not installed; JPEG takes simplejpeg, too.
    """
    # A JPEG goes to simplejpeg if it is installed.
    if image_format(data) == "JPEG":
        return decompress(data, grey=True)
    return image_array(load_image(data)[0])
