"""`ffrecord.open`: whatever it is."""

from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target, drain

SUFFIXES = (".bin", ".tar", ".ffr", ".csv", ".json")


def _prepare(scratch: Scratch) -> Run:
    import ffrecord

    files = [scratch.file(f"file{suffix}") for suffix in SUFFIXES]

    def run(data: memoryview) -> None:
        """The first byte: what the file is called."""
        if data:
            drain(ffrecord.open(files[data[0] % len(files)].put(data[1:]), io="pread"))

    return run


def _seeds(folder: Path) -> Iterator[bytes]:
    from fuzz.targets import ffr, lmdbs, recordios, tars, tfrecords, zips

    families = (ffr._file_seeds, lmdbs._seeds, tars._stream_seeds, tfrecords._seeds, zips._seeds)
    for family in families:
        for data in family(folder):
            yield (b"\2" if family is ffr._file_seeds else b"\0") + data
    for data in tfrecords._packed_seeds(folder):
        if data[:1] == b"\3":
            yield b"\0" + data[1:]
    for data in recordios._file_seeds(folder):
        yield b"\0" + data[1:]
    yield b"\1" + bytes(1024)
    yield b"\3a.jpg 1\n"


TARGETS = [
    Target(
        "open",
        _prepare,
        _seeds,
        ("ffrecord.sources.detect", "ffrecord.sources.opening", "ffrecord.sources.files"),
        accepted=("ArgumentError",),  # as the readers
        size_most=1 << 13,
    )
]
