"""Decoding of JPEG files that were read, by one thread or several."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.reading.batch_forms import Array
from ffrecord.system import resources
from ffrecord.writing.file_writer import whole_number

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
    count = min(len(records), threads or min(THREADS_MOST, resources.usable_cpus()))
    made: list[Any] = [None] * len(records)
    failures: dict[int, BaseException] = {}
    places = iter(range(len(records)))  # shared by the threads: each place goes to one of them, in ascending order
    helpers: list[threading.Thread] = []

    def decode() -> None:
        for place in places:
            try:
                made[place] = jpeg_pixels(records[place], partial(name, place), grey, kept=True)
            except BaseException as error:
                failures[place] = error
                _use_up(places)

    try:
        with contextlib.suppress(RuntimeError):  # no more threads can start: go on with those there are
            for _ in range(count - 1):
                helpers.append(threading.Thread(target=decode, name="ffrecord-jpeg", daemon=True))
                helpers[-1].start()
        decode()
    finally:
        _use_up(places)
        for helper in helpers:
            if helper.ident is not None:
                helper.join()
    if failures:
        try:
            raise failures[min(failures, key=lambda place: (isinstance(failures[place], Exception), place))]
        finally:
            failures.clear()  # its traceback holds this frame: else the error would keep itself and the records alive
    return made


def _use_up(places: Iterator[int]) -> None:
    """Exhaust the iterator, so that no thread begins another image."""
    deque(places, maxlen=0)
