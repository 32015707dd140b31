"""Plug-in for DLIO, the benchmark of MLPerf Storage: a generator and a reader of `.ffr` files.

DLIO takes readers by the name of their class (`reader.reader_classname=dlio_ffr.FfrReader`). It has no such option for
generators, nor for formats: `register` adds both to the DLIO of this process. `dlio_host.py` runs
DLIO so.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import dlio_tracer
import numpy as np
from dlio_benchmark.common.enumerations import FormatType
from dlio_benchmark.data_generator.data_generator import DataGenerator
from dlio_benchmark.data_generator.generator_factory import GeneratorFactory
from dlio_benchmark.reader.reader_handler import FormatReader

from ffrecord import FileReader, FileWriter
from ffrecord.fields import IntField, NDArrayField, Schema, schema_of
from ffrecord.fields.layout import Slot
from ffrecord.format.extension import Extension

FORMAT = "ffr"
SEED = 10  # of DLIO's own generators: so sizes of files are the same


def schema(shape: tuple[int, int]) -> Schema[Any]:
    """Return the schema of a file, whose samples have one shape. The names are those of DLIO's .npz files."""
    return Schema.of({"x": NDArrayField("uint8", shape), "y": IntField()})


class FfrGenerator(DataGenerator):  # type: ignore[misc]
    """Generator of one `.ffr` file for each file of the workload; sizes are those of DLIO's other formats."""

    def generate(self) -> None:
        super().generate()
        np.random.seed(SEED)
        sides = self.get_dimension(self.total_files_to_generate)
        random = np.random.default_rng(SEED + self.my_rank)
        for i in range(self.my_rank, self.total_files_to_generate, self.comm_size):
            shape = (int(sides[2 * i]), int(sides[2 * i + 1]))
            columns = schema(shape)
            path = self.storage.get_uri(self._file_list[i])
            with FileWriter(path, self.num_samples, extension=Extension(columns.to_builtins())) as writer:
                for _ in range(self.num_samples):
                    writer.write_one(columns.encode({"x": random.integers(0, 255, shape, np.uint8), "y": 0}))


class FfrReader(FormatReader):  # type: ignore[misc]
    """Reader of `.ffr` files: every sample is compared with its CRC-32.

    Loaders that ask for a sample at a time, such as torch's, get it from `read_index`. Those that take batches, such as
    TensorFlow's, get them from `next`, which reads each with one call for each file.
    """

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        super().__init__(dataset_type, thread_index)

    def open(self, filename: str) -> tuple[FileReader[Any], Slot]:
        reader: FileReader[Any] = FileReader(filename)
        columns = schema_of(reader)
        assert columns is not None
        return reader, columns.slots["x"]

    def close(self, filename: str) -> None:
        reader, _ = self.open_file_map[filename]
        reader.close()

    def get_sample(self, filename: str, sample_index: int) -> None:
        self._read(filename, [sample_index])

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        return super().read_index(global_sample_idx, step)

    def next(self) -> Iterator[Any]:
        """Yield batches of resized samples: uint8 [batch, side, side]."""
        batch = np.stack([self._args.resized_image] * self.batch_size)
        rows = iter(self.file_map[self.thread_index])
        while wanted := list(islice(rows, self.batch_size)):
            for filename, of_file in groupby(wanted, key=lambda row: str(row[1])):
                self._close_all_but(filename)
                if filename not in self.open_file_map:
                    self.open_file_map[filename] = self.open(filename)
                self._read(filename, [int(index) for _, _, index in of_file])
            for _ in wanted:
                self.preprocess()
            yield batch

    def _close_all_but(self, filename: str) -> None:
        for other in self.open_file_map.keys() - {filename}:
            self.close(other)
            del self.open_file_map[other]

    def _read(self, filename: str, indices: Sequence[int]) -> None:
        """Read samples of one file as arrays, which DLIO replaces by a constant: its resized sample."""
        reader, place = self.open_file_map[filename]
        records = reader.read(indices)
        images = [each[place.offset : place.offset + place.size].reshape(place.shape) for each in records]
        dlio_tracer.count(len(images), sum(image.nbytes for image in images))

    def finalize(self) -> None:
        self._close_all_but("")

    def is_index_based(self) -> bool:
        return True

    def is_iterator_based(self) -> bool:
        return True


def register() -> None:
    """Let this process's DLIO know the format "ffr" and its generator."""
    member = object.__new__(FormatType)
    member._name_, member._value_ = FORMAT.upper(), FORMAT
    FormatType._member_map_[member._name_] = member
    FormatType._value2member_map_[FORMAT] = member
    known = GeneratorFactory.get_generator

    def get_generator(kind: FormatType) -> DataGenerator:
        return FfrGenerator() if kind is member else known(kind)

    GeneratorFactory.get_generator = staticmethod(get_generator)
