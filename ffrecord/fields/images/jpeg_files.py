"""Decoding of JPEG files that were read, by one thread or several."""

from collections.abc import Callable
from functools import partial

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.reading.batch_forms import Array
from ffrecord.system import resources
from ffrecord.system.threads import map_in_threads
from ffrecord.system.values import whole_number

THREADS_MOST = 8


def jpeg_pixels(data: Array, name: Callable[[], str], grey: bool, kept: bool = False) -> Array:
    """Return the pixels of one JPEG.

    Args:
        data: uint8 [bytes], contiguous.
        name: returns the name of the file for messages.
        grey: return [H, W] of any JPEG.
        kept: the caller keeps the pixels together with others of a batch.

    Returns:
        A new uint8 array [H, W, 3], RGB, or [H, W] if `grey`. Pillow converts CMYK and YCCK.

    Raises:
        FormatError: `data` is not a complete JPEG.
        ImportError: neither simplejpeg nor Pillow is installed; or the JPEG is CMYK, and Pillow is not installed.
    """
    try:
        pixels: Array = decompress(data.data, grey, grey, kept)
        return pixels
    except FormatError as error:
        raise FormatError(f"{name()}: {error}") from error


def jpeg_pixels_of(records: list[Array], name: Callable[[int], str], grey: bool, threads: int | None) -> list[Array]:
    """Return the pixels of several JPEGs, decoded by threads: simplejpeg and Pillow release the GIL.

    Args:
        records: the JPEGs, each uint8 [bytes], contiguous.
        name: returns the name of a file for messages, by its place in `records`.
        grey: return [H, W] of any JPEG.
        threads: > 0; None for as many as this process has CPUs, at most THREADS_MOST.

    Raises:
        FormatError: a JPEG is not complete; the first one is named.
        ImportError: neither simplejpeg nor Pillow is installed; or a JPEG is CMYK, and Pillow is not installed.
        TypeError, ValueError: `threads` is not an int, or out of range.
    """
    if threads is not None and whole_number("threads", threads) < 1:
        raise ArgumentError(f"threads is {threads}, expected > 0")

    def pixels_of(place: int) -> Array:
        return jpeg_pixels(records[place], partial(name, place), grey, kept=True)

    # Not more threads than CPUs, since decoding waits for nothing.
    return map_in_threads(pixels_of, range(len(records)), threads or min(THREADS_MOST, resources.usable_cpus()))
