"""Photographs decoded on a GPU, or decoded on the CPU and copied to it; and by the same library on the CPU."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import WrongAnswerError
from loader_checks import EVERY, pictures
from loader_folder import Files
from loader_peers import pairs
from loader_pictures import crop, packed
from loader_ways import Batches, Opened

ALIKE = 30  # dB; other decoders and filters of the same part are 33 dB and more alike, other parts less than 20


def require(place: str, library: bool) -> None:
    """Say what is missing.

    Raises:
        ImportError: torch finds no GPU, or the library is not installed.
    """
    torch = importlib.import_module("torch")
    if place == "cuda" and not torch.cuda.is_available():
        raise ImportError(f"torch {torch.__version__} finds no CUDA device")
    if library:
        importlib.import_module("nvidia.nvimgcodec")


def made(directory: Path, work: workloads.Crops, place: str, library: bool) -> Any:
    options = {"decode_with": "nvimgcodec"} if library else {}
    return importlib.import_module("ffrecord.torch").Loader(
        packed(directory, work),
        work.batch,
        "random",
        decode={"image": crop(work)},
        seed=work.seed,
        num_threads=work.workers,
        device=place,
        **options,
    )


def loader(directory: Path, work: workloads.Crops, place: str, library: bool) -> Opened:
    """Open our loader whose batches come to `place`; a library decodes them there, or the CPU does."""
    require(place, library)
    opened = made(directory, work, place, library)
    return Opened(lambda: pairs(opened))


class Whole(Opened):
    """The limit: the library on files in memory, batch by batch: whole pictures, without any further step."""

    def __init__(self, directory: Path, work: workloads.Crops, place: str) -> None:
        require(place, library=True)
        library, self.on_gpu = importlib.import_module("nvidia.nvimgcodec"), place == "cuda"
        kind = library.BackendKind
        kinds = (kind.HW_GPU_ONLY, kind.GPU_ONLY, kind.HYBRID_CPU_GPU) if self.on_gpu else (kind.CPU_ONLY,)
        self.decoder = library.Decoder(
            device_id=0 if self.on_gpu else library.NVIMGCODEC_DEVICE_CPU_ONLY,
            max_num_cpu_threads=max(1, work.workers - 1),  # with as many as CPUs it warns, and takes one less
            backends=[library.Backend(kind) for kind in kinds],
            options=":fancy_upsampling=1",
        )
        self.stream = library.CodeStream
        files = Files(directory)
        self.data, self.work = [files[i]["image"] for i in range(len(files))], work
        self.random = np.random.default_rng(work.seed)
        self.prepare()
        super().__init__(self._batches)

    def prepare(self) -> None:
        order = self.random.permutation(len(self.data))
        self.parts = [order[at : at + self.work.batch] for at in range(0, len(order), self.work.batch)]

    def _decode(self, part: Any) -> list[Any]:
        return list(self.decoder.decode([self.stream(self.data[index]) for index in part.tolist()]))

    def _batches(self) -> Batches:
        side = self.work.side
        for part in self.parts:
            yield np.stack([np.asarray(image.cpu())[:side, :side] for image in self._decode(part)]), part

    def epoch(self, waits: Any) -> tuple[int, int]:
        count = total = 0
        for part in self.parts:
            count += sum(image is not None for image in self._decode(part))
            total += int(part.sum())
        if self.on_gpu:  # which is still at the last ones
            importlib.import_module("torch").cuda.synchronize()
        return count, total


def on_cpu(values: Any) -> Any:
    """Return an array as it is, a tensor on the CPU."""
    return values if isinstance(values, np.ndarray) else values.cpu()


def check(name: str, batches: Batches, directory: Path, work: Any) -> None:
    """Check that crops are possible parts of their pictures. Those of a loader are the same parts that it cuts out
    without a library.
    """
    found = [(on_cpu(crops), on_cpu(labels)) for crops, labels in batches]
    pictures(name, iter(found), directory, work)
    if not name.startswith("Loader"):
        return
    with made(directory, work, "cpu", library=False) as usual:
        for number, ((crops, labels), (others, expected)) in enumerate(zip(found, pairs(usual), strict=True)):
            if not np.array_equal(labels, expected):
                raise WrongAnswerError(f"{name}: other pictures in batch {number}")
            if number % EVERY == 0:
                apart = (np.asarray(crops, np.float64) - np.asarray(others)) ** 2
                alike = 10 * np.log10(255**2 / np.maximum(apart.mean((1, 2, 3)), 1e-9))
                if alike.min() < ALIKE:
                    raise WrongAnswerError(f"{name}: a crop in batch {number} is another part: {alike.min():.1f} dB")
