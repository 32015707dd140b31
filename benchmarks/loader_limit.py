"""The limit: two threads in C that gather the same records from a mapping of the same files into the same tensors."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from harness import WrongAnswerError
from loader_peers import packed
from loader_ways import Batches, Opened
from waits import Waits

from ffrecord import FileReader
from ffrecord.fields import schema_of

SOURCE = Path(__file__).with_name("loader_limit.c")
HEADERS = Path(__file__).resolve().parents[1] / "ffrecord"
RING = 2


class NoCompilerError(Exception):
    """The error that there is no C compiler."""


class Epoch(ctypes.Structure):
    """The struct `epoch` of loader_limit.c."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("checksums", ctypes.c_void_p),
        *((name, ctypes.c_size_t) for name in ("record_size", "image_offset", "image_size", "label_offset")),
        ("order", ctypes.c_void_p),
        ("count", ctypes.c_long),
        ("batch", ctypes.c_long),
        ("images", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("next", "bad", "sum")),
    )


def compiled(directory: Path) -> ctypes.CDLL:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("no C compiler: no cc in PATH")
    target = directory / f"loader_limit.{os.getpid()}.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", f"-I{HEADERS}", str(SOURCE), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True)
    loops = ctypes.CDLL(str(target))
    loops.run_epoch.restype = ctypes.c_long
    loops.start()
    return loops


class Loop(Opened):
    """A loop that gathers the images and labels of all samples; with `check` it compares their CRC-32 too."""

    def __init__(self, directory: Path, work: Any, check: bool) -> None:
        self.loops, self.work = compiled(directory), work
        with FileReader(packed("DatasetWriter", directory, work)) as reader:
            self._map(reader, check)
        self.random = np.random.default_rng(work.seed)
        super().__init__(self._batches)

    def _map(self, reader: FileReader, check: bool) -> None:
        self.files = [np.memmap(name, np.uint8, "r") for name in reader.fnames]
        offsets = [reader.get_offsets(number)[:-1] for number in range(len(self.files))]
        bases = (file.ctypes.data for file in self.files)
        self.records = np.concatenate([np.int64(base) + of for base, of in zip(bases, offsets, strict=True)])
        tables = [reader.get_checksums(number) for number in range(len(self.files))] if check else [None]
        self.checksums = np.concatenate(tables) if check else None
        schema = schema_of(reader)
        assert schema is not None
        self.image, self.label, self.record_size = schema.slots["image"], schema.slots["label"], schema.record_size

    def _gather(self, order: Any, threads: int) -> tuple[Any, Any, int]:
        """Return (images, labels, their sum) of the batches gathered last, and of all."""
        slots = (threads * RING, self.work.batch)
        if not hasattr(self, "images") or self.images.shape[:2] != slots:
            self.images, self.labels = np.ones((*slots, self.image.size), np.uint8), np.ones(slots, np.int64)
        checksums = None if self.checksums is None else self.checksums.ctypes.data
        sizes = (self.record_size, self.image.offset, self.image.size, self.label.offset)
        where = (order.ctypes.data, len(order), self.work.batch, self.images.ctypes.data, self.labels.ctypes.data)
        epoch = Epoch(self.records.ctypes.data, checksums, *sizes, *where)
        if bad := self.loops.run_epoch(ctypes.byref(epoch), ctypes.c_int(threads)):
            raise WrongAnswerError(f"C loop: {bad} records are not what their CRC-32 says")
        return self.images, self.labels, epoch.sum

    def order(self) -> Any:
        return self.random.permutation(len(self.records))

    def _batches(self) -> Batches:
        """Yield the batches one at a time, for a check."""
        order = self.order()
        for first in range(0, len(order), self.work.batch):
            count = min(self.work.batch, len(order) - first)
            images, labels, _ = self._gather(np.ascontiguousarray(order[first : first + count]), 1)
            yield images[0, :count], labels[0, :count]

    def prepare(self) -> None:
        """Prepare the order, which a loop in C gets from outside."""
        self.next = self.order()
        self._gather(self.next[:1], self.work.workers)

    def epoch(self, waits: Waits) -> tuple[int, int]:
        order = self.next
        return len(order), self._gather(order, self.work.workers)[2]
