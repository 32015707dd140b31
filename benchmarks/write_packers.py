"""Ways to pack a dataset with several processes: ours and other packages', each at the best settings found.

Each has a way to read its samples back. Packages are imported when called: no environment needs all of them.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from write_cifar import SHAPE, Cifar

Samples = Iterable[tuple[Any, int]]  # uint8 [32, 32, 3], and the int
CHUNK_BYTES = "64MB"  # of a file of LitData; MosaicML's are as large
AT_ONCE = 1000  # samples of one call of LitData's function


@dataclass(frozen=True)
class Packer:
    """One way to pack.

    Attributes:
        package: name of its distribution in package indexes.
        pack: function (data, directory to create, number of processes).
        samples: function that reads the samples of that directory, in any order, by the package's own reader.
    """

    package: str
    pack: Callable[[Cifar, str, int], None]
    samples: Callable[[str], Samples]


class Named:
    """Samples as dicts, which most packages take."""

    def __init__(self, data: Cifar) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image, label = self.data[index]
        return {"image": image, "label": label}


def pairs(samples: Iterable[dict[str, Any]]) -> Samples:
    return ((sample["image"], sample["label"]) for sample in samples)


def ours(data: Cifar, out: str, workers: int) -> None:
    package = importlib.import_module("ffrecord")
    package.DatasetWriter(out, num_workers=workers, progress=False).from_indexed_dataset(Named(data))


def of_ours(out: str) -> Samples:
    package, fields = importlib.import_module("ffrecord"), importlib.import_module("ffrecord.fields")
    with package.FileReader(out) as reader:
        yield from pairs(map(fields.schema_of(reader).decode, reader))


def ffcv_fields(image: Any, data: Cifar, out: str, workers: int) -> None:
    """Return FFCV's fields, with its default chunks of 100: larger ones made no difference."""
    columns = {"image": image, "label": importlib.import_module("ffcv.fields").IntField()}
    writer = importlib.import_module("ffcv.writer").DatasetWriter
    os.mkdir(out)
    writer(f"{out}/data.beton", columns, num_workers=workers).from_indexed_dataset(data)


def ffcv(data: Cifar, out: str, workers: int) -> None:
    field = importlib.import_module("ffcv.fields").NDArrayField(np.dtype(np.uint8), SHAPE)
    ffcv_fields(field, data, out, workers)


def ffcv_images(data: Cifar, out: str, workers: int) -> None:
    ffcv_fields(importlib.import_module("ffcv.fields").RGBImageField(write_mode="raw"), data, out, workers)


def of_ffcv(out: str) -> Samples:
    """Read at the places from FFCV's own reader: its loader compiles for longer than all of this takes."""
    metadata = importlib.import_module("ffcv.reader").Reader(f"{out}/data.beton").metadata
    file = np.asarray(np.memmap(f"{out}/data.beton", np.uint8, "r"))
    size = int(np.prod(SHAPE))
    image = metadata["f0"]
    starts = image["data_ptr"] if image.dtype.names else image
    for start, label in zip(starts.tolist(), metadata["f1"].tolist(), strict=True):
        yield file[start : start + size], label


def mosaicml(module: str) -> Any:
    """Import a module of the package without its __init__, which imports torchvision: neither writing nor reading
    needs that.
    """
    if "streaming" not in sys.modules:
        spec = importlib.util.find_spec("streaming")
        if spec is None:
            raise ModuleNotFoundError("No module named 'streaming'")
        sys.modules["streaming"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"streaming.{module}")


def mds_range(data: Cifar, out: str, first: int, stop: int) -> None:
    """Write a range; a column of fixed shape was as fast."""
    module, named = mosaicml("base.format.mds.writer"), Named(data)
    with module.MDSWriter(out=out, columns={"image": "ndarray", "label": "int"}) as writer:
        for index in range(first, stop):
            writer.write(named[index])


def mds(data: Cifar, out: str, workers: int) -> None:
    """Pack as its documentation says: a directory for each process, then one index over them."""
    merge_index, _ = mosaicml("base.util").merge_index, mosaicml("base.format.mds.writer")
    bounds = [len(data) * worker // workers for worker in range(workers + 1)]
    ranges = [(data, f"{out}/{worker}", bounds[worker], bounds[worker + 1]) for worker in range(workers)]
    processes = [get_context("fork").Process(target=mds_range, args=each) for each in ranges]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    merge_index(out, keep_local=True)


def mds_alone(data: Cifar, out: str, _: int) -> None:
    mds_range(data, out, 0, len(data))


def of_mds(out: str) -> Samples:
    dataset = mosaicml("base.local").LocalDataset(out)
    return pairs(map(dataset.__getitem__, range(len(dataset))))


class Several:
    """Some samples for each call, which saves LitData's queues."""

    def __init__(self, data: Cifar) -> None:
        self.named = Named(data)

    def __call__(self, bounds: tuple[int, int]) -> Iterator[dict[str, Any]]:
        yield from map(self.named.__getitem__, range(*bounds))


def optimize(function: Callable[[Any], Any], inputs: list[Any], out: str, workers: int) -> None:
    """Pack with forked processes: by default it spawns processes, which import everything again."""
    options = {"chunk_bytes": CHUNK_BYTES, "reorder_files": False, "start_method": "fork", "verbose": False}
    importlib.import_module("litdata").optimize(function, inputs, out, num_workers=workers, **options)


def litdata(data: Cifar, out: str, workers: int) -> None:
    bounds = [(first, min(first + AT_ONCE, len(data))) for first in range(0, len(data), AT_ONCE)]
    optimize(Several(data), bounds, out, workers)


def litdata_singly(data: Cifar, out: str, workers: int) -> None:
    optimize(Named(data).__getitem__, list(range(len(data))), out, workers)


def of_litdata(out: str) -> Samples:
    dataset = importlib.import_module("litdata").StreamingDataset(out)
    return pairs(map(dataset.__getitem__, range(len(dataset))))


PACKERS = {
    "DatasetWriter": Packer("ffrecord", ours, of_ours),
    "ffcv": Packer("ffcv", ffcv, of_ffcv),
    "ffcv, RGBImageField": Packer("ffcv", ffcv_images, of_ffcv),
    "mds": Packer("mosaicml-streaming", mds, of_mds),
    "mds, one process": Packer("mosaicml-streaming", mds_alone, of_mds),
    "litdata": Packer("litdata", litdata, of_litdata),
    "litdata, sample by sample": Packer("litdata", litdata_singly, of_litdata),
}
