"""JPEG files, decoded and cropped at random: the same bytes for all contestants."""

import importlib
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from loader_checks import MEAN, STD
from loader_folder import Files, decoded
from loader_peers import pairs
from loader_ways import Batches, Opened
from waits import Waits

Sizes = tuple[int, ...]
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of the crops; the usual defaults


def packed(directory: Path, work: workloads.Crops) -> Path:
    """Pack the files in this package's format, unchanged."""
    fields = importlib.import_module("ffrecord.fields")
    png = work.form == "PNG"
    out = directory / ("pngs" if png else "pictures")
    if not out.exists():
        columns = {"image": fields.ImageFileField() if png else fields.JPEGField(), "label": fields.IntField()}
        writer = importlib.import_module("ffrecord").DatasetWriter(out, columns, num_workers=2, progress=False)
        writer.from_indexed_dataset(Files(directory, "png" if png else "jpg"))
    return out


def crop(work: workloads.Crops) -> Any:
    """Return our decoder, which also flips; normalised, its numbers are float16."""
    images = importlib.import_module("ffrecord.torch.images")
    if work.form != "normalised":
        return images.RandomResizedCrop(work.side)
    half = importlib.import_module("torch").float16
    return images.RandomResizedCrop(work.side, dtype=half, mean=MEAN, std=STD)


def loader(directory: Path, work: workloads.Crops) -> Opened:
    module, decode = importlib.import_module("ffrecord.torch"), {"image": crop(work)}
    path, options = packed(directory, work), {"seed": work.seed, "num_threads": work.workers}
    made = module.Loader(path, work.batch, "random", decode=decode, **options)
    return Opened(lambda: pairs(made))


def dataset(directory: Path, work: workloads.Crops) -> Opened:
    """Open torch's DataLoader over our dataset."""
    module, decode = importlib.import_module("ffrecord.torch"), {"image": crop(work)}
    loader = through_torch(module.Dataset(packed(directory, work), decode=decode), work)
    return Opened(lambda: pairs(loader))


class Alone(Opened):
    """The limit: our loader's decoder, called by threads on bytes in memory, into existing memory.

    Each thread has its own batches, so that none waits for another.
    """

    def __init__(self, directory: Path, work: workloads.Crops, suffix: str = "jpg") -> None:
        images = importlib.import_module("ffrecord.torch.images")
        files = Files(directory, suffix)
        self.data, self.work = [memoryview(files[i]["image"]) for i in range(len(files))], work
        self.decoder = images.RandomResizedCrop(work.side)
        self.random = np.random.default_rng(work.seed)
        self.threads = ThreadPoolExecutor(work.workers)
        self.room = [self.decoder.allocate(work.batch) for _ in range(work.workers)]
        self.prepare()
        super().__init__(self._batches)

    def prepare(self) -> None:
        order = self.random.permutation(len(self.data))
        self.parts = [order[at : at + self.work.batch] for at in range(0, len(order), self.work.batch)]

    def _decode(self, part: Any, room: Any) -> None:
        rows = self.decoder.rows(room)
        for row, index in zip(rows, part.tolist(), strict=False):
            self.decoder.decode_into(self.data[index], row, zlib.crc32(index.to_bytes(8, "little")))

    def _batches(self) -> Batches:
        for part in self.parts:
            self._decode(part, self.room[0])
            yield self.room[0][: len(part)].numpy(), part

    def _thread(self, number: int) -> int:
        mine = self.parts[number :: self.work.workers]
        for part in mine:
            self._decode(part, self.room[number])
        return sum(int(part.sum()) for part in mine)

    def epoch(self, waits: Waits) -> tuple[int, int]:
        return len(self.data), sum(self.threads.map(self._thread, range(self.work.workers)))


class Bare(Alone):
    """The decoding library, called by threads on bytes in memory: whole pictures, without any further step."""

    def _decode(self, part: Any, room: Any) -> None:
        decode = importlib.import_module("simplejpeg").decode_jpeg
        for index in part.tolist():
            self.last = decode(self.data[index])

    def _batches(self) -> Batches:
        side = self.work.side
        for part in self.parts:
            crops = []
            for index in part.tolist():
                self._decode(np.array([index]), None)
                crops.append(self.last[:side, :side])
            yield np.stack(crops), part


class BarePillow(Bare):
    """Pillow, called by threads on PNG files in memory: whole pictures, without any further step."""

    def __init__(self, directory: Path, work: workloads.Crops) -> None:
        super().__init__(directory, work, "png")

    def _decode(self, part: Any, room: Any) -> None:
        for index in part.tolist():
            self.last = decoded(self.data[index])


class AsTheyAre:
    """The pictures for FFCV's writer, which encodes pixels: it gets back the bytes that they were decoded from."""

    def __init__(self, directory: Path) -> None:
        self.files = Files(directory)
        self.bytes = b""

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.bytes = self.files[index]["image"]
        return decoded(self.bytes), index

    def encode(self, image: Any, quality: int) -> Any:
        return np.frombuffer(self.bytes, np.uint8)


def write_beton(path: Path, directory: Path) -> None:
    writer, fields = importlib.import_module("ffcv.writer"), importlib.import_module("ffcv.fields")
    pictures = AsTheyAre(directory)
    importlib.import_module("ffcv.fields.rgb_image").encode_jpeg = pictures.encode  # its workers are forked
    columns = {"image": fields.RGBImageField(write_mode="jpg"), "label": fields.IntField()}
    writer.DatasetWriter(str(path), columns, num_workers=2).from_indexed_dataset(pictures)


def ffcv(directory: Path, work: workloads.Crops) -> Opened:
    """Open FFCV's loader as for CIFAR; it decodes whole pictures, with the faster and coarser of libjpeg's
    transforms.

    Normalised, it also flips them at random and gives float16 [k, 3, H, W], pixel by pixel, as ours does.
    """
    module, decoders = importlib.import_module("ffcv.loader"), importlib.import_module("ffcv.fields.decoders")
    transforms, path = importlib.import_module("ffcv.transforms"), directory / "pictures.beton"
    if not path.exists():
        write_beton(path, directory)
    crop = decoders.RandomResizedCropRGBImageDecoder((work.side, work.side), SCALE, RATIO)
    if work.form == "normalised":
        mean, std = 255 * np.array(MEAN), 255 * np.array(STD)
        numbers = transforms.NormalizeImage(mean, std, np.float16)
        steps = [transforms.RandomHorizontalFlip(), numbers, transforms.ToTensor(), transforms.ToTorchImage()]
    else:
        steps = [transforms.ToTensor()]
    pipelines = {
        "image": [crop, *steps],
        "label": [decoders.IntDecoder(), transforms.ToTensor(), transforms.Squeeze(1)],
    }
    options = {"num_workers": work.workers, "os_cache": True, "drop_last": False}
    made = module.Loader(str(path), work.batch, order=module.OrderOption.RANDOM, pipelines=pipelines, **options)
    return Opened(lambda: made)


class Cropped(Files):
    """The files decoded and cropped by Pillow; `draft` uses its way to decode no more pixels than needed."""

    def __init__(self, directory: Path, side: int, draft: bool) -> None:
        super().__init__(directory)
        self.side, self.draft = side, draft

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            whole, crop = image.size, self._crop(*image.size)
            if self.draft:
                image.draft("RGB", tuple(side * self.side // part for side, part in zip(whole, crop[2:], strict=True)))
            box = self._box(crop, whole, image.size)
            resized = image.convert("RGB").resize((self.side, self.side), Image.Resampling.BILINEAR, box)
        return np.array(resized), index

    def _box(self, crop: Sizes, whole: Sizes, now: Sizes) -> tuple[float, ...]:
        """Return the edges of a crop in a picture that was made smaller."""
        left, top, width, height = crop
        edges = zip((left, top, left + width, top + height), whole * 2, now * 2, strict=True)
        return tuple(edge * less / more for edge, more, less in edges)

    def _crop(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Crop as torchvision's RandomResizedCrop does, with torch's generator, which differs from worker to worker."""
        import torch

        for _ in range(10):
            area = width * height * torch.empty(1).uniform_(*SCALE).item()
            ratio = torch.empty(1).uniform_(*np.log(RATIO)).exp().item()
            wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < wide <= width and 0 < high <= height:
                left, top = (int(torch.randint(0, most + 1, (1,))) for most in (width - wide, height - high))
                return left, top, wide, high
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, side, side


class CroppedTensors(Cropped):
    """The files as torchvision's ImageFolder gives them, cropped, flipped at random, and made tensors [3, H, W]."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        pixels, label = super().__getitem__(index)
        if torch.rand(1) < 0.5:
            pixels = np.ascontiguousarray(pixels[:, ::-1])
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), label


class NormalisedTensors(CroppedTensors):
    """The same, as float16 of normalised numbers, as torchvision's transforms make them."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        pixels, label = super().__getitem__(index)
        mean, std = (torch.tensor(each)[:, None, None] for each in (MEAN, STD))
        return pixels.to(torch.float32).div_(255).sub_(mean).div_(std).to(torch.float16), label


def normalised_folder(directory: Path, work: workloads.Crops) -> Opened:
    loader = through_torch(NormalisedTensors(directory, work.side, draft=False), work)
    return Opened(lambda: loader)


def image_folder(directory: Path, work: workloads.Crops) -> Opened:
    loader = through_torch(CroppedTensors(directory, work.side, draft=False), work)
    return Opened(lambda: loader)


def pillow(directory: Path, work: workloads.Crops, draft: bool) -> Opened:
    loader = through_torch(Cropped(directory, work.side, draft), work)
    return Opened(lambda: loader)


def through_torch(samples: Any, work: workloads.Crops) -> Any:
    """Return torch's DataLoader, with processes that stay from epoch to epoch."""
    data = importlib.import_module("torch.utils.data")
    options = {"num_workers": work.workers, "persistent_workers": True, "multiprocessing_context": "fork"}
    return data.DataLoader(samples, work.batch, shuffle=True, **options)
