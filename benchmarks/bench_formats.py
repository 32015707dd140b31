"""Other formats: members of zip archives, TFRecord files and their Examples, all formats cold, and their conversion."""

import argparse
import importlib.util
import io
import os
from collections.abc import Sequence
from typing import Any

import coldness
import environment
import formats_converting
import formats_data
import formats_examples
import formats_reading
import numpy as np
import workloads
import write_pictures
from formats_figures import describe, figures, groups
from harness import Measurement, add_data, add_parts, arguments, table
from program import Program, measure

PARTS = ("zip", "jpeg", "tfrecord", "examples", "cold", "convert")
PACKAGES = ("tfrecord", "crc32c", "protobuf", "lmdb", "simplejpeg", "pillow")
SIDES = (224, 320)  # pixels of the pictures: about 30 kB
COLD_SECONDS = 2.0
ROOM = 8 << 30


class Formats(Program):
    """One run of the benchmark."""

    parts = PARTS

    def zip(self) -> None:
        work = workloads.SMOKE_MEMBERS if self.smoke else workloads.MEMBERS
        self.add(formats_reading.zipped(self.directory, work, self.rounds))

    def jpeg(self) -> None:
        if importlib.util.find_spec("simplejpeg") is None:
            print("JPEG members: simplejpeg is not installed, not measured", flush=True)
            return
        work = workloads.SMOKE_DECODED if self.smoke else workloads.DECODED
        pictures = encoded(work, self.smoke)
        if pictures:
            self.add(formats_reading.decoded(self.directory, pictures, work, self.rounds))

    def tfrecord(self) -> None:
        for work in workloads.SMOKE_STREAMS if self.smoke else workloads.STREAMS:
            self.add(formats_reading.streamed(self.directory, work, self.rounds))

    def examples(self) -> None:
        for work in workloads.SMOKE_EXAMPLES if self.smoke else workloads.EXAMPLES:
            self.add(formats_examples.parsed(work, self.rounds))

    def cold(self) -> None:
        if not coldness.on_disk(self.directory):
            return
        seconds = 0.05 if self.smoke else COLD_SECONDS
        for work in workloads.SMOKE_CONTAINED if self.smoke else workloads.CONTAINED:
            self.add(formats_reading.contained(self.directory, work, self.rounds, seconds))

    def convert(self) -> None:
        for work in workloads.SMOKE_CONVERSIONS if self.smoke else workloads.CONVERSIONS:
            if not formats_data.usable([work.source]):
                continue
            self.add(formats_converting.converted(self.directory, work, self.rounds))

    def show(self, found: Sequence[Measurement]) -> None:
        for (_, work), group in groups(found).items():
            print(describe(work), grid(list(group.of.values())), "", sep="\n", flush=True)


def encoded(work: workloads.Decoded, smoke: bool) -> list[bytes]:
    """Return windows of photographs as JPEG, with `smoke` of drawings; none without the packages that ship
    photographs.
    """
    images = write_pictures.photographs(smoke)
    if images is None:
        return []
    from PIL import Image

    random, names = np.random.default_rng(work.seed), sorted(images)
    return [_jpeg(Image, images[names[number % len(names)]], random) for number in range(work.files)]


def _jpeg(module: Any, image: Any, random: Any) -> bytes:
    height, width = (int(random.integers(min(SIDES[0], side), min(SIDES[1], side) + 1)) for side in image.shape[:2])
    top, left = (
        int(random.integers(0, side - part + 1)) for side, part in zip(image.shape[:2], (height, width), strict=True)
    )
    window = module.fromarray(image[top : top + height, left : left + width]).convert("RGB")
    out = io.BytesIO()
    window.save(out, "JPEG", quality=90)
    return out.getvalue()


def grid(found: Sequence[Measurement]) -> str:
    """Return the rows, fastest first."""
    rows = []
    for m in sorted(found, key=lambda m: m.median):
        taken = f"{1000 * m.median:.2f} ({1000 * min(m.seconds):.2f}..{1000 * max(m.seconds):.2f})"
        rows.append([m.contestant, f"{m.count / m.median:,.0f}", f"{m.gigabytes_per_second:.3f}", taken])
    return table(["", "records/s", "GB/s", "ms (min..max)"], rows)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_data(parser, "directory for up to 5 GB of files")
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing can be cold, that part is left out")
    versions, cpus = environment.versions(*PACKAGES), len(os.sched_getaffinity(0))
    measure(Formats, "formats", options, versions, figures, read_ahead_kb=environment.read_ahead(), usable_cpus=cpus)


if __name__ == "__main__":
    main()
