"""Pinned memory, and copies to a GPU; on machines that have one."""

import io

import pytest
import torch
from loader_builders import fixed, flat, mixed, write
from torch_builders import WORKERS_ANYWHERE

from ffrecord import DatasetWriter
from ffrecord.fields import BytesField, IntField, NDArrayField
from ffrecord.torch import Loader, Padded
from ffrecord.torch.images import CenterCrop, RandomResizedCrop

COUNT = 40

pytestmark = [*WORKERS_ANYWHERE, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


@pytest.fixture(scope="module", params=[fixed, mixed])
def path(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "samples.ffr", map(request.param, range(COUNT)))


def tensors(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, (dict, list, tuple)):
        return [each for value in (batch.values() if isinstance(batch, dict) else batch) for each in tensors(value)]
    return []


@pytest.mark.parametrize("how", MAKERS)
def test_pinned(path, how):
    batches = list(Loader(path, 8, "sequential", pin_memory=True, ragged="padded", **how))
    assert all(tensor.is_pinned() for batch in batches for tensor in tensors(batch))
    assert flat(batches) == list(range(COUNT))


@pytest.mark.parametrize("how", [{"num_threads": 0}, {"num_threads": 2}])
def test_records_of_fixed_size_are_read_into_pinned_memory(tmp_path, how, monkeypatch):
    """Without a copy; while a batch is kept, its memory is not used again."""
    path, made = write(tmp_path / "fixed.ffr", map(fixed, range(COUNT))), []
    real = torch.empty

    def empty(*shape, **options):
        tensor = real(*shape, **options)
        made.append((options.get("pin_memory"), tensor.data_ptr()))
        return tensor

    monkeypatch.setattr(torch, "empty", empty)
    batches = list(Loader(path, 8, "sequential", pin_memory=True, **how))
    places = [tensor.data_ptr() for batch in batches for tensor in tensors(batch)]
    assert len(set(places)) == len(places) and {(True, place) for place in places} <= set(made)
    assert flat(batches) == list(range(COUNT))


@pytest.mark.parametrize("how", MAKERS)
def test_on_the_device(path, how):
    batches = list(Loader(path, 8, "sequential", device="cuda", ragged="padded", **how))
    assert all(tensor.is_cuda for batch in batches for tensor in tensors(batch))
    assert flat(batches) == list(range(COUNT))
    assert not isinstance(batches[0], dict) or isinstance(batches[0]["tokens"], Padded)


@pytest.mark.parametrize("how", MAKERS)
def test_copies_are_waited_for_on_the_stream_that_is_current(tmp_path, how):
    """Batches of 8 MB on a stream of the user's, dropped at once, so that their memory is used again."""
    path = write(tmp_path / "large.ffr", [torch.full((1 << 20,), i, dtype=torch.uint8) for i in range(COUNT)])
    stream = torch.cuda.Stream()
    sums = []
    with torch.cuda.stream(stream):
        for batch in Loader(path, 8, "sequential", device="cuda", **how):
            torch.cuda._sleep(10_000_000)
            sums.append(batch.sum(1, dtype=torch.int64))
            del batch
    torch.cuda.synchronize()
    assert torch.cat(sums).tolist() == [i << 20 for i in range(COUNT)]


# Images decoded on the GPU


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photographs, of which every fifth is a PNG, left to the CPU."""
    pytest.importorskip("nvidia.nvimgcodec", reason="needs nvidia-nvimgcodec-cu12[nvjpeg]")
    images = pytest.importorskip("images_builders")
    out = tmp_path_factory.mktemp("photos") / "photos"
    fields = {"image": BytesField(), "mask": NDArrayField("uint8", (None, None)), "id": IntField()}
    samples = []
    for i in range(COUNT):
        pixels, file = images.picture(180 + 3 * i, 300 - 4 * i, i), io.BytesIO()
        images.Image.fromarray(pixels).save(file, "JPEG" if i % 5 else "PNG", **({"quality": 92} if i % 5 else {}))
        samples.append({"image": file.getvalue(), "mask": pixels[:, :, 0].copy(), "id": i})
    DatasetWriter(out, fields, num_workers=0, progress=False).from_indexed_dataset(samples)
    return str(out)


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("more", [{}, {"dtype": torch.float16, "mean": (0.5,) * 3, "std": (0.25,) * 3}])
@pytest.mark.parametrize("channels_first", [True, False])
def test_images_are_decoded_on_the_device(photos, threads, more, channels_first):
    """As by the library on the CPU, whose pixels are those made by the book; only the inverse transform differs."""
    crop = RandomResizedCrop(64, channels_first=channels_first, **more)
    options = {"seed": 3, "decode": {"image": crop, "mask": crop.mask}, "decode_with": "nvimgcodec"}
    usual = list(Loader(photos, 8, **options))
    loader = Loader(photos, 8, device="cuda", num_threads=threads, **options)
    for one, other in zip(loader, usual, strict=True):
        assert all(tensor.is_cuda for tensor in tensors(one))
        assert torch.equal(one["mask"].cpu(), other["mask"]) and torch.equal(one["id"].cpu(), other["id"])
        image = one["image"].cpu()
        assert image.shape == other["image"].shape and image.dtype == other["image"].dtype
        assert one["image"].stride() == other["image"].stride()
        levels = 1 if image.dtype == torch.uint8 else 255 * 0.25
        apart = (image.double() - other["image"].double()).mul(levels).flatten(1)
        assert apart.square().mean(1).max() < 6.5  # 40 dB
        left = other["id"] % 5 == 0
        assert apart[left].abs().max() == 0 if left.any() else True
    assert loader.stats().decoded_on_cpu == COUNT // 5, "is nvidia-nvjpeg-cu12 installed?"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_on_the_device(tmp_path, orientation):
    pytest.importorskip("nvidia.nvimgcodec", reason="needs nvidia-nvimgcodec-cu12[nvjpeg]")
    images = pytest.importorskip("images_builders")
    exif = images.Image.Exif()
    exif[0x0112] = orientation
    samples = [{"image": images.jpeg(images.picture(101, 160, i), exif=exif)} for i in range(8)]
    options = {"decode": {"image": RandomResizedCrop((40, 64), exif=True)}, "decode_with": "nvimgcodec"}
    (usual,) = Loader(samples, 8, **options)
    loader = Loader(samples, 8, device="cuda", **options)
    (found,) = loader
    assert (found["image"].cpu().double() - usual["image"].double()).square().mean() < 6.5
    assert loader.stats().decoded_on_cpu == 0


@pytest.mark.parametrize("threads", [0, 3])
def test_functions_get_images_on_the_device(photos, threads):
    """What they compute is waited for, on any stream."""
    options = {"decode": {"image": CenterCrop(64)}, "decode_with": "nvimgcodec", "fields": ["image", "id"]}
    options |= {"device": "cuda", "num_threads": threads}
    plain = [batch["image"].double().sum().item() for batch in Loader(photos, 8, "sequential", **options)]

    def double(batch):
        assert batch["image"].is_cuda and batch["id"].device.type == "cpu"
        torch.cuda._sleep(10_000_000)
        return {**batch, "image": batch["image"].double() * 2}

    sums = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for batch in Loader(photos, 8, "sequential", batch_transform=double, **options):
            sums.append(batch["image"].sum())
            del batch
    torch.cuda.synchronize()
    assert [each.item() for each in sums] == [2 * each for each in plain]
    (single,) = Loader(photos, COUNT, "sequential", transform=lambda sample: sample["image"].double().sum(), **options)
    assert single.is_cuda and single.sum().item() == sum(plain)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_images_that_cannot_be_read_on_the_device(on_error):
    pytest.importorskip("nvidia.nvimgcodec", reason="needs nvidia-nvimgcodec-cu12[nvjpeg]")
    images = pytest.importorskip("images_builders")
    files = [images.jpeg(images.picture(80, 100, i)) for i in range(12)]
    files[3], files[5], files[7] = files[3][:-900], b"\xff\xd8\xff" + bytes(500), files[7][:300] + files[7][-2:]
    samples = [{"image": data, "id": i} for i, data in enumerate(files)]
    options = {"decode": {"image": CenterCrop(24)}, "on_error": on_error, "seed": 1}
    usual = [batch["id"].tolist() for batch in Loader(samples, 4, **options)]
    loader = Loader(samples, 4, device="cuda", decode_with="nvimgcodec", **options)
    assert [batch["id"].tolist() for batch in loader] == usual and loader.stats().skipped == 3
