"""JPEG files that were read → their pixels, by one thread or several."""

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
    """The pixels of one JPEG.

    Args:
        data: uint8 [bytes], contiguous.
        name: gives what it is called in messages.
        grey: give [H, W] of any JPEG.
        kept: with others of a batch.

    Returns:
        A new uint8 array [H, W, 3], RGB, or [H, W] if `grey`. CMYK and YCCK are converted by Pillow.

    Raises:
        FormatError: no JPEG that can be read whole.
        ImportError: neither simplejpeg nor Pillow is installed; of CMYK, no Pillow.
    """
    try:
        pixels: Array = decompress(data.data, grey, grey, kept)
        return pixels
    except FormatError as error:
        raise FormatError(f"{name()}: {error}") from error


def jpeg_pixels_of(records: list[Array], name: Callable[[int], str], grey: bool, threads: int | None) -> list[Array]:
    """The same of several, by threads: simplejpeg and Pillow decode without the GIL.

    Args:
        records: as `data` of `jpeg_pixels`.
        name: gives what each is called, by its place.
        threads: > 0; None: as many as this process has CPUs, up to THREADS_MOST.

    Raises:
        As `jpeg_pixels`, of the first that cannot be had; TypeError, ValueError: `threads`.
    """
    if threads is not None and whole_number("threads", threads) < 1:
        raise ArgumentError(f"threads is {threads}, expected > 0")
    count = min(len(records), threads or min(THREADS_MOST, resources.usable_cpus()))
    made: list[Any] = [None] * len(records)
    failures: dict[int, BaseException] = {}
    places = iter(range(len(records)))  # each goes to one thread, in ascending order
    helpers: list[threading.Thread] = []

    def decode() -> None:
        for place in places:
            try:
                made[place] = jpeg_pixels(records[place], partial(name, place), grey, kept=True)
            except BaseException as error:
                failures[place] = error
                _use_up(places)

    try:
        with contextlib.suppress(RuntimeError):  # no more threads can be had
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
            failures.clear()  # or the error would keep itself, and what was read
    return made


def _use_up(places: Iterator[int]) -> None:
    """Leave nothing for anybody to begin."""
    deque(places, maxlen=0)
