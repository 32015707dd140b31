"""Decoding of the JPEG images of a batch together, by NVIDIA's nvImageCodec: on a GPU, or on the CPU without one.

Boxes, turns and flips are those of `decoders.py`. The library decodes the boxes of all images in one call. torch
resamples them, on a GPU together, and rounds and normalises all together. An image that is no ordinary JPEG, and one
that the library does not decode, is left to the decoder of the CPU, which also says what is wrong with it.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from ffrecord.fields.field import Array
from ffrecord.fields.images.image_codec import TURNS
from ffrecord.fields.images.image_header import image_format
from ffrecord.fields.images.jpeg_codec import MAGIC, SIDE_MAX, pixels_max
from ffrecord.system import resources
from ffrecord.system.forks import renew_in_children
from ffrecord.system.requirements import require
from ffrecord.torch.images.decoders import ImageDecoder
from ffrecord.torch.images.jpeg import Header, read_header
from ffrecord.torch.images.picture import Data, Sides, jpeg_orientation, stored_box

__all__ = ["NVIMGCODEC", "NVImageCodec"]

logger = logging.getLogger("ffrecord")

NVIMGCODEC = "nvimgcodec"  # the argument `decode_with`, and the extra
END = b"\xff\xd9"
ADOBE = b"\xff\xee\x00\x0eAdobe"  # a segment of 14 bytes; its last one says how colours are stored
TRANSFORM, AS_RGB = 15, 0  # offset of that byte, and its value for red, green and blue
FIRST_CHANNEL, NEXT_CHANNEL = 5, 3  # offsets of the channels' names from the height in a frame
SHRINK_MOST = 128  # pixels of the box for one of the result: what shrinks more is left to the CPU
PIXELS_MOST = 1 << 26  # of the images of one call, all in memory; several threads may each have such a part
TOGETHER_MOST = 1 << 24  # pixels and weights of the images that are resampled together
CPU = torch.device("cpu")

DecodeRow = Callable[[int, Array], Sides]


class ImagePlan(NamedTuple):
    """The part of an image to decode, and what to do with its pixels.

    Attributes:
        stream: the library's code stream of the box.
        pixels: number of pixels of the box.
        sides: of the whole image, after it was turned.
        orientation: EXIF orientation that turns the box upright.
        flip: exchange left and right after that.
    """

    stream: Any
    pixels: int
    sides: Sides
    orientation: int
    flip: bool


class NVImageCodec:
    """nvImageCodec on one device. Threads may share it: one batch after the other is decoded, by threads of its own.

    On a GPU its work goes to the stream that is current in the calling thread.

    Args:
        device: the GPU; None for the CPU.
        threads: number of its threads on the CPU, at least 1.

    Attributes:
        left: number of images that were left to the decoder of the CPU.

    Raises:
        ImportError: nvImageCodec is not installed; names it.
    """

    def __init__(self, device: torch.device | None, threads: int) -> None:
        self._library = require("nvidia.nvimgcodec", NVIMGCODEC, f"decode_with={NVIMGCODEC!r}", "nvImageCodec")
        self._device = CPU if device is None else device
        # With as many threads as CPUs or more, it warns on standard error and takes fewer.
        self._threads = max(1, min(threads, resources.usable_cpus() - 1))
        self.left = 0
        self._decoder: Any = None
        self._renew_locks()
        renew_in_children(self)

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of the library's threads."""
        # Never destroy the parent's decoder here, also not at exit: it would wait for its threads, and crash.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._decoder))
        self._decoder = None
        self._renew_locks()

    def _renew_locks(self) -> None:
        self._turn = threading.RLock()  # guards the decoder; a signal handler that calls `close` may interrupt its use
        self._resampling = threading.Lock()  # held while a batch is resampled on a GPU
        self._counting = threading.Lock()  # guards `left`

    def close(self) -> None:
        """Free the memory of the library; a later batch begins anew."""
        with self._turn:
            self._decoder = None

    @property
    def on_gpu(self) -> bool:
        """True if it decodes on a GPU."""
        return self._device.type == "cuda"

    @property
    def described(self) -> str:
        """A description of the decoder and its device, for logs."""
        return f"images decoded by nvImageCodec on {self._device}"

    def decode(
        self, decoder: ImageDecoder, data: Sequence[Data], seeds: Sequence[int], decode_row: DecodeRow
    ) -> tuple[torch.Tensor, list[Sides]]:
        """Decode the images of a batch.

        Args:
            decoder: chooses the boxes, and says what to make of them.
            data: k images, as `decoder.decode_into` takes them.
            seeds: k seeds.
            decode_row: function of place and row that decodes an image by `decoder` on the CPU.

        Returns:
            (the tensor on the device, as `decoder.allocate(k)` returns it on the CPU; the sides of the k images).

        Raises:
            Whatever `decode_row` raises.
        """
        plans = [self._plan(decoder, each, seed) for each, seed in zip(data, seeds, strict=True)]
        shape = (len(data), decoder.channels, *decoder.sides)
        whole = torch.empty(shape, dtype=torch.float32, device=self._device, memory_format=torch.channels_last)
        sides: dict[int, Sides] = {}
        for part in _parts([(place, plan) for place, plan in enumerate(plans) if plan is not None]):
            # The list keeps its images: on a GPU, the library may free what nobody holds.
            images = self._decode_streams([plan.stream for _, plan in part], decoder.channels)
            # On a GPU one thread at a time: torch gives up Python's lock in each operation, so several threads would
            # wait for each other at every image.
            with self._resampling if self.on_gpu else nullcontext():
                found = [(*planned, image) for planned, image in zip(part, images, strict=True) if image is not None]
                sides.update({place: plan.sides for place, plan, _ in found})
                uprights = [Upright(place, self._tensor_of(image), plan) for place, plan, image in found]
                if self.on_gpu:
                    for group in group_neighbours(uprights, decoder.sides):
                        resample_together(group, whole)
                else:
                    for upright in uprights:
                        whole[upright.place] = _resample(upright, decoder.sides)
        batch = _to_numbers(whole, decoder)
        batch = batch if decoder.channels_first else batch.permute(0, 2, 3, 1)
        left = [place for place in range(len(data)) if place not in sides]
        if left:
            self._note(data[left[0]], len(left))
            room = decoder.allocate(len(left), pin=self.on_gpu)
            for i, (place, row) in enumerate(zip(left, decoder.rows(room), strict=True)):
                sides[place] = decode_row(place, row)
                batch[place].copy_(room[i], non_blocking=True)
        return batch, [sides[place] for place in range(len(data))]

    def _plan(self, decoder: ImageDecoder, data: Data, seed: int) -> ImagePlan | None:
        """Return the plan of an image; None if it is left to the CPU."""
        # A file that is cut short has no end. The library may return grey for what is missing.
        if isinstance(data, np.ndarray) or data[:3] != MAGIC or data[-2:] != END:
            return None
        header = read_header(data)
        if header is None or not _is_ordinary(data, header):
            return None
        orientation = jpeg_orientation(data) if decoder.exif else 1
        sides = Sides(header.height, header.width)
        sides = Sides(*sides[::-1]) if TURNS[orientation][0] else sides
        box = decoder.box(*sides, seed)
        if box.height > SHRINK_MOST * decoder.sides[0] or box.width > SHRINK_MOST * decoder.sides[1]:
            return None
        top, left, height, width, _ = stored_box(box, sides, orientation)
        try:
            stream = self._library.CodeStream(np.frombuffer(data, np.uint8))
            if (stream.height, stream.width) != (header.height, header.width):
                return None
            if (height, width) != (header.height, header.width):
                part = self._library.Region(top, left, top + height, left + width)
                stream = stream.get_sub_code_stream(region=part)
        except RuntimeError:  # the library does not read the header
            return None
        return ImagePlan(stream, height * width, sides, orientation, box.flip)

    def _decode_streams(self, streams: list[Any], channels: int) -> list[Any]:
        """Return the library's images [h, w, channels]; None of each that it does not decode."""
        spec = self._library.ColorSpec
        params = self._library.DecodeParams(
            apply_exif_orientation=False, color_spec=spec.GRAY if channels == 1 else spec.SRGB
        )
        stream = torch.cuda.current_stream(self._device).cuda_stream if self.on_gpu else 0
        with self._turn:
            decoder = self._decoder = self._open() if self._decoder is None else self._decoder
            found: list[Any] = decoder.decode(streams, params=params, cuda_stream=stream)
        return found

    def _open(self) -> Any:
        library, kinds = self._library, self._library.BackendKind
        # On a GPU without its own backends for the CPU: what a GPU does not decode is left to our threads, and counted.
        chosen = (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU) if self.on_gpu else (kinds.CPU_ONLY,)
        return library.Decoder(
            device_id=self._device.index if self.on_gpu else library.NVIMGCODEC_DEVICE_CPU_ONLY,
            max_num_cpu_threads=self._threads,
            backends=[library.Backend(kind) for kind in chosen],
            options=":fancy_upsampling=1",  # of colour, as libjpeg-turbo does it
        )

    def _tensor_of(self, image: Any) -> torch.Tensor:
        """Return an image of the library as uint8 [h, w, C] on the device, without a copy."""
        if self.on_gpu:
            return torch.as_tensor(image, device=self._device)
        return torch.from_numpy(np.asarray(image))

    def _note(self, data: Data, count: int) -> None:
        """Count images that are left to the CPU; tell of the first one."""
        with self._counting:
            first, self.left = not self.left, self.left + count
        if first:
            kind = None if isinstance(data, np.ndarray) else image_format(data)
            logger.info(
                "Loader: nvImageCodec leaves %s to the CPU: it is for JPEG of 8 bits, grey or with colours, and needs "
                "nvJPEG on a GPU; loader.stats().decoded_on_cpu counts such images",
                "pixels" if kind is None else f"a {kind}",
            )


def _parts(plans: list[tuple[int, ImagePlan]]) -> Iterator[list[tuple[int, ImagePlan]]]:
    """Yield the plans in parts of at most PIXELS_MOST pixels, or of one image."""
    part: list[tuple[int, ImagePlan]] = []
    pixels = 0
    for place, plan in plans:
        pixels += plan.pixels
        if part and pixels > PIXELS_MOST:
            yield part
            part, pixels = [], plan.pixels
        part.append((place, plan))
    if part:
        yield part


class Upright:
    """An image whose rows and columns are those of the result, but maybe in reverse.

    Attributes:
        place: its place in the batch.
        pixels: uint8 [h, w, C].
        down: True if its rows are in reverse.
        across: True if its columns are in reverse.
    """

    __slots__ = ("across", "down", "pixels", "place")

    def __init__(self, place: int, pixels: torch.Tensor, plan: ImagePlan) -> None:
        swap, self.down, across = TURNS[plan.orientation]
        self.place, self.across = place, across != plan.flip
        self.pixels = pixels.transpose(0, 1) if swap else pixels


def _resample(upright: Upright, sides: tuple[int, int]) -> torch.Tensor:
    """Return an image on the CPU as float32 [C, *sides] in 0 to 255."""
    turned = [axis for axis, wanted in enumerate((upright.down, upright.across)) if wanted]
    pixels = upright.pixels.flip(turned) if turned else upright.pixels
    pixels = pixels.permute(2, 0, 1)[None].float()
    if sides[1] == 1:  # torch 2.13 returns wrong pixels for results of one column
        return interpolate(pixels.mT, sides[::-1], mode="bilinear", antialias=True)[0].mT
    return interpolate(pixels, sides, mode="bilinear", antialias=True)[0]


def group_neighbours(images: list[Upright], sides: tuple[int, int]) -> Iterator[list[Upright]]:
    """Yield groups of images in neighbouring places: single images, or several with at most TOGETHER_MOST numbers.

    The numbers are pixels and weights. Each image of a group takes as many as the largest.
    """
    group: list[Upright] = []
    height = width = 0
    for image in images:
        height, width = max(height, image.pixels.shape[0]), max(width, image.pixels.shape[1])
        room = (len(group) + 1) * (height * width + sides[0] * height + sides[1] * width)
        if group and (image.place != group[-1].place + 1 or room > TOGETHER_MOST):
            yield group
            group, (height, width) = [], image.pixels.shape[:2]
        group.append(image)
    if group:
        yield group


def resample_together(images: list[Upright], whole: torch.Tensor) -> None:
    """Resample images as torch's `interpolate` with `antialias=True` does each, by a few operations on all of them.

    An operation for each image costs more than its work on a GPU. On the CPU, a product would hang in a forked child
    of a process that made one. Where torch may multiply with fewer bits (its `set_float32_matmul_precision`), a number
    may differ by a quarter.

    Args:
        images: those of neighbouring places, not empty.
        whole: float32 [k, C, H, W], in which their places are overwritten with numbers in 0 to 255.
    """
    device = whole.device
    shapes = [image.pixels.shape for image in images]
    heights, widths = [shape[0] for shape in shapes], [shape[1] for shape in shapes]
    if len(images) == 1:
        padded = images[0].pixels[None]
    else:  # what lies outside of a smaller image is never used: its weight is zero
        padded = torch.empty((len(images), max(heights), max(widths), whole.shape[1]), dtype=torch.uint8, device=device)
        for i, image in enumerate(images):
            padded[i, : heights[i], : widths[i]].copy_(image.pixels)
    reverses = [image.down for image in images], [image.across for image in images]
    facts = torch.tensor([heights, widths, *reverses], device="cpu")
    if device.type == "cuda":  # a copy from memory that is not pinned would wait for the stream
        facts = facts.pin_memory().to(device, non_blocking=True)
    # The user's loop may run in autocast, which would multiply with fewer bits.
    with torch.autocast(device.type, enabled=False):
        rows = _weights(heights, facts[0], facts[2], whole.shape[2]) @ padded.flatten(2).float()
        # [k, H, w, C] to [k, w, H x C]: so the columns of an image are resampled by one product, too.
        columns = rows.reshape(len(images), -1, *padded.shape[2:]).transpose(1, 2).flatten(2)
        result = _weights(widths, facts[1], facts[3], whole.shape[3]) @ columns
    first = images[0].place
    result = result.reshape(len(images), whole.shape[3], whole.shape[2], whole.shape[1])
    whole[first : first + len(images)] = result.permute(0, 3, 2, 1)


def _weights(lengths: list[int], length: torch.Tensor, reverse: torch.Tensor, count: int) -> torch.Tensor:
    """Return the triangles by which the rows of images become `count` rows, as `interpolate` has them.

    Args:
        lengths: number of rows of each image.
        length: the same on the device: int64 [k].
        reverse: 1 where an image's rows are in reverse: int64 [k].
        count: number of rows of the result.

    Returns:
        float32 [k, count, n], n the largest of `lengths`; a row of an image that is shorter has the weight 0.
    """
    kind: Any = {"dtype": torch.float32, "device": length.device}  # the default ones may be others
    scale = (length.to(torch.float32) / count)[:, None, None]
    place = torch.arange(count, **kind)
    place = torch.where(reverse[:, None] == 1, count - 1 - place, place)[..., None]
    row = torch.arange(max(lengths), **kind)
    weights = (place + 0.5) * scale - (row + 0.5)
    weights.abs_().div_(-scale.clamp(min=1)).add_(1).clamp_(min=0)
    weights *= row < length[:, None, None]
    return weights.div_(weights.sum(dim=2, keepdim=True))


def _is_ordinary(data: memoryview, header: Header) -> bool:
    """Tell whether a JPEG is grey or has luma and colours, and claims no more pixels than it can have."""
    if header.channels not in (1, 3) or max(header.height, header.width) > SIDE_MAX:
        return False
    if header.height * header.width > pixels_max(len(data)):
        return False
    # Not all backends know files of red, green and blue. A thumbnail before the frame may be taken for one, rarely.
    begin = bytes(data[: header.offset])
    adobe = begin.find(ADOBE)
    names = bytes(data[header.offset + FIRST_CHANNEL :][: 3 * NEXT_CHANNEL : NEXT_CHANNEL])
    rgb = begin[adobe + TRANSFORM : adobe + TRANSFORM + 1] == bytes([AS_RGB]) if adobe >= 0 else names == b"RGB"
    return header.channels == 1 or not rgb


def _to_numbers(pixels: torch.Tensor, decoder: ImageDecoder) -> torch.Tensor:
    """Return pixels [k, C, H, W] in 0 to 255, which are overwritten, as rounded bytes or numbers of a decoder."""
    pixels.round_()
    if decoder.dtype != torch.uint8:
        # Tensors, not numbers: on a GPU, torch multiplies by the reciprocal of a number, which rounds otherwise.
        pixels.div_(_constants((255.0,), pixels.device))
        if decoder.mean is not None:
            pixels.sub_(_constants(decoder.mean, pixels.device))
        if decoder.std is not None:
            pixels.div_(_constants(decoder.std, pixels.device))
    return pixels.to(decoder.dtype)


def _constants(values: Sequence[float], device: torch.device) -> torch.Tensor:
    """Return float32 [n, 1, 1], made on the device: a copy from the CPU would wait for the stream."""
    return torch.stack([torch.full((1, 1), value, dtype=torch.float32, device=device) for value in values])
