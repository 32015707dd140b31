"""The twelve jobs of somebody new, each in under 15 lines, with the answers of torch's DataLoader or of the data.

A function that is named `job_…` is what a user writes. The tests make the data, and compare.
"""

import inspect
import io
import os
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, random_split
from torch_builders import WORKERS_ANYWHERE

import ffrecord
from ffrecord.fields import ImageFileField, NDArrayField, ZstdField
from ffrecord.torch import DataLoader as OurDataLoader
from ffrecord.torch import Dataset, Loader, Sampler, show, track
from ffrecord.torch.images import RandomResizedCrop, Resize

Image = pytest.importorskip("PIL.Image")
pytestmark = WORKERS_ANYWHERE
LINES_MOST = 14
COUNT = 40


def flat(batches: Any, name: str = "id") -> list[Any]:
    return [value for batch in batches for value in batch[name].tolist()]


def pixels(i: int, height: int = 30, width: int = 40) -> Any:
    y, x = np.mgrid[:height, :width]
    return np.stack([(x * 5 + i) % 256, y * 7 % 256, np.full_like(x, 6 * i)], 2).astype(np.uint8)


@pytest.fixture
def rows(tmp_path, monkeypatch) -> list[Any]:
    """Samples, which are in the dataset "rows" too; the test runs beside it."""
    monkeypatch.chdir(tmp_path)
    made = [{"id": i, "label": int(i % 10 == 0), "x": np.float32([i, -i])} for i in range(COUNT)]
    ffrecord.DatasetWriter("rows", num_workers=0, progress=False).from_indexed_dataset(made)
    return made


# 1


def job_classification(folder: str) -> Any:
    ffrecord.convert(folder, "packed", num_workers=0)
    decode = {"image": Resize(24)}
    in_place = Loader(folder, 8, shuffle=False, decode=decode)
    packed = Loader("packed", 8, shuffle=False, decode=decode)
    with_torch = DataLoader(Dataset("packed", decode=decode), 8)
    return in_place, packed, with_torch


def test_classification(rows):
    for i in range(COUNT):
        path = Path("photos", "abcd"[i // 10], f"{i:02d}.{'png' if i % 2 else 'jpg'}")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(i)).save(path)
    files = sorted(Path("photos").glob("*/*"))
    twins = [
        (
            torch.tensor(np.array(Image.open(path).resize((24, 24), Image.Resampling.BILINEAR))),
            "abcd".index(path.parent.name),
        )
        for path in files
    ]
    for loader in job_classification("photos"):
        batches = list(loader)
        assert flat(batches, "label") == [label for _, label in twins]
        images = torch.cat([batch["image"] for batch in batches]).permute(0, 2, 3, 1)
        torch.testing.assert_close(images, torch.stack([image for image, _ in twins]), rtol=0, atol=2)


# 2


def job_segmentation(pairs: list[tuple[Path, Path]]) -> Any:
    samples = [{"image": image, "mask": mask} for image, mask in pairs]
    fields = {"image": ImageFileField(), "mask": ImageFileField()}
    ffrecord.DatasetWriter("pairs", fields, num_workers=0, progress=False).from_indexed_dataset(samples)
    crop = RandomResizedCrop(16)
    decode = {"image": crop, "mask": crop.mask}
    in_place = Loader(samples, 8, seed=1, decode=decode)
    packed = Loader("pairs", 8, seed=1, decode=decode)
    dataset = Dataset("pairs", decode=decode)
    return in_place, packed, DataLoader(dataset, 8, sampler=Sampler(dataset, seed=1))


def test_segmentation(rows):
    pairs = []
    for i in range(COUNT):
        mask = np.zeros((30 + i, 40), np.uint8)
        mask[8:, 10 : 12 + i % 20] = 1 + i % 3
        pairs.append((Path(f"{i}.png"), Path(f"{i}-mask.png")))
        Image.fromarray(np.repeat(80 * mask[:, :, None], 3, 2)).save(pairs[-1][0])
        Image.fromarray(mask).save(pairs[-1][1])
    for batches in zip(*job_segmentation(pairs), strict=True):
        for batch in batches:
            assert torch.equal(batch["image"], batches[0]["image"]) and torch.equal(batch["mask"], batches[0]["mask"])
            inside = (batch["image"][:, 0] - 80 * batch["mask"].int()).abs() < 8  # of edges the filter makes a slope
            assert inside.float().mean() > 0.8


# 3


def job_detection(samples: list[Any]) -> Any:
    crop = RandomResizedCrop(20, scale=(0.5, 1))
    decode = {"[0]": crop, "[1].boxes": crop.boxes}
    found = []
    for images, target in Loader(samples, 8, seed=1, decode=decode):
        for image, boxes, labels in zip(images, target["boxes"], target["labels"], strict=True):
            seen = (boxes[:, 2:] > boxes[:, :2]).all(1)
            found.append((image, boxes[seen], labels[seen]))
    return found


def test_detection(rows):
    samples = []
    for i in range(COUNT):
        boxes = np.array([[2 + 9 * j, 5, 8 + 9 * j, 25] for j in range(i % 4)], np.float32).reshape(-1, 4)
        image = np.zeros((30, 40, 3), np.uint8)
        for left, top, right, bottom in boxes.astype(int):
            image[top:bottom, left:right] = 255
        samples.append((image, {"boxes": boxes, "labels": np.arange(i % 4)}))
    found = job_detection(samples)
    assert len(found) == COUNT and any(len(boxes) for _, boxes, _ in found)
    for image, boxes, labels in found:
        assert len(boxes) == len(labels)
        for left, top, right, bottom in boxes.tolist():
            assert image[0, int((top + bottom) / 2 - 0.01), int((left + right) / 2 - 0.01)] > 100


# 4


def job_text(texts: list[str]) -> Any:
    samples = [{"tokens": np.frombuffer(text.encode(), np.uint8), "text": text} for text in texts]
    ffrecord.DatasetWriter(
        "texts", {"tokens": NDArrayField("uint8", (None,))}, num_workers=0, progress=False
    ).from_indexed_dataset([{"tokens": sample["tokens"]} for sample in samples])
    return Loader("texts", 8, shuffle=False, ragged="padded"), Loader(samples, 8, shuffle=False, ragged="padded")


def test_text(rows):
    texts = ["word " * (1 + i % 7) for i in range(COUNT)]
    pad = torch.nn.utils.rnn.pad_sequence
    twins = DataLoader(
        [torch.tensor(list(text.encode()), dtype=torch.uint8) for text in texts],
        8,
        collate_fn=lambda found: pad(found, batch_first=True),
    )
    for loader in job_text(texts):
        for batch, twin in zip(loader, twins, strict=True):
            assert torch.equal(batch["tokens"].values, twin) and torch.equal(batch["tokens"].mask, twin > 0)


# 5


def job_audio(files: list[bytes]) -> Any:
    def read(data: bytes) -> Any:
        with wave.open(io.BytesIO(data)) as file:
            return np.frombuffer(file.readframes(file.getnframes()), "<i2")

    samples = [{"file": data, "sound": read(data)} for data in files]
    fields = {"sound": ZstdField(NDArrayField("<i2", (None,)))}
    ffrecord.DatasetWriter("sounds", num_workers=0, progress=False, fields=fields).from_indexed_dataset(
        [{"sound": sample["sound"]} for sample in samples]
    )
    decoded = Loader(samples, 4, shuffle=False, transform=lambda sample: read(sample["file"]))
    return Loader("sounds", 4, shuffle=False), decoded


def test_audio(rows):
    files, twins = [], []
    for i in range(10):
        file = io.BytesIO()
        twins.append(torch.arange(50 + i, dtype=torch.int16))
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(twins[-1].numpy().tobytes())
        files.append(file.getvalue())
    pytest.importorskip("zstandard")
    packed, decoded = job_audio(files)
    assert all(map(torch.equal, (sound for batch in packed for sound in batch["sound"]), twins))
    assert all(map(torch.equal, (sound for batch in decoded for sound in batch), twins))


# 6


def job_tabular(frame: Any) -> Any:
    frame.to_parquet("table.parquet")
    ffrecord.convert("table.parquet", "table", num_workers=0)
    return Loader(frame, 8, shuffle=False), Loader("table", 8, shuffle=False)


def test_tabular(rows):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {"a": np.arange(COUNT) / 3, "b": np.arange(COUNT), "c": [f"row {i}" for i in range(COUNT)]}
    )
    for loader in job_tabular(frame):
        for batch, twin in zip(loader, DataLoader(frame.to_dict("records"), 8), strict=True):
            assert torch.equal(batch["a"], twin["a"]) and torch.equal(batch["b"], twin["b"]) and batch["c"] == twin["c"]


# 7


def job_weighted(labels: Any) -> Any:
    balanced = Loader("rows", 10, class_balanced="label", seed=0)
    weighted = Loader("rows", 10, weights=np.where(labels, 9.0, 1.0), seed=0)
    return [[label for _ in range(50) for label in flat(loader, "label")] for loader in (balanced, weighted)]


def test_weighted(rows):
    for drawn in job_weighted(np.array([row["label"] for row in rows])):
        assert len(drawn) == 50 * COUNT and 0.44 < np.mean(drawn) < 0.56


# 8


def job_folds(k: int) -> Any:
    dataset = Dataset("rows")
    for part in range(k):
        chosen = np.arange(len(dataset)) % k == part
        training, held_out = (Subset(dataset, np.flatnonzero(each)) for each in (~chosen, chosen))
        yield flat(Loader(training, 8, seed=part)), flat(Loader(held_out, 8, shuffle=False)), held_out


def test_folds(rows):
    seen = []
    for training, held_out, twin in job_folds(5):
        assert held_out == flat(DataLoader(twin, 8)) and sorted(training + held_out) == list(range(COUNT))
        seen += held_out
    assert sorted(seen) == list(range(COUNT))
    parts = random_split(Dataset("rows"), [0.75, 0.25])
    assert sorted(flat(Loader(parts[0], 8)) + flat(Loader(parts[1], 8))) == list(range(COUNT))


# 9


def job_distributed() -> None:
    from torch.distributed import all_gather_object, destroy_process_group, get_rank, init_process_group

    init_process_group("gloo")
    for loader in (Loader("rows", 4, seed=0), DataLoader(Dataset("rows"), 4, sampler=Sampler(Dataset("rows"), seed=0))):
        shares = [None, None]
        all_gather_object(shares, [i for batch in loader for i in batch["id"].tolist()])
        if get_rank() == 0:
            print(shares)
    destroy_process_group()


def test_distributed(rows):
    Path("train.py").write_text(
        "from torch.utils.data import DataLoader\nfrom ffrecord.torch import Dataset, Loader, Sampler\n"
        f"{inspect.getsource(job_distributed)}\njob_distributed()\n"
    )
    root = str(Path(ffrecord.__file__).parent.parent)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    whole = flat(Loader("rows", 4, seed=0))
    assert done.stdout.splitlines() == [str([whole[0::2], whole[1::2]])] * 2


# 10


def job_notebook() -> Any:
    loader = Loader("rows", 8, seed=0)
    batch = next(iter(loader))
    pages = [Dataset("rows")._repr_html_(), ffrecord.open("rows")._repr_html_(), show(batch)._repr_html_()]
    return repr(loader), pages, [len(batch["id"]) for batch in track(loader)]


def test_notebook(rows):
    text, pages, counts = job_notebook()
    assert text.startswith("<Loader of 40 samples, batches of 8") and counts == [8] * 5
    assert all("label" in page and "<table" in page for page in pages)


# 11


def job_resume(make: Callable[[], Any]) -> Any:
    seen = []
    loader = make()
    for step, batch in enumerate(loader):
        seen += batch["id"].tolist()
        if step == 1:
            state = loader.state_dict()
            break
    loader = make()
    loader.load_state_dict(state)
    return seen + flat(loader)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Loader("rows", 8, seed=5),
        lambda: Loader("rows", 8, seed=5, class_balanced="label"),
        lambda: OurDataLoader(Dataset("rows"), 8, shuffle=True, generator=torch.Generator().manual_seed(5)),
        lambda: OurDataLoader(Dataset("rows"), 8, sampler=Sampler(Dataset("rows"), seed=5)),
    ],
    ids=["Loader", "balanced", "DataLoader", "Sampler"],
)
def test_resume(rows, make):
    assert job_resume(make) == flat(make())


# 12


def job_evaluation(validation: Any) -> Any:
    training = Loader("rows", 8, seed=0)
    seen, right = [], []
    for _ in range(2):
        for step, batch in enumerate(training):
            seen += batch["id"].tolist()
            if step % 2:
                hits = sum(int((batch["label"] == 1).sum()) for batch in validation)
                right.append(hits / len(validation.dataset))
    return seen, right


def test_evaluation(rows):
    for validation in (Loader("rows", 16, "sequential", policy="uneven"), DataLoader(Dataset("rows"), 16)):
        seen, right = job_evaluation(validation)
        assert sorted(seen) == sorted([*range(COUNT)] * 2) and right == [0.1] * 4


def test_every_job_is_short():
    jobs = {name: value for name, value in globals().items() if name.startswith("job_")}
    lines = {
        name: len([line for line in inspect.getsource(job).splitlines()[1:] if line.strip()])
        for name, job in jobs.items()
    }
    assert len(jobs) == 12 and max(lines.values()) <= LINES_MOST, lines
